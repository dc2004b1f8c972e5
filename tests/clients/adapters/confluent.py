"""confluent-kafka (librdkafka)."""

import logging
import re
import sys
import time

import common
import journal
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

# Messages that a member of a group takes before it commits.
BATCH_COUNT_MAX = 200
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
                                             "enable.partition.eof": True, "isolation.level": options.isolation,
                                             "fetch.message.max.bytes": common.REQUEST_SIZE_MAX}))
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


class Generation(logging.Handler):
    """The client tells its generation nowhere but in its log."""

    def __init__(self):
        super().__init__()
        self.number = None

    def emit(self, record):
        if found := re.search(r"JoinGroup response: GenerationId (-?\d+)", record.getMessage()):
            self.number = int(found[1])


def group(options):
    member = journal.Member(options)
    generation = Generation()
    logger = logging.getLogger("librdkafka")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    logger.addHandler(generation)
    consumer = Consumer(settings(options, **{
        "group.id": options.group, "partition.assignment.strategy": options.assignor, "session.timeout.ms": options.session,
        "heartbeat.interval.ms": options.session // journal.HEARTBEATS_IN_SESSION, "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": journal.METADATA_MS, "debug": "cgrp",
        "error_cb": lambda _: None,
        **({"group.instance.id": options.instance} if options.instance else {}),
    }), logger=logger)

    def commit():
        member.commit(lambda offsets: commit_now(consumer, options.topic, offsets))

    def revoked(_, partitions):
        commit()
        member.lost([one.partition for one in partitions])

    consumer.subscribe([options.topic], on_revoke=revoked,
                       on_assign=lambda _, partitions: member.gained(generation.number, [one.partition for one in partitions]),
                       on_lost=lambda _, partitions: member.lost([one.partition for one in partitions]))
    while not member.stopping:
        # One at a time: a rebalance within a call for several is hidden.
        for number in range(BATCH_COUNT_MAX):
            message = consumer.poll(0 if number else 0.1)
            if message is None:
                break
            if not_failed(message):
                member.got([(message.partition(), message.offset(), message.value())])
        commit()
    consumer.close()
    member.left()


def not_failed(message):
    """False for errors that the client gets over by itself; the others end the program."""
    error = message.error()
    if error is not None and error.fatal():
        raise SystemExit(f"consume: {error}")
    if error is not None:
        print(error, file=sys.stderr, flush=True)
    return error is None


def commit_now(consumer, topic, offsets):
    for done in consumer.commit(offsets=[TopicPartition(topic, *pair) for pair in offsets.items()], asynchronous=False):
        if done.error:
            raise KafkaException(done.error)


if __name__ == "__main__":
    options = common.arguments()
    globals()[options.command](options)
