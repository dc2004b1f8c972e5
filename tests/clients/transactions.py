"""Consume-process-produce loops in transactions, killed with SIGKILL at random moments, and the broker, too.

One loop is written with confluent-kafka (adapters/transform.py), one with Java's client (adapters/java/Transform.java). Each takes the
numbered records of one topic to an output topic of its own, with the offsets in the same transaction, and starts again with the same
transactional id and group instance id. One transaction in five is aborted on purpose. Afterwards:

- read_committed, read by other clients, each output is the input: every record once, in the order of its partition;
- read_uncommitted, what was written in the transactions aborted on purpose is there, and nothing of it under read_committed;
- the group's committed offsets are the ends of the input;
- no transaction is left open: both isolation levels end at the same offset.
"""

import argparse
import dataclasses
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "adapters"))

import clients  # noqa: E402
import group_checks  # noqa: E402
import program  # noqa: E402
from cluster import Cluster, Failure  # noqa: E402
from ports import quiet_port  # noqa: E402
from confluent_kafka import Consumer, TopicPartition  # noqa: E402
from numbers_producer import Numbers  # noqa: E402
from relay import Relay  # noqa: E402

import common  # noqa: E402

INPUT = "numbers"
PARTITIONS = 6
RECORDS_PER_SECOND = 300
# Never to expire, however slow a machine starts a broker.
SESSION_MS = 120_000
# From a loop's first transaction.
LIFE_SECONDS_MAX = 1.5
# One kill of so many comes while the loop is still starting.
EARLY_OF = 5
# So many kills of loops for each of the broker.
LOOPS_FOR_BROKER = 3
PROGRESS_SECONDS_MAX = 90
ABORTED = b"aborted-"
BY_NAME = {client.name: client for client in clients.MODERN}


def main() -> int:
    parser = program.arguments(__doc__, seed=True)
    parser.add_argument("--times", type=int, default=30, help="kills of a loop; a third as many of the broker (30)")
    options = parser.parse_args()
    title = f"{options.times} kills, seed {options.seed}, broker {options.broker}"
    return program.run("transactions", title, options, lambda folder: run(options, folder))


class Loop:
    """One loop through all its lives; they share a journal."""

    def __init__(self, kind: str, readers: tuple[str, ...], bootstrap: str, folder: Path):
        self.kind = kind
        self.readers = readers
        self.bootstrap = bootstrap
        self.output = f"output-{kind}"
        self.group = f"loop-{kind}"
        self.journal = folder / f"{kind}.journal"
        self.journal.touch()
        self.log = folder / f"{kind}.out"
        command = {"confluent": clients.python("transform.py"), "java": clients.java("3.9.1", "Transform")}[kind]
        self.client = dataclasses.replace(BY_NAME[kind], command=command)
        self.process: subprocess.Popen | None = None
        self.lives = 0

    def start(self) -> None:
        self.lives += 1
        self.process = self.client.start(self.log, "transform", "--bootstrap", self.bootstrap, "--topic", INPUT, "--output-topic",
                                         self.output, "--group", self.group, "--session", SESSION_MS, "--journal", self.journal)

    def check_alive(self) -> None:
        if self.process.poll() is not None:
            said = " | ".join(self.log.read_text(errors="replace").strip().splitlines()[-4:])
            raise Failure(f"the {self.kind} loop ended by itself with {self.process.returncode}: {said}")

    def await_progress(self, since: int) -> None:
        """Waits until the journal is longer than it was."""
        begin = time.monotonic()
        while self.journal.stat().st_size <= since:
            self.check_alive()
            if time.monotonic() > begin + PROGRESS_SECONDS_MAX:
                raise Failure(f"the {self.kind} loop begins no transaction within {PROGRESS_SECONDS_MAX} s: {self.last_line()}")
            time.sleep(0.01)

    def last_line(self) -> str:
        lines = group_checks.whole_lines(self.journal.read_text())
        return lines[-1] if lines else "none yet"

    def kill(self) -> str:
        """Gives what it was doing."""
        self.check_alive()
        self.process.kill()
        self.process.wait()
        return self.last_line().split(" ")[1]

    def stop(self) -> None:
        self.check_alive()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            raise Failure(f"the {self.kind} loop does not end within 60 s: {self.last_line()}") from None
        if code != 0:
            raise Failure(f"the {self.kind} loop ended with {code}: {self.log.read_text(errors='replace')[-500:]}")


def run(options: argparse.Namespace, folder: Path) -> None:
    port = quiet_port()
    bootstrap = f"127.0.0.1:{port}"
    cluster = Cluster(folder, options.zookeeper, {"group.initial.rebalance.delay.ms": 0}, options.broker, port)
    relay = Relay(port, cluster.port)
    loops = [
        Loop("confluent", ("java", "kafka-python"), bootstrap, folder),
        Loop("java", ("confluent", "aiokafka"), bootstrap, folder),
    ]
    try:
        cluster.start()
        cluster.create_topic(INPUT, PARTITIONS)
        for loop in loops:
            cluster.create_topic(loop.output, PARTITIONS)
        numbers = Numbers(bootstrap, INPUT, PARTITIONS, RECORDS_PER_SECOND)
        numbers.start()
        kill_often(options, cluster, relay, loops)
        ends = numbers.stop()
        for loop in loops:
            await_committed(loop, ends)
            loop.stop()
        for loop in loops:
            look(cluster, loop, ends, folder)
    finally:
        for loop in loops:
            if loop.process is not None and loop.process.poll() is None:
                loop.process.kill()
                loop.process.wait()
        cluster.stop()


def kill_often(options: argparse.Namespace, cluster: Cluster, relay: Relay, loops: list[Loop]) -> None:
    chance = random.Random(options.seed)
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.await_progress(0)
    within = broker_kills = 0
    for number in range(1, options.times + 1):
        loop = loops[number % len(loops)]
        before = loop.journal.stat().st_size
        early = chance.randrange(EARLY_OF) == 0
        if not early:
            loop.await_progress(before)
        time.sleep(chance.uniform(0, LIFE_SECONDS_MAX))
        doing = loop.kill()
        within += doing in ("begin", "aborting")
        loop.start()
        print(f"kill {number:>3} of the {loop.kind} loop{' as it starts' if early else ''}, its last word was {doing}", flush=True)
        if number % LOOPS_FOR_BROKER == 0:
            time.sleep(chance.uniform(0, LIFE_SECONDS_MAX))
            begin = time.monotonic()
            cluster.kill_broker_behind(relay, INPUT)
            broker_kills += 1
            print(f"         the broker was killed, and is back after {1000 * (time.monotonic() - begin):.0f} ms", flush=True)
            # Both go on after it.
            sizes = [loop.journal.stat().st_size for loop in loops]
            for one, size in zip(loops, sizes):
                one.await_progress(size)
    print(f"{options.times} kills of a loop, {within} of them within a transaction, and {broker_kills} of the broker")


def await_committed(loop: Loop, ends: list[int]) -> None:
    observer = Consumer({"bootstrap.servers": loop.bootstrap, "group.id": loop.group})
    begin = time.monotonic()
    while True:
        loop.check_alive()
        found = observer.committed([TopicPartition(INPUT, partition) for partition in range(PARTITIONS)], 30)
        committed = [max(one.offset, 0) for one in found]
        if committed == ends:
            return
        if time.monotonic() > begin + PROGRESS_SECONDS_MAX:
            raise Failure(f"the {loop.kind} loop committed {committed}, not {ends}")
        time.sleep(0.1)


Partitions = list[list[tuple[int, bytes]]]


def look(cluster: Cluster, loop: Loop, ends: list[int], folder: Path) -> None:
    check_ends(loop)
    lines = group_checks.whole_lines(loop.journal.read_text())
    for reader in loop.readers:
        read = {}
        for isolation in ("read_committed", "read_uncommitted"):
            output = folder / f"{loop.output}-{reader}-{isolation}.frames"
            BY_NAME[reader].run("consume", 120, "--bootstrap", cluster.bootstrap, "--topic", loop.output, "--partitions", PARTITIONS,
                                "--isolation", isolation, "--output", output)
            read[isolation] = [[] for _ in range(PARTITIONS)]
            for partition, offset, _, _, value in common.frames(str(output)):
                read[isolation][partition].append((offset, value))
        try:
            print(f"{loop.kind}, read by {reader}: {judge(read['read_committed'], read['read_uncommitted'], ends, lines)}")
        except Failure as failure:
            raise Failure(f"{loop.kind}, read by {reader}: {failure}") from None


def check_ends(loop: Loop) -> None:
    """A transaction that nobody ends would hold read_committed back."""
    ends = {}
    for isolation in ("read_committed", "read_uncommitted"):
        asking = Consumer({"bootstrap.servers": loop.bootstrap, "group.id": "unused", "isolation.level": isolation})
        ends[isolation] = [asking.get_watermark_offsets(TopicPartition(loop.output, partition), 30)[1] for partition in range(PARTITIONS)]
        asking.close()
    if ends["read_committed"] != ends["read_uncommitted"]:
        raise Failure(f"the output of the {loop.kind} loop: a transaction is open: {ends}")


def judge(committed: Partitions, uncommitted: Partitions, ends: list[int], lines: list[str]) -> str:
    """Holds what was read at both levels, offset and value of each partition, against the input's ends and the loop's journal."""
    for partition, end in enumerate(ends):
        values = [value for _, value in committed[partition]]
        expected = [b"%d-%d" % (partition, number) for number in range(end)]
        if values != expected:
            at = next((at for at, pair in enumerate(zip(values, expected)) if pair[0] != pair[1]), min(len(values), end))
            raise Failure(f"read_committed, partition {partition} has {len(values)} records of {end}; number {at} is {values[at : at + 1]}")
        missing = set(committed[partition]) - set(uncommitted[partition])
        if missing:
            raise Failure(f"partition {partition}: {min(missing)} is read with read_committed alone")
        offsets = [offset for offset, _ in uncommitted[partition]]
        if offsets != sorted(set(offsets)):
            raise Failure(f"read_uncommitted, partition {partition} is out of order")
    at = [dict(records) for records in uncommitted]
    aborted = 0
    for line in lines:
        _, event, *words = line.split(" ")
        if event == "aborting" and words[0] != "-":
            for pair in words[0].split(","):
                partition, offset = map(int, pair.split(":"))
                aborted += 1
                if not at[partition].get(offset, b"").startswith(ABORTED):
                    raise Failure(f"aborted record at {offset} of partition {partition} is not there with read_uncommitted")
    if aborted == 0:
        raise Failure("no record was aborted on purpose, so nothing was shown")
    counts = {event: sum(line.split(" ")[1] == event for line in lines) for event in ("committed", "aborted", "failed")}
    left = sum(map(len, uncommitted)) - sum(map(len, committed))
    return (f"{sum(ends)} records, each once and in order; {left} more with read_uncommitted, {aborted} of them aborted on purpose; "
            f"transactions: {', '.join(f'{count} {event}' for event, count in counts.items())}")


if __name__ == "__main__":
    sys.exit(main())
