"""The messages of the SIGKILL run: each says who sent it and when in the order, and carries its own checksum."""

import random
import struct
import zlib
from typing import NamedTuple

HEAD = struct.Struct(">BBQ")
FILLER_MAX = 1500


class Stamp(NamedTuple):
    sender: int
    partition: int
    sequence: int


def encode(stamp: Stamp, chance: random.Random) -> bytes:
    body = HEAD.pack(*stamp) + chance.randbytes(chance.randrange(FILLER_MAX))
    return body + zlib.crc32(body).to_bytes(4, "big")


def decode(payload: bytes | None) -> Stamp | None:
    """None where it is torn."""
    if payload is None or len(payload) < HEAD.size + 4:
        return None
    body, checksum = payload[:-4], payload[-4:]
    if zlib.crc32(body).to_bytes(4, "big") != checksum:
        return None
    return Stamp(*HEAD.unpack(body[: HEAD.size]))
