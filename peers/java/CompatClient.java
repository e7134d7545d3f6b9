import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.protocol.Errors;

/**
 * The Java client for the compat tests: one JSON request per line in, one JSON answer per line out.
 *
 * <p>Each request has an id and runs in a thread of its own, so that a poll may wait while another
 * request produces. A refusal of the broker is an answer with its Kafka error code, never an exit.
 */
public final class CompatClient {
    static final ObjectMapper JSON = new ObjectMapper();

    /** Standard output is for answers alone: what a logger prints goes to standard error. */
    private static final PrintStream ANSWERS = System.out;

    private final Records records;
    private final Topics topics;

    private CompatClient(String bootstrap) {
        records = new Records(bootstrap);
        topics = new Topics(bootstrap);
    }

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err);
        CompatClient client = new CompatClient(arguments[0]);
        ExecutorService threads = Executors.newCachedThreadPool(CompatClient::daemon);
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode request = JSON.readTree(line);
            threads.submit(() -> client.answer(request));
        }
        System.exit(0);
    }

    static Properties properties(String bootstrap, JsonNode settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        settings.properties().forEach(e -> properties.put(e.getKey(), e.getValue().asText()));
        return properties;
    }

    private static Thread daemon(Runnable task) {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    }

    private void answer(JsonNode request) {
        ObjectNode answer;
        try {
            answer = handle(request);
        } catch (Throwable thrown) {
            answer = refusal(thrown);
        }
        answer.set("id", request.get("id"));
        synchronized (ANSWERS) {
            ANSWERS.println(answer);
            ANSWERS.flush();
        }
    }

    static ObjectNode refusal(Throwable thrown) {
        Throwable cause = thrown;
        while (cause instanceof ExecutionException && cause.getCause() != null) {
            cause = cause.getCause();
        }
        ObjectNode answer = JSON.createObjectNode();
        // The consumer's own exception is not among those that have a code.
        boolean outOfRange = cause instanceof OffsetOutOfRangeException;
        Errors error = outOfRange ? Errors.OFFSET_OUT_OF_RANGE : Errors.forException(cause);
        answer.put("error", error.code());
        answer.put("exception", cause.getClass().getSimpleName());
        answer.put("message", String.valueOf(cause.getMessage()));
        return answer;
    }

    private ObjectNode handle(JsonNode request) throws Exception {
        String operation = request.get("operation").asText();
        return switch (operation) {
            case "produce" -> records.produce(request);
            case "consumer_open" -> records.open(request);
            case "consumer_poll" -> records.poll(request);
            case "consumer_close" -> records.close(request);
            case "offsets_for_time" -> records.offsetsForTime(request);
            case "list_offsets" -> topics.listOffsets(request);
            case "create_topic" -> topics.create(request);
            case "delete_topic" -> topics.delete(request);
            case "list_topics" -> topics.list();
            case "describe_topic" -> topics.describe(request);
            case "create_partitions" -> topics.createPartitions(request);
            case "delete_records" -> topics.deleteRecords(request);
            case "describe_configs" -> topics.describeConfigs(request);
            case "incremental_alter_configs" -> topics.incrementalAlterConfigs(request);
            case "describe_cluster" -> topics.describeCluster();
            default -> throw new IllegalArgumentException("no such operation: " + operation);
        };
    }
}
