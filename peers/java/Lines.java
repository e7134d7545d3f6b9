import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.common.protocol.Errors;

/** The lines that a program of the tests exchanges with the test: events out, commands in. */
final class Lines {
    static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream EVENTS = System.out;

    final BlockingQueue<JsonNode> commands = new LinkedBlockingQueue<>();

    Lines() {
        System.setOut(System.err);
        Thread reader = new Thread(this::read);
        reader.setDaemon(true);
        reader.start();
    }

    private void read() {
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                commands.add(JSON.readTree(line));
            }
        } catch (IOException gone) {
            System.err.println(gone);
        }
        commands.add(JSON.createObjectNode().put("do", "leave"));
    }

    static ObjectNode event(String name) {
        return JSON.createObjectNode().put("event", name);
    }

    static void tell(ObjectNode event) {
        synchronized (EVENTS) {
            EVENTS.println(event);
            EVENTS.flush();
        }
    }

    static void tell(String name) {
        tell(event(name));
    }

    static int codeOf(Throwable thrown) {
        if (thrown instanceof CommitFailedException) {
            // The client's own exception for a member that is out of its group.
            return Errors.UNKNOWN_MEMBER_ID.code();
        }
        for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
            Errors error = Errors.forException(cause);
            if (error != Errors.UNKNOWN_SERVER_ERROR) {
                return error.code();
            }
        }
        System.err.println(thrown);
        return Errors.UNKNOWN_SERVER_ERROR.code();
    }

    static Properties consumerProperties(JsonNode given, String isolation) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", given.get("bootstrap").asText());
        properties.put("group.id", given.get("group").asText());
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("isolation.level", isolation);
        properties.put("fetch.max.wait.ms", "100");
        properties.put("max.poll.records", "20");
        if (given.hasNonNull("instance_id")) {
            properties.put("group.instance.id", given.get("instance_id").asText());
        }
        if ("consumer".equals(given.path("group_protocol").asText())) {
            properties.put("group.protocol", "consumer");
            return properties;
        }
        boolean cooperative = "cooperative".equals(given.path("assignor").asText());
        String assignor = cooperative ? "CooperativeStickyAssignor" : "RangeAssignor";
        properties.put(
                "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
        properties.put("session.timeout.ms", given.get("session_timeout_ms").asText());
        properties.put("heartbeat.interval.ms", given.get("heartbeat_interval_ms").asText());
        return properties;
    }

    static Properties producerProperties(JsonNode given) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", given.get("bootstrap").asText());
        properties.put("transactional.id", given.get("transactional_id").asText());
        properties.put("transaction.timeout.ms", given.get("transaction_timeout_ms").asText());
        return properties;
    }
}
