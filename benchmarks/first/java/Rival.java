import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * The topologies of penstock_app.py on Kafka Streams, each step in the form that is fastest here: JSON is read by Jackson's
 * streaming parser, totals are 16 bytes in the store, and JSON again in the sink.
 *
 * <p>Usage: Rival TOPOLOGY SOURCE SINK NAME=VALUE...
 */
public final class Rival {
    private static final JsonFactory JSON = new JsonFactory();
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> AMOUNT_OF_JSON = Serdes.serdeFrom((topic, amount) -> never(), (topic, json) -> amount(json));
    private static final Serde<Totals> TOTALS = Serdes.serdeFrom((topic, totals) -> totals.bytes(), (topic, raw) -> Totals.of(raw));
    private static final Serde<Totals> JSON_TOTALS = Serdes.serdeFrom((topic, totals) -> totals.json(), (topic, json) -> never());

    private Rival() {}

    /** How many records, and the sum of their amounts. */
    private record Totals(long count, long sum) {
        static final Totals NONE = new Totals(0, 0);

        Totals plus(long amount) {
            return new Totals(count + 1, sum + amount);
        }

        byte[] bytes() {
            return ByteBuffer.allocate(16).putLong(count).putLong(sum).array();
        }

        byte[] json() {
            return ("[" + count + "," + sum + "]").getBytes(StandardCharsets.ISO_8859_1);
        }

        static Totals of(byte[] raw) {
            if (raw == null) {
                return null;
            }
            ByteBuffer buffer = ByteBuffer.wrap(raw);
            return new Totals(buffer.getLong(), buffer.getLong());
        }
    }

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        for (String setting : Arrays.asList(arguments).subList(3, arguments.length)) {
            String[] parts = setting.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        KafkaStreams streams = new KafkaStreams(topology(arguments[0], arguments[1], arguments[2]), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        // Without leaving, the next start of the application would wait until the group has removed this member.
        CloseOptions leaving = CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leaving)));
        streams.start();
    }

    private static Topology topology(String name, String source, String sink) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, Long> amounts = builder.stream(source, Consumed.with(TEXT, AMOUNT_OF_JSON));
        KStream<String, Totals> results = switch (name) {
            case "totals" -> totals(amounts, "totals");
            case "rekeyed" -> {
                KStream<String, Totals> first = totals(amounts.selectKey((key, amount) -> "a" + key), "first");
                yield totals(first.selectKey((key, totals) -> "b" + key).mapValues(Totals::sum), "second");
            }
            default -> throw new IllegalArgumentException(name);
        };
        results.to(sink, Produced.with(TEXT, JSON_TOTALS));
        return builder.build();
    }

    private static KStream<String, Totals> totals(KStream<String, Long> amounts, String store) {
        return amounts.groupByKey(Grouped.with(TEXT, Serdes.Long()))
            .aggregate(
                () -> Totals.NONE,
                (key, amount, totals) -> totals.plus(amount),
                Materialized.<String, Totals, KeyValueStore<Bytes, byte[]>>as(store).withKeySerde(TEXT).withValueSerde(TOTALS))
            .toStream();
    }

    private static Long amount(byte[] json) {
        try (JsonParser parser = JSON.createParser(json)) {
            long amount = 0;
            parser.nextToken();
            for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
                parser.nextToken();
                if (name.equals("amount")) {
                    amount = parser.getLongValue();
                } else {
                    parser.skipChildren();
                }
            }
            return amount;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static <T> T never() {
        throw new UnsupportedOperationException("sources are only read, sinks only written");
    }
}
