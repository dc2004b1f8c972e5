"""Consumer groups of real clients, whose members join, leave, die and freeze, while the broker is killed now and then.

Members of every client that has groups subscribe to one topic of 12 partitions, into which a producer writes numbered records. Each
commits after what it took, and writes a journal; group_checks.py says what must hold for all of them. In rounds, every group gets
one of these events, and must settle after it, each partition with one living member:

    join      a member more
    leave     SIGTERM: it leaves politely
    die       SIGKILL: the session timeout finds out
    freeze    SIGSTOP for longer than the session timeout; what it commits afterwards must not count
    restart   a static member ends, politely or not, and comes again within its session timeout: nobody else may notice

In some rounds the broker is killed with SIGKILL in the middle, too, and started again at once.
"""

import argparse
import contextlib
import dataclasses
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "adapters"))

import clients  # noqa: E402
import group_checks  # noqa: E402
import program  # noqa: E402
from cluster import Cluster, Failure  # noqa: E402
from confluent_kafka import Consumer, KafkaException, TopicPartition  # noqa: E402
from numbers_producer import Numbers  # noqa: E402
from ports import quiet_port  # noqa: E402
from relay import Relay  # noqa: E402

TOPIC = "numbers"
PARTITIONS = 12
RECORDS_PER_SECOND = 300
SESSION_SECONDS = 6
# A static member has to come back within it, on a busy machine as well.
STATIC_SESSION_SECONDS = 25
SETTLE_SECONDS_MAX = 60
# How long things must stay as they are.
SETTLED_SECONDS = 0.5
LEAVE_SECONDS_MAX = 30
EVENTS = ("join", "leave", "die", "freeze", "restart")
# In a round in which the broker is killed.
EVENTS_WITH_KILL = ("join", "leave", "die")
MEMBERS_MAX = 8
FULL_SECONDS = 300
# One round of so many has a kill of the broker.
KILL_OF = 3


@dataclass(frozen=True)
class Plan:
    """A group: its assignor, and who is in it from the start; static ones have a star."""

    name: str
    assignor: str
    start: tuple[str, ...]
    join: tuple[str, ...]


PLANS = (
    # KafkaJS takes part under the assignor's name in the protocol; otherwise it has one of its own.
    Plan("shared", "roundrobin", ("confluent*", "java*", "kafka-python", "aiokafka", "kcat", "kafkajs"),
         ("confluent", "kafka-python", "aiokafka", "kcat", "java", "kafkajs")),
    Plan("range", "range", ("confluent", "kafka-python*", "aiokafka*"), ("confluent", "kafka-python", "aiokafka", "kcat", "java")),
    Plan("cooperative", "cooperative-sticky", ("confluent*", "confluent", "java"), ("confluent", "java")),
    Plan("javascript", "RoundRobinAssigner", ("kafkajs", "kafkajs"), ("kafkajs",)),
)

KINDS = {client.name: client for client in clients.MODERN}
KINDS["java"] = dataclasses.replace(KINDS["java"], command=clients.java("3.9.1", "Member"))


def main() -> int:
    parser = program.arguments(__doc__, seed=True)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--short", action="store_true", help="every event once for each group (the default)")
    size.add_argument("--full", action="store_true", help="five minutes")
    parser.add_argument("--seconds", type=int, help="for so long rounds begin, as in --full")
    parser.add_argument("--only", default="", help="one group, by name")
    options = parser.parse_args()
    title = f"seed {options.seed}, broker {options.broker}"
    return program.run("groups", title, options, lambda folder: Run(options, folder).run())


class Member:
    """A process in a group, and as much of its journal as was read."""

    def __init__(self, plan: Plan, kind: str, number: int, instance: str | None, bootstrap: str, folder: Path):
        self.kind = kind
        self.name = f"{plan.name}-{kind}-{number}"
        self.instance = instance
        self.path = folder / f"{self.name}.journal"
        self.path.touch()
        self.read_to = 0
        self.owned: set[int] = set()
        self.generation = ""
        # How often it was given or lost something.
        self.changes = 0
        session = STATIC_SESSION_SECONDS if instance else SESSION_SECONDS
        words = ["--bootstrap", bootstrap, "--topic", TOPIC, "--group", plan.name, "--assignor", plan.assignor, "--session", 1000 * session,
                 "--journal", self.path, *(["--instance", instance] if instance else [])]
        self.output = folder / f"{self.name}.out"
        self.process = KINDS[kind].start(self.output, "group", *words)
        self.frozen = False

    def read(self) -> None:
        """Takes what its journal has new."""
        with open(self.path, "rb") as source:
            source.seek(self.read_to)
            text = source.read()
        text = text[: text.rfind(b"\n") + 1]
        self.read_to += len(text)
        for line in text.decode().splitlines():
            _, event, *words = line.split(" ")
            if event == "gained":
                self.owned |= set(group_checks.numbers(words[1]))
                self.generation = words[0]
                self.changes += 1
            elif event == "lost":
                self.owned -= set(group_checks.numbers(words[0]))
                self.changes += 1
        if self.process.poll() is not None:
            raise Failure(f"{self.name} ended by itself with {self.process.returncode}: {self.last_lines()}")

    def last_lines(self) -> str:
        return " | ".join(self.output.read_text(errors="replace").strip().splitlines()[-4:])

    def leave(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.await_end()

    def await_end(self) -> None:
        try:
            code = self.process.wait(LEAVE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} does not leave within {LEAVE_SECONDS_MAX} s: {self.last_lines()}") from None
        if code != 0:
            raise Failure(f"{self.name} left with {code}: {self.last_lines()}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def journal(self) -> group_checks.Journal:
        lines = group_checks.whole_lines(self.path.read_text())
        return group_checks.Journal(self.name, self.instance or self.name, lines, self.kind == "kcat")


class Group:
    def __init__(self, plan: Plan, bootstrap: str, folder: Path, seed: str, tell):
        self.plan = plan
        self.bootstrap = bootstrap
        self.folder = folder
        self.chance = random.Random(seed)
        self.tell = tell
        self.living: list[Member] = []
        self.all: list[Member] = []
        self.todo: list[str] = []
        # Committed offsets as they were seen from outside.
        self.seen: list[list[int]] = []
        self.observer = Consumer({"bootstrap.servers": bootstrap, "group.id": plan.name, "error_cb": lambda _: None, "log_level": 0})
        self.count = 0

    def add(self, kind: str, instance: str | None = None) -> Member:
        self.count += 1
        member = Member(self.plan, kind, self.count, instance, self.bootstrap, self.folder)
        self.living.append(member)
        self.all.append(member)
        return member

    def start(self) -> None:
        for number, kind in enumerate(self.plan.start):
            self.add(kind.rstrip("*"), f"{self.plan.name}-static-{number}" if kind.endswith("*") else None)

    def settle(self) -> None:
        """Waits until each partition has one member, and each member a partition."""
        begin = time.monotonic()
        since, before = 0.0, None
        while True:
            for member in self.living:
                if not member.frozen:
                    member.read()
            owned = {member.name: frozenset(member.owned) for member in self.living if not member.frozen}
            now = time.monotonic()
            if owned != before:
                since, before = now, owned
            all_owned = sorted(partition for partitions in owned.values() for partition in partitions)
            if all_owned == list(range(PARTITIONS)) and all(owned.values()) and now - since >= SETTLED_SECONDS:
                return
            if now - begin > SETTLE_SECONDS_MAX:
                has = "; ".join(f"{name} has {group_checks.UNKNOWN if not some else sorted(some)}" for name, some in owned.items())
                raise Failure(f"{self.plan.name} does not settle within {SETTLE_SECONDS_MAX} s: {has}")
            time.sleep(0.05)

    def event(self, event: str) -> None:
        """Makes the event happen, or another one where it cannot."""
        if not self.can(event):
            event = "join"
        begin = time.monotonic()
        what = getattr(self, event)()
        self.settle()
        self.look()
        self.tell(f"{self.plan.name:<12} {what}; settled, {len(self.living)} members ({time.monotonic() - begin:.1f} s)")

    def next_event(self, with_kill: bool) -> str:
        """In an order of its own: each event once, before one comes again."""
        while True:
            possible = [event for event in self.todo if self.can(event) and (not with_kill or event in EVENTS_WITH_KILL)]
            if possible:
                event = self.chance.choice(possible)
                self.todo.remove(event)
                return event
            self.todo += [event for event in EVENTS if event not in self.todo]

    def dynamic(self, *but: str) -> list[Member]:
        return [member for member in self.living if not member.instance and member.kind not in but]

    def can(self, event: str) -> bool:
        enough = len(self.living) > 1
        return {
            "join": len(self.living) < MEMBERS_MAX,
            "leave": enough and bool(self.dynamic()),
            "die": enough and bool(self.dynamic("kcat")),
            "freeze": enough and bool(self.dynamic("kcat")),
            "restart": any(member.instance for member in self.living),
        }[event]

    def join(self) -> str:
        return f"{self.add(self.chance.choice(self.plan.join)).name} joins"

    def leave(self) -> str:
        member = self.chance.choice(self.dynamic())
        self.living.remove(member)
        member.leave()
        return f"{member.name} leaves"

    def die(self) -> str:
        # kcat commits before its output is read; nothing can be told of one that was killed.
        member = self.chance.choice(self.dynamic("kcat"))
        self.living.remove(member)
        member.kill()
        return f"{member.name} dies"

    def freeze(self) -> str:
        member = self.chance.choice(self.dynamic("kcat"))
        member.process.send_signal(signal.SIGSTOP)
        member.frozen = True
        try:
            time.sleep(SESSION_SECONDS + 0.5)
            self.settle()
        finally:
            member.process.send_signal(signal.SIGCONT)
        member.frozen = False
        return f"{member.name} freezes and thaws"

    def restart(self) -> str:
        old = self.chance.choice([member for member in self.living if member.instance])
        self.settle()
        others = [member for member in self.living if member is not old]
        before = {member.name: member.changes for member in others}
        self.living.remove(old)
        polite = self.chance.randrange(2) == 0
        if polite:
            old.leave()
        else:
            old.kill()
        owned, generation = old.owned, old.generation
        new = self.add(old.kind, old.instance)
        begin = time.monotonic()
        self.settle()
        took = time.monotonic() - begin
        if new.owned != owned or (generation.isdigit() and new.generation != generation):
            raise Failure(f"{new.name} came back as {new.instance} to {sorted(new.owned)} in generation {new.generation}, not to "
                          f"{sorted(owned)} in {generation}")
        # Their next heartbeats would tell them of a rebalance.
        time.sleep(SESSION_SECONDS / 6 + 0.5)
        for member in others:
            member.read()
            if member.changes != before[member.name]:
                raise Failure(f"{member.name} noticed that {new.instance} came back after {took:.1f} s")
        return f"{new.name} {'left and comes' if polite else 'was killed and comes'} back as {new.instance}, generation {generation}"

    def committed(self) -> list[int]:
        asked = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        return [max(found.offset, 0) for found in self.observer.committed(asked, 20)]

    def look(self) -> None:
        with contextlib.suppress(KafkaException):  # The broker may just be dead.
            self.seen.append(self.committed())

    def await_end(self, ends: list[int]) -> None:
        """Waits until all is committed."""
        begin = time.monotonic()
        while True:
            self.look()
            if self.seen and self.seen[-1] == ends:
                return
            if time.monotonic() - begin > SETTLE_SECONDS_MAX:
                raise Failure(f"{self.plan.name}: {self.seen[-1:]} is committed, not {ends}")
            time.sleep(0.1)

    def stop(self) -> None:
        for member in self.living:
            member.read()
            member.process.send_signal(signal.SIGTERM)
        for member in self.living:
            member.await_end()

    def kill(self) -> None:
        for member in self.all:
            if member.process.poll() is None:
                member.kill()


class Run:
    def __init__(self, options: argparse.Namespace, folder: Path):
        self.options = options
        self.folder = folder
        port = quiet_port()
        self.cluster = Cluster(folder, options.zookeeper, {"group.initial.rebalance.delay.ms": 500}, options.broker, port)
        self.relay = Relay(port, self.cluster.port)
        self.bootstrap = f"127.0.0.1:{port}"
        self.chance = random.Random(options.seed)
        self.begin = time.monotonic()
        self.printing = threading.Lock()
        self.kills = 0

    def tell(self, line: str) -> None:
        with self.printing:
            print(f"{time.monotonic() - self.begin:6.1f} s  {line}", flush=True)

    def run(self) -> None:
        plans = [plan for plan in PLANS if self.options.only in ("", plan.name)]
        groups: list[Group] = []
        try:
            self.cluster.start()
            self.cluster.create_topic(TOPIC, PARTITIONS)
            numbers = Numbers(self.bootstrap, TOPIC, PARTITIONS, RECORDS_PER_SECOND)
            numbers.start()
            groups += [Group(plan, self.bootstrap, self.folder, f"{self.options.seed} {plan.name}", self.tell) for plan in plans]
            with ThreadPoolExecutor(len(groups)) as pool:
                self.rounds(groups, pool)
                ends = numbers.stop()
                list(pool.map(lambda group: group.await_end(ends), groups))
                list(pool.map(Group.stop, groups))
            self.judge(groups, ends)
        finally:
            for group in groups:
                group.kill()
            self.cluster.stop()

    def rounds(self, groups: list[Group], pool: ThreadPoolExecutor) -> None:
        for group in groups:
            group.start()
        list(pool.map(Group.settle, groups))
        self.tell(f"{sum(len(group.living) for group in groups)} members in {len(groups)} groups have settled")
        if not self.options.full and not self.options.seconds:
            # All groups at the same, so that a round takes as long as its event. The broker dies in two of the rounds.
            events = self.chance.sample(EVENTS, len(EVENTS))
            kills = [event for event in events if event in EVENTS_WITH_KILL][1:]
            for event in events:
                self.round([(group, event) for group in groups], event in kills, pool)
            return
        end = time.monotonic() + (self.options.seconds or FULL_SECONDS)
        number = 0
        while time.monotonic() < end:
            number += 1
            with_kill = number % KILL_OF == 0
            self.round([(group, group.next_event(with_kill)) for group in groups], with_kill, pool)

    def round(self, doing: list[tuple[Group, str]], with_kill: bool, pool: ThreadPoolExecutor) -> None:
        happening = [pool.submit(group.event, event) for group, event in doing]
        if with_kill:
            time.sleep(self.chance.uniform(0, 2))
            self.cluster.kill_broker_behind(self.relay, TOPIC)
            self.kills += 1
            self.tell("the broker was killed and is back")
        for one in happening:
            one.result()

    def judge(self, groups: list[Group], ends: list[int]) -> None:
        print(f"{sum(ends)} records, {sum(len(group.all) for group in groups)} members, {self.kills} kills of the broker")
        for group in groups:
            try:
                group_checks.check_seen_offsets(group.seen)
                print(f"{group.plan.name}: {group_checks.judge([member.journal() for member in group.all], ends, group.committed())}")
            except Failure as failure:
                raise Failure(f"{group.plan.name}: {failure}") from None


if __name__ == "__main__":
    sys.exit(main())
