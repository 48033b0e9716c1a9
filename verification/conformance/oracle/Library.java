import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.zip.CRC32;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Merger;
import org.apache.kafka.streams.kstream.Predicate;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;
import org.apache.kafka.streams.kstream.ValueMapper;
import org.apache.kafka.streams.kstream.ValueMapperWithKey;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.processor.TopicNameExtractor;

/** The named functions of the specification; verification/conformance/functions.py is the same in Python. */
final class Library {
    private Library() {}

    // -- values as text, so that almost every function works on every type

    static String show(Object value) {
        if (value == null) {
            return "~";
        }
        if (value instanceof byte[] bytes) {
            return HexFormat.of().formatHex(bytes);
        }
        if (value instanceof Windowed<?> windowed) {
            return show(windowed.key()) + "@" + windowed.window().start() + "/" + windowed.window().end();
        }
        return value.toString();
    }

    static long crc(String text) {
        CRC32 crc = new CRC32();
        crc.update(text.getBytes(StandardCharsets.UTF_8));
        return crc.getValue();
    }

    /** Keeps chained concatenations short; the result still depends on what was cut. */
    static String clip(String text) {
        if (text.length() <= 60) {
            return text;
        }
        return text.substring(0, 10) + "#" + String.format("%08x", crc(text)) + "#" + text.substring(text.length() - 30);
    }

    static String head(Object value) {
        String text = show(value);
        return text.isEmpty() ? "_" : text.substring(0, 1);
    }

    static boolean isX(Object value) {
        return show(value).startsWith("x");
    }

    private static long mix(Object key, Object value) {
        return crc(show(key) + "/" + show(value));
    }

    private static Object boom(Object value) {
        if ("boom".equals(value)) {
            throw new IllegalStateException("boom");
        }
        return value;
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    // -- serdes

    @SuppressWarnings({"unchecked", "rawtypes"})
    static Serde<Object> serde(String name) {
        String[] parts = name.split(":");
        Serde serde = switch (parts[0]) {
            case "string", "json" -> Serdes.String(); // values only pass through as text, which Penstock writes the same way
            case "long" -> Serdes.Long();
            case "double" -> Serdes.Double();
            case "bytes" -> Serdes.ByteArray();
            case "time" -> new WindowedSerdes.TimeWindowedSerde<>(serde(parts[1]), Long.parseLong(parts[2]));
            case "session" -> new WindowedSerdes.SessionWindowedSerde<>(serde(parts[1]));
            default -> throw new IllegalArgumentException("serde " + name);
        };
        return serde;
    }

    // -- functions, by kind and name

    static Predicate<Object, Object> predicate(String name) {
        return switch (name) {
            case "any" -> (k, v) -> true;
            case "value" -> (k, v) -> v != null;
            case "even" -> (k, v) -> mix(k, v) % 2 == 0;
            case "most" -> (k, v) -> mix(k, v) % 4 != 0;
            case "not_x" -> (k, v) -> !isX(v);
            case "fine" -> (k, v) -> boom(v) != null;
            default -> throw new IllegalArgumentException("predicate " + name);
        };
    }

    static ValueMapper<Object, Object> valueMapper(String name) {
        return switch (name) {
            case "tag" -> v -> clip(show(v) + "'");
            case "tag_null" -> v -> v == null ? null : clip(show(v) + "'");
            case "null_x" -> v -> isX(v) ? null : clip(show(v));
            case "length" -> v -> (long) show(v).length();
            case "half" -> v -> show(v).length() * 0.5;
            case "utf8" -> v -> utf8(show(v));
            case "fail" -> v -> boom(v);
            default -> throw new IllegalArgumentException("value mapper " + name);
        };
    }

    static ValueMapperWithKey<Object, Object, Object> valueMapperWithKey(String name) {
        return switch (name) {
            case "keyed" -> (k, v) -> clip(show(k) + "=" + show(v));
            case "keyed_null_x" -> (k, v) -> isX(v) ? null : clip(show(k) + "=" + show(v));
            default -> throw new IllegalArgumentException("value mapper with key " + name);
        };
    }

    static ValueMapper<Object, Iterable<Object>> flatValueMapper(String name) {
        return switch (name) {
            case "twice" -> v -> List.of(clip(show(v) + "1"), clip(show(v) + "2"));
            case "chars" -> Library::chars;
            case "null_too" -> v -> {
                List<Object> both = new ArrayList<>();
                both.add(clip(show(v)));
                both.add(null);
                return both;
            };
            default -> throw new IllegalArgumentException("flat value mapper " + name);
        };
    }

    static ValueMapperWithKey<Object, Object, Iterable<Object>> flatValueMapperWithKey(String name) {
        return switch (name) {
            case "keyed_twice" -> (k, v) -> List.of(clip(show(k) + show(v) + "1"), clip(show(k) + show(v) + "2"));
            default -> throw new IllegalArgumentException("flat value mapper with key " + name);
        };
    }

    private static List<Object> chars(Object value) {
        List<Object> all = new ArrayList<>();
        String text = show(value);
        for (int i = 0; i < Math.min(3, text.length()); i++) {
            all.add(text.substring(i, i + 1));
        }
        return all;
    }

    static KeyValueMapper<Object, Object, Object> keySelector(String name) {
        return switch (name) {
            case "by_head" -> (k, v) -> head(v);
            case "by_key_head" -> (k, v) -> head(k);
            case "by_value" -> (k, v) -> clip(show(v));
            case "by_key" -> (k, v) -> clip(show(k));
            case "by_length" -> (k, v) -> (long) show(v).length();
            case "null_x_key" -> (k, v) -> isX(v) ? null : clip(show(k));
            default -> throw new IllegalArgumentException("key selector " + name);
        };
    }

    static KeyValueMapper<Object, Object, KeyValue<Object, Object>> mapper(String name) {
        return switch (name) {
            case "swap" -> (k, v) -> KeyValue.pair(clip(show(v)), clip(show(k)));
            case "head_tag" -> (k, v) -> KeyValue.pair(head(v), v == null ? null : clip(show(k) + ":" + show(v)));
            case "keep_tag" -> (k, v) -> KeyValue.pair(clip(show(k)), clip(show(v) + "*"));
            case "head_length" -> (k, v) -> KeyValue.pair(head(v), (long) show(v).length());
            default -> throw new IllegalArgumentException("mapper " + name);
        };
    }

    static KeyValueMapper<Object, Object, Iterable<KeyValue<Object, Object>>> flatMapper(String name) {
        return switch (name) {
            case "fan" -> (k, v) -> List.of(
                    KeyValue.pair(head(k), clip(show(v) + "1")), KeyValue.pair(head(v), clip(show(v) + "2")));
            case "fan_chars" -> (k, v) -> {
                List<KeyValue<Object, Object>> all = new ArrayList<>();
                for (Object one : chars(v)) {
                    all.add(KeyValue.pair(one, clip(show(k) + show(v))));
                }
                return all;
            };
            default -> throw new IllegalArgumentException("flat mapper " + name);
        };
    }

    static Supplier<Object> initializer(String name) {
        return switch (name) {
            case "empty" -> () -> "";
            case "nothing" -> () -> null;
            case "zero" -> () -> 0L;
            case "zero_double" -> () -> 0.0;
            default -> throw new IllegalArgumentException("initializer " + name);
        };
    }

    static Aggregator<Object, Object, Object> aggregator(String name) {
        return switch (name) {
            case "concat" -> (k, v, a) -> clip(show(a) + "+" + show(v));
            case "minus" -> (k, v, a) -> clip(show(a) + "-" + show(v));
            case "keyed_concat" -> (k, v, a) -> clip(show(a) + "+" + show(k) + show(v));
            case "drop_x" -> (k, v, a) -> isX(v) ? null : clip(show(a) + "+" + show(v));
            case "add_length" -> (k, v, a) -> (a == null ? 0L : (Long) a) + show(v).length();
            case "take_length" -> (k, v, a) -> (a == null ? 0L : (Long) a) - show(v).length();
            case "add_half" -> (k, v, a) -> (a == null ? 0.0 : (Double) a) + 0.5 * show(v).length();
            case "take_half" -> (k, v, a) -> (a == null ? 0.0 : (Double) a) - 0.5 * show(v).length();
            default -> throw new IllegalArgumentException("aggregator " + name);
        };
    }

    static Reducer<Object> reducer(String name) {
        return switch (name) {
            case "glue" -> (a, v) -> clip(show(a) + "," + show(v));
            case "unglue" -> (a, v) -> clip(show(a) + ";" + show(v));
            case "last" -> (a, v) -> v;
            case "first" -> (a, v) -> a;
            case "null_on_x" -> (a, v) -> isX(v) ? null : clip(show(a) + "," + show(v));
            case "sum" -> (a, v) -> a instanceof Long one ? (Object) (one + (Long) v) : (Object) ((Double) a + (Double) v);
            case "difference" -> (a, v) -> a instanceof Long one ? (Object) (one - (Long) v) : (Object) ((Double) a - (Double) v);
            default -> throw new IllegalArgumentException("reducer " + name);
        };
    }

    static Merger<Object, Object> merger(String name) {
        return switch (name) {
            case "merge" -> (k, a, b) -> clip(show(a) + "|" + show(b));
            case "merge_long" -> (k, a, b) -> (a == null ? 0L : (Long) a) + (b == null ? 0L : (Long) b);
            case "merge_double" -> (k, a, b) -> (a == null ? 0.0 : (Double) a) + (b == null ? 0.0 : (Double) b);
            default -> throw new IllegalArgumentException("merger " + name);
        };
    }

    static ValueJoiner<Object, Object, Object> joiner(String name) {
        return switch (name) {
            case "pair" -> (l, r) -> clip("(" + show(l) + "," + show(r) + ")");
            case "pair_null_x" -> (l, r) -> isX(l) || isX(r) ? null : clip("(" + show(l) + "," + show(r) + ")");
            default -> throw new IllegalArgumentException("joiner " + name);
        };
    }

    static ValueJoinerWithKey<Object, Object, Object, Object> joinerWithKey(String name) {
        return switch (name) {
            case "keyed_pair" -> (k, l, r) -> clip(show(k) + ":(" + show(l) + "," + show(r) + ")");
            default -> throw new IllegalArgumentException("joiner with key " + name);
        };
    }

    static Function<Object, Object> foreignKey(String name) {
        return switch (name) {
            case "fk_head" -> v -> isX(v) ? null : head(v);
            case "fk_last" -> v -> {
                String text = show(v);
                return text.isEmpty() ? null : text.substring(text.length() - 1);
            };
            default -> throw new IllegalArgumentException("foreign key " + name);
        };
    }

    static BiFunction<Object, Object, Object> foreignKeyWithKey(String name) {
        return switch (name) {
            case "fk_either" -> (k, v) -> mix(k, v) % 2 == 0 ? head(k) : head(v);
            default -> throw new IllegalArgumentException("foreign key with key " + name);
        };
    }

    static TimestampExtractor timestamp(String name) {
        return switch (name) {
            case "shift" -> (record, partitionTime) -> record.timestamp() + 3;
            case "stuck_x" -> (record, partitionTime) -> isX(record.value()) ? partitionTime : record.timestamp();
            case "negative_x" -> (record, partitionTime) -> isX(record.value()) ? -1 : record.timestamp();
            default -> throw new IllegalArgumentException("timestamp extractor " + name);
        };
    }

    static TopicNameExtractor<Object, Object> topic(String name, String prefix) {
        return switch (name) {
            case "by_mix" -> (k, v, context) -> prefix + "-" + mix(k, v) % 2;
            case "by_time" -> (k, v, context) -> prefix + "-" + context.timestamp() % 2;
            default -> throw new IllegalArgumentException("topic extractor " + name);
        };
    }

    static Map<String, String> config() {
        return Map.of("segment.bytes", "1048576");
    }
}
