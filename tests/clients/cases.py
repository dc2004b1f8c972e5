"""The cases: which client writes what, which other one reads it, and what must hold then."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

import clients
from clients import Client
from cluster import Cluster, Failure

import common

SHAPES = tuple((partitions, keyed, split) for partitions in (1, 6) for keyed in (False, True) for split in ("lines", "blocks"))


@dataclass(frozen=True)
class Case:
    """A file written by one client and read by another."""

    producer: Client
    consumer: Client
    codec: str
    partitions: int
    keyed: bool
    split: str

    def is_modern(self) -> bool:
        return self.producer in clients.MODERN and self.consumer in clients.MODERN

    def __str__(self) -> str:
        keyed = "keyed" if self.keyed else "unkeyed"
        return (f"{self.producer.name:>17} -> {self.consumer.name:<17} {self.codec:<6} "
                f"{self.partitions} partitions {keyed:<7} {self.split:<6}")


def bulk_cases(is_short: bool) -> list[Case]:
    """Long: every producer, codec and shape, the consumers in turn. Short: two shapes for each codec of a modern producer,
    one for each codec of an old one.

    An old client also reads what each modern library wrote, with each codec that it knows.
    """
    cases = []
    turn = 0
    for producer in clients.ALL:
        readers = [client for client in clients.MODERN if client.consumes and client.library != producer.library]
        for number, codec in enumerate(producer.codecs):
            shapes = SHAPES
            if is_short and producer in clients.OLD:
                shapes = (SHAPES[turn % 8],)
            elif is_short:
                # Opposite corners, and other ones for each codec.
                shapes = (SHAPES[turn % 8], SHAPES[7 - turn % 8])
            for shape in shapes:
                cases.append(Case(producer, readers[(turn + turn // 8) % len(readers)], codec, *shape))
                turn += 1
    for consumer in clients.OLD:
        writers = [client for client in clients.MODERN if client.library != consumer.library]
        for codec in clients.CODECS if consumer.reads_zstd else clients.BEFORE_ZSTD:
            able = [client for client in writers if codec in client.codecs]
            for shape in (SHAPES[turn % 8],) if is_short else SHAPES:
                cases.append(Case(able[(turn + turn // 8) % len(able)], consumer, codec, *shape))
                turn += 1
    return cases


class Source:
    """The file that is sent, and what is known of it."""

    def __init__(self, path: Path):
        self.path = path
        self.size = path.stat().st_size
        with open(path, "rb") as file:
            self.sha256 = hashlib.file_digest(file, "sha256").hexdigest()

    def values(self, split: str) -> list[bytes]:
        with open(self.path, "rb") as file:
            if split == "lines":
                return [line[:-1] for line in file]
            return list(iter(lambda: file.read(common.BLOCK_SIZE), b""))


def sha256(pieces: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def run_bulk(case: Case, source: Source, cluster: Cluster, topic: str, folder: Path) -> str:
    """Sends and reads the file; gives what was shown, in a few words."""
    output = folder / f"{topic}.frames"
    seconds_max = 60 + source.size / 50_000
    # A block with its batch around it is a little over Kafka's default of 1 MiB.
    cluster.create_topic(topic, case.partitions, max_message_bytes=2 * common.BLOCK_SIZE)
    try:
        keyed = ["--keyed"] if case.keyed else []
        where = ["--bootstrap", cluster.bootstrap, "--topic", topic]
        case.producer.run("produce", seconds_max, *where, "--codec", case.codec, "--input", source.path, "--split", case.split, *keyed)
        case.consumer.run("consume", seconds_max, *where, "--partitions", case.partitions, "--output", output)
        return check_bulk(case, source, output)
    finally:
        output.unlink(missing_ok=True)
        cluster.delete_topic(topic)


def check_bulk(case: Case, source: Source, output: Path) -> str:
    """Holds what was read against the file."""
    partitions: list[list[tuple[bytes | None, bytes]]] = [[] for _ in range(case.partitions)]
    for partition, offset, _, key, value in common.frames(str(output)):
        if offset != len(partitions[partition]):
            raise Failure(f"partition {partition}: offset {offset} where {len(partitions[partition])} should be")
        if value is None or (key is None) == case.keyed:
            raise Failure(f"partition {partition}, offset {offset}: key {key!r}, value {value!r:.40}")
        partitions[partition].append((key, value))
    count = sum(map(len, partitions))
    end = b"\n" if case.split == "lines" else b""

    if case.keyed:
        numbers = [[int(key) for key, _ in records] for records in partitions]
        if any(later <= earlier for of_one in numbers for earlier, later in zip(of_one, of_one[1:])):
            raise Failure("a partition is out of order")
        # The keys number the messages, so that the file can be put together again from any partitions.
        in_order = sorted((int(key), value) for records in partitions for key, value in records)
        expect_sha256(source, (value + end for _, value in in_order), count)
        return f"{count} records, sha256 by key"
    if case.partitions == 1:
        expect_sha256(source, (value + end for _, value in partitions[0]), count)
        return f"{count} records, sha256"
    expected = source.values(case.split)
    read = Counter(hashlib.sha256(value).digest() for records in partitions for _, value in records)
    if read != Counter(hashlib.sha256(value).digest() for value in expected):
        raise Failure(f"other records came back than were sent: {count} of {len(expected)}")
    for partition, records in enumerate(partitions):
        rest = iter(expected)
        if not all(value in rest for _, value in records):
            raise Failure(f"partition {partition} is out of order")
    return f"{count} records, digests of all, order in each"


def expect_sha256(source: Source, pieces: Iterator[bytes], count: int) -> None:
    found = sha256(pieces)
    if found != source.sha256:
        raise Failure(f"sha256 {found} of {count} records, {source.sha256} of the file")
