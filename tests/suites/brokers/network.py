"""The links between the nodes of a cluster: every connection goes through here, and each way of a link can be disturbed by itself.

A *way* is named by two nodes, `("broker1", "broker2")` for all bytes from the first to the second, whoever opened the connection. Its state:

- `OPEN`: bytes pass, after `delay` seconds and at `rate` bytes a second, where these are set;
- `HELD`: nothing passes, and nothing is lost: a stall;
- `LOST`: bytes vanish in silence. Once the way opens again, the connections that lost some are reset, as TCP would find out;
- `CUT`: connections are reset, and new ones, too.

New connections need both ways: they wait until both are open, or are reset. Of a connection to a broker only the local port of the other end
is known; whose it is stands in /proc.
"""

import asyncio
import contextlib
import os
import socket
import struct
import threading
from dataclasses import dataclass

OPEN, HELD, LOST, CUT = "open", "held", "lost", "cut"
CHUNK = 1 << 16
# Chunks under way in one direction of one connection; more than that, and the sender feels it.
CHUNKS_MAX = 64


@dataclass
class Way:
    state: str = OPEN
    delay: float = 0
    rate: float = 0


class Connection:
    def __init__(self, ends: tuple[str, str], writers: list[asyncio.StreamWriter]):
        self.ends = ends
        self.writers = writers
        self.has_lost = False
        self.task = asyncio.current_task()

    def reset(self) -> None:
        for writer in self.writers:
            reset(writer)
        self.task.cancel()


class Network:
    """All links, in a thread of its own."""

    def __init__(self):
        self.ways: dict[tuple[str, str], Way] = {}
        self.connections: set[Connection] = set()
        # Of each node, the id and password of its last ZooKeeper session.
        self.sessions: dict[str, tuple[int, bytes]] = {}
        # Of each node that may connect to a shared port.
        self.pids: dict[str, int] = {}
        self.loop = asyncio.new_event_loop()
        self.changed = asyncio.Event()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def listen(self, port: int, destination: str, target_port: int, source: str | None = None) -> None:
        """Passes what comes to `port` on. `source` says from whom; without it, it is looked up for each connection."""

        async def connected(reader, writer):
            try:
                await self.serve(reader, writer, source or self.who(writer), destination, target_port)
            except (OSError, asyncio.CancelledError):
                # Reset by one of its ends, or by us.
                reset(writer)

        self.call(asyncio.start_server(connected, "127.0.0.1", port))

    def call(self, coroutine) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(20)

    def disturb(self, *ways: tuple[str, str], state: str = OPEN, delay: float = 0, rate: float = 0) -> None:
        """Sets these ways to a state."""
        self.call(self.set(ways, Way(state, delay, rate)))

    def heal(self) -> None:
        self.disturb(*self.ways)

    def reset(self, *ways: tuple[str, str]) -> None:
        """Resets the connections of these links once; new ones are let in."""

        async def now():
            for connection in list(self.connections):
                if connection.ends in ways or connection.ends[::-1] in ways:
                    connection.reset()

        self.call(now())

    async def set(self, ways, wanted: Way) -> None:
        for ends in ways:
            way = self.way(*ends)
            way.state, way.delay, way.rate = wanted.state, wanted.delay, wanted.rate
        for connection in list(self.connections):
            states = {self.way(*connection.ends).state, self.way(*connection.ends[::-1]).state}
            if CUT in states or (connection.has_lost and LOST not in states):
                connection.reset()
        self.changed.set()
        self.changed = asyncio.Event()

    def way(self, source: str, destination: str) -> Way:
        return self.ways.setdefault((source, destination), Way())

    def who(self, writer: asyncio.StreamWriter) -> str:
        """The node whose process has the other end of this connection."""
        inode = inode_of(writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1])
        for name, pid in self.pids.items():
            with contextlib.suppress(OSError):
                for descriptor in os.scandir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        if inode and os.readlink(descriptor.path) == f"socket:[{inode}]":
                            return name
        raise ConnectionError("nobody has this connection any more")

    async def serve(self, reader, writer, source: str, destination: str, target_port: int) -> None:
        there, back = self.way(source, destination), self.way(destination, source)
        connection = Connection((source, destination), [writer])
        self.connections.add(connection)
        try:
            while {there.state, back.state} != {OPEN}:
                # A connection that begins while packets vanish hangs, and is reset when they no longer do.
                connection.has_lost |= LOST in (there.state, back.state)
                if CUT in (there.state, back.state) or reader.at_eof():
                    raise ConnectionResetError
                await self.changed.wait()
                if writer.transport.is_closing():
                    return
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target_port)
            connection.writers.append(far_writer)
            look = (lambda chunk: self.noted(source, chunk)) if destination.startswith("zookeeper") else passed
            await asyncio.gather(self.pump(connection, there, reader, far_writer, passed), self.pump(connection, back, far_reader, writer, look))
        finally:
            self.connections.discard(connection)
            for one in connection.writers:
                reset(one)

    async def pump(self, connection: Connection, way: Way, reader, writer, first) -> None:
        """Carries one direction to its end; `first` sees its first bytes. A reset at either side ends both."""
        chunks: asyncio.Queue = asyncio.Queue(CHUNKS_MAX)

        async def read() -> None:
            look = first
            while True:
                try:
                    chunk = await reader.read(CHUNK)
                except OSError:
                    chunk = None
                if chunk:
                    look(chunk)
                    look = passed
                if way.state == LOST:
                    connection.has_lost = True
                else:
                    await chunks.put((self.loop.time() + way.delay, chunk))
                if not chunk:
                    return

        async def write() -> None:
            while True:
                due, chunk = await chunks.get()
                while way.state == HELD:
                    await self.changed.wait()
                if (wait := due - self.loop.time()) > 0:
                    await asyncio.sleep(wait)
                if way.state == LOST:
                    connection.has_lost = True
                    continue
                if chunk is None:
                    connection.reset()
                    return
                if not chunk:
                    writer.write_eof()
                    return
                if way.rate:
                    await asyncio.sleep(len(chunk) / way.rate)
                writer.write(chunk)
                await writer.drain()

        tasks = [asyncio.ensure_future(read()), asyncio.ensure_future(write())]
        try:
            await asyncio.gather(*tasks)
        except OSError:
            connection.reset()
        finally:
            for task in tasks:
                task.cancel()

    def noted(self, source: str, chunk: bytes) -> None:
        """A ConnectResponse: length, protocol, timeout, session, password."""
        if len(chunk) >= 40:
            _, _, timeout, session, length = struct.unpack_from(">iiiqi", chunk)
            if timeout > 0:
                self.sessions[source] = session, chunk[24 : 24 + length]


def passed(_: bytes) -> None:
    """Nothing to see."""


def reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, AttributeError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def inode_of(port: int, remote_port: int) -> str | None:
    """Of the socket with this local and this remote port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table) as lines:
            for line in lines:
                words = line.split()
                if words[1].endswith(f":{port:04X}") and words[2].endswith(f":{remote_port:04X}") and words[9] != "0":
                    return words[9]
    return None
