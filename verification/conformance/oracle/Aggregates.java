import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.Merger;

/** Ready aggregates of values, as functions of Kafka Streams; the aggregate is the text of a JSON object with sorted keys. */
final class Aggregates {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, String> functions = new TreeMap<>();

    Aggregates(JsonNode fields) {
        fields.properties().forEach(field -> functions.put(field.getKey(), field.getValue().asText()));
    }

    Initializer<Object> initializer() {
        return () -> {
            ObjectNode start = JSON.createObjectNode();
            functions.forEach((name, function) -> {
                if (function.equals("all") || function.equals("count") || function.equals("sum")) {
                    start.put(name, 0L);
                } else {
                    start.putNull(name);
                }
            });
            return start.toString();
        };
    }

    Aggregator<Object, Object, Object> adder() {
        return (key, value, aggregate) -> changed(value, aggregate, 1);
    }

    Aggregator<Object, Object, Object> subtractor() {
        return (key, value, aggregate) -> changed(value, aggregate, -1);
    }

    Merger<Object, Object> merger() {
        return (key, one, two) -> {
            JsonNode left = read(one);
            JsonNode right = read(two);
            ObjectNode result = JSON.createObjectNode();
            functions.forEach((name, function) -> result.set(name, merged(function, left.get(name), right.get(name))));
            return result.toString();
        };
    }

    private Object changed(Object value, Object aggregate, int sign) {
        JsonNode old = read(aggregate);
        ObjectNode result = JSON.createObjectNode();
        functions.forEach((name, function) -> result.set(name, step(function, value, old.get(name), sign)));
        return result.toString();
    }

    private static JsonNode step(String function, Object value, JsonNode old, int sign) {
        if (function.equals("all")) {
            return JSON.getNodeFactory().numberNode(old.asLong() + sign);
        }
        if (value == null) {
            return old;
        }
        return switch (function) {
            case "count" -> JSON.getNodeFactory().numberNode(old.asLong() + sign);
            case "sum" -> sum(old, JSON.valueToTree(value), sign);
            case "first" -> old.isNull() ? JSON.valueToTree(value) : old;
            case "last" -> JSON.valueToTree(value);
            default -> merged(function, old, JSON.valueToTree(value));
        };
    }

    private static JsonNode merged(String function, JsonNode one, JsonNode two) {
        return switch (function) {
            case "all", "count", "sum" -> sum(one, two, 1);
            case "first" -> one.isNull() ? two : one;
            case "last" -> two.isNull() ? one : two;
            case "min" -> one.isNull() || (!two.isNull() && compare(two, one) < 0) ? two : one;
            case "max" -> one.isNull() || (!two.isNull() && compare(two, one) > 0) ? two : one;
            default -> throw new IllegalArgumentException("aggregate " + function);
        };
    }

    private static JsonNode sum(JsonNode one, JsonNode two, int sign) {
        if (one.isIntegralNumber() && two.isIntegralNumber()) {
            return JSON.getNodeFactory().numberNode(Math.addExact(one.asLong(), sign * two.asLong()));
        }
        return JSON.getNodeFactory().numberNode(one.asDouble() + sign * two.asDouble());
    }

    /** By code points, where Java would compare text by UTF-16 units. */
    private static int compare(JsonNode one, JsonNode two) {
        if (one.isTextual()) {
            return java.util.Arrays.compare(one.asText().codePoints().toArray(), two.asText().codePoints().toArray());
        }
        return one.isIntegralNumber() && two.isIntegralNumber() ? Long.compare(one.asLong(), two.asLong())
                : Double.compare(one.asDouble(), two.asDouble());
    }

    private static JsonNode read(Object aggregate) {
        try {
            return JSON.readTree((String) aggregate);
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }
}
