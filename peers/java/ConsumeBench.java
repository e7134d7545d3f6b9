import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a number of records from all partitions of a topic by assign(), and prints one JSON line.
 *
 * <p>The clock starts at the first record, so that the start of the JVM and the first metadata are
 * not counted. It fails when the records do not arrive in time.
 */
public final class ConsumeBench {
    private ConsumeBench() {}

    /** Arguments: bootstrap, topic, partitions, records, seconds at most. */
    public static void main(String[] arguments) {
        String topic = arguments[1];
        long wanted = Long.parseLong(arguments[3]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "none");
        properties.put("max.poll.records", "5000");
        List<TopicPartition> partitions = new ArrayList<>();
        for (int partition = 0; partition < Integer.parseInt(arguments[2]); partition++) {
            partitions.add(new TopicPartition(topic, partition));
        }
        long deadline = System.nanoTime() + Long.parseLong(arguments[4]) * 1_000_000_000L;
        long records = 0;
        long bytes = 0;
        long begun = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            partitions.forEach(partition -> consumer.seek(partition, 0));
            while (records < wanted) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(500));
                if (begun == 0 && !polled.isEmpty()) {
                    begun = System.nanoTime();
                }
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    records++;
                    bytes += record.value().length;
                }
                if (System.nanoTime() > deadline) {
                    System.err.println("only " + records + " of " + wanted + " records in time");
                    System.exit(1);
                }
            }
        }
        double seconds = (System.nanoTime() - begun) / 1e9;
        System.out.printf(
                "{\"records\": %d, \"bytes\": %d, \"seconds\": %.6f}%n", records, bytes, seconds);
    }
}
