import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.internals.DefaultKafkaClientSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.apache.kafka.streams.state.Stores;
import org.rocksdb.Options;

/**
 * The application that chaos kills: dedup by id, for ever, and a running count of all records.
 *
 * <p>Input: JSON with an id, in any partition. It is repartitioned by id; the first record of each
 * id goes to the output, and each record raises the count of its bucket (the last two characters of
 * its id) by one. Both states are in RocksDB with a changelog. The argument is a properties file:
 * `chaos.*` is for this program, all else for Kafka Streams.
 *
 * <p>Prints one line for each thing that the one who kills wants to know. Where the file
 * `chaos.armed` says `hold POINT`, the thread that comes to this point of a commit says so and stays
 * there; where it says `pass POINT`, it says so and goes on.
 */
public final class ChaosStreams {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String SEEN = "seen";
    private static final String COUNTS = "counts";

    private ChaosStreams() {}

    /** Memtables so small that RocksDB writes them out all the time, also between commits. */
    public static final class SmallBuffers implements RocksDBConfigSetter {
        @Override
        public void setConfig(String store, Options options, Map<String, Object> configs) {
            options.setWriteBufferSize(16 << 10);
        }

        @Override
        public void close(String store, Options options) {}
    }

    private static final class Dedup implements Processor<String, String, String, String> {
        private ProcessorContext<String, String> context;
        private KeyValueStore<String, Long> seen;

        @Override
        public void init(ProcessorContext<String, String> given) {
            context = given;
            seen = given.getStateStore(SEEN);
        }

        @Override
        public void process(Record<String, String> record) {
            if (seen.putIfAbsent(record.key(), record.timestamp()) == null) {
                context.forward(record);
            }
        }
    }

    /** A producer that tells where in a commit it is. */
    private static final class ToldProducer extends KafkaProducer<byte[], byte[]> {
        private final Path armed;

        private ToldProducer(Map<String, Object> config, Path armed) {
            super(config, new ByteArraySerializer(), new ByteArraySerializer());
            this.armed = armed;
        }

        @Override
        public void sendOffsetsToTransaction(
                Map<TopicPartition, OffsetAndMetadata> offsets, ConsumerGroupMetadata group) {
            reached("before offsets");
            super.sendOffsetsToTransaction(offsets, group);
        }

        @Override
        public void commitTransaction() {
            reached("before commit");
            super.commitTransaction();
            reached("after commit");
        }

        private void reached(String point) {
            String wanted = wanted();
            if (wanted.endsWith(" " + point)) {
                System.out.println("AT " + point);
                if (wanted.startsWith("hold ")) {
                    staying();
                }
            }
        }

        private String wanted() {
            try {
                return Files.readString(armed).strip();
            } catch (NoSuchFileException unarmed) {
                return "";
            } catch (IOException failure) {
                throw new IllegalStateException(failure);
            }
        }
    }

    private static void staying() {
        try {
            new CountDownLatch(1).await();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private static final class ToldRestores implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long from, long to) {
            System.out.println("RESTORING " + partition + " " + from + " " + to);
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long count) {
            System.out.println("RESTORED " + partition + " " + count);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (Reader source = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(source);
        }
        Path armed = Path.of(settings.getProperty("chaos.armed"));
        KafkaStreams streams = new KafkaStreams(
                topology(settings),
                new StreamsConfig(settings),
                new DefaultKafkaClientSupplier() {
                    @Override
                    public Producer<byte[], byte[]> getProducer(Map<String, Object> config) {
                        return new ToldProducer(config, armed);
                    }
                });
        streams.setStateListener((now, before) -> System.out.println("STATE " + now));
        streams.setGlobalStateRestoreListener(new ToldRestores());
        streams.setUncaughtExceptionHandler(thrown -> {
            System.out.println("UNCAUGHT " + thrown);
            thrown.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        staying();
    }

    private static Topology topology(Properties settings) {
        int partitions = Integer.parseInt(settings.getProperty("chaos.partitions"));
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(SEEN), Serdes.String(), Serdes.Long()));
        KStream<String, String> byId = builder
                .stream(settings.getProperty("chaos.input"),
                        Consumed.with(Serdes.String(), Serdes.String()))
                .selectKey((key, value) -> id(value))
                .repartition(Repartitioned.with(Serdes.String(), Serdes.String())
                        .withName("by-id")
                        .withNumberOfPartitions(partitions));
        byId.process(Dedup::new, SEEN)
                .to(settings.getProperty("chaos.output"),
                        Produced.with(Serdes.String(), Serdes.String()));
        byId.groupBy((id, value) -> id.substring(id.length() - 2),
                        Grouped.with("by-bucket", Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long>as(Stores.persistentKeyValueStore(COUNTS))
                        .withKeySerde(Serdes.String())
                        .withValueSerde(Serdes.Long())
                        .withCachingDisabled())
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to(settings.getProperty("chaos.counts"),
                        Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    private static String id(String value) {
        try {
            return JSON.readTree(value).get("id").asText();
        } catch (JsonProcessingException strange) {
            throw new IllegalArgumentException(value, strange);
        }
    }
}
