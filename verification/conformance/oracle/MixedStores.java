import java.util.Map;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/**
 * Key-value stores in memory, because RocksDB is slow to open; window and session stores on RocksDB, Kafka Streams'
 * default, because its own stores in memory expire differently.
 */
public final class MixedStores implements DslStoreSuppliers {
    private final DslStoreSuppliers memory = new BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers();
    private final DslStoreSuppliers rocks = new BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers();

    @Override
    public void configure(Map<String, ?> configs) {
        memory.configure(configs);
        rocks.configure(configs);
    }

    @Override
    public KeyValueBytesStoreSupplier keyValueStore(DslKeyValueParams params) {
        return memory.keyValueStore(params);
    }

    @Override
    public WindowBytesStoreSupplier windowStore(DslWindowParams params) {
        return rocks.windowStore(params);
    }

    @Override
    public SessionBytesStoreSupplier sessionStore(DslSessionParams params) {
        return rocks.sessionStore(params);
    }
}
