import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.internals.InternalProcessorContext;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.ThreadCache;
import org.apache.kafka.streams.state.internals.WrappedStateStore;

/** The content of a driver's stores, through their public read methods. */
@SuppressWarnings("unchecked")
final class Contents {
    private final JsonNode spec;
    private final ObjectMapper json;

    Contents(JsonNode spec, ObjectMapper json) {
        this.spec = spec;
        this.json = json;
    }

    ObjectNode of(TopologyTestDriver driver) {
        ObjectNode stores = json.createObjectNode();
        for (Map.Entry<String, StateStore> entry : new TreeMap<>(driver.getAllStateStores()).entrySet()) {
            ObjectNode content = stores.putObject(entry.getKey());
            if (entry.getValue() == null) {
                content.put("kind", "missing");
                continue;
            }
            try {
                forgetCached(entry.getValue());
                read(entry.getValue(), content);
            } catch (UnsupportedOperationException | ClassCastException | IllegalArgumentException error) {
                // A join's store whose window has no length returns windows that Kafka Streams itself refuses to name.
                content.removeAll();
                content.put("kind", "unreadable");
            }
        }
        return stores;
    }

    /**
     * Empties the record cache above a window or session store. The last commit has flushed it, but the cache
     * still shows what the store itself has expired.
     */
    private static void forgetCached(StateStore store) {
        StateStore layer = store;
        while (layer instanceof WrappedStateStore<?, ?, ?> wrapper) {
            if (layer.getClass().getSimpleName().matches("Caching(Window|Session)Store|TimeOrderedCachingWindowStore")) {
                try {
                    Field context = field(layer.getClass(), "internalContext", "context");
                    String name = (String) field(layer.getClass(), "cacheName").get(layer);
                    ThreadCache cache = ((InternalProcessorContext<?, ?>) context.get(layer)).cache();
                    Method clear = ThreadCache.class.getDeclaredMethod("clear", String.class);
                    clear.setAccessible(true);
                    clear.invoke(cache, name);
                } catch (ReflectiveOperationException error) {
                    throw new IllegalStateException(error);
                }
            }
            layer = wrapper.wrapped();
        }
    }

    private static Field field(Class<?> owner, String... names) throws NoSuchFieldException {
        for (String name : names) {
            for (Field field : owner.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field;
                }
            }
        }
        throw new NoSuchFieldException(String.join(" or ", names));
    }

    private void read(StateStore store, ObjectNode content) {
        if (store instanceof VersionedKeyValueStore<?, ?> versioned) {
            content.put("kind", "versioned");
            versions((VersionedKeyValueStore<Object, Object>) versioned, content.putArray("entries"));
        } else if (store instanceof WindowStore<?, ?> window) {
            content.put("kind", "window");
            entries((KeyValueIterator<Object, Object>) (KeyValueIterator<?, ?>) window.all(), content.putArray("entries"));
        } else if (store instanceof SessionStore<?, ?> session) {
            content.put("kind", "session");
            entries((KeyValueIterator<Object, Object>) (KeyValueIterator<?, ?>) session.fetch(null, null), content.putArray("entries"));
        } else if (store instanceof KeyValueStore<?, ?> plain) {
            content.put("kind", "key_value");
            entries((KeyValueIterator<Object, Object>) (KeyValueIterator<?, ?>) plain.all(), content.putArray("entries"));
        } else {
            content.put("kind", "unreadable");
        }
    }

    private void entries(KeyValueIterator<Object, Object> found, ArrayNode entries) {
        try (found) {
            while (found.hasNext()) {
                KeyValue<Object, Object> entry = found.next();
                ArrayNode row = entries.addArray();
                row.add(key(entry.key));
                if (entry.value instanceof ValueAndTimestamp<?> stamped) {
                    row.add(scalar(stamped.value())).add(stamped.timestamp());
                } else {
                    row.add(scalar(entry.value));
                }
            }
        }
    }

    /** A versioned store cannot be iterated: it is read by the keys and times in the case. */
    private void versions(VersionedKeyValueStore<Object, Object> store, ArrayNode entries) {
        for (JsonNode key : spec.path("probe").path("keys")) {
            version(entries, key, -1, store.get(key.asText()));
            for (JsonNode at : spec.path("probe").path("times")) {
                version(entries, key, at.asLong(), store.get(key.asText(), at.asLong()));
            }
        }
    }

    private static void version(ArrayNode entries, JsonNode key, long at, VersionedRecord<Object> found) {
        if (found != null) {
            entries.addArray().add("s:" + key.asText()).add(at).add(scalar(found.value())).add(found.timestamp());
        }
    }

    private static String key(Object key) {
        return key instanceof Windowed<?> windowed
                ? key(windowed.key()) + "@" + windowed.window().start() + "/" + windowed.window().end() : scalar(key);
    }

    private static String scalar(Object value) {
        if (value == null) {
            return null;
        }
        if (value instanceof String) {
            return "s:" + value;
        }
        if (value instanceof Long) {
            return "l:" + value;
        }
        if (value instanceof Double number) {
            return "d:" + Long.toHexString(Double.doubleToLongBits(number));
        }
        if (value instanceof byte[] bytes) {
            return "b:" + HexFormat.of().formatHex(bytes);
        }
        throw new ClassCastException(value.getClass().getName());
    }
}
