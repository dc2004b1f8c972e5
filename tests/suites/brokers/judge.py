"""What must hold for a history (the events are in history.py). Of each topic:

- an offset of a partition has one value, whoever reads it, whenever: readers, those that followed along, every replica;
- what was acknowledged is at the offset that was told; what nobody sent is nowhere;
- the records of an idempotent or transactional producer stand in the order in which they were sent, and once; none is missing between others
  unless its producer was told that it failed, or was killed;
- every observer sees all that it should, from the start to its end, in ascending order: with read_committed all but what is aborted;
  offsets that nobody has a record for are those of markers;
- a transaction that was committed is there whole, one that was aborted not at all; where the answer is unknown it is one of both;
- replicas are equal, batch for batch; all who read to the end come to the same end, also with read_committed: no transaction stays open;
- no producer was given up by its client, and no reader told that an offset is out of range.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

EXAMPLES_MAX = 3
# States of a transaction by its last event.
WHOLE, NOTHING, EITHER = "committed", "aborted", "undecided"
STATES = {"begins": NOTHING, "commits": EITHER, "committed": WHOLE, "aborts": NOTHING, "aborted": NOTHING, "undecided": EITHER}


def whole_lines(text: str) -> list[str]:
    """Who was killed may have left a line without its end."""
    return text.split("\n")[:-1]


@dataclass
class Producer:
    name: str
    kind: str
    # Of partition and number: the transaction, or None.
    sent: dict[tuple[int, int], str | None] = field(default_factory=dict)
    # Offsets; None for a batch that was sent again, and acknowledged as one that is there already.
    acked: dict[tuple[int, int], int | None] = field(default_factory=dict)
    failed: set[tuple[int, int]] = field(default_factory=set)
    transactions: dict[str, str] = field(default_factory=dict)
    fatal: list[str] = field(default_factory=list)
    # Of each partition, the numbers with which a later life begins.
    lives: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def begins(self) -> None:
        """A new life. What has no answer may be there or not."""
        next_numbers = defaultdict(int)
        for partition, number in self.sent:
            next_numbers[partition] = max(next_numbers[partition], number + 1)
        for partition, number in next_numbers.items():
            self.lives[partition].add(number)
        self.failed |= self.sent.keys() - self.acked.keys()

    def value(self, partition: int, number: int) -> str:
        transaction = self.sent[partition, number]
        return f"{self.name}/{partition}/{number}" + ("" if transaction is None else f"/{transaction}")


@dataclass
class Observer:
    name: str
    isolation: str
    follows: bool
    # Of each partition, in the order in which they came.
    records: dict[int, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    markers: dict[int, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    batches: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


@dataclass
class Topic:
    producers: dict[str, Producer] = field(default_factory=dict)
    observers: dict[str, Observer] = field(default_factory=dict)

    def of_replicas(self) -> list[Observer]:
        return [observer for observer in self.observers.values() if observer.isolation == "replica"]


class Breaches:
    """A few examples of each kind, and how many there are."""

    def __init__(self, topic: str):
        self.topic = topic
        self.found: dict[str, list[str]] = defaultdict(list)

    def add(self, kind: str, example: str) -> None:
        self.found[kind].append(example)

    def lines(self) -> list[str]:
        return [f"{self.topic}: {kind}: {len(examples)}: {'; '.join(examples[:EXAMPLES_MAX])}" for kind, examples in self.found.items()]


def judge(lines: list[str]) -> tuple[list[str], list[str]]:
    """Breaches, and a summary."""
    breaches, summary = [], []
    for name, topic in sorted(told(lines).items()):
        found = Breaches(name)
        summary.append(f"{name}: {judge_topic(topic, found)}")
        breaches += found.lines()
    return breaches, summary


def told(lines: list[str]) -> dict[str, Topic]:
    topics: dict[str, Topic] = defaultdict(Topic)
    current: dict[str, Producer | Observer] = {}
    for line in lines:
        _, name, event, *words = line.split(" ")
        if event == "produces":
            current[name] = topics[words[0]].producers.setdefault(name, Producer(name, words[1]))
            current[name].begins()
        elif event in ("reads", "follows"):
            observer = Observer(name, words[1], event == "follows")
            current[name] = topics[words[0]].observers.setdefault(name, observer)
        elif isinstance(current.get(name), Producer):
            of_producer(current[name], event, words)
        elif isinstance(current.get(name), Observer):
            of_observer(current[name], event, words)
        else:
            raise ValueError(f"{name} has said neither what it produces nor what it reads: {line}")
    return topics


def of_producer(producer: Producer, event: str, words: list[str]) -> None:
    if event == "sent":
        producer.sent[int(words[0]), int(words[1])] = words[2] if len(words) > 2 else None
    elif event == "acked":
        producer.acked[int(words[0]), int(words[1])] = int(words[2]) if words[2] != "-" else None
    elif event == "failed":
        producer.failed.add((int(words[0]), int(words[1])))
    elif event == "fatal":
        producer.fatal.append(words[0])
    else:
        producer.transactions[words[0]] = STATES[event]


def of_observer(observer: Observer, event: str, words: list[str]) -> None:
    if event == "error":
        observer.errors.append(words[0])
        return
    partition, offset = int(words[0]), int(words[1])
    if event == "read":
        observer.records[partition].append((offset, words[2]))
    elif event == "marker":
        observer.markers[partition][offset] = " ".join(words[2:])
    elif event == "batch":
        observer.batches[partition].append(" ".join(words[1:]))
    else:
        {"start": observer.starts, "end": observer.ends}[event][partition] = offset


Truth = dict[int, dict[int, str]]
# Offsets of each record, by its producer, partition and number.
Where = dict[tuple[str, int, int], list[int]]


def judge_topic(topic: Topic, found: Breaches) -> str:
    truth, markers = united(topic, found)
    for observer in topic.observers.values():
        for error in observer.errors:
            found.add("an observer was refused", f"{observer.name}: {error}")
    where = occurrences(topic, truth, found)
    for producer in topic.producers.values():
        check_producer(producer, truth, where, found)
    visible = check_transactions(topic, found)
    check_observers(topic, truth, markers, visible, found)
    check_replicas(topic.of_replicas(), found)
    check_ends(topic, found)
    kinds = Counter(producer.kind for producer in topic.producers.values())
    states = Counter(state for producer in topic.producers.values() for state in producer.transactions.values())
    transactions = f", {sum(states.values())} transactions ({', '.join(f'{count} {state}' for state, count in states.items())})" if states else ""
    return (f"{sum(len(producer.sent) for producer in topic.producers.values())} sent by {', '.join(kinds) or 'nobody known'}, "
            f"{sum(len(producer.acked) for producer in topic.producers.values())} acknowledged{transactions}; "
            f"{sum(map(len, truth.values()))} there, by {len(topic.observers)} observers")


def united(topic: Topic, found: Breaches) -> tuple[Truth, dict[int, dict[int, str]]]:
    """What all observers together saw."""
    truth: Truth = defaultdict(dict)
    markers: dict[int, dict[int, str]] = defaultdict(dict)
    first: dict[tuple[int, int], str] = {}
    for observer in topic.observers.values():
        for partition, records in observer.records.items():
            for offset, value in records:
                if truth[partition].setdefault(offset, value) != value:
                    found.add("an offset has two values", f"partition {partition}, offset {offset}: {truth[partition][offset]} for "
                              f"{first[partition, offset]}, {value} for {observer.name}")
                first.setdefault((partition, offset), observer.name)
        for partition, at in observer.markers.items():
            markers[partition].update(at)
    for partition, at in markers.items():
        for offset in at.keys() & truth[partition].keys():
            found.add("an offset has two values", f"partition {partition}, offset {offset}: {truth[partition][offset]} and a marker")
    return truth, markers


def occurrences(topic: Topic, truth: Truth, found: Breaches) -> Where:
    where: Where = defaultdict(list)
    for partition, records in truth.items():
        for offset, value in sorted(records.items()):
            if (by := sender(topic, partition, value)) is not None:
                where[by].append(offset)
            elif topic.producers:
                found.add("a record that nobody sent there", f"{value} in partition {partition} at {offset}")
    return where


def sender(topic: Topic, partition: int, value: str) -> tuple[str, int, int] | None:
    name, *words = value.split("/")
    if name not in topic.producers or len(words) < 2 or not words[1].isdigit():
        return None
    producer, number = topic.producers[name], int(words[1])
    is_its = (partition, number) in producer.sent and producer.value(partition, number) == value
    return (name, partition, number) if is_its else None


def check_producer(producer: Producer, truth: Truth, where: Where, found: Breaches) -> None:
    for reason in producer.fatal:
        found.add("a client gave up", f"{producer.name}: {reason}")
    for (partition, number), offset in producer.acked.items():
        value, there = producer.value(partition, number), truth[partition].get(offset)
        if offset is None:
            if not where.get((producer.name, partition, number)):
                found.add("an acknowledged record is missing", f"{value}, acknowledged as sent before")
        elif there is None:
            found.add("an acknowledged record is missing", f"{value}, acknowledged at {offset}")
        elif there != value:
            found.add("an acknowledged record is elsewhere", f"{value} was acknowledged at {offset}, where {there} is")
    last: dict[int, tuple[int, int]] = {}
    for partition, number in sorted(producer.sent):
        offsets = where.get((producer.name, partition, number), [])
        if number in producer.lives[partition]:
            last[partition] = number - 1, -1
        if not offsets or producer.kind in ("plain", "leader"):
            # Without idempotence, retries come twice, and out of order where a partition changes its leader.
            continue
        if len(offsets) > 1:
            found.add("a record is there twice", f"{producer.value(partition, number)} at {offsets}")
        before, at = last.get(partition, (-1, -1))
        if offsets[0] < at:
            found.add("records are out of order", f"{producer.value(partition, number)} at {offsets[0]} is before number {before} at {at}")
        gap = [one for one in range(before + 1, number) if (partition, one) not in producer.failed]
        # Of a transaction that is aborted, the client drops what it has not sent yet.
        if gap and producer.kind != "transactional":
            found.add("a record before others is missing", f"{producer.value(partition, gap[0])}, one of {len(gap)} before number {number}")
        last[partition] = number, max(offsets[0], at)


def check_transactions(topic: Topic, found: Breaches) -> set[tuple[str, str]]:
    """Producer and number of each transaction that counts."""
    readers = [observer for observer in topic.observers.values() if observer.isolation == "read_committed"]
    seen = {observer.name: {value for records in observer.records.values() for _, value in records} for observer in readers}
    visible = set()
    for producer in topic.producers.values():
        parts = defaultdict(list)
        for (partition, number), transaction in producer.sent.items():
            if transaction is not None:
                parts[transaction].append(producer.value(partition, number))
        for transaction, state in producer.transactions.items():
            values = parts[transaction]
            if state == WHOLE or (state == EITHER and any(value in seen[observer.name] for observer in readers for value in values)):
                visible.add((producer.name, transaction))
            for observer in readers:
                there = [value for value in values if value in seen[observer.name]]
                if state == NOTHING and there:
                    found.add("an aborted record is visible", f"{there[0]} to {observer.name}")
                # Who follows along may not have come to its end.
                if not observer.follows and state != NOTHING and len(there) not in ((len(values),) if state == WHOLE else (0, len(values))):
                    found.add("a part of a transaction is visible", f"{len(there)} of {len(values)} of {producer.name}'s {transaction} to {observer.name}")
    return visible


def check_observers(topic: Topic, truth: Truth, markers: dict[int, dict[int, str]], visible: set, found: Breaches) -> None:
    transactional = {name for name, producer in topic.producers.items() if producer.kind == "transactional"}

    def committed(value: str) -> bool:
        name, *_, last = value.split("/")
        return name not in transactional or (name, last) in visible

    # Replicas know where the markers are; without any, a gap in a transactional topic may be right.
    knows_gaps = topic.of_replicas() or not transactional
    for partition in sorted(truth):
        start = min((replica.starts.get(partition, 0) for replica in topic.of_replicas()), default=0)
        known = truth[partition].keys() | markers[partition].keys()
        if knows_gaps and known:
            missing = [offset for offset in range(start, max(known)) if offset not in known]
            if missing:
                found.add("nobody has anything at an offset", f"partition {partition}: {len(missing)}, the first {missing[0]}")
        ordered = sorted(truth[partition].items())
        for observer in topic.observers.values():
            if observer.isolation == "replica" and partition not in observer.ends:
                # Another broker's partition.
                continue
            offsets = [offset for offset, _ in observer.records[partition]]
            for before, after in zip(offsets, offsets[1:]):
                if after <= before:
                    found.add("an observer went back", f"{observer.name}: offset {after} of partition {partition} after {before}")
            # Retention may have taken what a replica no longer has.
            first = observer.starts.get(partition, start)
            until = (offsets[-1] + 1 if offsets else 0) if observer.follows else float("inf")
            has = set(offsets)
            for offset, value in ordered:
                if first <= offset < until and offset not in has and (observer.isolation != "read_committed" or committed(value)):
                    found.add("an observer misses a record", f"{observer.name}: {value} of partition {partition} at {offset}")


def check_replicas(replicas: list[Observer], found: Breaches) -> None:
    for partition in sorted({partition for replica in replicas for partition in replica.ends}):
        first, *others = [replica for replica in replicas if partition in replica.ends]
        for replica in others:
            start = max(replica.starts[partition], first.starts[partition])
            mine, its = ([batch for batch in one.batches[partition] if int(batch.split(" ")[0]) >= start] for one in (first, replica))
            if mine != its:
                pair = next((pair for pair in zip(mine, its) if pair[0] != pair[1]), (f"{len(mine)} batches", f"{len(its)} batches"))
                found.add("replicas differ", f"partition {partition}: {first.name} has '{pair[0]}', {replica.name} has '{pair[1]}'")
            if replica.markers[partition] != first.markers[partition]:
                found.add("replicas differ", f"partition {partition}: markers of {first.name} and {replica.name}")


def check_ends(topic: Topic, found: Breaches) -> None:
    ends = defaultdict(dict)
    for observer in topic.observers.values():
        if not observer.follows:
            for partition, end in observer.ends.items():
                ends[partition][observer.name] = end
    for partition, those in sorted(ends.items()):
        if len(set(those.values())) > 1:
            found.add("observers come to different ends", f"partition {partition}: " + ", ".join(f"{name} {end}" for name, end in those.items()))
