"""Reads the segments of a partition's folder: record batches of format 2, not compressed.

Source: https://kafka.apache.org/39/documentation/#recordbatch.
"""

import gzip
import struct
from pathlib import Path

HEADER = struct.Struct(">qiibIhiqqqhii")
CODEC, CONTROL = 0x07, 0x20


def lines(folder: Path, partition: int) -> list[str]:
    """The events of `history.py` for one replica."""
    found, start, end, epoch = [], None, 0, -1
    for segment in sorted(folder.glob("*.log")):
        data = segment.read_bytes()
        start = int(segment.stem) if start is None else start
        end = max(end, int(segment.stem))
        at = 0
        while at + HEADER.size <= len(data):
            (base, length, leader_epoch, magic, crc, attributes, last_delta, _, _, producer, producer_epoch, sequence,
             count) = HEADER.unpack_from(data, at)
            if length == 0 or at + 12 + length > len(data):
                break
            if magic != 2:
                found.append(f"error {segment}:_magic_{magic}_at_{at}")
                break
            if base < end:
                found.append(f"error {segment}:_a_batch_at_{base}_after_{end}")
            if leader_epoch < epoch:
                found.append(f"error {segment}:_leader_epoch_{leader_epoch}_after_{epoch}_at_{base}")
            epoch = leader_epoch
            found.append(f"batch {partition} {base} {base + last_delta} {crc:08x} {leader_epoch} {producer} {producer_epoch} {sequence}")
            body = data[at + HEADER.size : at + 12 + length]
            for offset, key, value in records(body, attributes, count, base):
                if attributes & CONTROL:
                    kind = {0: "abort", 1: "commit"}.get(struct.unpack_from(">hh", key)[1], "other")
                    found.append(f"marker {partition} {offset} {kind} {producer}")
                else:
                    found.append(f"read {partition} {offset} {'-' if value is None else value.decode(errors='replace')}")
            end = base + last_delta + 1
            at += 12 + length
    return [f"start {partition} {start or 0}", *found, f"end {partition} {end}"]


def records(body: bytes, attributes: int, count: int, base: int):
    """Offset, key and value of each."""
    codec = attributes & CODEC
    if codec == 1:
        body = gzip.decompress(body)
    elif codec:
        raise ValueError(f"records are compressed with codec {codec}, which this reader does not know")
    at = 0
    for _ in range(count):
        length, at = varint(body, at)
        end = at + length
        at += 1
        _, at = varint(body, at)
        delta, at = varint(body, at)
        key, at = sized(body, at)
        value, _ = sized(body, at)
        yield base + delta, key, value
        at = end


def sized(body: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = varint(body, at)
    return (None, at) if length < 0 else (body[at : at + length], at + length)


def varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
