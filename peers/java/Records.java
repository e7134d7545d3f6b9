import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** KafkaProducer and KafkaConsumer for the compat tests. Bytes travel as base64, null as null. */
final class Records {
    private final String bootstrap;
    private final AtomicInteger consumerIds = new AtomicInteger();
    private final Map<Integer, KafkaConsumer<byte[], byte[]>> consumers = new ConcurrentHashMap<>();

    Records(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    ObjectNode produce(JsonNode request) throws Exception {
        Properties properties = CompatClient.properties(bootstrap, request.get("settings"));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode record : request.get("records")) {
                sent.add(producer.send(record(request.get("topic").asText(), record)));
            }
        }
        ObjectNode answer = CompatClient.JSON.createObjectNode();
        ArrayNode deliveries = answer.putArray("deliveries");
        for (Future<RecordMetadata> delivery : sent) {
            deliveries.add(delivery(delivery));
        }
        return answer;
    }

    private static ObjectNode delivery(Future<RecordMetadata> sent) throws InterruptedException {
        try {
            RecordMetadata metadata = sent.get();
            return CompatClient.JSON.createObjectNode()
                    .put("partition", metadata.partition())
                    .put("offset", metadata.hasOffset() ? metadata.offset() : -1)
                    .put("timestamp_ms", metadata.timestamp());
        } catch (java.util.concurrent.ExecutionException refused) {
            return CompatClient.refusal(refused);
        }
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, JsonNode record)
            throws IOException {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        JsonNode partition = record.get("partition");
        JsonNode timestamp = record.get("timestamp_ms");
        return new ProducerRecord<>(
                topic,
                partition.isNull() ? null : partition.asInt(),
                timestamp.isNull() ? null : timestamp.asLong(),
                bytes(record.get("key")),
                bytes(record.get("value")),
                headers);
    }

    private static byte[] bytes(JsonNode node) throws IOException {
        return node.isNull() ? null : node.binaryValue();
    }

    /** Positions are [partition, offset, leader epoch or -1]. */
    ObjectNode open(JsonNode request) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(request);
        String topic = request.get("topic").asText();
        List<TopicPartition> partitions = new ArrayList<>();
        for (JsonNode position : request.get("positions")) {
            partitions.add(new TopicPartition(topic, position.get(0).asInt()));
        }
        consumer.assign(partitions);
        for (JsonNode position : request.get("positions")) {
            int leaderEpoch = position.get(2).asInt();
            consumer.seek(
                    new TopicPartition(topic, position.get(0).asInt()),
                    new OffsetAndMetadata(
                            position.get(1).asLong(),
                            leaderEpoch < 0 ? Optional.empty() : Optional.of(leaderEpoch),
                            ""));
        }
        int id = consumerIds.incrementAndGet();
        consumers.put(id, consumer);
        return CompatClient.JSON.createObjectNode().put("consumer", id);
    }

    private KafkaConsumer<byte[], byte[]> consumer(JsonNode request) {
        return new KafkaConsumer<>(
                CompatClient.properties(bootstrap, request.get("settings")),
                new ByteArrayDeserializer(),
                new ByteArrayDeserializer());
    }

    ObjectNode poll(JsonNode request) {
        KafkaConsumer<byte[], byte[]> consumer = consumers.get(request.get("consumer").asInt());
        ObjectNode answer = CompatClient.JSON.createObjectNode();
        ArrayNode fetched = answer.putArray("records");
        Duration timeout = Duration.ofMillis(request.get("timeout_ms").asLong());
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(timeout)) {
            ObjectNode node = fetched.addObject()
                    .put("partition", record.partition())
                    .put("offset", record.offset())
                    .put("key", record.key())
                    .put("value", record.value())
                    .put("timestamp_ms", record.timestamp())
                    .put("append_time", record.timestampType() == TimestampType.LOG_APPEND_TIME);
            ArrayNode headers = node.putArray("headers");
            for (Header header : record.headers()) {
                headers.addArray().add(header.key()).add(header.value());
            }
        }
        return answer;
    }

    ObjectNode close(JsonNode request) {
        // Without a limit the close would wait for a fetch that is still waiting for records.
        consumers.remove(request.get("consumer").asInt())
                .close(CloseOptions.timeout(Duration.ofMillis(200)));
        return CompatClient.JSON.createObjectNode();
    }

    ObjectNode offsetsForTime(JsonNode request) {
        TopicPartition partition = new TopicPartition(
                request.get("topic").asText(), request.get("partition").asInt());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            OffsetAndTimestamp found = consumer
                    .offsetsForTimes(Map.of(partition, request.get("timestamp_ms").asLong()))
                    .get(partition);
            return CompatClient.JSON.createObjectNode()
                    .put("offset", found == null ? -1 : found.offset())
                    .put("timestamp_ms", found == null ? -1 : found.timestamp());
        }
    }
}
