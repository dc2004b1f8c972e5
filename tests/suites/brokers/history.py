"""Histories of a cluster: what producers sent, what was acknowledged, what readers and replicas have; and whether it fits together.

    history produce --bootstrap B --topic T --partitions N --name W --kind idempotent|plain|leader|transactional --journal FILE
    history read --bootstrap B --topic T --partitions N --name W --isolation read_committed|read_uncommitted --journal FILE [--follow]
    history replicas --topic T --journal FILE NAME=LOGDIR...
    history check FILE...

`produce` sends numbered records with acks=all, the kind `leader` with acks=1, until SIGTERM (or --seconds), then waits for every answer; started again with the same
journal, it goes on. `read` reads from the beginning to the end, with --follow until SIGTERM. `replicas` reads the files of a log directory,
of a broker that is stopped or has nothing to do. `check` takes the journals of one run, of any number of topics, and names each breach;
its exit code is 1 then. A journal is text with a line for each event, written at once; judge.py says what must hold, here is what a line is:

    TIME NAME produces TOPIC KIND        TIME: microseconds of the clock that all processes of a machine share
    TIME NAME sent PARTITION NUMBER [TRANSACTION]
                                         the record's value is NAME/PARTITION/NUMBER[/TRANSACTION]; numbers count within a partition
    TIME NAME acked PARTITION NUMBER OFFSET
                                         - for one that was sent again, and acknowledged as being there already
    TIME NAME failed PARTITION NUMBER REASON
    TIME NAME begins TRANSACTION, then commits or aborts (it is asked for), then committed or aborted (it is answered)
    TIME NAME undecided TRANSACTION REASON
    TIME NAME fatal REASON               the client gives up
    TIME NAME reads TOPIC read_committed|read_uncommitted|replica
    TIME NAME follows TOPIC read_committed|read_uncommitted
                                         the same while the run goes on
    TIME NAME read PARTITION OFFSET VALUE
    TIME NAME marker PARTITION OFFSET commit|abort PRODUCER_ID
    TIME NAME batch PARTITION BASE LAST CRC LEADER_EPOCH PRODUCER_ID PRODUCER_EPOCH SEQUENCE
    TIME NAME start PARTITION OFFSET     of a replica
    TIME NAME end PARTITION OFFSET       the offset after all that there is for this reader
    TIME NAME error REASON
"""

import argparse
import random
import re
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path

import judge
import segments

ABORT_OF = 5
RECORDS_IN_TRANSACTION_MAX = 12
# A record is given up after this, which no fault of a run reaches.
DELIVERY_MS = 900_000
SILENT_SECONDS_MAX = 60


class Journal:
    def __init__(self, path: str, name: str):
        self.file = open(path, "ab", buffering=0)
        self.name = name

    def write(self, *lines: str) -> None:
        now = time.monotonic_ns() // 1000
        self.file.write("".join(f"{now} {self.name} {line}\n" for line in lines).encode())


def one_word(error) -> str:
    return re.sub(r"\s+", "_", str(error)) or type(error).__name__


class Producing:
    """A producer through all its lives."""

    def __init__(self, options):
        from confluent_kafka import Producer
        self.options = options
        self.numbers, self.transaction = left_by(options.journal)
        self.journal = Journal(options.journal, options.name)
        self.chance = random.Random(f"{options.name} {self.transaction} {sum(self.numbers.values())}")
        self.stopping = False
        signal.signal(signal.SIGTERM, self.stop)
        self.fatal = None
        kinds = {
            "idempotent": {"enable.idempotence": True},
            # One at a time: else a retry overtakes what is sent after it. It still does where a partition changes its leader meanwhile.
            "plain": {"max.in.flight.requests.per.connection": 1},
            "leader": {"max.in.flight.requests.per.connection": 1, "acks": 1},
            "transactional": {"transactional.id": options.name, "transaction.timeout.ms": 60_000, "message.timeout.ms": 60_000,
                              # Else librdkafka 2.16 forgets its coordinator with all brokers, where none is there for a moment.
                              "metadata.recovery.strategy": "none"},
        }
        self.producer = Producer({
            "bootstrap.servers": options.bootstrap, "acks": "all", "linger.ms": 5, "batch.num.messages": 50, "message.timeout.ms": DELIVERY_MS,
            "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 500, "retry.backoff.ms": 50, "topic.metadata.refresh.interval.ms": 2000,
            "socket.timeout.ms": 10_000, "request.timeout.ms": 8_000, "log_level": 0,
            "socket.connection.setup.timeout.ms": 5_000, "error_cb": self.noted, **kinds[options.kind],
        })
        self.journal.write(f"produces {options.topic} {options.kind}")

    def stop(self, *_):
        self.stopping = True

    def noted(self, error):
        # Lost connections are what a run is about; the client goes on by itself.
        if error.fatal():
            self.fatal = error

    def delivered(self, error, message):
        _, partition, number, *_ = message.value().decode().split("/")
        if error is None:
            self.journal.write(f"acked {partition} {number} {'-' if message.offset() is None else message.offset()}")
        else:
            self.journal.write(f"failed {partition} {number} {one_word(error)}")

    def send(self, transaction: int | None = None) -> None:
        partition = self.chance.randrange(self.options.partitions)
        number = self.numbers[partition]
        last = "" if transaction is None else str(transaction)
        value = f"{self.options.name}/{partition}/{number}" + (f"/{last}" if last else "")
        self.journal.write(f"sent {partition} {number} {last}".rstrip())
        self.numbers[partition] += 1
        key = f"{self.options.name}-{number % 7}"
        while True:
            try:
                self.producer.produce(self.options.topic, value, key, partition=partition, on_delivery=self.delivered)
                return
            except BufferError:
                self.producer.poll(0.05)

    def run(self) -> None:
        from confluent_kafka import KafkaException
        begin, count = time.monotonic(), 0
        ends_at = begin + (self.options.seconds or float("inf"))
        try:
            if self.options.kind == "transactional":
                self.patiently(self.producer.init_transactions)
            while not self.stopping and self.fatal is None and time.monotonic() < ends_at:
                if self.options.kind == "transactional":
                    count += self.one_transaction()
                else:
                    self.send()
                    count += 1
                # Does not catch up on what an outage held back.
                begin = max(begin, time.monotonic() - count / self.options.rate - 0.5)
                while not self.stopping and (ahead := begin + count / self.options.rate - time.monotonic()) > 0:
                    # It returns after each delivery.
                    self.producer.poll(ahead)
            left = self.producer.flush(120)
        except KafkaException as error:
            self.fatal, left = error, 0
        if self.fatal is not None:
            self.journal.write(f"fatal {one_word(self.fatal)}")
            sys.exit(f"fatal: {self.fatal}")
        if left:
            self.journal.write(f"fatal {left}_unanswered")
            sys.exit(f"{left} unanswered")

    def one_transaction(self) -> int:
        from confluent_kafka import KafkaException
        self.transaction += 1
        number = self.transaction
        count = self.chance.randint(1, RECORDS_IN_TRANSACTION_MAX)
        self.journal.write(f"begins {number}")
        asked = False
        try:
            self.producer.begin_transaction()
            for _ in range(count):
                self.send(number)
                self.producer.poll(0)
            if self.chance.randrange(ABORT_OF) == 0:
                # Else librdkafka may ask to abort before the coordinator has let in a partition, on any broker, and give up.
                self.producer.flush(60)
                self.abort(number)
                return count
            asked = True
            self.journal.write(f"commits {number}")
            self.patiently(self.producer.commit_transaction)
            self.journal.write(f"committed {number}")
        except KafkaException as raised:
            error = raised.args[0]
            if not error.txn_requires_abort():
                if asked:
                    self.journal.write(f"undecided {number} {one_word(error)}")
                raise
            # The client says that it is not committed, and will not be.
            self.abort(number)
        return count

    def abort(self, number: int) -> None:
        self.journal.write(f"aborts {number}")
        self.patiently(self.producer.abort_transaction)
        self.journal.write(f"aborted {number}")

    def patiently(self, act) -> None:
        """What has no answer yet may be asked again."""
        from confluent_kafka import KafkaException
        while True:
            try:
                return act(30)
            except KafkaException as raised:
                if not raised.args[0].retriable():
                    raise


def left_by(path: str) -> tuple[defaultdict, int]:
    """The next number of each partition, and the last transaction, of the producer's former lives."""
    numbers, transaction = defaultdict(int), 0
    if Path(path).exists():
        for line in judge.whole_lines(Path(path).read_text()):
            _, _, event, *words = line.split(" ")
            if event == "sent":
                numbers[int(words[0])] = int(words[1]) + 1
            elif event == "begins":
                transaction = int(words[0])
    return numbers, transaction


def read(options) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    journal = Journal(options.journal, options.name)
    consumer = Consumer({
        "bootstrap.servers": options.bootstrap, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True,
        "enable.partition.eof": not options.follow, "isolation.level": options.isolation, "auto.offset.reset": "error",
        "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 2000, "socket.timeout.ms": 10_000,
        "fetch.wait.max.ms": 200, "fetch.error.backoff.ms": 50, "error_cb": lambda _: None, "log_level": 0,
    })
    consumer.assign([TopicPartition(options.topic, partition, OFFSET_BEGINNING) for partition in range(options.partitions)])
    journal.write(f"{'follows' if options.follow else 'reads'} {options.topic} {options.isolation}")
    ended: set[int] = set()
    silent_since = time.monotonic()
    while len(ended) < options.partitions and not stopping:
        batch = consumer.consume(1000, 0.1)
        if batch:
            silent_since = time.monotonic()
        elif not options.follow and time.monotonic() > silent_since + SILENT_SECONDS_MAX:
            journal.write(f"error nothing_came_for_{SILENT_SECONDS_MAX}_s,_and_partitions_{sorted(set(range(options.partitions)) - ended)}_have_no_end".replace(" ", ""))
            sys.exit("nothing comes")
        lines = []
        for message in batch:
            error = message.error()
            if error is None:
                lines.append(f"read {message.partition()} {message.offset()} {message.value().decode()}")
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
                lines.append(f"end {message.partition()} {message.offset()}")
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE) or error.fatal():
                lines.append(f"error {one_word(error)}")
        journal.write(*lines)
    consumer.close()


def replicas(options) -> None:
    for named in options.directories:
        name, _, directory = named.partition("=")
        journal = Journal(options.journal, name)
        journal.write(f"reads {options.topic} replica")
        for folder in sorted(Path(directory).glob(f"{options.topic}-*")):
            partition = int(folder.name.rpartition("-")[2]) if re.fullmatch(re.escape(options.topic) + r"-\d+", folder.name) else None
            if partition is not None and (options.only is None or partition in options.only):
                journal.write(*segments.lines(folder, partition))


def check(options) -> None:
    lines = [line for path in options.files for line in judge.whole_lines(Path(path).read_text())]
    breaches, summary = judge.judge(lines)
    for line in summary:
        print(line)
    for breach in breaches:
        print(f"BREACH  {breach}")
    sys.exit(1 if breaches else 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("produce", "read"):
        one = commands.add_parser(command)
        for option in ("--bootstrap", "--topic", "--name", "--journal"):
            one.add_argument(option, required=True)
        one.add_argument("--partitions", type=int, required=True)
        if command == "produce":
            one.add_argument("--kind", choices=["idempotent", "plain", "leader", "transactional"], required=True)
            one.add_argument("--rate", type=float, default=100, help="records a second (100)")
            one.add_argument("--seconds", type=float, help="end after this")
        else:
            one.add_argument("--isolation", choices=["read_committed", "read_uncommitted"], required=True)
            one.add_argument("--follow", action="store_true")
    one = commands.add_parser("replicas")
    one.add_argument("--topic", required=True)
    one.add_argument("--journal", required=True)
    one.add_argument("--only", type=lambda listed: [int(word) for word in listed.split(",")], help="these partitions, between commas")
    one.add_argument("directories", nargs="+", metavar="NAME=LOGDIR")
    commands.add_parser("check").add_argument("files", nargs="+")
    options = parser.parse_args()
    if options.command == "produce":
        Producing(options).run()
    else:
        {"read": read, "replicas": replicas, "check": check}[options.command](options)


if __name__ == "__main__":
    main()
