import java.util.Map;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.CompactionStyle;
import org.rocksdb.InfoLogLevel;
import org.rocksdb.Options;

/** RocksDB for a few dozen records: opening it is expensive, so it allocates little and has no background work. */
public final class SmallStores implements RocksDBConfigSetter {
    @Override
    public void setConfig(String storeName, Options options, Map<String, Object> configs) {
        options.setWriteBufferSize(256 * 1024);
        options.setArenaBlockSize(16 * 1024);
        options.setMaxWriteBufferNumber(2);
        options.setCompactionStyle(CompactionStyle.NONE);
        options.setInfoLogLevel(InfoLogLevel.FATAL_LEVEL);
        options.setStatsDumpPeriodSec(0);
        options.setStatsPersistPeriodSec(0);
        options.setMaxOpenFiles(16);
        options.setSkipStatsUpdateOnDbOpen(true);
        options.setSkipCheckingSstFileSizesOnDbOpen(true);
    }

    @Override
    public void close(String storeName, Options options) {}
}
