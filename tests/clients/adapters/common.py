"""What the adapters written in Python share: their command line, messages cut from a file, and the formats they write.

Every adapter is a program with these commands (README.md says what they mean):

    produce --bootstrap B --topic T --codec C --input FILE --split lines|blocks [--keyed]
    consume --bootstrap B --topic T --partitions N --output FILE
    send    --bootstrap B --topic T --input FILE
    read    --bootstrap B --topic T --partitions N --output FILE
    times   --bootstrap B --topic T --input FILE --output FILE
    group   --bootstrap B --topic T --group G --assignor NAME --session MS --journal FILE [--instance ID]

and with `--protocol 0.9|0.10` where it can speak as in the days of that version. `consume` knows `--isolation`. `group` runs until
SIGTERM and writes the journal of `journal.py`; assignors have the names that they have in the protocol.
"""

import argparse
from typing import Iterator, NamedTuple, Optional

# A message of `--split blocks`, in bytes.
BLOCK_SIZE = 1 << 20
# Records larger than a block are refused by no client.
REQUEST_SIZE_MAX = 4 << 20

Header = tuple[str, Optional[bytes]]


class Record(NamedTuple):
    """A record with every field. `offset` is -1 and `timestamp` may be -1 (now) where it is yet to be sent."""

    partition: int
    offset: int
    timestamp: int
    key: Optional[bytes]
    value: Optional[bytes]
    headers: list[Header]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["produce", "consume", "send", "read", "times", "group", "transform"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--input")
    parser.add_argument("--output")
    parser.add_argument("--split", choices=["lines", "blocks"], default="lines")
    parser.add_argument("--keyed", action="store_true")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--protocol")
    parser.add_argument("--isolation", choices=["read_committed", "read_uncommitted"], default="read_uncommitted")
    parser.add_argument("--group")
    parser.add_argument("--assignor")
    parser.add_argument("--session", type=int)
    parser.add_argument("--instance")
    parser.add_argument("--journal")
    parser.add_argument("--output-topic")
    return parser.parse_args()


def messages(options: argparse.Namespace) -> Iterator[tuple[Optional[bytes], bytes]]:
    """Keys and values cut from the input. A key is the number of its message in the file."""
    with open(options.input, "rb") as source:
        if options.split == "lines":
            values = (line[:-1] for line in source)
        else:
            values = iter(lambda: source.read(BLOCK_SIZE), b"")
        for number, value in enumerate(values):
            yield (b"%d" % number if options.keyed else None), value


def frame(partition: int, offset: int, timestamp: int, key: Optional[bytes], value: Optional[bytes]) -> bytes:
    """One record as `consume` writes it: a line of numbers, then key, value and a line end. A length of -1 is null."""
    key_length = -1 if key is None else len(key)
    value_length = -1 if value is None else len(value)
    return b"%d %d %d %d %d\n%b%b\n" % (partition, offset, timestamp, key_length, value_length, key or b"", value or b"")


def frames(path: str) -> Iterator[tuple[int, int, int, Optional[bytes], Optional[bytes]]]:
    """Reads what `frame` wrote."""
    with open(path, "rb") as source:
        while line := source.readline():
            partition, offset, timestamp, key_length, value_length = map(int, line.split())
            key = source.read(key_length) if key_length >= 0 else None
            value = source.read(value_length) if value_length >= 0 else None
            if source.read(1) != b"\n":
                raise ValueError(f"{path}: a frame at offset {offset} of partition {partition} has no end")
            yield partition, offset, timestamp, key, value


def hexed(data: Optional[bytes]) -> str:
    return "-" if data is None else data.hex()


def unhexed(text: str) -> Optional[bytes]:
    return None if text == "-" else bytes.fromhex(text)


def write_records(path: str, records: list[Record]) -> None:
    """A record a line, fields between tabs, bytes in hex, null a dash, headers `name:value` between commas."""
    with open(path, "w") as target:
        for record in sorted(records, key=lambda record: (record.partition, record.offset)):
            headers = ",".join(f"{name.encode().hex()}:{hexed(value)}" for name, value in record.headers)
            fields = [record.partition, record.offset, record.timestamp, hexed(record.key), hexed(record.value), headers]
            target.write("\t".join(map(str, fields)) + "\n")


def read_records(path: str) -> list[Record]:
    records = []
    with open(path) as source:
        for line in source:
            partition, offset, timestamp, key, value, headers = line.rstrip("\n").split("\t")
            pairs = [pair.split(":") for pair in headers.split(",") if pair]
            named = [(bytes.fromhex(name).decode(), unhexed(value)) for name, value in pairs]
            records.append(Record(int(partition), int(offset), int(timestamp), unhexed(key), unhexed(value), named))
    return records


def read_queries(path: str) -> list[tuple[int, int]]:
    """Partition and timestamp, a pair a line."""
    with open(path) as source:
        pairs = (line.split() for line in source)
        return [(int(partition), int(timestamp)) for partition, timestamp in pairs]


def write_answers(path: str, answers: list[tuple[int, int, int]]) -> None:
    """Partition, timestamp and the first offset at or after it, -1 where there is none."""
    with open(path, "w") as target:
        for partition, timestamp, offset in answers:
            target.write(f"{partition} {timestamp} {offset}\n")
