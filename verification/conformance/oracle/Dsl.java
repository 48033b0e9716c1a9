import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.BranchedKStream;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Printed;
import org.apache.kafka.streams.kstream.SessionWindowedCogroupedKStream;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindowedCogroupedKStream;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** Builds a topology of the DSL from the operations of a case. */
@SuppressWarnings("unchecked")
final class Dsl {
    private final StreamsBuilder builder;
    private final Effects effects;
    private final boolean mixed;
    private final Map<String, Object> handles = new HashMap<>();

    Dsl(StreamsBuilder builder, Effects effects, boolean mixed) {
        this.builder = builder;
        this.effects = effects;
        this.mixed = mixed;
    }

    void add(JsonNode op) {
        Stage stage = new Stage(op, mixed);
        Object result = switch (op.path("verb").asText().split("_")[0]) {
            case "builder" -> source(stage);
            case "stream" -> stream(stage);
            case "table" -> table(stage);
            case "grouped" -> grouped(stage);
            case "windowed" -> windowed(stage);
            case "sessions" -> sessions(stage);
            case "cogrouped" -> cogrouped(stage);
            case "regrouped" -> regrouped(stage);
            default -> throw new IllegalArgumentException("verb " + op);
        };
        if (result instanceof List<?> several) {
            for (int i = 0; i < several.size(); i++) {
                handles.put(op.path("id").asText() + "." + i, several.get(i));
            }
        } else if (result != null) {
            handles.put(op.path("id").asText(), result);
        }
    }

    private <T> T input(Stage stage, int index) {
        return (T) handles.get(stage.op.path("in").get(index).asText());
    }

    private static String verb(Stage stage) {
        String verb = stage.op.path("verb").asText();
        return verb.substring(verb.indexOf('_') + 1);
    }

    private Object source(Stage s) {
        switch (verb(s)) {
            case "stream":
                return builder.stream(s.text("topic"), s.consumed());
            case "stream_topics":
                return builder.stream(s.texts("topics"), s.consumed());
            case "stream_pattern":
                return builder.stream(Pattern.compile(s.text("pattern")), s.consumed());
            case "table":
                return builder.table(s.text("topic"), s.consumed(), s.<KeyValueStore<Bytes, byte[]>>materialized());
            case "global_table":
                return s.has("store")
                        ? builder.globalTable(s.text("topic"), s.consumed(), s.<KeyValueStore<Bytes, byte[]>>materialized())
                        : builder.globalTable(s.text("topic"), s.consumed());
            case "add_state_store":
                builder.addStateStore(s.storeBuilder());
                return null;
            case "add_global_store":
                Stage store = new Stage(s.args.path("global"), mixed);
                builder.addGlobalStore(store.storeBuilder(), s.text("topic"), s.consumed(),
                        () -> (org.apache.kafka.streams.processor.api.Processor<Object, Object, Void, Void>)
                                (Object) Processors.processor("global_put", s.args));
                return null;
            default:
                throw new IllegalArgumentException("source " + s.op);
        }
    }

    private Object stream(Stage s) {
        KStream<Object, Object> in = input(s, 0);
        String fn = s.text("fn");
        String[] stores = s.texts("stores").toArray(String[]::new);
        switch (verb(s)) {
            case "filter":
                return in.filter(Library.predicate(fn), s.named());
            case "filter_not":
                return in.filterNot(Library.predicate(fn), s.named());
            case "select_key":
                return in.selectKey(Library.keySelector(fn), s.named());
            case "map":
                return in.map(Library.mapper(fn), s.named());
            case "map_values":
                return s.flag("with_key") ? in.mapValues(Library.valueMapperWithKey(fn), s.named())
                        : in.mapValues(Library.valueMapper(fn), s.named());
            case "flat_map":
                return in.flatMap(Library.flatMapper(fn), s.named());
            case "flat_map_values":
                return s.flag("with_key") ? in.flatMapValues(Library.flatValueMapperWithKey(fn), s.named())
                        : in.flatMapValues(Library.flatValueMapper(fn), s.named());
            case "peek":
                return in.peek(effects.action(s), s.named());
            case "foreach":
                in.foreach(effects.action(s), s.named());
                return null;
            case "print":
                in.print(printed(s));
                return null;
            case "merge":
                return in.merge(input(s, 1), s.named());
            case "split":
                return split(in, s);
            case "repartition":
                return in.repartition(s.repartitioned());
            case "to":
                in.to(s.text("topic"), s.produced());
                return null;
            case "to_dynamic":
                in.to(Library.topic(fn, s.text("topic")), s.produced());
                return null;
            case "to_table":
                return s.has("store") ? in.toTable(s.named(), s.materialized()) : in.toTable(s.named());
            case "group_by_key":
                return s.hasAny("key", "value", "name") ? in.groupByKey(s.grouped()) : in.groupByKey();
            case "group_by":
                return s.hasAny("key", "value", "name")
                        ? in.groupBy(Library.keySelector(fn), s.grouped()) : in.groupBy(Library.keySelector(fn));
            case "process":
                return s.has("name") ? in.process(() -> Processors.processor(fn, s.args), s.named(), stores)
                        : in.process(() -> Processors.processor(fn, s.args), stores);
            case "process_values":
                return s.has("name") ? in.processValues(() -> Processors.fixed(fn, s.args), s.named(), stores)
                        : in.processValues(() -> Processors.fixed(fn, s.args), stores);
            default:
                return streamJoin(in, s);
        }
    }

    private Object streamJoin(KStream<Object, Object> in, Stage s) {
        String fn = s.text("fn");
        boolean keyed = s.flag("with_key");
        switch (verb(s)) {
            case "join_stream":
                KStream<Object, Object> other = input(s, 1);
                return switch (s.text("kind")) {
                    case "inner" -> keyed ? in.join(other, Library.joinerWithKey(fn), s.joinWindows(), s.streamJoined())
                            : in.join(other, Library.joiner(fn), s.joinWindows(), s.streamJoined());
                    case "left" -> keyed ? in.leftJoin(other, Library.joinerWithKey(fn), s.joinWindows(), s.streamJoined())
                            : in.leftJoin(other, Library.joiner(fn), s.joinWindows(), s.streamJoined());
                    default -> keyed ? in.outerJoin(other, Library.joinerWithKey(fn), s.joinWindows(), s.streamJoined())
                            : in.outerJoin(other, Library.joiner(fn), s.joinWindows(), s.streamJoined());
                };
            case "join_table":
                KTable<Object, Object> table = input(s, 1);
                if (s.text("kind").equals("inner")) {
                    return keyed ? in.join(table, Library.joinerWithKey(fn), s.joined()) : in.join(table, Library.joiner(fn), s.joined());
                }
                return keyed ? in.leftJoin(table, Library.joinerWithKey(fn), s.joined())
                        : in.leftJoin(table, Library.joiner(fn), s.joined());
            case "join_global":
                GlobalKTable<Object, Object> global = input(s, 1);
                var on = Library.keySelector(s.text("on"));
                if (s.text("kind").equals("inner")) {
                    return keyed ? in.join(global, on, Library.joinerWithKey(fn), s.named())
                            : in.join(global, on, Library.joiner(fn), s.named());
                }
                return keyed ? in.leftJoin(global, on, Library.joinerWithKey(fn), s.named())
                        : in.leftJoin(global, on, Library.joiner(fn), s.named());
            default:
                throw new IllegalArgumentException("stream verb " + s.op);
        }
    }

    private Printed<Object, Object> printed(Stage s) {
        Printed<Object, Object> printed = Printed.toFile(effects.file(s));
        if (s.has("label")) {
            printed = printed.withLabel(s.text("label"));
        }
        if (s.flag("mapper")) {
            printed = printed.withKeyValueMapper((k, v) -> Library.show(k) + " -> " + Library.show(v));
        }
        return s.has("name") ? printed.withName(s.text("name")) : printed;
    }

    private static List<Object> split(KStream<Object, Object> in, Stage s) {
        BranchedKStream<Object, Object> branched = in.split(s.named());
        List<String> names = s.texts("names");
        List<String> predicates = s.texts("branches");
        List<KStream<Object, Object>> found = new ArrayList<>();
        for (int i = 0; i < predicates.size(); i++) {
            int at = i;
            found.add(null);
            branched = branched.branch(Library.predicate(predicates.get(i)), take(found, at, names));
        }
        if (s.flag("otherwise")) {
            found.add(null);
            branched.defaultBranch(take(found, predicates.size(), names));
        } else {
            branched.noDefaultBranch();
        }
        return new ArrayList<>(found);
    }

    private static Branched<Object, Object> take(List<KStream<Object, Object>> found, int at, List<String> names) {
        return names.isEmpty() ? Branched.withConsumer(branch -> found.set(at, branch))
                : Branched.withConsumer(branch -> found.set(at, branch), names.get(at));
    }

    private Object table(Stage s) {
        KTable<Object, Object> in = input(s, 0);
        String fn = s.text("fn");
        Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> store = s.has("store") ? s.materialized() : null;
        switch (verb(s)) {
            case "filter":
                return store == null ? in.filter(Library.predicate(fn), s.named()) : in.filter(Library.predicate(fn), s.named(), store);
            case "filter_not":
                return store == null ? in.filterNot(Library.predicate(fn), s.named())
                        : in.filterNot(Library.predicate(fn), s.named(), store);
            case "map_values":
                if (s.flag("with_key")) {
                    return store == null ? in.mapValues(Library.valueMapperWithKey(fn), s.named())
                            : in.mapValues(Library.valueMapperWithKey(fn), s.named(), store);
                }
                return store == null ? in.mapValues(Library.valueMapper(fn), s.named())
                        : in.mapValues(Library.valueMapper(fn), s.named(), store);
            case "transform_values":
                String[] stores = s.texts("stores").toArray(String[]::new);
                return store == null ? in.transformValues(() -> Processors.transformer(fn, s.args), s.named(), stores)
                        : in.transformValues(() -> Processors.transformer(fn, s.args), store, s.named(), stores);
            case "to_stream":
                return fn.isEmpty() ? in.toStream(s.named()) : in.toStream(Library.keySelector(fn), s.named());
            case "suppress":
                return in.suppress(s.suppressed());
            case "group_by":
                return s.hasAny("key", "value", "name")
                        ? in.groupBy(Library.mapper(fn), s.grouped()) : in.groupBy(Library.mapper(fn));
            case "join_table":
                return tableJoin(in, input(s, 1), s, store);
            case "join_foreign":
                return foreignJoin(in, input(s, 1), s, store);
            default:
                throw new IllegalArgumentException("table verb " + s.op);
        }
    }

    private static Object tableJoin(KTable<Object, Object> in, KTable<Object, Object> other, Stage s,
            Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> store) {
        var joiner = Library.joiner(s.text("fn"));
        return switch (s.text("kind")) {
            case "inner" -> store == null ? in.join(other, joiner, s.named()) : in.join(other, joiner, s.named(), store);
            case "left" -> store == null ? in.leftJoin(other, joiner, s.named()) : in.leftJoin(other, joiner, s.named(), store);
            default -> store == null ? in.outerJoin(other, joiner, s.named()) : in.outerJoin(other, joiner, s.named(), store);
        };
    }

    private static Object foreignJoin(KTable<Object, Object> in, KTable<Object, Object> other, Stage s,
            Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> store) {
        var joiner = Library.joiner(s.text("fn"));
        boolean inner = s.text("kind").equals("inner");
        if (s.flag("with_key")) {
            var on = Library.foreignKeyWithKey(s.text("on"));
            if (store == null) {
                return inner ? in.join(other, on, joiner, s.tableJoined()) : in.leftJoin(other, on, joiner, s.tableJoined());
            }
            return inner ? in.join(other, on, joiner, s.tableJoined(), store) : in.leftJoin(other, on, joiner, s.tableJoined(), store);
        }
        var on = Library.foreignKey(s.text("on"));
        if (store == null) {
            return inner ? in.join(other, on, joiner, s.tableJoined()) : in.leftJoin(other, on, joiner, s.tableJoined());
        }
        return inner ? in.join(other, on, joiner, s.tableJoined(), store) : in.leftJoin(other, on, joiner, s.tableJoined(), store);
    }

    private static Initializer<Object> initializer(Stage s) {
        return Library.initializer(s.text("init"))::get;
    }

    private static <S extends org.apache.kafka.streams.processor.StateStore> Materialized<Object, Long, S> counted(Stage s) {
        return (Materialized<Object, Long, S>) (Materialized<?, ?, ?>) s.<S>materialized();
    }

    /** Without a store, the overload without Materialized: it numbers the nodes that follow differently. */
    private Object grouped(Stage s) {
        KGroupedStream<Object, Object> in = input(s, 0);
        boolean bare = !s.has("store") && !s.has("name");
        return switch (verb(s)) {
            case "count" -> s.has("store") ? in.count(s.named(), counted(s)) : in.count(s.named());
            case "reduce" -> bare ? in.reduce(Library.reducer(s.text("fn")))
                    : in.reduce(Library.reducer(s.text("fn")), s.named(), s.materialized());
            case "aggregate" -> bare ? in.aggregate(initializer(s), Library.aggregator(s.text("fn")))
                    : in.aggregate(initializer(s), Library.aggregator(s.text("fn")), s.named(), s.materialized());
            case "agg" -> {
                Aggregates ready = new Aggregates(s.args.path("fields"));
                yield in.aggregate(ready.initializer(), ready.adder(), s.named(), s.materialized());
            }
            case "cogroup" -> in.cogroup(Library.aggregator(s.text("fn")));
            case "windowed_by" -> emitting(by(in, Stage.windows(s.args.path("windows"))), s);
            default -> throw new IllegalArgumentException("grouped verb " + s.op);
        };
    }

    private static Object by(KGroupedStream<Object, Object> in, Object windows) {
        if (windows instanceof SessionWindows sessions) {
            return in.windowedBy(sessions);
        }
        return windows instanceof SlidingWindows sliding ? in.windowedBy(sliding) : in.windowedBy(Stage.timeWindows(windows));
    }

    private static Object emitting(Object handle, Stage s) {
        if (!s.has("emit")) {
            return handle;
        }
        EmitStrategy strategy = s.text("emit").equals("close") ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
        return handle instanceof SessionWindowedKStream<?, ?> sessions ? sessions.emitStrategy(strategy)
                : ((TimeWindowedKStream<?, ?>) handle).emitStrategy(strategy);
    }

    private Object windowed(Stage s) {
        Object handle = input(s, 0);
        Materialized<Object, Object, WindowStore<Bytes, byte[]>> store = s.has("store") ? s.materialized() : null;
        if (handle instanceof TimeWindowedCogroupedKStream<?, ?>) {
            TimeWindowedCogroupedKStream<Object, Object> in = (TimeWindowedCogroupedKStream<Object, Object>) handle;
            return store == null ? in.aggregate(initializer(s), s.named()) : in.aggregate(initializer(s), s.named(), store);
        }
        TimeWindowedKStream<Object, Object> in = (TimeWindowedKStream<Object, Object>) handle;
        switch (verb(s)) {
            case "count":
                return store == null ? in.count(s.named()) : in.count(s.named(), counted(s));
            case "reduce":
                var reducer = Library.reducer(s.text("fn"));
                return store == null ? in.reduce(reducer, s.named()) : in.reduce(reducer, s.named(), store);
            case "aggregate":
                var aggregator = Library.aggregator(s.text("fn"));
                return store == null ? in.aggregate(initializer(s), aggregator, s.named())
                        : in.aggregate(initializer(s), aggregator, s.named(), store);
            case "agg":
                var ready = new Aggregates(s.args.path("fields"));
                return in.aggregate(ready.initializer(), ready.adder(), s.named(), store);
            default:
                throw new IllegalArgumentException("windowed verb " + s.op);
        }
    }

    private Object sessions(Stage s) {
        Object handle = input(s, 0);
        Materialized<Object, Object, SessionStore<Bytes, byte[]>> store = s.has("store") ? s.materialized() : null;
        if (handle instanceof SessionWindowedCogroupedKStream<?, ?>) {
            SessionWindowedCogroupedKStream<Object, Object> in = (SessionWindowedCogroupedKStream<Object, Object>) handle;
            var merger = Library.merger(s.text("merger"));
            return store == null ? in.aggregate(initializer(s), merger, s.named())
                    : in.aggregate(initializer(s), merger, s.named(), store);
        }
        SessionWindowedKStream<Object, Object> in = (SessionWindowedKStream<Object, Object>) handle;
        switch (verb(s)) {
            case "count":
                return store == null ? in.count(s.named()) : in.count(s.named(), counted(s));
            case "reduce":
                var reducer = Library.reducer(s.text("fn"));
                return store == null ? in.reduce(reducer, s.named()) : in.reduce(reducer, s.named(), store);
            case "aggregate":
                var aggregator = Library.aggregator(s.text("fn"));
                var merger = Library.merger(s.text("merger"));
                return store == null ? in.aggregate(initializer(s), aggregator, merger, s.named())
                        : in.aggregate(initializer(s), aggregator, merger, s.named(), store);
            case "agg":
                var ready = new Aggregates(s.args.path("fields"));
                return in.aggregate(ready.initializer(), ready.adder(), ready.merger(), s.named(), store);
            default:
                throw new IllegalArgumentException("session verb " + s.op);
        }
    }

    private Object cogrouped(Stage s) {
        CogroupedKStream<Object, Object> in = input(s, 0);
        switch (verb(s)) {
            case "cogroup":
                return in.cogroup(this.<KGroupedStream<Object, Object>>input(s, 1), Library.aggregator(s.text("fn")));
            case "aggregate":
                return s.has("store") ? in.aggregate(initializer(s), s.named(), s.materialized())
                        : in.aggregate(initializer(s), s.named());
            case "windowed_by":
                Object windows = Stage.windows(s.args.path("windows"));
                if (windows instanceof SessionWindows sessions) {
                    return in.windowedBy(sessions);
                }
                return windows instanceof SlidingWindows sliding ? in.windowedBy(sliding) : in.windowedBy(Stage.timeWindows(windows));
            default:
                throw new IllegalArgumentException("cogrouped verb " + s.op);
        }
    }

    private Object regrouped(Stage s) {
        KGroupedTable<Object, Object> in = input(s, 0);
        Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> store = s.has("store") ? s.materialized() : null;
        switch (verb(s)) {
            case "count":
                return store == null ? in.count(s.named()) : in.count(s.named(), counted(s));
            case "reduce":
                var add = Library.reducer(s.text("fn"));
                var subtract = Library.reducer(s.text("subtract"));
                return store == null && !s.has("name") ? in.reduce(add, subtract)
                        : in.reduce(add, subtract, s.named(), s.materialized());
            case "aggregate":
                var adder = Library.aggregator(s.text("fn"));
                var subtractor = Library.aggregator(s.text("subtract"));
                return store == null ? in.aggregate(initializer(s), adder, subtractor, s.named())
                        : in.aggregate(initializer(s), adder, subtractor, s.named(), store);
            case "agg":
                var ready = new Aggregates(s.args.path("fields"));
                return in.aggregate(ready.initializer(), ready.adder(), ready.subtractor(), s.named(), store);
            default:
                throw new IllegalArgumentException("regrouped verb " + s.op);
        }
    }
}
