"""confluent-kafka (librdkafka)."""

import time

import common
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

# How librdkafka is told to speak as to an old broker.
FALLBACK = {"0.9": "0.9.0.1", "0.10": "0.10.0.1"}


def settings(options, **more):
    config = {"bootstrap.servers": options.bootstrap, "message.max.bytes": common.REQUEST_SIZE_MAX, **more}
    if options.protocol:
        config |= {"api.version.request": False, "broker.version.fallback": FALLBACK[options.protocol]}
    return config


class Sender:
    """A producer that waits where its queue is full, and remembers the first failure."""

    def __init__(self, options):
        self.error = None
        self.producer = Producer(settings(options, **{"compression.codec": options.codec, "linger.ms": 20, "acks": "all"}))

    def send(self, topic, value, key, **more):
        while True:
            try:
                self.producer.produce(topic, value, key, on_delivery=self.delivered, **more)
                self.producer.poll(0)
                return
            except BufferError:
                self.producer.poll(0.1)

    def delivered(self, error, _message):
        self.error = self.error or error

    def finish(self):
        left = self.producer.flush(120)
        if self.error or left:
            raise SystemExit(f"not delivered: {self.error}, {left} left")


def produce(options):
    sender = Sender(options)
    for key, value in common.messages(options):
        sender.send(options.topic, value, key)
    sender.finish()


def send(options):
    sender = Sender(options)
    for record in common.read_records(options.input):
        more = {} if record.timestamp < 0 else {"timestamp": record.timestamp}
        sender.send(options.topic, record.value, record.key, partition=record.partition, headers=record.headers, **more)
    sender.finish()


def received(options):
    """Every message of the topic, until the end of every partition."""
    consumer = Consumer(settings(options, **{"group.id": "unused", "enable.auto.commit": False, "check.crcs": True,
                                             "enable.partition.eof": True, "fetch.message.max.bytes": common.REQUEST_SIZE_MAX}))
    consumer.assign([TopicPartition(options.topic, partition, OFFSET_BEGINNING) for partition in range(options.partitions)])
    ended = set()
    silent_since = time.monotonic()
    while len(ended) < options.partitions:
        # It waits until it has that many, or for that long.
        batch = consumer.consume(1000, 0.1)
        if batch:
            silent_since = time.monotonic()
        elif time.monotonic() > silent_since + 30:
            raise SystemExit("nothing came for 30 seconds")
        for message in batch:
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise SystemExit(f"consume: {error}")
    consumer.close()


def consume(options):
    with open(options.output, "wb") as target:
        for message in received(options):
            timestamp = message.timestamp()[1]
            target.write(common.frame(message.partition(), message.offset(), timestamp, message.key(), message.value()))


def read(options):
    common.write_records(options.output, [
        common.Record(message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value(),
                      message.headers() or [])
        for message in received(options)
    ])


def times(options):
    consumer = Consumer(settings(options, **{"group.id": "unused"}))
    answers = []
    for partition, timestamp in common.read_queries(options.input):
        [found] = consumer.offsets_for_times([TopicPartition(options.topic, partition, timestamp)], 30)
        if found.error:
            raise SystemExit(f"times: {found.error}")
        answers.append((partition, timestamp, max(found.offset, -1)))
    consumer.close()
    common.write_answers(options.output, answers)


if __name__ == "__main__":
    options = common.arguments()
    globals()[options.command](options)
