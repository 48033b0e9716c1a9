import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.streams.kstream.ForeachAction;

/** What peek, foreach and print did, per operation. */
final class Effects {
    private final Path folder;
    private final Map<String, List<String>> actions = new TreeMap<>();
    private final List<String> files = new ArrayList<>();

    Effects(Path folder) {
        this.folder = folder;
    }

    ForeachAction<Object, Object> action(Stage stage) {
        List<String> seen = actions.computeIfAbsent(stage.op.path("id").asText(), id -> new ArrayList<>());
        return (key, value) -> seen.add(Library.clip(Library.show(key)) + "=" + Library.clip(Library.show(value)));
    }

    String file(Stage stage) {
        String id = stage.op.path("id").asText();
        files.add(id);
        return folder.resolve(id + ".print").toString();
    }

    Map<String, List<String>> seen() throws IOException {
        for (String id : files) {
            actions.put(id, Files.readAllLines(folder.resolve(id + ".print")));
        }
        return actions;
    }
}
