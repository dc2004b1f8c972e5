"""Takes records from one topic to another in transactions, with confluent-kafka, until SIGTERM or SIGKILL.

    transform.py transform --bootstrap B --topic INPUT --output-topic OUTPUT --group G --session MS --journal FILE

The group's name is the transactional id and the group instance id, too. Each record goes to the partition of its own number. One
transaction in some is aborted on purpose; its values begin with `aborted-`. The journal has a line for each step:

    TIME begin COUNT
    TIME aborting OFFSETS       on purpose: what it wrote, and was acknowledged, as `partition:offset` between commas
    TIME aborted
    TIME committed
    TIME failed REASON          and aborted because of that
"""

import random
import re
import signal
import sys
import time

import common
import journal
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

ABORT_OF = 5
BATCH_COUNT_MAX = 50


class Transform:
    def __init__(self, options):
        self.options = options
        self.journal = open(options.journal, "ab", buffering=0)
        self.stopping = False
        signal.signal(signal.SIGTERM, self.stop)
        both = {"bootstrap.servers": options.bootstrap, "reconnect.backoff.max.ms": 200, "error_cb": lambda _: None,
                "topic.metadata.refresh.interval.ms": journal.METADATA_MS,
                # Else it forgets all brokers when the only one is away, and 2.16 never sends offsets to a transaction again.
                "metadata.recovery.strategy": "none"}
        self.consumer = Consumer(both | {
            "group.id": options.group, "group.instance.id": options.group, "session.timeout.ms": options.session,
            "isolation.level": "read_committed", "enable.auto.commit": False, "auto.offset.reset": "earliest",
        })
        self.producer = Producer(both | {"transactional.id": options.group})

    def stop(self, *_):
        self.stopping = True

    def write(self, line):
        self.journal.write(f"{time.monotonic_ns() // 1000} {line}\n".encode())

    def run(self):
        self.retrying(self.producer.init_transactions)
        self.consumer.subscribe([self.options.topic])
        while not self.stopping:
            batch = []
            while len(batch) < BATCH_COUNT_MAX and (message := self.consumer.poll(0 if batch else 0.1)) is not None:
                error = message.error()
                if error is None:
                    batch.append(message)
                elif error.fatal():
                    raise SystemExit(f"consume: {error}")
                else:
                    print(error, file=sys.stderr, flush=True)
            # A rebalance may have come with a later message than the first.
            owned = {one.partition for one in self.consumer.assignment()}
            batch = [message for message in batch if message.partition() in owned]
            if batch:
                self.transaction(batch)
        self.consumer.close()

    def transaction(self, batch):
        abort = random.randrange(ABORT_OF) == 0
        written = []
        try:
            self.producer.begin_transaction()
            self.write(f"begin {len(batch)}")
            for message in batch:
                value = b"aborted-" + message.value() if abort else message.value()
                self.producer.produce(self.options.output_topic, value, partition=message.partition(),
                                      on_delivery=lambda error, sent: written.append((error, sent.partition(), sent.offset())))
            if abort:
                self.producer.flush(60)
                acknowledged = [f"{partition}:{offset}" for error, partition, offset in written if error is None]
                self.write(f"aborting {','.join(acknowledged) or '-'}")
                self.retrying(self.producer.abort_transaction)
                self.write("aborted")
                self.rewind(batch)
                return
            positions = {message.partition(): message.offset() + 1 for message in batch}
            offsets = [TopicPartition(self.options.topic, *pair) for pair in positions.items()]
            self.retrying(self.producer.send_offsets_to_transaction, offsets, self.consumer.consumer_group_metadata())
            self.retrying(self.producer.commit_transaction)
            self.write("committed")
        except KafkaException as raised:
            error = raised.args[0]
            if not error.txn_requires_abort():
                raise
            self.write("failed " + re.sub(r"\s+", " ", str(error)))
            self.retrying(self.producer.abort_transaction)
            self.rewind(batch)

    def retrying(self, act, *words):
        """What has no answer yet may be asked again."""
        while True:
            try:
                return act(*words)
            except KafkaException as raised:
                if not raised.args[0].retriable() or self.stopping:
                    raise

    def rewind(self, batch):
        first = {}
        for message in batch:
            first.setdefault(message.partition(), message.offset())
        for partition, offset in first.items():
            try:
                self.consumer.seek(TopicPartition(self.options.topic, partition, offset))
            except KafkaException as error:
                # One that was taken away starts at what is committed.
                print(f"seek: {error}", file=sys.stderr)


if __name__ == "__main__":
    Transform(common.arguments()).run()
