import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.AutoOffsetReset;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.UnlimitedWindows;
import org.apache.kafka.streams.kstream.Windows;
import org.apache.kafka.streams.kstream.internals.NamedInternal;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** The options of one operation of the specification, as Kafka Streams' option classes. */
final class Stage {
    final JsonNode op;
    final JsonNode args;
    private final boolean mixed;

    Stage(JsonNode op, boolean mixed) {
        this.op = op;
        this.args = op.path("args");
        this.mixed = mixed;
    }

    String text(String field) {
        return args.path(field).asText();
    }

    boolean has(String field) {
        return args.hasNonNull(field);
    }

    boolean hasAny(String... fields) {
        return java.util.Arrays.stream(fields).anyMatch(this::has);
    }

    boolean flag(String field) {
        return args.path(field).asBoolean(false);
    }

    Duration span(String field) {
        return Duration.ofMillis(args.path(field).asLong());
    }

    List<String> texts(String field) {
        List<String> all = new ArrayList<>();
        args.path(field).forEach(item -> all.add(item.asText()));
        return all;
    }

    Serde<Object> serde(String field) {
        return has(field) ? Library.serde(text(field)) : null;
    }

    Named named() {
        return has("name") ? Named.as(text("name")) : NamedInternal.empty();
    }

    Consumed<Object, Object> consumed() {
        Consumed<Object, Object> consumed = Consumed.with(serde("key"), serde("value"));
        if (has("timestamp")) {
            consumed = consumed.withTimestampExtractor(Library.timestamp(text("timestamp")));
        }
        if (has("reset")) {
            consumed = consumed.withOffsetResetPolicy(
                    text("reset").equals("latest") ? AutoOffsetReset.latest() : AutoOffsetReset.earliest());
        }
        return has("name") ? consumed.withName(text("name")) : consumed;
    }

    Produced<Object, Object> produced() {
        Produced<Object, Object> produced = Produced.with(serde("key"), serde("value"));
        if (flag("partitioner")) {
            produced = produced.withStreamPartitioner((topic, k, v, n) -> java.util.Optional.of(java.util.Set.of(0)));
        }
        return has("name") ? produced.withName(text("name")) : produced;
    }

    Grouped<Object, Object> grouped() {
        Grouped<Object, Object> grouped = Grouped.with(serde("key"), serde("value"));
        return has("name") ? grouped.withName(text("name")) : grouped;
    }

    Repartitioned<Object, Object> repartitioned() {
        Repartitioned<Object, Object> repartitioned = Repartitioned.with(serde("key"), serde("value"));
        if (has("partitions")) {
            repartitioned = repartitioned.withNumberOfPartitions(args.path("partitions").asInt());
        }
        return has("name") ? repartitioned.withName(text("name")) : repartitioned;
    }

    Joined<Object, Object, Object> joined() {
        Joined<Object, Object, Object> joined = Joined.with(serde("key"), serde("value"), serde("other_value"));
        if (has("grace")) {
            joined = joined.withGracePeriod(span("grace"));
        }
        return has("name") ? joined.withName(text("name")) : joined;
    }

    StreamJoined<Object, Object, Object> streamJoined() {
        StreamJoined<Object, Object, Object> joined = StreamJoined.with(serde("key"), serde("value"), serde("other_value"));
        if (has("store_name")) {
            joined = joined.withStoreName(text("store_name"));
        }
        return has("name") ? joined.withName(text("name")) : joined;
    }

    TableJoined<Object, Object> tableJoined() {
        return has("name") ? TableJoined.as(text("name")) : TableJoined.with(null, null);
    }

    JoinWindows joinWindows() {
        JsonNode within = args.path("within");
        Duration before = Duration.ofMillis(within.get(0).asLong());
        Duration after = Duration.ofMillis(within.get(1).asLong());
        JoinWindows windows = has("grace")
                ? JoinWindows.ofTimeDifferenceAndGrace(before, span("grace")) : JoinWindows.ofTimeDifferenceWithNoGrace(before);
        return before.equals(after) ? windows : windows.after(after);
    }

    /** TimeWindows, UnlimitedWindows, SlidingWindows or SessionWindows. */
    static Object windows(JsonNode windows) {
        Duration size = Duration.ofMillis(windows.path("size").asLong());
        boolean graced = windows.hasNonNull("grace");
        Duration grace = Duration.ofMillis(windows.path("grace").asLong());
        return switch (windows.path("type").asText()) {
            case "tumbling" -> time(size, graced, grace);
            case "hopping" -> time(size, graced, grace).advanceBy(Duration.ofMillis(windows.path("advance").asLong()));
            case "sliding" -> graced
                    ? SlidingWindows.ofTimeDifferenceAndGrace(size, grace) : SlidingWindows.ofTimeDifferenceWithNoGrace(size);
            case "session" -> graced
                    ? SessionWindows.ofInactivityGapAndGrace(size, grace) : SessionWindows.ofInactivityGapWithNoGrace(size);
            case "unlimited" -> UnlimitedWindows.of().startOn(Instant.ofEpochMilli(windows.path("start").asLong()));
            default -> throw new IllegalArgumentException("windows " + windows);
        };
    }

    private static TimeWindows time(Duration size, boolean graced, Duration grace) {
        return graced ? TimeWindows.ofSizeAndGrace(size, grace) : TimeWindows.ofSizeWithNoGrace(size);
    }

    @SuppressWarnings("unchecked")
    static <S> Windows<org.apache.kafka.streams.kstream.Window> timeWindows(Object windows) {
        return (Windows<org.apache.kafka.streams.kstream.Window>) windows;
    }

    /** Without `store` the same as Kafka Streams' overloads without Materialized. */
    <S extends StateStore> Materialized<Object, Object, S> materialized() {
        JsonNode store = args.path("store");
        Materialized<Object, Object, S> result = as(store);
        if (store.hasNonNull("key")) {
            result = result.withKeySerde(Library.serde(store.path("key").asText()));
        }
        if (store.hasNonNull("value")) {
            result = result.withValueSerde(Library.serde(store.path("value").asText()));
        }
        if (store.hasNonNull("caching")) {
            result = store.path("caching").asBoolean() ? result.withCachingEnabled() : result.withCachingDisabled();
        }
        if (store.hasNonNull("logging")) {
            result = store.path("logging").asBoolean() ? result.withLoggingEnabled(Library.config()) : result.withLoggingDisabled();
        }
        return store.hasNonNull("retention") ? result.withRetention(Duration.ofMillis(store.path("retention").asLong())) : result;
    }

    @SuppressWarnings("unchecked")
    private static <S extends StateStore> Materialized<Object, Object, S> as(JsonNode store) {
        if (store.hasNonNull("history")) {
            Duration history = Duration.ofMillis(store.path("history").asLong());
            Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> versioned =
                    Materialized.as(Stores.persistentVersionedKeyValueStore(store.path("name").asText(), history));
            return (Materialized<Object, Object, S>) (Materialized<?, ?, ?>) versioned;
        }
        return store.hasNonNull("name") ? Materialized.as(store.path("name").asText()) : Materialized.with(null, null);
    }

    Suppressed<Object> suppressed() {
        boolean closes = text("until").equals("window_closes");
        Suppressed<?> suppressed = closes
                ? Suppressed.untilWindowCloses((Suppressed.StrictBufferConfig) buffer(args.path("buffer")))
                : Suppressed.untilTimeLimit(span("limit"), buffer(args.path("buffer")));
        if (has("name")) {
            suppressed = suppressed.withName(text("name"));
        }
        @SuppressWarnings("unchecked")
        Suppressed<Object> untyped = (Suppressed<Object>) suppressed;
        return untyped;
    }

    private static Suppressed.BufferConfig<?> buffer(JsonNode buffer) {
        if (buffer.isMissingNode() || buffer.isNull() || buffer.isEmpty()) {
            return Suppressed.BufferConfig.unbounded();
        }
        Suppressed.EagerBufferConfig eager = buffer.hasNonNull("records")
                ? Suppressed.BufferConfig.maxRecords(buffer.path("records").asLong())
                : Suppressed.BufferConfig.maxBytes(buffer.path("bytes").asLong());
        return switch (buffer.path("full").asText()) {
            case "emit" -> eager.emitEarlyWhenFull();
            case "stop" -> eager.shutDownWhenFull();
            default -> throw new IllegalArgumentException("buffer " + buffer);
        };
    }

    /** A store of the Processor API. */
    StoreBuilder<?> storeBuilder() {
        String name = text("name");
        Serde<Object> key = serde("key");
        Serde<Object> value = serde("value");
        StoreBuilder<?> builder = switch (text("kind")) {
            case "key_value" -> Stores.keyValueStoreBuilder(
                    mixed ? Stores.inMemoryKeyValueStore(name) : Stores.persistentKeyValueStore(name), key, value);
            case "timestamped" -> Stores.timestampedKeyValueStoreBuilder(
                    mixed ? Stores.inMemoryKeyValueStore(name) : Stores.persistentTimestampedKeyValueStore(name), key, value);
            case "window" -> Stores.windowStoreBuilder(
                    Stores.persistentWindowStore(name, span("retention"), span("size"), flag("duplicates")), key, value);
            case "session" -> Stores.sessionStoreBuilder(Stores.persistentSessionStore(name, span("retention")), key, value);
            case "versioned" -> Stores.versionedKeyValueStoreBuilder(
                    Stores.persistentVersionedKeyValueStore(name, span("history")), key, value);
            default -> throw new IllegalArgumentException("store " + args);
        };
        if (has("caching")) {
            builder = flag("caching") ? builder.withCachingEnabled() : builder.withCachingDisabled();
        }
        return flag("unlogged") ? builder.withLoggingDisabled() : builder;
    }
}
