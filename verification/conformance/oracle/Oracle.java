import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.test.TestRecord;

/** Runs the cases on standard input, one JSON line each, through Kafka Streams' own test driver; prints one line per case. */
public final class Oracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final String APPLICATION = "app";

    private Oracle() {}

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader cases = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = cases.readLine(); line != null; line = cases.readLine()) {
            answers.println(run(JSON.readTree(line)));
            answers.flush();
        }
    }

    private static ObjectNode run(JsonNode spec) throws IOException {
        Path folder = Files.createTempDirectory("oracle");
        try {
            return new Oracle.Case(spec, folder).run();
        } finally {
            try (Stream<Path> files = Files.walk(folder)) {
                files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
            }
        }
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HEX.formatHex(bytes);
    }

    private static final class Case {
        private final JsonNode spec;
        private final Path folder;
        private final Effects effects;
        private final ObjectNode result = JSON.createObjectNode();
        private final ObjectNode outputs = JSON.createObjectNode();

        Case(JsonNode spec, Path folder) {
            this.spec = spec;
            this.folder = folder;
            this.effects = new Effects(folder);
        }

        ObjectNode run() {
            result.put("id", spec.path("id").asText());
            int step = -1;
            try {
                Topology topology = topology();
                result.put("describe", topology.describe().toString());
                Instant start = Instant.ofEpochMilli(spec.path("settings").path("wall_clock").asLong());
                TopologyTestDriver driver = new TopologyTestDriver(topology, properties(), start);
                try {
                    for (JsonNode one : spec.path("steps")) {
                        step++;
                        take(driver, one);
                        drain(driver, step);
                    }
                    result.set("stores", new Contents(spec, JSON).of(driver));
                } finally {
                    close(driver);
                }
                result.set("outputs", outputs);
                result.set("effects", JSON.valueToTree(effects.seen()));
            } catch (Exception error) {
                ObjectNode failure = result.putObject("error");
                if (System.getProperty("trace") != null) {
                    error.printStackTrace();
                }
                failure.put("step", step);
                failure.put("class", error.getClass().getName());
                failure.put("message", String.valueOf(error.getMessage()));
                if (error.getCause() != null) {
                    failure.put("cause", error.getCause().toString());
                }
            }
            return result;
        }

        /** A driver that failed may fail to close as well; the first failure is the one to report. */
        private void close(TopologyTestDriver driver) {
            try {
                driver.close();
            } catch (RuntimeException error) {
                result.put("close", error.toString());
            }
        }

        private boolean mixed() {
            return spec.path("settings").path("engine").asText().equals("mixed");
        }

        private Properties properties() {
            Properties properties = new Properties();
            properties.put(StreamsConfig.APPLICATION_ID_CONFIG, APPLICATION);
            properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nowhere:1");
            properties.put(StreamsConfig.STATE_DIR_CONFIG, folder.toString());
            properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
            properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
            boolean caching = spec.path("settings").path("caching").asBoolean();
            properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, caching ? 10 * 1024 * 1024 : 0);
            properties.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, mixed()
                    ? MixedStores.class : BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers.class);
            properties.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, SmallStores.class);
            return properties;
        }

        private Topology topology() {
            if (spec.path("kind").asText().equals("topology")) {
                Topology topology = new Topology(new TopologyConfig(new StreamsConfig(properties())));
                Papi papi = new Papi(topology, mixed());
                spec.path("ops").forEach(papi::add);
                return topology;
            }
            StreamsBuilder builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(properties())));
            Dsl dsl = new Dsl(builder, effects, mixed());
            spec.path("ops").forEach(dsl::add);
            return builder.build(properties());
        }

        private void take(TopologyTestDriver driver, JsonNode step) {
            if (step.path("do").asText().equals("wall")) {
                driver.advanceWallClockTime(Duration.ofMillis(step.path("ms").asLong()));
                return;
            }
            String topic = step.path("topic").asText();
            JsonNode serdes = spec.path("topics").path(topic);
            RecordHeaders headers = new RecordHeaders();
            for (JsonNode header : step.path("headers")) {
                headers.add(header.get(0).asText(), header.get(1).isNull() ? null : header.get(1).asText().getBytes(StandardCharsets.UTF_8));
            }
            byte[] key = bytes(serdes.get(0).asText(), step.path("key"));
            byte[] value = bytes(serdes.get(1).asText(), step.path("value"));
            driver.createInputTopic(topic, new ByteArraySerializer(), new ByteArraySerializer())
                    .pipeInput(new TestRecord<>(key, value, headers, step.path("at").asLong()));
        }

        private static byte[] bytes(String serde, JsonNode value) {
            if (value.isNull() || value.isMissingNode()) {
                return null;
            }
            Object typed = switch (serde) {
                case "string", "json" -> value.asText();
                case "long" -> value.asLong();
                case "double" -> value.asDouble();
                case "bytes" -> HEX.parseHex(value.asText());
                default -> throw new IllegalArgumentException("input serde " + serde);
            };
            return Library.serde(serde).serializer().serialize("", typed);
        }

        private void drain(TopologyTestDriver driver, int step) {
            for (String topic : new TreeSet<>(driver.producedTopicNames())) {
                if (topic.startsWith(APPLICATION + "-")) {
                    continue;
                }
                var reader = driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                ArrayNode records = outputs.withArray(topic);
                for (TestRecord<byte[], byte[]> record : reader.readRecordsToList()) {
                    ArrayNode headers = JSON.createArrayNode();
                    for (Header header : record.headers()) {
                        headers.addArray().add(header.key()).add(hex(header.value()));
                    }
                    records.addArray().add(step).add(hex(record.key())).add(hex(record.value())).add(record.timestamp()).add(headers);
                }
            }
        }
    }
}
