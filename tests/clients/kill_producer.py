"""The producer of the SIGKILL run, a process of its own: sends stamped messages until SIGTERM, then waits for every answer.

`kill_producer.py BOOTSTRAP TOPIC PARTITIONS SENDER idempotent|plain JOURNAL`. The journal gets a line for each acknowledged message:
partition, sequence, offset. The exit code is 1 when a message was given up.
"""

import random
import signal
import sys
import time

import payload
from confluent_kafka import KafkaException, Producer

# Enough to keep requests under way all the time, without filling the disk.
MESSAGES_PER_SECOND = 8000


def main() -> int:
    bootstrap, topic, partitions, sender, kind, journal_path = sys.argv[1:]
    sender, partitions = int(sender), int(partitions)
    failures = []
    fatal = []

    def noted(error):
        # Lost connections are what this run is about; the client goes on by itself.
        if error.fatal():
            fatal.append(str(error))

    producer = Producer({
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "enable.idempotence": kind == "idempotent",
        # Without idempotence, a retry overtakes what is sent after it, on any broker.
        "max.in.flight.requests.per.connection": 5 if kind == "idempotent" else 1,
        "linger.ms": 2,
        "batch.num.messages": 50,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 100,
        "retry.backoff.ms": 20,
        "compression.codec": ["none", "lz4"][sender % 2],
        "error_cb": noted,
    })
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    chance = random.Random(sender)
    next_sequence = [0] * partitions
    begin = time.monotonic()
    count = 0
    with open(journal_path, "w") as journal:

        def delivered(error, message):
            if error is not None:
                failures.append(str(error))
                return
            stamp = payload.decode(message.value())
            journal.write(f"{stamp.partition} {stamp.sequence} {message.offset()}\n")

        while not stopping and not fatal:
            partition = chance.randrange(partitions)
            stamp = payload.Stamp(sender, partition, next_sequence[partition])
            try:
                producer.produce(topic, payload.encode(stamp, chance), partition=partition, on_delivery=delivered)
            except BufferError:
                producer.poll(0.05)
                continue
            except KafkaException as error:
                failures.append(str(error))
                break
            next_sequence[partition] += 1
            count += 1
            producer.poll(0)
            ahead = begin + count / MESSAGES_PER_SECOND - time.monotonic()
            if ahead > 0:
                producer.poll(ahead)
            elif ahead < -1:
                # Does not catch up on what an outage held back.
                begin -= ahead
        left = producer.flush(120)
    if failures or fatal or left:
        print(f"{len(failures)} given up, the first: {failures[:1]}, fatal: {fatal[:1]}, {left} unanswered", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
