"""Records with every kind of field, sent by each client: every other client reads the same, and finds the same offsets by time."""

import time
from pathlib import Path

import clients
from clients import Client
from cluster import Cluster, Failure

import common
from common import Record

PARTITIONS = 2
SECONDS_MAX = 60


def records_to_send(now_ms: int) -> list[Record]:
    """Partition 0 has each kind of field, with rising timestamps; in partition 1 they go back and forth."""
    kinds = [
        (b"key", b"value", []),
        (None, b"no key", []),
        (b"no value", None, []),
        (None, None, []),
        (b"", b"", []),
        (b"headers", b"three", [("a", b"1"), ("b", b"2"), ("c", b"3")]),
        (b"headers", b"repeated", [("a", b"1"), ("a", b"2"), ("a", b"1")]),
        (b"headers", b"null and empty values", [("null", None), ("empty", b"")]),
        ("schl\u00fcssel \u2603".encode(), "\"wert\" \\ \U0001f600".encode(), [("k\u00f6pf", "\u00e4".encode())]),
        (b"many", b"headers", [(f"name-{number}", b"x" * number) for number in range(40)]),
        (b"long", b"v" * 200_000, []),
    ]
    rising = [Record(0, -1, now_ms + 10 * number, *kind) for number, kind in enumerate(kinds)]
    steps = (50, 10, 90, 90, 20, 91, 0)
    mixed = [Record(1, -1, now_ms + step, b"%d" % number, b"step", []) for number, step in enumerate(steps)]
    return rising + mixed


def by_kcat(record: Record) -> Record | None:
    """It cannot say when, sends null for what is empty, and nothing where key and value are null."""
    is_sendable = b"" not in (record.key, record.value) and (record.key, record.value) != (None, None)
    return record._replace(timestamp=-1) if is_sendable else None


def by_aiokafka(record: Record) -> Record | None:
    """It refuses a record without key and value."""
    return None if (record.key, record.value) == (None, None) else record


def by_kafkajs(record: Record) -> Record | None:
    """It cannot encode a null header."""
    return None if None in dict(record.headers).values() else record


def by_kafka_python(record: Record) -> Record | None:
    """It refuses both."""
    return by_kafkajs(record) and by_aiokafka(record)


# What a client cannot send is left out, or changed to what it sends in its place.
SENDABLE = {"kcat": by_kcat, "aiokafka": by_aiokafka, "kafka-python": by_kafka_python, "kafkajs": by_kafkajs}


def run(sender: Client, cluster: Cluster, topic: str, folder: Path) -> str:
    """What `sender` sends is read by every other client; gives what was shown, in a few words."""
    where = ["--bootstrap", cluster.bootstrap, "--topic", topic]
    sent = records_to_send(int(time.time() * 1000) - 3_600_000)
    sent = [SENDABLE.get(sender.name, lambda record: record)(record) for record in sent]
    sent = [record for record in sent if record is not None]
    common.write_records(str(folder / f"{topic}.sent"), sent)
    cluster.create_topic(topic, PARTITIONS)
    sender.run("send", SECONDS_MAX, *where, "--input", folder / f"{topic}.sent")

    first = None
    readers = [client for client in clients.MODERN if client.reads]
    for reader in readers:
        path = str(folder / f"{topic}.{reader.name}")
        reader.run("read", SECONDS_MAX, *where, "--partitions", PARTITIONS, "--output", path)
        read = common.read_records(path)
        expect_same(sent, read, f"sent by {sender.name}", f"read by {reader.name}")
        if first is not None:
            expect_same(first, read, f"read by {readers[0].name}", f"read by {reader.name}", with_timestamps=True)
        first = first or read

    queries = queries_for(first)
    query_path = folder / f"{topic}.queries"
    query_path.write_text("".join(f"{partition} {timestamp}\n" for partition, timestamp in queries))
    expected = [f"{partition} {timestamp} {first_at(first, partition, timestamp)}" for partition, timestamp in queries]
    for reader in readers:
        path = folder / f"{topic}.{reader.name}.times"
        reader.run("times", SECONDS_MAX, *where, "--input", query_path, "--output", path)
        answers = path.read_text().splitlines()
        for right, answer in zip(expected, answers, strict=True):
            if answer != right:
                raise Failure(f"offsets for times by {reader.name}: {answer!r} where {right!r} is right")
    return f"{len(first)} records, {len(queries)} times, {len(readers)} readers"


def expect_same(left: list[Record], right: list[Record], left_name: str, right_name: str, with_timestamps: bool = False) -> None:
    """Every field but offsets that are not known yet, and timestamps that the broker or client chose."""
    if len(left) != len(right):
        raise Failure(f"{len(left)} records {left_name}, {len(right)} {right_name}")
    for one, other in zip(left, right):
        if one.offset < 0:
            other = other._replace(offset=-1)
        if one.timestamp < 0 and not with_timestamps:
            other = other._replace(timestamp=-1)
        if one != other:
            raise Failure(f"{left_name}: {one!r:.300}; {right_name}: {other!r:.300}")


def queries_for(records: list[Record]) -> list[tuple[int, int]]:
    """Around every timestamp, before all and after all."""
    queries = set()
    for partition in range(PARTITIONS):
        times = [record.timestamp for record in records if record.partition == partition]
        queries |= {(partition, moment + step) for moment in times for step in (-1, 0, 1)}
        queries |= {(partition, min(times) - 100_000), (partition, max(times) + 100_000)}
    return sorted(queries)


def first_at(records: list[Record], partition: int, timestamp: int) -> int:
    """The earliest offset whose record is at least as late."""
    found = [record.offset for record in records if record.partition == partition and record.timestamp >= timestamp]
    return min(found, default=-1)
