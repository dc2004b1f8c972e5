"""kafka-python."""

import common
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

VERSIONS = {"0.9": (0, 9), "0.10": (0, 10)}


def settings(options):
    config = {"bootstrap_servers": options.bootstrap}
    if options.protocol:
        config["api_version"] = VERSIONS[options.protocol]
    return config


def producer(options):
    codec = None if options.codec == "none" else options.codec
    more = {"enable_idempotence": False} if options.protocol else {}
    return KafkaProducer(**settings(options), compression_type=codec, acks="all", linger_ms=20, batch_size=1 << 17,
                         max_request_size=common.REQUEST_SIZE_MAX, **more)


def finish(client, sent):
    client.flush(120)
    for future in sent:
        future.get(120)
    client.close()


def produce(options):
    client = producer(options)
    sent = []
    for key, value in common.messages(options):
        sent.append(client.send(options.topic, value, key))
        if len(sent) == 10_000:
            # A failed one raises here, and no future is kept for longer.
            for future in sent:
                future.get(120)
            sent.clear()
    finish(client, sent)


def send(options):
    client = producer(options)
    sent = []
    for record in common.read_records(options.input):
        timestamp = None if record.timestamp < 0 else record.timestamp
        sent.append(client.send(options.topic, record.value, record.key, record.headers, record.partition, timestamp))
    finish(client, sent)


def received(options):
    consumer = KafkaConsumer(**settings(options), enable_auto_commit=False, auto_offset_reset="earliest",
                             max_partition_fetch_bytes=common.REQUEST_SIZE_MAX if options.protocol else 1 << 20)
    partitions = [TopicPartition(options.topic, partition) for partition in range(options.partitions)]
    consumer.assign(partitions)
    ends = consumer.end_offsets(partitions)
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        batches = consumer.poll(30_000, max_records=5000)
        if not batches:
            raise SystemExit("nothing came for 30 seconds")
        for batch in batches.values():
            yield from batch
    consumer.close()


def consume(options):
    with open(options.output, "wb") as target:
        for record in received(options):
            timestamp = -1 if record.timestamp is None else record.timestamp
            target.write(common.frame(record.partition, record.offset, timestamp, record.key, record.value))


def read(options):
    common.write_records(options.output, [
        common.Record(record.partition, record.offset, record.timestamp, record.key, record.value, list(record.headers))
        for record in received(options)
    ])


def times(options):
    consumer = KafkaConsumer(**settings(options))
    answers = []
    for partition, timestamp in common.read_queries(options.input):
        asked = TopicPartition(options.topic, partition)
        found = consumer.offsets_for_times({asked: timestamp})[asked]
        answers.append((partition, timestamp, -1 if found is None else found.offset))
    consumer.close()
    common.write_answers(options.output, answers)


if __name__ == "__main__":
    options = common.arguments()
    globals()[options.command](options)
