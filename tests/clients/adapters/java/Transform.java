import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Takes records from one topic to another in transactions, with the journal that transform.py describes. */
public final class Transform {
    /** One transaction in so many is aborted on purpose. */
    private static final int ABORT_OF = 5;

    private interface Step {
        void run();
    }

    private static volatile boolean stopping;

    private final FileOutputStream journal;
    private final KafkaConsumer<String, String> consumer;
    private final KafkaProducer<String, String> producer;
    private final String input;
    private final String output;
    private final Random chance = new Random();

    private Transform(Arguments arguments) throws IOException {
        input = arguments.get("--topic");
        output = arguments.get("--output-topic");
        journal = new FileOutputStream(arguments.get("--journal"), true);
        Properties common = new Properties();
        common.put("bootstrap.servers", arguments.get("--bootstrap"));
        common.put("reconnect.backoff.max.ms", "200");
        Properties reads = new Properties();
        reads.putAll(common);
        reads.put("group.id", arguments.get("--group"));
        reads.put("group.instance.id", arguments.get("--group"));
        reads.put("session.timeout.ms", arguments.get("--session"));
        reads.put("isolation.level", "read_committed");
        reads.put("enable.auto.commit", "false");
        reads.put("auto.offset.reset", "earliest");
        reads.put("max.poll.records", "50");
        consumer = new KafkaConsumer<>(reads, new StringDeserializer(), new StringDeserializer());
        Properties writes = new Properties();
        writes.putAll(common);
        writes.put("transactional.id", arguments.get("--group"));
        producer = new KafkaProducer<>(writes, new StringSerializer(), new StringSerializer());
    }

    public static void main(String[] words) {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                main.join();
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }));
        try {
            new Transform(new Arguments(words)).run();
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        // Else the exit code of a process that a signal ends is the signal's.
        Runtime.getRuntime().halt(0);
    }

    private void run() throws Exception {
        retrying(producer::initTransactions);
        consumer.subscribe(List.of(input));
        while (!stopping) {
            ConsumerRecords<String, String> batch = consumer.poll(Duration.ofMillis(100));
            if (!batch.isEmpty()) transaction(batch);
        }
        consumer.close();
        producer.close();
    }

    private void transaction(ConsumerRecords<String, String> batch) throws Exception {
        boolean abort = chance.nextInt(ABORT_OF) == 0;
        try {
            producer.beginTransaction();
            write("begin " + batch.count());
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (ConsumerRecord<String, String> record : batch) {
                sent.add(producer.send(new ProducerRecord<>(output, record.partition(), null, abort ? "aborted-" + record.value() : record.value())));
            }
            if (abort) {
                producer.flush();
                List<String> offsets = new ArrayList<>();
                for (Future<RecordMetadata> one : sent) offsets.add(one.get().partition() + ":" + one.get().offset());
                write("aborting " + String.join(",", offsets));
                retrying(producer::abortTransaction);
                write("aborted");
                rewind(batch);
                return;
            }
            Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
            for (TopicPartition partition : batch.partitions()) {
                List<ConsumerRecord<String, String>> records = batch.records(partition);
                positions.put(partition, new OffsetAndMetadata(records.get(records.size() - 1).offset() + 1));
            }
            retrying(() -> producer.sendOffsetsToTransaction(positions, consumer.groupMetadata()));
            retrying(producer::commitTransaction);
            write("committed");
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException | UnsupportedVersionException error) {
            throw error;
        } catch (KafkaException | java.util.concurrent.ExecutionException error) {
            write("failed " + error.toString().replaceAll("\\s+", " "));
            retrying(producer::abortTransaction);
            rewind(batch);
        }
    }

    /** What has no answer yet may be asked again. */
    private static void retrying(Step step) {
        while (true) {
            try {
                step.run();
                return;
            } catch (RetriableException error) {
                if (stopping) throw error;
            }
        }
    }

    private void rewind(ConsumerRecords<String, String> batch) {
        for (TopicPartition partition : batch.partitions()) {
            // One that was taken away starts at what is committed.
            if (consumer.assignment().contains(partition)) consumer.seek(partition, batch.records(partition).get(0).offset());
        }
    }

    private void write(String line) throws IOException {
        journal.write((System.nanoTime() / 1000 + " " + line + "\n").getBytes(StandardCharsets.UTF_8));
    }
}
