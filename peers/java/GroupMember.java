import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A consumer of one topic, until it is told to leave; tells what it owns, reads and commits. */
final class GroupMember implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(50);

    private final Lines lines;
    private final String topic;
    private final boolean commitsOnRevoke;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final TreeSet<Integer> owned = new TreeSet<>();
    private final Map<Integer, Long> positions = new HashMap<>();

    GroupMember(JsonNode given, Lines lines) {
        this.lines = lines;
        topic = given.get("topic").asText();
        commitsOnRevoke = given.path("commit_on_revoke").asBoolean();
        consumer = new KafkaConsumer<>(
                Lines.consumerProperties(given, given.path("isolation").asText("read_uncommitted")),
                new ByteArrayDeserializer(),
                new ByteArrayDeserializer());
    }

    void run() {
        consumer.subscribe(List.of(topic), this);
        while (true) {
            JsonNode command = lines.commands.poll();
            if (command == null) {
                tellRecords();
            } else if (command.get("do").asText().equals("leave")) {
                consumer.close();
                Lines.tell("left");
                return;
            } else {
                commit(asked(command));
            }
        }
    }

    private void tellRecords() {
        ObjectNode event = Lines.event("records");
        ArrayNode told = event.putArray("records");
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
            positions.put(record.partition(), record.offset() + 1);
            told.addArray()
                    .add(record.partition())
                    .add(record.offset())
                    .add(new String(record.value(), StandardCharsets.UTF_8));
        }
        if (!told.isEmpty()) {
            Lines.tell(event);
        }
    }

    private Map<Integer, Long> asked(JsonNode command) {
        if (!command.hasNonNull("offsets")) {
            return new HashMap<>(positions);
        }
        Map<Integer, Long> offsets = new HashMap<>();
        command.get("offsets").properties().forEach(
                e -> offsets.put(Integer.valueOf(e.getKey()), e.getValue().asLong()));
        return offsets;
    }

    private void commit(Map<Integer, Long> offsets) {
        if (offsets.isEmpty()) {
            return;
        }
        ObjectNode event = Lines.event("committed");
        ObjectNode told = event.putObject("offsets");
        Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
        offsets.forEach((partition, offset) -> {
            told.put(partition.toString(), offset);
            wanted.put(new TopicPartition(topic, partition), new OffsetAndMetadata(offset));
        });
        try {
            consumer.commitSync(wanted);
            event.put("error", 0);
        } catch (KafkaException refused) {
            event.put("error", Lines.codeOf(refused));
        }
        Lines.tell(event);
    }

    private void gone(Collection<TopicPartition> partitions) {
        for (TopicPartition partition : partitions) {
            owned.remove(partition.partition());
            positions.remove(partition.partition());
        }
        tellOwned();
    }

    private void tellOwned() {
        ObjectNode event = Lines.event("owned");
        ArrayNode told = event.putArray("partitions");
        owned.forEach(told::add);
        Lines.tell(event);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        partitions.forEach(partition -> owned.add(partition.partition()));
        tellOwned();
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        if (commitsOnRevoke) {
            Map<Integer, Long> offsets = new HashMap<>(positions);
            offsets.keySet().removeIf(
                    number -> !partitions.contains(new TopicPartition(topic, number)));
            commit(offsets);
        }
        gone(partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        ObjectNode event = Lines.event("lost");
        ArrayNode told = event.putArray("partitions");
        partitions.forEach(partition -> told.add(partition.partition()));
        Lines.tell(event);
        gone(partitions);
    }
}
