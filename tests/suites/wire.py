"""What one broker says about the cluster, asked without a client library, which would ask another one."""
import socket, struct
from typing import NamedTuple


class Partition(NamedTuple):
    error: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Metadata(NamedTuple):
    brokers: set[int]
    controller: int
    topics: dict[str, dict[int, Partition]]


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        [value] = struct.unpack_from(f">{form}", self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        length = self.take("h")
        value = self.data[self.at : self.at + max(length, 0)].decode()
        self.at += max(length, 0)
        return value if length >= 0 else None

    def array(self, item):
        return [item() for _ in range(self.take("i"))]


def exchange(port, api, version, body, timeout=5):
    """Sends one request of an old version (header 1); gives the answer without its header."""
    client = b"cluster"
    frame = struct.pack(">hhih", api, version, 1, len(client)) + client + body
    with socket.create_connection(("127.0.0.1", port), 2) as connection:
        connection.settimeout(timeout)
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + struct.unpack(">i", answer[:4])[0]:
            piece = connection.recv(65536)
            if not piece:
                raise ValueError("connection closed")
            answer += piece
    return Reader(answer[8:])


def metadata(port, topics=(), timeout=5):
    """Metadata, version 1. `topics`: their names, or None for all."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics or ())
    read = exchange(port, 3, 1, struct.pack(">i", -1 if topics is None else len(topics)) + names, timeout)

    def broker():
        id, _, _, _ = read.take("i"), read.text(), read.take("i"), read.text()
        return id

    def partition():
        error, index, leader = read.take("h"), read.take("i"), read.take("i")
        ids = lambda: tuple(read.array(lambda: read.take("i")))
        return index, Partition(error, leader, ids(), ids())

    def topic():
        _, name, _ = read.take("h"), read.text(), read.take("b")
        return name, dict(read.array(partition))

    brokers = set(read.array(broker))
    return Metadata(brokers, read.take("i"), dict(read.array(topic)))
