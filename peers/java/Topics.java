import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;

/** The AdminClient for the compat tests: topics, their configs, offsets and the cluster. */
final class Topics {
    private final Admin admin;

    Topics(String bootstrap) {
        admin = Admin.create(
                CompatClient.properties(bootstrap, CompatClient.JSON.createObjectNode()));
    }

    private static ObjectNode done() {
        return CompatClient.JSON.createObjectNode();
    }

    private static String topic(JsonNode request) {
        return request.get("topic").asText();
    }

    private static Map<String, String> strings(JsonNode node) {
        Map<String, String> strings = new HashMap<>();
        node.properties().forEach(e -> strings.put(e.getKey(), e.getValue().asText()));
        return strings;
    }

    ObjectNode create(JsonNode request) throws Exception {
        int partitions = request.get("partitions").asInt();
        NewTopic topic = new NewTopic(
                topic(request),
                partitions == -1 ? Optional.empty() : Optional.of(partitions),
                Optional.of((short) request.get("replication_factor").asInt()));
        topic.configs(strings(request.get("configs")));
        admin.createTopics(List.of(topic)).all().get();
        return done();
    }

    ObjectNode delete(JsonNode request) throws Exception {
        admin.deleteTopics(List.of(topic(request))).all().get();
        return done();
    }

    ObjectNode list() throws Exception {
        ObjectNode answer = done();
        ArrayNode topics = answer.putArray("topics");
        admin.listTopics().names().get().forEach(topics::add);
        return answer;
    }

    ObjectNode describe(JsonNode request) throws Exception {
        TopicDescription topic = admin.describeTopics(List.of(topic(request)))
                .allTopicNames().get().get(topic(request));
        ObjectNode answer = done().put("topic_id", topic.topicId().toString());
        ArrayNode partitions = answer.putArray("partitions");
        for (TopicPartitionInfo partition : topic.partitions()) {
            ObjectNode node = partitions.addObject()
                    .put("partition", partition.partition())
                    .put("leader", partition.leader() == null ? -1 : partition.leader().id());
            ArrayNode replicas = node.putArray("replicas");
            partition.replicas().forEach(replica -> replicas.add(replica.id()));
            ArrayNode isr = node.putArray("isr");
            partition.isr().forEach(replica -> isr.add(replica.id()));
        }
        return answer;
    }

    ObjectNode createPartitions(JsonNode request) throws Exception {
        NewPartitions total = NewPartitions.increaseTo(request.get("total").asInt());
        admin.createPartitions(Map.of(topic(request), total)).all().get();
        return done();
    }

    ObjectNode deleteRecords(JsonNode request) throws Exception {
        TopicPartition partition =
                new TopicPartition(topic(request), request.get("partition").asInt());
        RecordsToDelete before = RecordsToDelete.beforeOffset(request.get("before").asLong());
        long low = admin.deleteRecords(Map.of(partition, before))
                .lowWatermarks().get(partition).get().lowWatermark();
        return done().put("low_watermark", low);
    }

    ObjectNode listOffsets(JsonNode request) throws Exception {
        TopicPartition partition =
                new TopicPartition(topic(request), request.get("partition").asInt());
        OffsetSpec spec = switch (request.get("spec").asText()) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "max_timestamp" -> OffsetSpec.maxTimestamp();
            default -> OffsetSpec.forTimestamp(request.get("spec").asLong());
        };
        ListOffsetsResultInfo found =
                admin.listOffsets(Map.of(partition, spec)).all().get().get(partition);
        return done().put("offset", found.offset()).put("timestamp_ms", found.timestamp());
    }

    ObjectNode describeConfigs(JsonNode request) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(request));
        ObjectNode answer = done();
        ObjectNode configs = answer.putObject("configs");
        for (ConfigEntry entry
                : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            configs.putObject(entry.name())
                    .put("value", entry.value())
                    .put("source", entry.source().name())
                    .put("read_only", entry.isReadOnly())
                    .put("sensitive", entry.isSensitive());
        }
        return answer;
    }

    ObjectNode incrementalAlterConfigs(JsonNode request) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(request));
        List<AlterConfigOp> changes = new ArrayList<>();
        for (JsonNode change : request.get("changes")) {
            changes.add(new AlterConfigOp(
                    new ConfigEntry(change.get(1).asText(), change.get(2).asText()),
                    AlterConfigOp.OpType.valueOf(change.get(0).asText())));
        }
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        return done();
    }

    ObjectNode describeCluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        ObjectNode answer = done()
                .put("cluster_id", cluster.clusterId().get())
                .put("controller", cluster.controller().get().id());
        ArrayNode brokers = answer.putArray("brokers");
        for (Node node : cluster.nodes().get()) {
            brokers.addArray().add(node.id()).add(node.host()).add(node.port());
        }
        return answer;
    }
}
