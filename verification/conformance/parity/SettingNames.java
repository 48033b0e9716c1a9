import java.util.TreeSet;
import org.apache.kafka.streams.StreamsConfig;

/** Prints the names of Kafka Streams' settings, sorted: one per line. */
public final class SettingNames {
    public static void main(final String[] none) {
        // Names that begin with two underscores are internal.
        new TreeSet<>(StreamsConfig.configDef().names()).stream().filter(name -> !name.startsWith("__")).forEach(System.out::println);
    }
}
