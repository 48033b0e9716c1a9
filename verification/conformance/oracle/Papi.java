import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;

/** Builds a topology of the Processor API from the operations of a case. */
final class Papi {
    private final Topology topology;
    private final boolean mixed;

    Papi(Topology topology, boolean mixed) {
        this.topology = topology;
        this.mixed = mixed;
    }

    void add(JsonNode op) {
        Stage s = new Stage(op, mixed);
        String[] parents = s.texts("parents").toArray(String[]::new);
        switch (op.path("verb").asText()) {
            case "topology_add_source" -> source(s);
            case "topology_add_processor" ->
                topology.addProcessor(s.text("name"), () -> Processors.processor(s.text("fn"), s.args), parents);
            case "topology_add_sink" -> sink(s, parents);
            case "topology_add_state_store" -> topology.addStateStore(s.storeBuilder(), s.texts("processors").toArray(String[]::new));
            case "topology_connect" ->
                topology.connectProcessorAndStateStores(s.text("processor"), s.texts("stores").toArray(String[]::new));
            case "topology_add_global_store" -> global(s);
            case "topology_add_read_only_store" -> readOnly(s);
            default -> throw new IllegalArgumentException("topology verb " + op);
        }
    }

    private static Deserializer<Object> reader(Stage s, String field) {
        return s.has(field) ? s.serde(field).deserializer() : null;
    }

    private static Serializer<Object> writer(Stage s, String field) {
        return s.has(field) ? s.serde(field).serializer() : null;
    }

    private void source(Stage s) {
        var timestamp = s.has("timestamp") ? Library.timestamp(s.text("timestamp")) : null;
        if (s.has("pattern")) {
            topology.addSource((org.apache.kafka.streams.AutoOffsetReset) null, s.text("name"), timestamp, reader(s, "key"), reader(s, "value"),
                    java.util.regex.Pattern.compile(s.text("pattern")));
            return;
        }
        topology.addSource((org.apache.kafka.streams.AutoOffsetReset) null, s.text("name"), timestamp, reader(s, "key"), reader(s, "value"),
                s.texts("topics").toArray(String[]::new));
    }

    private void sink(Stage s, String[] parents) {
        if (s.has("fn")) {
            topology.addSink(s.text("name"), Library.topic(s.text("fn"), s.text("topic")), writer(s, "key"), writer(s, "value"), parents);
        } else {
            topology.addSink(s.text("name"), s.text("topic"), writer(s, "key"), writer(s, "value"), parents);
        }
    }

    private void global(Stage s) {
        Stage store = new Stage(s.args.path("global"), mixed);
        ProcessorSupplier<Object, Object, Void, Void> supplier = () -> voided(Processors.processor("global_put", s.args));
        if (s.has("timestamp")) {
            topology.addGlobalStore(store.storeBuilder(), s.text("name"), Library.timestamp(s.text("timestamp")), reader(s, "key"),
                    reader(s, "value"), s.text("topic"), s.text("processor"), supplier);
        } else {
            topology.addGlobalStore(store.storeBuilder(), s.text("name"), reader(s, "key"), reader(s, "value"), s.text("topic"),
                    s.text("processor"), supplier);
        }
    }

    private void readOnly(Stage s) {
        Stage store = new Stage(s.args.path("global"), mixed);
        topology.addReadOnlyStateStore(store.storeBuilder(), s.text("name"), reader(s, "key"), reader(s, "value"), s.text("topic"),
                s.text("processor"), () -> voided(Processors.processor("global_put", s.args)));
    }

    @SuppressWarnings("unchecked")
    private static Processor<Object, Object, Void, Void> voided(Processor<?, ?, ?, ?> processor) {
        return (Processor<Object, Object, Void, Void>) processor;
    }
}
