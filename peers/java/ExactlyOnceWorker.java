import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** From one topic to another, exactly once, until killed or told to leave. */
final class ExactlyOnceWorker {
    private static final Duration POLL = Duration.ofMillis(50);

    private final Lines lines;
    private final String input;
    private final String output;
    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> consumer;

    ExactlyOnceWorker(JsonNode given, Lines lines) {
        this.lines = lines;
        input = given.get("topic").asText();
        output = given.get("output").asText();
        producer = new KafkaProducer<>(
                Lines.producerProperties(given),
                new ByteArraySerializer(),
                new ByteArraySerializer());
        consumer = new KafkaConsumer<>(
                Lines.consumerProperties(given, "read_committed"),
                new ByteArrayDeserializer(),
                new ByteArrayDeserializer());
    }

    void run() {
        producer.initTransactions();
        consumer.subscribe(List.of(input));
        Lines.tell("ready");
        while (lines.commands.isEmpty()) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            if (!records.isEmpty()) {
                work(records);
            }
        }
        consumer.close();
        producer.close();
        Lines.tell("left");
    }

    private void work(ConsumerRecords<byte[], byte[]> records) {
        producer.beginTransaction();
        Lines.tell("begun");
        try {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                String value = "transformed-" + new String(record.value(), StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(
                        output, record.partition(), null, value.getBytes(StandardCharsets.UTF_8)));
                offsets.put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
            }
            Lines.tell("produced");
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            Lines.tell("offsets_sent");
            producer.commitTransaction();
            Lines.tell(Lines.event("transaction").put("count", records.count()));
        } catch (KafkaException refused) {
            producer.abortTransaction();
            Lines.tell(Lines.event("aborted")
                    .put("error", Lines.codeOf(refused))
                    .put("text", String.valueOf(refused)));
            rewind(records);
        }
    }

    /** What was aborted is read again. */
    private void rewind(ConsumerRecords<byte[], byte[]> records) {
        for (TopicPartition partition : records.partitions()) {
            if (consumer.assignment().contains(partition)) {
                consumer.seek(partition, records.records(partition).get(0).offset());
            }
        }
    }
}
