import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a group, with the journal that journal.py describes. */
public final class Member implements ConsumerRebalanceListener {
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
    /** As in journal.py. */
    private static final int HEARTBEATS_IN_SESSION = 6;

    private final FileOutputStream journal;
    private final KafkaConsumer<String, String> consumer;
    private final String topic;
    private final TreeSet<Integer> owned = new TreeSet<>();
    private final TreeMap<Integer, Long> uncommitted = new TreeMap<>();
    private static volatile boolean stopping;

    private Member(Arguments arguments) throws IOException {
        topic = arguments.get("--topic");
        journal = new FileOutputStream(arguments.get("--journal"), true);
        int session = Integer.parseInt(arguments.get("--session"));
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments.get("--bootstrap"));
        properties.put("group.id", arguments.get("--group"));
        if (arguments.has("--instance")) properties.put("group.instance.id", arguments.get("--instance"));
        properties.put("partition.assignment.strategy", ASSIGNORS.get(arguments.get("--assignor")));
        properties.put("session.timeout.ms", session);
        properties.put("heartbeat.interval.ms", session / HEARTBEATS_IN_SESSION);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("max.poll.records", "200");
        consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    public static void main(String[] words) throws Exception {
        Thread main = Thread.currentThread();
        // SIGTERM: the process ends when this thread does.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                main.join();
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }));
        try {
            new Member(new Arguments(words)).run();
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        // Else the exit code of a process that a signal ends is the signal's.
        Runtime.getRuntime().halt(0);
    }

    private void run() {
        consumer.subscribe(List.of(topic), this);
        while (!stopping) {
            List<String> lines = new ArrayList<>();
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                lines.add("got " + record.partition() + " " + record.offset() + " " + record.value());
                uncommitted.put(record.partition(), record.offset() + 1);
            }
            write(lines);
            commit();
        }
        consumer.close();
        write(List.of("left"));
    }

    private void commit() {
        if (uncommitted.isEmpty()) return;
        String offsets = uncommitted.entrySet().stream().map(pair -> pair.getKey() + ":" + pair.getValue()).collect(Collectors.joining(","));
        write(List.of("committing " + offsets));
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        uncommitted.forEach((partition, offset) -> positions.put(new TopicPartition(topic, partition), new OffsetAndMetadata(offset)));
        try {
            consumer.commitSync(positions, Duration.ofSeconds(10));
        } catch (RuntimeException error) {
            write(List.of("refused " + offsets + " " + error.getClass().getSimpleName()));
            return;
        }
        write(List.of("committed " + offsets));
        uncommitted.clear();
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        for (TopicPartition one : partitions) owned.add(one.partition());
        write(List.of("gained " + consumer.groupMetadata().generationId() + " " + listed(partitions) + " "
            + (owned.isEmpty() ? "-" : owned.stream().map(String::valueOf).collect(Collectors.joining(",")))));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit();
        onPartitionsLost(partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        for (TopicPartition one : partitions) {
            owned.remove(one.partition());
            uncommitted.remove(one.partition());
        }
        write(List.of("lost " + listed(partitions)));
    }

    private static String listed(Collection<TopicPartition> partitions) {
        if (partitions.isEmpty()) return "-";
        return partitions.stream().map(TopicPartition::partition).sorted().map(String::valueOf).collect(Collectors.joining(","));
    }

    /** In one write, so that SIGKILL leaves all that came before. */
    private void write(List<String> lines) {
        long now = System.nanoTime() / 1000;
        StringBuilder text = new StringBuilder();
        for (String line : lines) text.append(now).append(' ').append(line).append('\n');
        try {
            journal.write(text.toString().getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
