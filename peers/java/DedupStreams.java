import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/**
 * Dedup by record key, from a topic into a topic, exactly once, on RocksDB with its changelog.
 *
 * <p>The clock starts when the warm-up's records have been processed, and ends when the offsets of
 * the last record are committed. Prints one JSON line.
 */
public final class DedupStreams {
    private static final String STORE = "seen";
    private static final LongAdder PROCESSED = new LongAdder();
    private static final LongAdder KEPT = new LongAdder();

    private DedupStreams() {}

    /** For ever: a key that is in the store was there before. */
    private static final class ForEver implements Processor<byte[], byte[], byte[], byte[]> {
        private ProcessorContext<byte[], byte[]> context;
        private KeyValueStore<Bytes, Long> seen;

        @Override
        public void init(ProcessorContext<byte[], byte[]> given) {
            context = given;
            seen = given.getStateStore(STORE);
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            PROCESSED.increment();
            if (seen.putIfAbsent(Bytes.wrap(record.key()), record.timestamp()) == null) {
                KEPT.increment();
                context.forward(record);
            }
        }
    }

    /** Within a span of event time, on either side. */
    private static final class Within implements Processor<byte[], byte[], byte[], byte[]> {
        private final long windowMs;
        private ProcessorContext<byte[], byte[]> context;
        private WindowStore<Bytes, Long> seen;

        private Within(long windowMs) {
            this.windowMs = windowMs;
        }

        @Override
        public void init(ProcessorContext<byte[], byte[]> given) {
            context = given;
            seen = given.getStateStore(STORE);
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            PROCESSED.increment();
            Bytes key = Bytes.wrap(record.key());
            long at = record.timestamp();
            try (WindowStoreIterator<Long> found =
                    seen.fetch(key, at - windowMs, at + windowMs)) {
                if (found.hasNext()) {
                    return;
                }
            }
            seen.put(key, at, at);
            KEPT.increment();
            context.forward(record);
        }
    }

    /** Arguments: bootstrap, input, output, name, state folder, window ms (0: for ever), warm-up
     * records, records, seconds at most. */
    public static void main(String[] arguments) throws Exception {
        String name = arguments[3];
        long warmUp = Long.parseLong(arguments[6]);
        long records = Long.parseLong(arguments[7]);
        long deadline = System.nanoTime() + Long.parseLong(arguments[8]) * 1_000_000_000L;
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("application.id", name);
        properties.put("state.dir", arguments[4]);
        properties.put("processing.guarantee", "exactly_once_v2");
        properties.put("num.stream.threads", "2");
        properties.put("replication.factor", "1");
        Topology topology = topology(arguments[1], arguments[2], Long.parseLong(arguments[5]));
        try (KafkaStreams streams = new KafkaStreams(topology, properties);
                Admin admin = Admin.create(properties)) {
            streams.start();
            while (PROCESSED.sum() < warmUp) {
                pause(1, deadline);
            }
            long counted = PROCESSED.sum();
            long begun = System.nanoTime();
            while (PROCESSED.sum() < records) {
                pause(2, deadline);
            }
            while (committed(admin, name) < records) {
                pause(20, deadline);
            }
            double seconds = (System.nanoTime() - begun) / 1e9;
            System.out.printf(
                    "{\"records\": %d, \"kept\": %d, \"seconds\": %.6f}%n",
                    PROCESSED.sum() - counted, KEPT.sum(), seconds);
        }
    }

    private static Topology topology(String input, String output, long windowMs) {
        Topology topology = new Topology();
        topology.addSource(
                "in", new ByteArrayDeserializer(), new ByteArrayDeserializer(), input);
        if (windowMs == 0) {
            topology.addProcessor("dedup", ForEver::new, "in");
            topology.addStateStore(
                    Stores.keyValueStoreBuilder(
                            Stores.persistentKeyValueStore(STORE), Serdes.Bytes(), Serdes.Long()),
                    "dedup");
        } else {
            Duration window = Duration.ofMillis(windowMs);
            topology.addProcessor("dedup", () -> new Within(windowMs), "in");
            topology.addStateStore(
                    Stores.windowStoreBuilder(
                            Stores.persistentWindowStore(STORE, window, window, false),
                            Serdes.Bytes(),
                            Serdes.Long()),
                    "dedup");
        }
        topology.addSink(
                "out", output, new ByteArraySerializer(), new ByteArraySerializer(), "dedup");
        return topology;
    }

    private static long committed(Admin admin, String group) throws Exception {
        return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().values()
                .stream().mapToLong(OffsetAndMetadata::offset).sum();
    }

    private static void pause(long milliseconds, long deadline) throws InterruptedException {
        if (System.nanoTime() > deadline) {
            System.err.println("only " + PROCESSED.sum() + " records in time");
            System.exit(1);
        }
        Thread.sleep(milliseconds);
    }
}
