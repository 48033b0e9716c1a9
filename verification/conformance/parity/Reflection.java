import java.lang.reflect.Constructor;
import java.lang.reflect.Executable;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;
import java.util.StringJoiner;
import java.util.TreeSet;

/** Prints the public methods that the classes named as arguments declare, sorted: one JSON object per line. */
public final class Reflection {
    private static final String PACKAGE = "org.apache.kafka.streams.";

    public static void main(final String[] names) throws ClassNotFoundException {
        for (final String name : names) {
            final Class<?> type = Class.forName(PACKAGE + name, false, Reflection.class.getClassLoader());
            if (isReachable(type)) {
                lines(type).forEach(System.out::println);
            }
        }
    }

    private static boolean isReachable(final Class<?> type) {
        return Modifier.isPublic(type.getModifiers())
            && (type.getEnclosingClass() == null || isReachable(type.getEnclosingClass()));
    }

    private static TreeSet<String> lines(final Class<?> type) {
        final List<Executable> found = new ArrayList<>(List.of(type.getDeclaredMethods()));
        if (!Modifier.isAbstract(type.getModifiers())) {
            found.addAll(List.of(type.getDeclaredConstructors()));
        }
        final TreeSet<String> lines = new TreeSet<>();
        for (final Executable executable : found) {
            // Bridge methods are synthetic too: the compiler creates them, and no code calls them by name.
            if (Modifier.isPublic(executable.getModifiers()) && !executable.isSynthetic()) {
                lines.add(line(type, executable));
            }
        }
        return lines;
    }

    private static String line(final Class<?> type, final Executable executable) {
        final StringJoiner parameters = new StringJoiner(",", "[", "]");
        final Class<?>[] types = executable.getParameterTypes();
        for (int index = 0; index < types.length; index++) {
            final boolean rest = executable.isVarArgs() && index == types.length - 1;
            parameters.add(quoted(rest ? simple(types[index].getComponentType()) + "..." : simple(types[index])));
        }
        final boolean isNew = executable instanceof Constructor;
        final String returns = isNew ? simple(type) : simple(((Method) executable).getReturnType());
        final boolean deprecated = executable.isAnnotationPresent(Deprecated.class) || type.isAnnotationPresent(Deprecated.class);
        return "{\"class\":" + quoted(type.getName().substring(PACKAGE.length()).replace('$', '.'))
            + ",\"name\":" + quoted(isNew ? "new" : executable.getName())
            + ",\"parameters\":" + parameters
            + ",\"returns\":" + quoted(returns)
            + ",\"static\":" + Modifier.isStatic(executable.getModifiers())
            + ",\"deprecated\":" + deprecated + "}";
    }

    private static String simple(final Class<?> type) {
        final String name = type.getCanonicalName();
        return name.substring(type.getComponentType() == null && type.getPackage() != null ? type.getPackageName().length() + 1 : name.lastIndexOf('.') + 1);
    }

    private static String quoted(final String text) {
        return '"' + text + '"';
    }
}
