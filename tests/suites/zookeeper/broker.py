"""A broker as a process, a client for it, and a proxy between it and ZooKeeper: what `sessions` is made of."""
import json, os, select, signal, socket, struct, subprocess, sys, threading, time, zlib
from pathlib import Path

from support import CLOSE, Expired, Lost, Session, quiet_port

ROOT = Path(__file__).resolve().parents[3]
PING = -2


def until(what, found, seconds=10, pause=0.01):
    """Waits until `found` gives something, and gives it."""
    end = time.monotonic() + seconds
    while True:
        got = found()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(pause)


class Link:
    """One connection through a proxy."""

    def __init__(self, proxy, client, server):
        self.proxy, self.sockets, self.stalled = proxy, (client, server), proxy.stalls_new
        self.asked, self.begun, self.lock = {}, False, threading.Lock()
        for source, target, see in ((client, server, self.see_request), (server, client, self.see_answer)):
            threading.Thread(target=self.pump, args=(source, target, see), daemon=True).start()

    def pump(self, source, target, see):
        data = b""
        try:
            while True:
                got = source.recv(1 << 16)
                if not got:
                    break
                while self.stalled:
                    time.sleep(0.005)
                if self.proxy.sniffs:
                    data += got
                    while len(data) >= 4:
                        end = 4 + struct.unpack_from(">i", data)[0]
                        if len(data) < end:
                            break
                        see(data[4:end])
                        data = data[end:]
                target.sendall(got)
        except OSError:
            pass
        self.cut()

    def see_request(self, frame):
        if not self.begun:
            self.begun = True
            return
        xid, op = struct.unpack_from(">ii", frame)
        if xid == PING:
            return
        with self.lock:
            self.asked[xid] = op
            self.proxy.outstanding_max = max(self.proxy.outstanding_max, len(self.asked))
        self.proxy.requests.append((time.monotonic(), op, frame))

    def see_answer(self, frame):
        if not self.proxy_knows:
            self.proxy_knows = True
            _, timeout, session, length = struct.unpack_from(">iiqi", frame)
            if timeout > 0:
                self.proxy.sessions.append((session, frame[20:20 + length]))
            return
        xid = struct.unpack_from(">i", frame)[0]
        with self.lock:
            if self.asked.pop(xid, None) is not None:
                self.proxy.answers[frame[:4]] = time.monotonic()

    proxy_knows = False

    def cut(self):
        for one in self.sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.proxy.links.discard(self)


class Proxy:
    """Between the broker and ZooKeeper: knows the sessions, and can refuse, cut and stall."""

    def __init__(self, target, host="127.0.0.1", port=0, sniffs=True):
        self.target, self.host, self.sniffs = target, host, sniffs
        self.sessions, self.requests, self.links = [], [], set()
        self.outstanding_max, self.stalls_new = 0, False
        # When the last answer of a number came.
        self.answers = {}
        self.open(port)

    def open(self, port=0):
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((self.host, port))
        self.listener.listen(64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target), 5)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.links.add(Link(self, client, server))

    def cut(self):
        for link in list(self.links):
            link.cut()

    def close(self):
        """Refuses, and cuts what there is."""
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        self.cut()

    def stall(self, new):
        """What there is passes nothing on and is not closed; nor what comes, where `new` is so."""
        self.stalls_new = new
        for link in list(self.links):
            link.stalled = True

    def flow(self):
        self.stalls_new = False
        for link in list(self.links):
            link.stalled = False

    def session(self, after):
        """The session that began after so many."""
        return until("another session", lambda: len(self.sessions) > after and self.sessions[after], 30, 0.001)


class Look:
    """What is in ZooKeeper; asked again over another connection where one is lost."""

    def __init__(self, port, chroot=""):
        self.port, self.chroot, self.link = port, chroot, None

    def ask(self, what):
        end = time.monotonic() + 60
        while True:
            try:
                if self.link is None:
                    self.link = Session(self.port, timeout_ms=20000)
                return what(self.link)
            except (Lost, Expired):
                self.link = None
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def get(self, path):
        return self.ask(lambda link: link.get(self.chroot + path))

    def children(self, path):
        return self.ask(lambda link: link.children(self.chroot + path))

    def owner(self, path):
        code, _, stat = self.get(path)
        return None if code else stat.owner

    def write(self, path, data, flags=0):
        """Creates a node, or writes it where it is there."""
        data = json.dumps(data, separators=(",", ":")) if isinstance(data, dict) else data
        _, code, _ = self.ask(lambda link: link.create(self.chroot + path, data, flags))
        if code == -110:
            _, code, _ = self.ask(lambda link: link.set(self.chroot + path, data))
        assert code == 0, f"write {path}: {code}"

    def delete(self, path):
        self.ask(lambda link: link.delete(self.chroot + path))

    def expire(self, key):
        """Takes a session over and ends it: what ZooKeeper does when it hears nothing of it."""
        end = time.monotonic() + 10
        while True:
            try:
                link = Session(self.port, key=key, timeout_ms=20000)
                link.ask(CLOSE)
                link.receive()
                return
            except Expired:
                return
            except Lost:
                if time.monotonic() > end:
                    raise


def string(text):
    return struct.pack(">h", len(text)) + text.encode()


class Kafka:
    """A client of the broker, for as much as these checks need."""

    def __init__(self, port):
        self.port, self.socket = port, None

    def ask(self, api, version, body, seconds=5):
        frame = struct.pack(">hhi", api, version, 7) + string("sessions") + body
        try:
            if self.socket is None:
                self.socket = socket.create_connection(("127.0.0.1", self.port), seconds)
            self.socket.settimeout(seconds)
            self.socket.sendall(struct.pack(">i", len(frame)) + frame)
            length = struct.unpack(">i", self.read(4))[0]
            return self.read(length)[4:]
        except OSError:
            if self.socket is not None:
                self.socket.close()
            self.socket = None
            raise

    def read(self, length):
        data = b""
        while len(data) < length:
            got = self.socket.recv(length - len(data))
            if not got:
                raise OSError("the broker has closed the connection")
            data += got
        return data

    def leaders(self):
        """The leader of each partition, by topic, and the controller."""
        answer, at = self.ask(3, 1, struct.pack(">i", -1)), 0

        def take(form):
            nonlocal at
            found = struct.unpack_from(">" + form, answer, at)[0]
            at += struct.calcsize(">" + form)
            return found

        def text():
            nonlocal at
            length = take("h")
            found = answer[at:at + max(length, 0)].decode()
            at += max(length, 0)
            return found

        for _ in range(take("i")):
            take("i"), text(), take("i"), text()
        take("i")
        topics = {}
        for _ in range(take("i")):
            take("h")
            name = text()
            take("b")
            partitions = topics.setdefault(name, {})
            for _ in range(take("i")):
                take("h")
                number = take("i")
                partitions[number] = take("i")
                for _ in range(2):
                    for _ in range(take("i")):
                        take("i")
        return topics

    def serves(self, topic, partitions=1):
        try:
            leaders = self.leaders().get(topic, {})
        except OSError:
            return False
        return len(leaders) == partitions and all(leader >= 0 for leader in leaders.values())

    def create(self, topic, partitions=1, seconds=30):
        body = struct.pack(">i", 1) + string(topic) + struct.pack(">ihii", partitions, 1, 0, 0) + struct.pack(">i", seconds * 1000)
        answer = self.ask(19, 0, body, seconds + 5)
        return struct.unpack_from(">h", answer, 4 + 2 + len(topic))[0]

    def setting(self, topic, key):
        body = struct.pack(">ib", 1, 2) + string(topic) + struct.pack(">i", 1) + string(key)
        answer = self.ask(32, 0, body)
        at = 4 + 4 + 2 + 2 + 1 + 2 + len(topic) + 4 + 2 + len(key)
        length = struct.unpack_from(">h", answer, at)[0]
        return answer[at + 2:at + 2 + length].decode()

    def roundtrip(self, topic, text):
        """Writes a record with acks=all and reads it back; seconds. As any client, it asks again who has no leader yet."""
        begun, value = time.monotonic(), text.encode()
        while True:
            code, offset = self.produce(topic, value)
            if code not in (5, 6) or time.monotonic() - begun > 5:
                break
            time.sleep(0.005)
        assert code == 0, f"produce: {code}"
        place = struct.pack(">i", 1) + string(topic) + struct.pack(">ii", 1, 0)
        answer = self.ask(1, 2, struct.pack(">iii", -1, 5000, 1) + place + struct.pack(">qi", offset, 1 << 20))
        code = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)[0]
        assert code == 0 and value in answer, f"fetch of offset {offset}: {code}"
        return time.monotonic() - begun

    def produce(self, topic, value):
        message = struct.pack(">bbqi", 1, 0, int(time.time() * 1000), -1) + struct.pack(">i", len(value)) + value
        message = struct.pack(">I", zlib.crc32(message)) + message
        records = struct.pack(">qi", 0, len(message)) + message
        place = struct.pack(">i", 1) + string(topic) + struct.pack(">ii", 1, 0)
        answer = self.ask(0, 2, struct.pack(">hi", -1, 5000) + place + struct.pack(">i", len(records)) + records)
        return struct.unpack_from(">hq", answer, 4 + 2 + len(topic) + 4 + 4)


class Broker:
    """The process. `hosts`, where given, is its /etc/hosts, which can be written again under it."""

    def __init__(self, folder, connect, command, properties=(), environment=(), hosts=None):
        self.folder, self.port = Path(folder), quiet_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.properties = self.folder / "server.properties"
        settings = {
            "broker.id": "1", "listeners": f"PLAINTEXT://127.0.0.1:{self.port}", "zookeeper.connect": connect,
            "log.dirs": f"{self.folder}/data", "zookeeper.session.timeout.ms": "4000", "zookeeper.connection.timeout.ms": "10000",
            "offsets.topic.replication.factor": "1", "auto.create.topics.enable": "false",
        } | dict(properties)
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.environment = os.environ | {"LOG_DIR": str(self.folder / "logs")} | dict(environment)
        self.command = [*command, str(self.properties)]
        if hosts:
            self.command = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(hosts), *self.command]
        self.client = Kafka(self.port)
        self.process = None

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=self.environment)
        return self

    def started(self, topic="t"):
        """Starts, makes the topic where it is not there, and waits until it is served."""
        self.start()
        until("the broker answers", lambda: self.answers(), 120)
        until("the topic is made", lambda: topic in self.client.leaders() or self.client.create(topic) in (0, 36), 60)
        until("the topic is served", lambda: self.client.serves(topic), 60)
        return self

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the broker ended with {self.process.returncode}: {self.last_line()}")
        try:
            self.client.leaders()
            return True
        except OSError:
            return False

    def last_line(self):
        lines = (self.folder / "log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no line"

    def end(self, how=signal.SIGTERM, seconds=20):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError("the broker does not stop")
