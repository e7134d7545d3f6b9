import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Does what it is told, one call of the client at a time. */
final class TransactionalProducer {
    private final Lines lines;
    private final KafkaProducer<byte[], byte[]> producer;

    TransactionalProducer(JsonNode given, Lines lines) {
        this.lines = lines;
        producer = new KafkaProducer<>(
                Lines.producerProperties(given),
                new ByteArraySerializer(),
                new ByteArraySerializer());
    }

    void run() throws InterruptedException {
        while (true) {
            JsonNode command = lines.commands.take();
            String asked = command.get("do").asText();
            if (asked.equals("leave")) {
                Lines.tell("left");
                return;
            }
            int error = 0;
            try {
                act(asked, command);
            } catch (Exception refused) {
                error = Lines.codeOf(refused);
            }
            Lines.tell(Lines.event("done").put("error", error));
        }
    }

    private void act(String asked, JsonNode command) throws Exception {
        switch (asked) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" -> send(command);
            case "send_offsets" -> sendOffsets(command);
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException(asked);
        }
    }

    private void send(JsonNode command) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : command.get("records")) {
            byte[] value = record.get(1).asText().getBytes(StandardCharsets.UTF_8);
            sent.add(producer.send(new ProducerRecord<>(
                    command.get("topic").asText(), record.get(0).asInt(), null, value)));
        }
        for (Future<RecordMetadata> future : sent) {
            future.get();
        }
    }

    private void sendOffsets(JsonNode command) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        String topic = command.get("topic").asText();
        command.get("offsets").properties().forEach(e -> offsets.put(
                new TopicPartition(topic, Integer.parseInt(e.getKey())),
                new OffsetAndMetadata(e.getValue().asLong())));
        producer.sendOffsetsToTransaction(
                offsets, new ConsumerGroupMetadata(command.get("group").asText()));
    }
}
