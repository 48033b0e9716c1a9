/*
 * Prints what Kafka 4.3.1's own serializers write and read, as the JSON that tests/unit/serdes checks Penstock against.
 *
 * To regenerate, with kafka-clients-4.3.1.jar, kafka-streams-4.3.1.jar and any slf4j-api jar in $JARS:
 *
 *   javac -cp "$JARS/*" -d build tools/serde_vectors/SerdeVectors.java
 *   java -cp "build:$JARS/*" SerdeVectors > tests/unit/serdes/java_vectors.json
 *
 * "written" holds a value and the bytes Java makes of it; "read" holds bytes and the value, or the exception, Java makes of
 * them. Floats are hexadecimal literals and strings are escaped by UTF-16 unit, so that nothing is lost on the way.
 */

import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.UUID;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.kstream.TimeWindowedDeserializer;
import org.apache.kafka.streams.kstream.TimeWindowedSerializer;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.internals.ValueAndTimestampSerde;

public final class SerdeVectors {
    private static final HexFormat HEX = HexFormat.of();
    private static final String TOPIC = "topic";
    private static final String[] UTF8_ALPHABET = {
        "41", "80", "8f", "90", "9f", "a0", "bf", "c0", "c2", "df", "e0", "e1", "ed", "ef", "f0", "f1", "f4", "f5", "ff",
    };
    private static final int UTF8_MAX_LENGTH = 4;

    private final List<String> written = new ArrayList<>();
    private final List<String> read = new ArrayList<>();

    public static void main(final String[] args) throws Exception {
        final SerdeVectors vectors = new SerdeVectors();
        vectors.numbers();
        vectors.texts();
        vectors.uuids();
        vectors.lists();
        vectors.brokenLists();
        vectors.windowedKeys();
        vectors.timestampedValues();
        vectors.print(new PrintStream(System.out, true, StandardCharsets.US_ASCII));
    }

    private void numbers() {
        writes("Int16", Serdes.Short(), (short) 0, (short) 1, (short) -1, Short.MIN_VALUE, Short.MAX_VALUE);
        writes("Int32", Serdes.Integer(), 0, 1, -1, 0x01020304, Integer.MIN_VALUE, Integer.MAX_VALUE);
        writes("Int64", Serdes.Long(), 0L, 1L, -1L, 0x0102030405060708L, Long.MIN_VALUE, Long.MAX_VALUE);
        writes("Float32", Serdes.Float(), 0f, -0f, 1.5f, Float.MIN_VALUE, Float.MAX_VALUE, -Float.MAX_VALUE,
            Float.NaN, Float.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY, 0.1f);
        writes("Float64", Serdes.Double(), 0d, -0d, 1.5d, Double.MIN_VALUE, Double.MAX_VALUE, -Double.MAX_VALUE,
            Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, 0.1d, Math.PI);
        writes("Boolean", Serdes.Boolean(), true, false);
        reads("Int16", Serdes.Short(), "", "01", "010203", "ff00");
        reads("Int32", Serdes.Integer(), "", "010203", "0102030405", "80000000");
        reads("Int64", Serdes.Long(), "", "01020304050607", "010203040506070809", "8000000000000000");
        reads("Float32", Serdes.Float(), "", "3f8000", "3ff0000000000000", "ff800000");
        reads("Float64", Serdes.Double(), "", "3f800000", "3ff000000000000000", "fff0000000000000");
        reads("Boolean", Serdes.Boolean(), "", "02", "ff", "0100", "00");
        reads("Void", Serdes.Void(), "", "00");
    }

    private void texts() {
        writes("String", Serdes.String(), "", "a", "penstock", "\u0000", "\u007f\u0080", "Gr\u00fc\u00dfe", "\u07ff\u0800",
            "\u6c34\u9580", "\ufeffbom", "\uffff", "\ud83d\udca7", "\udbff\udfff", "a\r\n\t\"\\");
        // A lone surrogate has no UTF-8 form.
        writes("String", Serdes.String(), "\ud800", "\udfff", "a\ud83db", "\udca7\ud83d", "\ud83d\ud83d\udca7", "\ud800\ud800");
        reads("String", Serdes.String(), "", "ff", "80", "41ff42", "c3", "c328", "c080", "c1bf", "e282", "e28241", "e08080",
            "eda080", "edbfbf", "eda0bdedb2a7", "eda0", "eda041", "ed41", "ed", "f09f92a7", "f09f92", "f09f9241", "f09f",
            "f09f41", "f0", "f041", "f08080af", "f4908080", "f4bfbfbf", "f5808080", "f888808080", "fe", "efbfbf", "efbbbf41");
        writes("Bytes", Serdes.ByteArray(), new byte[0], new byte[] {0}, new byte[] {-1, 0, 127, -128});
        reads("Bytes", Serdes.ByteArray(), "", "00ff");
    }

    private void uuids() {
        writes("UUIDs", Serdes.UUID(), new UUID(0, 0), new UUID(-1, -1), new UUID(Long.MIN_VALUE, Long.MAX_VALUE),
            UUID.fromString("f81d4fae-7dec-11d0-a765-00a0c91e6bf6"));
        final String[] texts = {
            "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6", "1-2-3-4-5", "+1-2-3-4-5", "123456789-1-1-1-1", "1-12345-1-1-1",
            "f81d4fae7dec11d0a76500a0c91e6bf6", "{f81d4fae-7dec-11d0-a765-00a0c91e6bf6}",
            "urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6", " f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "f81d4fae-7dec-11d0-a765-00a0c91e6bf", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6a", "g81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "", "1-2-3-4", "1-2-3-4-", "1--3-4-5", "-1-2-3-4-5", "1-2-3-4-5-6", "1_0-2-3-4-5", "1-2-3-4- 5", "not a uuid",
            "7fffffffffffffff-1-1-1-1", "8000000000000000-1-1-1-1", "1-2-3-4-123456789abcdef", "f81d4fae-7dec-11d0-a765\u00e90a0c91e6bf6",
        };
        for (final String text : texts) {
            reads("UUIDs", Serdes.UUID(), hex(text.getBytes(StandardCharsets.UTF_8)));
        }
        reads("UUIDs", Serdes.UUID(), "ff");
    }

    @SuppressWarnings("unchecked")
    private void lists() {
        writes("List(Int16)", list(Serdes.Short()), List.of(), List.of((short) 1, (short) -2), Arrays.asList((short) 1, null));
        writes("List(Int32)", list(Serdes.Integer()), List.of(), List.of(1, -2, 3), Arrays.asList(null, 1, null, 2, null),
            Arrays.asList((Integer) null), Arrays.asList(null, null));
        writes("List(Int64)", list(Serdes.Long()), List.of(Long.MIN_VALUE, Long.MAX_VALUE), Arrays.asList(null, 0L));
        writes("List(Float32)", list(Serdes.Float()), List.of(1.5f, -0f), Arrays.asList(null, 1f));
        writes("List(Float64)", list(Serdes.Double()), List.of(1.5d, -0d), Arrays.asList(null, 1d));
        writes("List(UUIDs)", list(Serdes.UUID()), List.of(new UUID(1, 2)), Arrays.asList(null, new UUID(-1, 0)));
        writes("List(Boolean)", list(Serdes.Boolean()), List.of(true, false), Arrays.asList(null, true));
        writes("List(String)", list(Serdes.String()), List.of(), List.of("a", "\u6c34", "longer"), List.of("", "a"),
            Arrays.asList("a", null), Arrays.asList(null, null), List.of("a", ""));
        writes("List(Bytes)", list(Serdes.ByteArray()), List.of(new byte[] {1, 2}, new byte[] {3}));
        writes("List(List(Int32))", list(list(Serdes.Integer())), List.of(List.of(1), List.of(), Arrays.asList(2, null)),
            Arrays.asList(null, List.of(7)));
        writes("List(List(String))", list(list(Serdes.String())), List.of(List.of("a", "b"), Arrays.asList((String) null)));
    }

    private void brokenLists() {
        final String[] forIntegers = {
            "", "02", "ff", "00", "01", "0000000000", "000000000000000000", "00ffffffff00000000", "0000000fff00000000",
            "0000000000ffffffff", "00000000007fffffff", "000000000000000001", "00000000000000000100000007ff",
            "010000000100000004" + "00000009", "0100000001ffffffff", "0100000001fffffffe", "01000000017fffffff",
            "0100000001000000030000090909", "010000000100000008" + "0000000000000001",
            "0000000001" + "00000009" + "00000001" + "00000005", "0000000002" + "0000000000000000" + "00000002" + "00000005",
        };
        reads("List(Int32)", list(Serdes.Integer()), forIntegers);
        reads("List(String)", list(Serdes.String()), "", "02", "000000000000000000", "0100000000", "01ffffffff",
            "0100000001", "010000000100000000", "0100000002000000000000000161", "0100000001000000056162",
            "0100000001000000016162");
    }

    private void windowedKeys() {
        final Serde<Windowed<String>> minutes = WindowedSerdes.timeWindowedSerdeFrom(String.class, 60_000L);
        writes("TimeWindowed(String, 60000)", minutes, time("a", 0, 60_000), time("", 60_000, 120_000),
            time("\u6c34", 1_700_000_040_000L, 1_700_000_100_000L), time("late", Long.MAX_VALUE - 1, Long.MAX_VALUE));
        reads("TimeWindowed(String, 60000)", minutes, "", "61", "00000000000000", "ffffffffffffffff", "618000000000000000");
        final Serde<Windowed<Long>> longs = WindowedSerdes.timeWindowedSerdeFrom(Long.class, 10L);
        writes("TimeWindowed(Int64, 10)", longs, time(-1L, 20, 30));
        reads("TimeWindowed(Int64, 10)", longs, "0000000000000014", "000000000000000000000000000014");
        final Serde<Windowed<String>> forever = WindowedSerdes.timeWindowedSerdeFrom(String.class, Long.MAX_VALUE);
        writes("TimeWindowed(String, 9223372036854775807)", forever, time("k", 5, Long.MAX_VALUE));
        final Serde<Windowed<List<Integer>>> nested = new Serdes.WrapperSerde<>(
            new TimeWindowedSerializer<>(list(Serdes.Integer()).serializer()),
            new TimeWindowedDeserializer<>(list(Serdes.Integer()).deserializer(), 5L));
        writes("TimeWindowed(List(Int32), 5)", nested, time(Arrays.asList(1, null), 5, 10));

        final Serde<Windowed<String>> sessions = WindowedSerdes.sessionWindowedSerdeFrom(String.class);
        writes("SessionWindowed(String)", sessions, session("a", 0, 0), session("", 1, 2), session("\u6c34", 3, Long.MAX_VALUE));
        reads("SessionWindowed(String)", sessions, "", "61", "000000000000000000000000000000",
            "00000000000000010000000000000002", "0000000000000001ffffffffffffffff");
        writes("SessionWindowed(Int32)", WindowedSerdes.sessionWindowedSerdeFrom(Integer.class), session(7, 100, 250));
    }

    private void timestampedValues() {
        final Serde<ValueAndTimestamp<String>> texts = new ValueAndTimestampSerde<>(Serdes.String());
        writes("ValueAndTimestampSerde(String)", texts, ValueAndTimestamp.make("", 0L), ValueAndTimestamp.make("a", -1L),
            ValueAndTimestamp.make("\u6c34", Long.MAX_VALUE), ValueAndTimestamp.make("min", Long.MIN_VALUE));
        reads("ValueAndTimestampSerde(String)", texts, "", "00000000000000", "0000000000000005");
        final Serde<ValueAndTimestamp<Long>> longs = new ValueAndTimestampSerde<>(Serdes.Long());
        writes("ValueAndTimestampSerde(Int64)", longs, ValueAndTimestamp.make(42L, 1_700_000_000_000L));
        reads("ValueAndTimestampSerde(Int64)", longs, "0000000000000005");
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static <T> Serde<List<T>> list(final Serde<T> inner) {
        return Serdes.ListSerde((Class) ArrayList.class, inner);
    }

    private static <K> Windowed<K> time(final K key, final long start, final long end) {
        return new Windowed<>(key, new TimeWindow(start, end));
    }

    private static <K> Windowed<K> session(final K key, final long start, final long end) {
        return new Windowed<>(key, new SessionWindow(start, end));
    }

    @SafeVarargs
    private <T> void writes(final String name, final Serde<T> serde, final T... values) {
        for (final T value : values) {
            final byte[] bytes = serde.serializer().serialize(TOPIC, value);
            written.add(String.format("{\"serde\": %s, \"value\": %s, \"hex\": \"%s\"}", json(name), json(value), hex(bytes)));
            reads(name, serde, hex(bytes));
        }
    }

    private <T> void reads(final String name, final Serde<T> serde, final String... inputs) {
        for (final String input : inputs) {
            String outcome;
            try {
                outcome = "\"value\": " + json(serde.deserializer().deserialize(TOPIC, HEX.parseHex(input)));
            } catch (final RuntimeException e) {
                outcome = "\"error\": " + json(e.getClass().getSimpleName());
            }
            read.add(String.format("{\"serde\": %s, \"hex\": \"%s\", %s}", json(name), input, outcome));
        }
    }

    /** Every byte string over the alphabet up to the length, decoded, as one digest: what replaces malformed UTF-8, and how often. */
    private static String utf8Digest() throws Exception {
        final MessageDigest digest = MessageDigest.getInstance("SHA-256");
        for (int length = 0; length <= UTF8_MAX_LENGTH; length++) {
            final int count = (int) Math.pow(UTF8_ALPHABET.length, length);
            for (int number = 0; number < count; number++) {
                final ByteBuffer input = ByteBuffer.allocate(length);
                for (int position = length - 1, rest = number; position >= 0; position--, rest /= UTF8_ALPHABET.length) {
                    input.put(position, HEX.parseHex(UTF8_ALPHABET[rest % UTF8_ALPHABET.length])[0]);
                }
                final String text = Serdes.String().deserializer().deserialize(TOPIC, input.array());
                digest.update(text.getBytes(StandardCharsets.UTF_8));
                digest.update((byte) '\n');
            }
        }
        return hex(digest.digest());
    }

    private void print(final PrintStream out) throws Exception {
        out.println("{");
        out.println("\"kafka\": \"4.3.1\",");
        out.println("\"utf8\": {\"alphabet\": \"" + String.join("", UTF8_ALPHABET) + "\", \"max_length\": " + UTF8_MAX_LENGTH
            + ", \"sha256\": \"" + utf8Digest() + "\"},");
        out.println("\"written\": [\n" + String.join(",\n", written) + "\n],");
        out.println("\"read\": [\n" + String.join(",\n", read) + "\n]");
        out.println("}");
    }

    private static String hex(final byte[] bytes) {
        return HEX.formatHex(bytes);
    }

    private static String json(final Object value) {
        if (value == null || value instanceof Boolean || value instanceof Short || value instanceof Integer || value instanceof Long) {
            return String.valueOf(value);
        }
        if (value instanceof Float) {
            return json(Float.toHexString((Float) value));
        }
        if (value instanceof Double) {
            return json(Double.toHexString((Double) value));
        }
        if (value instanceof byte[]) {
            return json(hex((byte[]) value));
        }
        if (value instanceof UUID) {
            return json(value.toString());
        }
        if (value instanceof List) {
            final List<String> items = new ArrayList<>();
            ((List<?>) value).forEach(item -> items.add(json(item)));
            return "[" + String.join(", ", items) + "]";
        }
        if (value instanceof Windowed) {
            final Windowed<?> windowed = (Windowed<?>) value;
            return String.format("[%s, %d, %d]", json(windowed.key()), windowed.window().start(), windowed.window().end());
        }
        if (value instanceof ValueAndTimestamp) {
            final ValueAndTimestamp<?> entry = (ValueAndTimestamp<?>) value;
            return String.format("[%s, %d]", json(entry.value()), entry.timestamp());
        }
        final StringBuilder text = new StringBuilder("\"");
        for (final char unit : ((String) value).toCharArray()) {
            text.append(unit < ' ' || unit > '~' || unit == '"' || unit == '\\' ? String.format("\\u%04x", (int) unit) : unit);
        }
        return text.append('"').toString();
    }
}
