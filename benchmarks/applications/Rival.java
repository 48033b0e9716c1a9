import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * The topologies of penstock_app.py on Kafka Streams, each step in the form that is fastest here: JSON is read and written by
 * Jackson's streaming API, totals are 16 bytes in the store, and JSON again in the sink.
 *
 * <p>Usage: Rival TOPOLOGY SOURCE,SOURCE SINK NAME=VALUE...
 */
public final class Rival {
    private static final JsonFactory JSON = new JsonFactory();
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> LONG = Serdes.Long();
    private static final Serde<byte[]> RAW = Serdes.ByteArray();
    private static final Serde<Long> AMOUNT_OF_JSON = Serdes.serdeFrom((topic, amount) -> never(), (topic, json) -> amount(json));
    private static final Serde<Long> JSON_NUMBER = Serdes.serdeFrom((topic, number) -> text(Long.toString(number)), (topic, json) -> never());
    private static final Serde<User> USER_OF_JSON = Serdes.serdeFrom((topic, user) -> never(), (topic, json) -> User.ofJson(json));
    private static final Serde<User> USER = Serdes.serdeFrom((topic, user) -> user.bytes(), (topic, raw) -> User.of(raw));
    private static final Serde<Totals> TOTALS = Serdes.serdeFrom((topic, totals) -> totals.bytes(), (topic, raw) -> Totals.of(raw));
    private static final Serde<Totals> JSON_TOTALS = Serdes.serdeFrom((topic, totals) -> totals.json(), (topic, json) -> never());

    private Rival() {}

    /** How many records, and the sum of their amounts. */
    private record Totals(long count, long sum) {
        static final Totals NONE = new Totals(0, 0);

        Totals plus(long amount) {
            return new Totals(count + 1, sum + amount);
        }

        Totals plus(Totals other) {
            return new Totals(count + other.count, sum + other.sum);
        }

        byte[] bytes() {
            return ByteBuffer.allocate(16).putLong(count).putLong(sum).array();
        }

        byte[] json() {
            return text("[" + count + "," + sum + "]");
        }

        static Totals of(byte[] raw) {
            if (raw == null) {
                return null;
            }
            ByteBuffer buffer = ByteBuffer.wrap(raw);
            return new Totals(buffer.getLong(), buffer.getLong());
        }
    }

    /** Where a user lives, and the factor of the amounts of their orders. */
    private record User(String region, long rate) {
        byte[] bytes() {
            byte[] name = text(region);
            return ByteBuffer.allocate(8 + name.length).putLong(rate).put(name).array();
        }

        static User of(byte[] raw) {
            return raw == null ? null : new User(new String(raw, 8, raw.length - 8, StandardCharsets.UTF_8), ByteBuffer.wrap(raw).getLong());
        }

        static User ofJson(byte[] json) {
            return new User(textOf(json, "region"), numberOf(json, "rate"));
        }
    }

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        for (String setting : Arrays.asList(arguments).subList(3, arguments.length)) {
            String[] parts = setting.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        KafkaStreams streams = new KafkaStreams(topology(arguments[0], arguments[1].split(","), arguments[2]), settings);
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

    private static Topology topology(String name, String[] sources, String sink) {
        StreamsBuilder builder = new StreamsBuilder();
        switch (name) {
            case "passed-on" -> builder.stream(sources[0], Consumed.with(TEXT, RAW)).to(sink, Produced.with(TEXT, RAW));
            case "stateless" -> builder.stream(sources[0], Consumed.with(TEXT, RAW))
                .filter((key, json) -> amount(json) % 2 == 0)
                .mapValues(Rival::withTwiceTheAmount)
                .to(sink, Produced.with(TEXT, RAW));
            case "words" -> builder.stream(sources[0], Consumed.with(TEXT, TEXT))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(TEXT, TEXT))
                .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("words").withKeySerde(TEXT).withValueSerde(LONG))
                .toStream()
                .to(sink, Produced.with(TEXT, JSON_NUMBER));
            case "foreign-keys" -> foreignKeys(builder, sources).to(sink, Produced.with(TEXT, RAW));
            default -> totals(builder, name, sources).to(sink, Produced.with(TEXT, JSON_TOTALS));
        }
        return builder.build();
    }

    /** The topologies that count and add. */
    private static KStream<String, Totals> totals(StreamsBuilder builder, String name, String[] sources) {
        KStream<String, Long> amounts = builder.stream(sources[0], Consumed.with(TEXT, AMOUNT_OF_JSON));
        if (name.startsWith("depth-")) {
            for (int left = Integer.parseInt(name.substring("depth-".length())); left > 0; left--) {
                amounts = amounts.selectKey((key, amount) -> "a" + key).repartition(Repartitioned.with(TEXT, LONG));
            }
            return totals(amounts, "totals");
        }
        return switch (name) {
            case "totals" -> totals(amounts, "totals");
            case "enriched" -> enriched(builder, amounts, sources[1]);
            case "hopping" -> hopping(amounts);
            case "sessions" -> sessions(amounts);
            case "rekeyed" -> {
                KStream<String, Totals> first = totals(amounts.selectKey((key, amount) -> "a" + key), "first");
                yield totals(first.selectKey((key, totals) -> "b" + key).mapValues(Totals::sum), "second");
            }
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static KStream<String, Totals> totals(KStream<String, Long> amounts, String store) {
        return amounts.groupByKey(Grouped.with(TEXT, LONG))
            .aggregate(
                () -> Totals.NONE,
                (key, amount, totals) -> totals.plus(amount),
                Materialized.<String, Totals, KeyValueStore<Bytes, byte[]>>as(store).withKeySerde(TEXT).withValueSerde(TOTALS))
            .toStream();
    }

    private static KStream<String, Totals> enriched(StreamsBuilder builder, KStream<String, Long> amounts, String source) {
        KTable<String, User> users = builder.stream(source, Consumed.with(TEXT, USER_OF_JSON))
            .toTable(Materialized.<String, User, KeyValueStore<Bytes, byte[]>>as("users").withKeySerde(TEXT).withValueSerde(USER));
        KStream<String, Long> sales = amounts
            .join(users, (amount, user) -> KeyValue.pair(user.region(), amount * user.rate()), Joined.keySerde(TEXT))
            .map((key, sale) -> sale);
        return totals(sales, "regions");
    }

    private static KStream<String, byte[]> foreignKeys(StreamsBuilder builder, String[] sources) {
        KTable<String, byte[]> orders = builder.table(sources[0], Consumed.with(TEXT, RAW));
        KTable<String, byte[]> customers = builder.table(sources[1], Consumed.with(TEXT, RAW));
        return orders.join(customers, order -> textOf(order, "customer"), Rival::orderWithName, Materialized.with(TEXT, RAW)).toStream();
    }

    private static KStream<String, Totals> hopping(KStream<String, Long> amounts) {
        return amounts.groupByKey(Grouped.with(TEXT, LONG))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(30)).advanceBy(Duration.ofSeconds(5)))
            .aggregate(() -> Totals.NONE, (key, amount, totals) -> totals.plus(amount), Materialized.with(TEXT, TOTALS))
            .toStream((key, totals) -> atStart(key));
    }

    private static KStream<String, Totals> sessions(KStream<String, Long> amounts) {
        return amounts.groupByKey(Grouped.with(TEXT, LONG))
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(5), Duration.ofSeconds(1)))
            .aggregate(
                () -> Totals.NONE,
                (key, amount, totals) -> totals.plus(amount),
                (key, one, two) -> one.plus(two),
                Materialized.with(TEXT, TOTALS))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
            .toStream((key, totals) -> atStart(key));
    }

    private static String atStart(Windowed<String> key) {
        return key.key() + "@" + key.window().start();
    }

    private static Long amount(byte[] json) {
        return numberOf(json, "amount");
    }

    private static long numberOf(byte[] json, String wanted) {
        try (JsonParser parser = JSON.createParser(json)) {
            find(parser, wanted);
            return parser.getLongValue();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static String textOf(byte[] json, String wanted) {
        try (JsonParser parser = JSON.createParser(json)) {
            find(parser, wanted);
            return parser.getText();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Moves the parser to the value of a field, and reads no further. */
    private static void find(JsonParser parser, String wanted) throws IOException {
        parser.nextToken();
        for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
            parser.nextToken();
            if (name.equals(wanted)) {
                return;
            }
            parser.skipChildren();
        }
        throw new IOException("no field " + wanted);
    }

    private static byte[] withTwiceTheAmount(byte[] json) {
        ByteArrayOutputStream written = new ByteArrayOutputStream(json.length + 8);
        try (JsonParser parser = JSON.createParser(json); JsonGenerator generator = JSON.createGenerator(written)) {
            for (JsonToken token = parser.nextToken(); token != null; token = parser.nextToken()) {
                generator.copyCurrentEvent(parser);
                if (token == JsonToken.FIELD_NAME && parser.currentName().equals("amount")) {
                    parser.nextToken();
                    generator.writeNumber(2 * parser.getLongValue());
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return written.toByteArray();
    }

    private static byte[] orderWithName(byte[] order, byte[] customer) {
        return text("{\"amount\":" + amount(order) + ",\"name\":\"" + textOf(customer, "name") + "\"}");
    }

    private static byte[] text(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static <T> T never() {
        throw new UnsupportedOperationException("sources are only read, sinks only written");
    }
}
