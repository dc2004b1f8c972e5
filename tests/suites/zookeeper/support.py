"""Servers to compare, and a client that shows every byte: what the commands of this folder share."""
import collections, os, select, signal, socket, struct, subprocess, sys, time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "clients"))

from ports import quiet_port  # noqa: E402, F401

PEER = Path(__file__).resolve().parents[2] / "peer" / "peer"


def word(port, text, timeout=5):
    """The answer to a four-letter word."""
    with socket.create_connection(("127.0.0.1", port), timeout) as s:
        s.settimeout(timeout)
        s.sendall(text.encode())
        return s.makefile("rb").read().decode()


def wait_for(port):
    """Waits until a server serves, which is later than that it listens."""
    for _ in range(6000):
        try:
            if "Mode: standalone" in word(port, "srvr", 1):
                return
        except OSError:
            pass
        time.sleep(0.005)
    sys.exit(f"nothing serves on {port}")


class Server:
    """A process with a zookeeper.properties of its own."""

    def __init__(self, command, folder, port, more="", environment=()):
        self.command, self.folder, self.port = command, Path(folder), port
        self.environment = {"LOG_DIR": str(folder)} | dict(environment)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.properties = self.folder / "zookeeper.properties"
        admin = "" if "admin.enableServer" in more else "admin.enableServer=false\n"
        self.properties.write_text(
            f"dataDir={folder}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\ntickTime=1000\n"
            f"4lw.commands.whitelist=*\n{admin}{more}"
        )
        self.start()

    def start(self, wait=True):
        """Starts, and gives the seconds until it serves."""
        environment = os.environ | self.environment
        begun = time.monotonic()
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen([*self.command, str(self.properties)], stdout=log, stderr=log, env=environment)
        if wait:
            try:
                wait_for(self.port)
            except SystemExit:
                self.stop()
                raise
        return time.monotonic() - begun

    def stop(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait()

    def resident_kb(self, of="VmRSS"):
        """Memory in use; of it `RssAnon` is what is not the program's own file, which the system takes back when it needs it."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith(of)).split()[1])


class Apache(Server):
    """Apache ZooKeeper 3.8.4, as Kafka 3.9.1 brings it."""
    name = "Apache"

    def __init__(self, folder, port, more="", environment=()):
        subprocess.run([PEER, "fetch"], check=True)
        command = [str(PEER), "run", "org.apache.zookeeper.server.quorum.QuorumPeerMain"]
        super().__init__(command, folder, port, more, environment)


class Ours(Server):
    name = "ours"

    def __init__(self, command, folder, port, more="", environment=()):
        super().__init__(command.split(), folder, port, more, environment)


class Lost(Exception):
    """The connection is gone, and whatever was asked may have happened or not."""


class Expired(Exception):
    """The server has ended the session."""


def text(value):
    """A string or bytes, or null, with their length."""
    if value is None:
        return struct.pack(">i", -1)
    value = value if isinstance(value, bytes) else value.encode()
    return struct.pack(">i", len(value)) + value


OPEN_ACL = struct.pack(">ii", 1, 31) + text("world") + text("anyone")
CREATE, DELETE, EXISTS, GET, SET, GET_ACL, CHILDREN, SYNC, PING, CLOSE, AUTH, SET_WATCHES = 1, 2, 3, 4, 5, 6, 8, 9, 11, -11, 100, 101


class Session:
    """A session over a socket, which can be left without a farewell and taken up again."""

    def __init__(self, port, key=(0, bytes(16)), timeout_ms=40000, seen=0, patience=10):
        self.xid, self.events, self.zxid, self.data = 0, [], seen, b""
        try:
            self.socket = socket.create_connection(("127.0.0.1", port), patience)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.send(struct.pack(">iqiqi", 0, seen, timeout_ms, key[0], 16) + key[1] + b"\0")
            self.answer = self.receive()
        except OSError as error:
            raise Lost(error) from error
        _, self.timeout, session, length = struct.unpack_from(">iiqi", self.answer)
        if self.timeout <= 0:
            self.socket.close()
            raise Expired()
        self.key = (session, self.answer[20:20 + length])

    def send(self, frame):
        try:
            self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        except OSError as error:
            raise Lost(error) from error

    def receive(self):
        while len(self.data) < 4 or len(self.data) < 4 + struct.unpack_from(">i", self.data)[0]:
            try:
                got = self.socket.recv(1 << 16)
            except OSError as error:
                raise Lost(error) from error
            if not got:
                raise Lost("end of stream")
            self.data += got
        end = 4 + struct.unpack_from(">i", self.data)[0]
        frame, self.data = self.data[4:end], self.data[end:]
        return frame

    def waiting(self):
        """Whether something can be received at once."""
        return len(self.data) >= 4 or bool(select.select([self.socket], [], [], 0)[0])

    def ask(self, op, body=b"", xid=None):
        """Sends a request; gives its xid."""
        self.xid += 1
        xid = self.xid if xid is None else xid
        self.send(struct.pack(">ii", xid, op) + body)
        return xid

    def next(self):
        """The next frame: xid, zxid, code, body. A notification goes to the events as well."""
        frame = self.receive()
        xid, zxid, code = struct.unpack_from(">iqi", frame)
        if zxid > 0:
            self.zxid = zxid
        if xid == -1:
            kind, _, length = struct.unpack_from(">iii", frame, 16)
            self.events.append((kind, frame[28:28 + length].decode()))
        return xid, zxid, code, frame[16:]

    def call(self, op, body=b"", xid=None):
        """Asks and waits for the reply: zxid, code, body."""
        xid = self.ask(op, body, xid)
        while True:
            got = self.next()
            if got[0] == xid:
                return got[1:]

    def create(self, path, data=b"", flags=0):
        return self.call(CREATE, text(path) + text(data) + OPEN_ACL + struct.pack(">i", flags))

    def get(self, path, watch=False):
        """Code, data, stat as a tuple."""
        _, code, body = self.call(GET, text(path) + struct.pack(">?", watch))
        if code:
            return code, None, None
        length = struct.unpack_from(">i", body)[0]
        return 0, body[4:4 + max(length, 0)], Stat(*struct.unpack_from(">qqqqiiiqiiq", body, 4 + max(length, 0)))

    def set(self, path, data, version=-1):
        return self.call(SET, text(path) + text(data) + struct.pack(">i", version))

    def delete(self, path, version=-1):
        return self.call(DELETE, text(path) + struct.pack(">i", version))

    def exists(self, path, watch=False):
        _, code, body = self.call(EXISTS, text(path) + struct.pack(">?", watch))
        return None if code else Stat(*struct.unpack_from(">qqqqiiiqiiq", body))

    def children(self, path, watch=False):
        _, code, body = self.call(CHILDREN, text(path) + struct.pack(">?", watch))
        names, at = [], 4
        for _ in range(struct.unpack_from(">i", body)[0] if not code else 0):
            length = struct.unpack_from(">i", body, at)[0]
            names.append(body[at + 4:at + 4 + length].decode())
            at += 4 + length
        return None if code else names

    def ping(self):
        return self.call(PING, xid=-2)

    def leave(self):
        self.socket.close()
        return self.key

    def close(self):
        self.call(CLOSE)
        self.socket.close()


Stat = collections.namedtuple("Stat", "czxid mzxid ctime mtime version cversion aversion owner length children pzxid")
