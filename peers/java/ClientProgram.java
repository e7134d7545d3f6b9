import com.fasterxml.jackson.databind.JsonNode;

/** The Java client as a member of a group, a transactional producer, or a worker. */
public final class ClientProgram {
    private ClientProgram() {}

    public static void main(String[] arguments) throws Exception {
        JsonNode given = Lines.JSON.readTree(arguments[0]);
        Lines lines = new Lines();
        switch (given.get("role").asText()) {
            case "member" -> new GroupMember(given, lines).run();
            case "producer" -> new TransactionalProducer(given, lines).run();
            default -> new ExactlyOnceWorker(given, lines).run();
        }
        System.exit(0);
    }
}
