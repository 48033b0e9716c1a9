// Java's side of the comparison. Every line of the input is a topic and bytes in hex, which it reads and writes again; or a topic,
// a schema and a number, for which it writes that many values made up from the schema. It answers each with lines of hex.
import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;

public final class AvroPeer {
    private static final Random CHANCE = new Random(7);

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("apicurio.registry.url", arguments[0]);
        settings.put("apicurio.registry.auto-register", "true");
        // As Confluent's serializers do; by default, Apicurio's registers types within a schema on their own.
        settings.put("apicurio.registry.dereference-schema", "true");
        settings.put("apicurio.registry.auto-register.if-exists", "FIND_OR_CREATE_VERSION");
        settings.put("apicurio.registry.artifact-resolver-strategy", "io.apicurio.registry.serde.strategy.TopicIdStrategy");
        try (AvroKafkaSerializer<Object> serializer = new AvroKafkaSerializer<>();
                AvroKafkaDeserializer<Object> deserializer = new AvroKafkaDeserializer<>()) {
            serializer.configure(settings, false);
            deserializer.configure(settings, false);
            HexFormat hex = HexFormat.of();
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] parts = line.split("\t");
                if (parts.length == 2) {
                    Object value = deserializer.deserialize(parts[0], hex.parseHex(parts[1]));
                    System.out.println(hex.formatHex(serializer.serialize(parts[0], value)));
                    continue;
                }
                Schema schema = new Schema.Parser().parse(parts[1]);
                for (int number = 0; number < Integer.parseInt(parts[2]); number++) {
                    System.out.println(hex.formatHex(serializer.serialize(parts[0], made(schema))));
                }
            }
        }
    }

    private static Object made(Schema schema) {
        return switch (schema.getType()) {
            case NULL -> null;
            case BOOLEAN -> CHANCE.nextBoolean();
            case INT -> schema.getLogicalType() == null ? CHANCE.nextInt() : CHANCE.nextInt(40_000);
            case LONG -> schema.getLogicalType() == null ? CHANCE.nextLong() : CHANCE.nextLong(4_000_000_000_000L);
            case FLOAT -> CHANCE.nextFloat();
            case DOUBLE -> CHANCE.nextDouble();
            case STRING -> CHANCE.ints(CHANCE.nextInt(9), 0x20, 0x2000)
                    .collect(StringBuilder::new, StringBuilder::appendCodePoint, StringBuilder::append).toString();
            case BYTES -> ByteBuffer.wrap(bytes(CHANCE.nextInt(9)));
            case FIXED -> new GenericData.Fixed(schema, bytes(schema.getFixedSize()));
            case ENUM -> new GenericData.EnumSymbol(
                    schema, schema.getEnumSymbols().get(CHANCE.nextInt(schema.getEnumSymbols().size())));
            case UNION -> made(schema.getTypes().get(CHANCE.nextInt(schema.getTypes().size())));
            case ARRAY -> {
                List<Object> values = new ArrayList<>();
                for (int left = CHANCE.nextInt(4); left > 0; left--) {
                    values.add(made(schema.getElementType()));
                }
                yield values;
            }
            // One entry at most: Java's maps do not keep the order in which they were read.
            case MAP -> CHANCE.nextBoolean() ? Map.of() : Collections.singletonMap("key", made(schema.getValueType()));
            case RECORD -> {
                GenericRecord record = new GenericData.Record(schema);
                for (Schema.Field field : schema.getFields()) {
                    record.put(field.pos(), made(field.schema()));
                }
                yield record;
            }
        };
    }

    private static byte[] bytes(int size) {
        byte[] bytes = new byte[size];
        CHANCE.nextBytes(bytes);
        return bytes;
    }
}
