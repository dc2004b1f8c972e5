import java.io.DataOutputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client of 0.10.2: no headers, no idempotence, records of magic 1. */
public final class OldClient {
    private final Arguments arguments;
    private final String topic;

    private OldClient(Arguments arguments) {
        this.arguments = arguments;
        topic = arguments.get("--topic");
    }

    public static void main(String[] words) throws Exception {
        OldClient client = new OldClient(new Arguments(words));
        switch (client.arguments.command) {
            case "produce": client.produce(); break;
            case "consume": client.consume(); break;
            default: throw new IllegalArgumentException(client.arguments.command);
        }
    }

    private void produce() throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments.get("--bootstrap"));
        properties.put("compression.type", arguments.get("--codec"));
        properties.put("acks", "all");
        properties.put("linger.ms", "20");
        properties.put("batch.size", "131072");
        properties.put("max.request.size", String.valueOf(Arguments.REQUEST_SIZE_MAX));
        AtomicReference<Exception> failure = new AtomicReference<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            arguments.messages((key, value) -> producer.send(new ProducerRecord<>(topic, key, value), (done, error) -> {
                if (error != null) failure.compareAndSet(null, error);
            }));
        }
        if (failure.get() != null) throw failure.get();
    }

    private void consume() throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments.get("--bootstrap"));
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             DataOutputStream target = arguments.output()) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int partition = 0; partition < arguments.partitions(); partition++) partitions.add(new TopicPartition(topic, partition));
            consumer.assign(partitions);
            // Else this client looks for committed offsets, even without a group.
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(30_000);
                if (records.isEmpty()) throw new IllegalStateException("nothing came for 30 seconds");
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    Arguments.frame(target, record.partition(), record.offset(), record.timestamp(), record.key(), record.value());
                }
            }
        }
    }
}
