import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** The adapters' command line, messages cut from a file, and the frames that {@code consume} writes: see common.py. */
final class Arguments {
    static final int BLOCK_SIZE = 1 << 20;
    static final int REQUEST_SIZE_MAX = 4 << 20;

    final String command;
    private final Map<String, String> options = new HashMap<>();

    Arguments(String[] words) {
        command = words[0];
        for (int i = 1; i < words.length; i++) {
            if (words[i].equals("--keyed")) options.put("--keyed", "yes");
            else options.put(words[i], words[++i]);
        }
    }

    String get(String name) {
        String value = options.get(name);
        if (value == null) throw new IllegalArgumentException(name + " is missing");
        return value;
    }

    boolean has(String name) {
        return options.containsKey(name);
    }

    int partitions() {
        return Integer.parseInt(get("--partitions"));
    }

    interface Sink {
        void take(byte[] key, byte[] value) throws Exception;
    }

    /** Keys and values cut from the input. A key is the number of its message in the file. */
    void messages(Sink sink) throws Exception {
        boolean lines = get("--split").equals("lines");
        boolean keyed = options.containsKey("--keyed");
        try (InputStream source = new BufferedInputStream(new FileInputStream(get("--input")), 1 << 16)) {
            for (long number = 0; ; number++) {
                byte[] value = lines ? line(source) : block(source);
                if (value == null) return;
                sink.take(keyed ? Long.toString(number).getBytes(StandardCharsets.US_ASCII) : null, value);
            }
        }
    }

    private byte[] buffer = new byte[256];

    private byte[] line(InputStream source) throws IOException {
        int length = 0;
        int next;
        while ((next = source.read()) >= 0 && next != '\n') {
            if (length == buffer.length) buffer = java.util.Arrays.copyOf(buffer, 2 * length);
            buffer[length++] = (byte) next;
        }
        return next < 0 && length == 0 ? null : java.util.Arrays.copyOf(buffer, length);
    }

    private static byte[] block(InputStream source) throws IOException {
        byte[] block = source.readNBytes(BLOCK_SIZE);
        return block.length == 0 ? null : block;
    }

    DataOutputStream output() throws IOException {
        return new DataOutputStream(new BufferedOutputStream(new FileOutputStream(get("--output")), 1 << 16));
    }

    static void frame(DataOutputStream target, int partition, long offset, long timestamp, byte[] key, byte[] value) throws IOException {
        int keyLength = key == null ? -1 : key.length;
        int valueLength = value == null ? -1 : value.length;
        target.writeBytes(partition + " " + offset + " " + timestamp + " " + keyLength + " " + valueLength + "\n");
        if (key != null) target.write(key);
        if (value != null) target.write(value);
        target.write('\n');
    }
}
