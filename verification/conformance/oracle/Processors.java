import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.ProcessorContext;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** The processors of the specification; verification/conformance/processors.py is the same in Python. */
final class Processors {
    private Processors() {}

    static Processor<Object, Object, Object, Object> processor(String name, JsonNode args) {
        String store = args.path("uses").asText(null);
        return switch (name) {
            case "counting" -> new Counting(store);
            case "stream_timer" -> new Timer(store, args.path("interval").asLong(), PunctuationType.STREAM_TIME);
            case "wall_timer" -> new Timer(store, args.path("interval").asLong(), PunctuationType.WALL_CLOCK_TIME);
            case "add_header" -> new Each((record, self) -> self.forward(record.withHeaders(added(record))));
            case "retime" -> new Each((record, self) -> {
                self.forward(record.withTimestamp(record.timestamp() + 5));
                self.forward(record.withTimestamp(Math.max(0, record.timestamp() - 5)));
            });
            case "metadata" -> new Each((record, self) -> self.forward(record.withValue(self.where())));
            case "windowing" -> new Windowing(store);
            case "sessions" -> new Sessions(store);
            case "versions" -> new Versions(store);
            case "timestamped" -> new Timestamped(store);
            case "ranges" -> new Ranges(store);
            case "lookup" -> new Lookup(store);
            case "router" -> new Router(args.path("children"));
            case "global_put" -> new GlobalPut(store);
            default -> throw new IllegalArgumentException("processor " + name);
        };
    }

    static FixedKeyProcessor<Object, Object, Object> fixed(String name, JsonNode args) {
        return switch (name) {
            case "fixed_tag" -> new ContextualFixedKeyProcessor<>() {
                @Override
                public void process(FixedKeyRecord<Object, Object> record) {
                    context().forward(record.withValue(Library.clip(Library.show(record.value()) + "!")));
                }
            };
            case "fixed_retime" -> new ContextualFixedKeyProcessor<>() {
                @Override
                public void process(FixedKeyRecord<Object, Object> record) {
                    Headers headers = new RecordHeaders(record.headers());
                    headers.add("fixed", "1".getBytes(UTF_8));
                    context().forward(record.withValue(Library.clip(Library.show(record.value()) + "!"))
                            .withTimestamp(record.timestamp() + 2).withHeaders(headers));
                }
            };
            case "fixed_scatter" -> new ContextualFixedKeyProcessor<>() {
                @Override
                public void process(FixedKeyRecord<Object, Object> record) {
                    String text = Library.show(record.value());
                    context().forward(record.withValue(Library.clip(text + "1")).withTimestamp(record.timestamp() + 10));
                    context().forward(record.withValue(Library.clip(text + "2")).withTimestamp(record.timestamp()));
                    context().forward(record.withValue(Library.clip(text + "3")).withTimestamp(record.timestamp() + 10));
                }
            };
            case "fixed_counting" -> new FixedCounting(args.path("uses").asText());
            default -> throw new IllegalArgumentException("fixed-key processor " + name);
        };
    }

    static ValueTransformerWithKey<Object, Object, Object> transformer(String name, JsonNode args) {
        return switch (name) {
            case "value_tag" -> new Transformer(null);
            case "value_counting" -> new Transformer(args.path("uses").asText());
            default -> throw new IllegalArgumentException("value transformer " + name);
        };
    }

    private static Headers added(Record<Object, Object> record) {
        Headers headers = new RecordHeaders(record.headers());
        headers.add("added", Library.show(record.value()).getBytes(UTF_8));
        return headers;
    }

    private interface Body {
        void run(Record<Object, Object> record, Each self);
    }

    private static final class Each extends ContextualProcessor<Object, Object, Object, Object> {
        private final Body body;

        Each(Body body) {
            this.body = body;
        }

        void forward(Record<Object, Object> record) {
            context().forward(record);
        }

        String where() {
            // Below a timer there is no record: metadata is then either absent or says null/-1/-1.
            String source = context().recordMetadata().filter(m -> m.topic() != null)
                    .map(m -> m.topic().replaceFirst("^app-", "") + "/" + m.partition() + "/" + m.offset()).orElse("-");
            return source + "|" + context().currentStreamTimeMs() + "|" + context().currentSystemTimeMs();
        }

        @Override
        public void process(Record<Object, Object> record) {
            body.run(record, this);
        }
    }

    /** A processor with one store. */
    private abstract static class Stateful<S extends StateStore> extends ContextualProcessor<Object, Object, Object, Object> {
        private final String name;
        S store;

        Stateful(String name) {
            this.name = name;
        }

        @Override
        public void init(org.apache.kafka.streams.processor.api.ProcessorContext<Object, Object> context) {
            super.init(context);
            store = context.getStateStore(name);
        }

        void forward(Record<Object, Object> record, String value) {
            context().forward(record.withValue(Library.clip(value)));
        }
    }

    private static final class Counting extends Stateful<KeyValueStore<String, Long>> {
        Counting(String store) {
            super(store);
        }

        @Override
        public void process(Record<Object, Object> record) {
            String key = Library.show(record.key());
            Long seen = store.get(key);
            store.put(key, seen == null ? 1L : seen + 1);
            forward(record, Library.show(record.value()) + "#" + store.get(key));
        }
    }

    /** Keeps the last value of each key; the timer forwards all of them. It stops after some rounds; otherwise it might run forever. */
    private static final class Timer extends Stateful<KeyValueStore<String, String>> {
        private final long interval;
        private final PunctuationType type;
        private Cancellable schedule;
        private int rounds;

        Timer(String store, long interval, PunctuationType type) {
            super(store);
            this.interval = interval;
            this.type = type;
        }

        @Override
        public void init(org.apache.kafka.streams.processor.api.ProcessorContext<Object, Object> context) {
            super.init(context);
            schedule = context.schedule(Duration.ofMillis(interval), type, this::punctuate);
        }

        private void punctuate(long timestamp) {
            List<KeyValue<String, String>> all = new ArrayList<>();
            try (KeyValueIterator<String, String> entries = store.all()) {
                entries.forEachRemaining(all::add);
            }
            for (KeyValue<String, String> entry : all) {
                context().forward(new Record<>(entry.key, entry.value + "@" + timestamp, Math.max(0, timestamp)));
            }
            if (++rounds == (type == PunctuationType.WALL_CLOCK_TIME ? 3 : 20)) {
                schedule.cancel();
            }
        }

        @Override
        public void process(Record<Object, Object> record) {
            store.put(Library.show(record.key()), Library.clip(Library.show(record.value())));
        }
    }

    private static final class Windowing extends Stateful<WindowStore<String, String>> {
        Windowing(String store) {
            super(store);
        }

        @Override
        public void process(Record<Object, Object> record) {
            String key = Library.show(record.key());
            long at = record.timestamp();
            String value = record.value() == null ? null : Library.clip(Library.show(record.value()));
            store.put(key, value, at);
            StringBuilder seen = new StringBuilder();
            try (WindowStoreIterator<String> found = store.fetch(key, Math.max(0, at - 10), at + 10)) {
                found.forEachRemaining(entry -> seen.append(entry.key).append(entry.value).append(','));
            }
            try (WindowStoreIterator<String> found = store.backwardFetch(key, Math.max(0, at - 5), at)) {
                found.forEachRemaining(entry -> seen.append(entry.key).append(entry.value).append(';'));
            }
            forward(record, seen.toString());
        }
    }

    private static final class Sessions extends Stateful<SessionStore<String, String>> {
        Sessions(String store) {
            super(store);
        }

        @Override
        public void process(Record<Object, Object> record) {
            String key = Library.show(record.key());
            long start = record.timestamp();
            long end = record.timestamp();
            StringBuilder merged = new StringBuilder();
            List<Windowed<String>> old = new ArrayList<>();
            try (KeyValueIterator<Windowed<String>, String> found = store.findSessions(key, Math.max(0, start - 5), end + 5)) {
                while (found.hasNext()) {
                    KeyValue<Windowed<String>, String> next = found.next();
                    old.add(next.key);
                    merged.append(next.value).append('|');
                    start = Math.min(start, next.key.window().start());
                    end = Math.max(end, next.key.window().end());
                }
            }
            old.forEach(store::remove);
            merged.append(Library.show(record.value()));
            store.put(new Windowed<>(key, new SessionWindow(start, end)), Library.clip(merged.toString()));
            forward(record, start + "-" + end + merged);
        }
    }

    private static final class Versions extends Stateful<VersionedKeyValueStore<String, String>> {
        Versions(String store) {
            super(store);
        }

        private static String show(VersionedRecord<String> found) {
            return found == null ? "~" : found.value() + "@" + found.timestamp();
        }

        @Override
        public void process(Record<Object, Object> record) {
            String key = Library.show(record.key());
            String value = record.value() == null ? null : Library.clip(Library.show(record.value()));
            long validTo = store.put(key, value, record.timestamp());
            forward(record, show(store.get(key)) + "|" + show(store.get(key, Math.max(0, record.timestamp() - 3))) + "|" + validTo);
        }
    }

    private static final class Timestamped extends Stateful<KeyValueStore<String, ValueAndTimestamp<String>>> {
        Timestamped(String store) {
            super(store);
        }

        @Override
        public void process(Record<Object, Object> record) {
            String key = Library.show(record.key());
            ValueAndTimestamp<String> old = store.get(key);
            if (record.value() == null) {
                store.delete(key);
            } else {
                store.put(key, ValueAndTimestamp.make(Library.clip(Library.show(record.value())), record.timestamp()));
            }
            forward(record, old == null ? "~" : old.value() + "@" + old.timestamp());
        }
    }

    private static final class Ranges extends Stateful<KeyValueStore<String, String>> {
        Ranges(String store) {
            super(store);
        }

        private static void read(StringBuilder seen, char mark, KeyValueIterator<String, String> found) {
            try (found) {
                found.forEachRemaining(entry -> seen.append(entry.key).append(entry.value));
            }
            seen.append(mark);
        }

        @Override
        public void process(Record<Object, Object> record) {
            String key = Library.show(record.key());
            if (record.value() == null) {
                store.delete(key);
            } else {
                String head = Library.head(record.value());
                store.putIfAbsent(key + "0", head);
                store.put(key, head);
            }
            StringBuilder seen = new StringBuilder();
            read(seen, '1', store.range("a", "b"));
            read(seen, '2', store.reverseRange("a", null));
            read(seen, '3', store.prefixScan("b", new org.apache.kafka.common.serialization.StringSerializer()));
            read(seen, '4', store.reverseAll());
            forward(record, seen.toString());
        }
    }

    /** Reads a global or read-only store. */
    private static final class Lookup extends Stateful<KeyValueStore<String, Object>> {
        Lookup(String store) {
            super(store);
        }

        @Override
        public void process(Record<Object, Object> record) {
            Object found = store.get(Library.show(record.key()));
            String text = found instanceof ValueAndTimestamp<?> stamped
                    ? Library.show(stamped.value()) + "@" + stamped.timestamp() : Library.show(found);
            forward(record, Library.show(record.value()) + "&" + text);
        }
    }

    private static final class Router extends ContextualProcessor<Object, Object, Object, Object> {
        private final List<String> children = new ArrayList<>();

        Router(JsonNode children) {
            children.forEach(child -> this.children.add(child.asText()));
        }

        @Override
        public void process(Record<Object, Object> record) {
            long choice = Library.crc(Library.show(record.value())) % children.size();
            context().forward(record, children.get((int) choice));
        }
    }

    private static final class GlobalPut extends Stateful<KeyValueStore<String, Object>> {
        GlobalPut(String store) {
            super(store);
        }

        @Override
        public void process(Record<Object, Object> record) {
            if (record.key() == null) {
                return;
            }
            String key = Library.show(record.key());
            if (record.value() == null) {
                store.delete(key);
            } else {
                store.put(key, Library.clip(Library.show(record.value())));
            }
        }
    }

    private static final class FixedCounting extends ContextualFixedKeyProcessor<Object, Object, Object> {
        private final String name;
        private KeyValueStore<String, Long> store;

        FixedCounting(String name) {
            this.name = name;
        }

        @Override
        public void init(org.apache.kafka.streams.processor.api.FixedKeyProcessorContext<Object, Object> context) {
            super.init(context);
            store = context.getStateStore(name);
        }

        @Override
        public void process(FixedKeyRecord<Object, Object> record) {
            String key = Library.show(record.key());
            Long seen = store.get(key);
            store.put(key, seen == null ? 1L : seen + 1);
            context().forward(record.withValue(Library.clip(Library.show(record.value()) + "#" + store.get(key))));
        }
    }

    private static final class Transformer implements ValueTransformerWithKey<Object, Object, Object> {
        private final String name;
        private KeyValueStore<String, Long> store;

        Transformer(String name) {
            this.name = name;
        }

        @Override
        public void init(ProcessorContext context) {
            store = name == null ? null : context.getStateStore(name);
        }

        @Override
        public Object transform(Object key, Object value) {
            if (store == null) {
                return value == null ? null : Library.clip(Library.show(key) + "^" + Library.show(value));
            }
            Long seen = store.get(Library.show(key));
            store.put(Library.show(key), seen == null ? 1L : seen + 1);
            return value == null ? null : Library.clip(Library.show(value) + "#" + store.get(Library.show(key)));
        }

        @Override
        public void close() {}
    }
}
