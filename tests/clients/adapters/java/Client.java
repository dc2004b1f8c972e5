import java.io.DataOutputStream;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client of today. */
public final class Client {
    private final Arguments arguments;
    private final String topic;

    private Client(Arguments arguments) {
        this.arguments = arguments;
        topic = arguments.get("--topic");
    }

    public static void main(String[] words) throws Exception {
        Client client = new Client(new Arguments(words));
        switch (client.arguments.command) {
            case "produce": client.produce(); break;
            case "consume": client.consume(); break;
            case "send": client.send(); break;
            case "read": client.read(); break;
            case "times": client.times(); break;
            default: throw new IllegalArgumentException(client.arguments.command);
        }
    }

    private KafkaProducer<byte[], byte[]> producer(String codec) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments.get("--bootstrap"));
        properties.put("compression.type", codec);
        properties.put("acks", "all");
        properties.put("linger.ms", "20");
        properties.put("batch.size", "131072");
        properties.put("max.request.size", String.valueOf(Arguments.REQUEST_SIZE_MAX));
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments.get("--bootstrap"));
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        if (arguments.has("--isolation")) properties.put("isolation.level", arguments.get("--isolation"));
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void produce() throws Exception {
        AtomicReference<Exception> failure = new AtomicReference<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(arguments.get("--codec"))) {
            arguments.messages((key, value) -> producer.send(new ProducerRecord<>(topic, key, value), (done, error) -> {
                if (error != null) failure.compareAndSet(null, error);
            }));
        }
        if (failure.get() != null) throw failure.get();
    }

    private void send() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer("none")) {
            List<Future<?>> sent = new ArrayList<>();
            for (String line : Files.readAllLines(Path.of(arguments.get("--input")))) {
                String[] fields = line.split("\t", -1);
                List<Header> headers = new ArrayList<>();
                for (String pair : fields[5].split(",")) {
                    if (pair.isEmpty()) continue;
                    String[] parts = pair.split(":", -1);
                    headers.add(new RecordHeader(new String(bytes(parts[0]), StandardCharsets.UTF_8), bytes(parts[1])));
                }
                long timestamp = Long.parseLong(fields[2]);
                sent.add(producer.send(new ProducerRecord<>(topic, Integer.valueOf(fields[0]), timestamp < 0 ? null : timestamp,
                    bytes(fields[3]), bytes(fields[4]), headers)));
            }
            for (Future<?> future : sent) future.get();
        }
    }

    private interface Sink {
        void take(ConsumerRecord<byte[], byte[]> record) throws Exception;
    }

    private void receive(Sink sink) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int partition = 0; partition < arguments.partitions(); partition++) partitions.add(new TopicPartition(topic, partition));
            consumer.assign(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            long silentSince = System.nanoTime();
            // The end may be a control record, which does not come.
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(1));
                if (!records.isEmpty()) silentSince = System.nanoTime();
                else if (System.nanoTime() - silentSince > 30_000_000_000L) throw new IllegalStateException("nothing came for 30 seconds");
                for (ConsumerRecord<byte[], byte[]> record : records) sink.take(record);
            }
        }
    }

    private void consume() throws Exception {
        try (DataOutputStream target = arguments.output()) {
            receive(record -> Arguments.frame(target, record.partition(), record.offset(), record.timestamp(), record.key(), record.value()));
        }
    }

    private void read() throws Exception {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        receive(records::add);
        records.sort(Comparator.<ConsumerRecord<byte[], byte[]>>comparingInt(ConsumerRecord::partition).thenComparingLong(ConsumerRecord::offset));
        try (PrintWriter target = new PrintWriter(arguments.output())) {
            for (ConsumerRecord<byte[], byte[]> record : records) {
                List<String> headers = new ArrayList<>();
                for (Header header : record.headers()) headers.add(hex(header.key().getBytes(StandardCharsets.UTF_8)) + ":" + hex(header.value()));
                target.print(record.partition() + "\t" + record.offset() + "\t" + record.timestamp() + "\t" + hex(record.key()) + "\t"
                    + hex(record.value()) + "\t" + String.join(",", headers) + "\n");
            }
        }
    }

    private void times() throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(); PrintWriter target = new PrintWriter(arguments.output())) {
            for (String line : Files.readAllLines(Path.of(arguments.get("--input")))) {
                String[] words = line.split(" ");
                TopicPartition partition = new TopicPartition(topic, Integer.parseInt(words[0]));
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, Long.valueOf(words[1]))).get(partition);
                target.print(line + " " + (found == null ? -1 : found.offset()) + "\n");
            }
        }
    }

    private static byte[] bytes(String hex) {
        return hex.equals("-") ? null : HexFormat.of().parseHex(hex);
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "-" : HexFormat.of().formatHex(bytes);
    }
}
