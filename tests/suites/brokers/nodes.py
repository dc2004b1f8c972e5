"""Brokers and a ZooKeeper as processes, with every link between them through `network.py`.

Clients reach the brokers directly: a broker that is cut off from the others may well be the one that a client talks to.
"""

import contextlib
import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import kafka.admin
import kafka.errors
from cluster import BIN, START_SECONDS_MAX, Failure, Process, broker_command, kafka_command, write_properties
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka.protocol.admin.topics import ElectionType
from kafka.structs import TopicPartition
from network import Network
from ports import quiet_port
from support import Expired, Lost, Session, word
from wire import Metadata, Partition, metadata

SESSION_MS = 6000
# A follower that has not caught up for so long leaves the in-sync replicas.
LAG_MS = 5000
# Short lives: what the compiler of the JVM gains comes too late.
JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
INTERNAL = ("__consumer_offsets", "__transaction_state")
# Of the names under which Kafka keeps the version that brokers speak to each other.
PROTOCOL = {"3.9.1": "3.9", "3.0.0": "3.0"}
UPGRADED = "3.9.1"


def eventually(what: str, seconds: float, look, pause: float = 0.05) -> float:
    """Waits until `look` gives nothing to complain about (None or ""); gives the seconds that it took."""
    begin = time.monotonic()
    while True:
        try:
            complaint = look()
        except (OSError, ValueError, KafkaException, kafka.errors.KafkaError, Lost, Expired) as error:
            complaint = f"{type(error).__name__}: {error}"
        now = time.monotonic()
        if not complaint:
            return now - begin
        if now > begin + seconds:
            raise Failure(f"{what}: not within {seconds:.0f} s: {complaint}")
        time.sleep(pause)


class Node(Process):
    """A server that can also be frozen."""

    frozen = False

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, sent: signal.Signals) -> None:
        self.process.send_signal(sent)

    def freeze(self) -> None:
        self.send(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        self.send(signal.SIGCONT)
        self.frozen = False

    def kill(self) -> None:
        self.stop(signal.SIGKILL)
        self.frozen = False

    def clear(self) -> None:
        """Whatever state it is in, it is gone afterwards."""
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()


class Broker(Node):
    """`kind` is `ours`, `kafka`, or `upgraded` for Kafka 3.9.1 whatever the version of the others; it changes between two lives alone."""

    def __init__(self, id: int, kind: str, version: str, folder: Path, properties: dict):
        self.id = id
        self.version = version
        self.inside_port = quiet_port()
        self.proxy_port = quiet_port()
        port = quiet_port()
        self.folder = folder / f"broker{id}"
        self.folder.mkdir(parents=True)
        self.data = self.folder / "data"
        self.file = self.folder / "server.properties"
        inside = "INSIDE://127.0.0.1"
        write_properties(self.file, {
            "broker.id": id, "log.dirs": self.data,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},{inside}:{self.inside_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},{inside}:{self.proxy_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT", "inter.broker.listener.name": "INSIDE",
            **properties,
        })
        logs = self.folder / "logs"
        super().__init__(f"broker{id}", [], port, folder, {"LOG_DIR": str(logs)})
        self.address = f"127.0.0.1:{port}"
        self.become(kind)

    def become(self, kind: str) -> None:
        self.kind = kind
        options = (*JVM, "-Xmx400m", f"-Dkafka.logs.dir={self.folder}/logs")
        (self.folder / "logs").mkdir(exist_ok=True)
        version = UPGRADED if kind == "upgraded" else self.version
        self.command = [*map(str, broker_command("odradek" if kind == "ours" else "kafka", version, options)), str(self.file)]


class ZooKeeper:
    """One server of ours, or of Apache's, or an ensemble of three of Apache's."""

    def __init__(self, kind: str, folder: Path):
        self.kind = kind
        count = 3 if kind == "ensemble" else 1
        ports = [quiet_port() for _ in range(count)]
        servers = {f"server.{number}": f"127.0.0.1:{quiet_port()}:{quiet_port()}" for number in range(1, count + 1)} if count > 1 else {}
        self.members = []
        for number, port in enumerate(ports, 1):
            home = folder / f"zookeeper{number}"
            (home / "data").mkdir(parents=True)
            (home / "data" / "myid").write_text(f"{number}\n")
            file = home / "zookeeper.properties"
            write_properties(file, {
                "dataDir": home / "data", "clientPort": port, "clientPortAddress": "127.0.0.1", "maxClientCnxns": 0, "tickTime": 1000,
                "admin.enableServer": "false", "4lw.commands.whitelist": "*", "initLimit": 10, "syncLimit": 5, **servers,
            })
            options = (*JVM, "-Xmx160m", f"-Dkafka.logs.dir={home}")
            command = ([BIN / "zookeeper-server-start.sh"] if kind == "ours" else
                       kafka_command("org.apache.zookeeper.server.quorum.QuorumPeerMain", options=options))
            self.members.append(Node(f"zookeeper{number}", [*command, file], port, folder, {"LOG_DIR": str(home)}))

    def start(self) -> None:
        for member in self.members:
            member.start()
        for member in self.members:
            member.wait_until_it_accepts()
        eventually("ZooKeeper serves", START_SECONDS_MAX, lambda: self.session().close())

    def session(self, timeout_ms: int = 6000) -> Session:
        """A session of our own with a member that serves."""
        problem = None
        for member in self.members:
            if member.runs and not member.frozen:
                try:
                    return Session(member.port, timeout_ms=timeout_ms, patience=3)
                except (Lost, Expired, OSError) as error:
                    problem = error
        raise Lost(f"no member of ZooKeeper serves: {problem}")

    def get(self, path: str):
        """Data and stat, or None and None."""
        session = self.session()
        try:
            _, data, stat = session.get(path)
            return data, stat
        finally:
            session.close()

    def delete(self, path: str) -> bool:
        session = self.session()
        try:
            return session.delete(path)[1] == 0
        finally:
            session.close()

    def forget_topic(self, name: str, partitions: int) -> None:
        """As an operator does by hand where its deletion waits for a broker."""
        topic = f"/brokers/topics/{name}"
        states = [f"{topic}/partitions/{partition}{last}" for partition in range(partitions) for last in ("/state", "")]
        for path in [*states, f"{topic}/partitions", topic, f"/config/topics/{name}", f"/admin/delete_topics/{name}"]:
            if not self.delete(path):
                raise Failure(f"{path} cannot be deleted")

    def leader(self) -> Node:
        """The member that leads the ensemble, or the only one."""
        for member in self.members:
            with contextlib.suppress(OSError):
                if "Mode: leader" in word(member.port, "srvr", 2):
                    return member
        return self.members[0]


@dataclass(frozen=True)
class Layout:
    """What a cluster is made of."""

    brokers: tuple[str, ...] = ("ours", "ours", "ours")
    version: str = "3.9.1"
    zookeeper: str = "ours"


class Cluster:
    """Broker ids are 1, 2, 3."""

    def __init__(self, folder: Path, layout: Layout, begins_as: str | None = None, properties: dict | None = None):
        self.folder = folder
        self.layout = layout
        self.network = Network()
        self.zookeeper = ZooKeeper(layout.zookeeper, folder)
        self.brokers: dict[int, Broker] = {}
        for id, kind in enumerate(layout.brokers, 1):
            links = {member.name: quiet_port() for member in self.zookeeper.members}
            for member in self.zookeeper.members:
                self.network.listen(links[member.name], member.name, member.port, f"broker{id}")
            broker = Broker(id, begins_as or kind, layout.version, folder, {
                "zookeeper.connect": ",".join(f"127.0.0.1:{port}" for port in links.values()),
                "zookeeper.session.timeout.ms": SESSION_MS, "inter.broker.protocol.version": PROTOCOL[layout.version],
                "replica.lag.time.max.ms": LAG_MS, "auto.create.topics.enable": "false", "default.replication.factor": 3,
                "min.insync.replicas": 2, "offsets.topic.replication.factor": 3, "offsets.topic.num.partitions": 6,
                "transaction.state.log.replication.factor": 3, "transaction.state.log.num.partitions": 6,
                "transaction.state.log.min.isr": 2, "group.initial.rebalance.delay.ms": 0, "num.recovery.threads.per.data.dir": 2,
                "log.segment.bytes": 1 << 20, "offsets.topic.segment.bytes": 1 << 20, "transaction.state.log.segment.bytes": 1 << 20,
                **(properties or {}),
            })
            self.brokers[id] = broker
            self.network.listen(broker.proxy_port, broker.name, broker.inside_port)
        self.bootstrap = ",".join(broker.address for broker in self.brokers.values())

    # Lives.

    def start(self) -> None:
        self.zookeeper.start()
        for id in self.brokers:
            self.launch(id)
        for broker in self.brokers.values():
            broker.wait_until_it_accepts()
        self.await_served(START_SECONDS_MAX)

    def launch(self, id: int) -> None:
        """Starts a broker, and does not wait for it. A real Kafka does not start while the node of its former life is there."""
        broker = self.brokers[id]
        if broker.kind != "ours":
            eventually(f"the registration of broker {id} is gone", 3 * SESSION_MS / 1000,
                       lambda: "there" if self.zookeeper.get(f"/brokers/ids/{id}")[1] else None)
        broker.start()
        self.network.pids[broker.name] = broker.process.pid

    def start_again(self, id: int) -> float:
        """Seconds until it is served by all."""
        begin = time.monotonic()
        self.launch(id)
        self.brokers[id].wait_until_it_accepts()
        self.await_served(START_SECONDS_MAX)
        return time.monotonic() - begin

    def stop(self) -> None:
        for node in [*self.brokers.values(), *self.zookeeper.members]:
            node.clear()

    @contextlib.contextmanager
    def running(self):
        try:
            self.start()
            yield self
        finally:
            self.stop()

    # What can be seen.

    @property
    def living(self) -> dict[int, Broker]:
        return {id: broker for id, broker in self.brokers.items() if broker.runs and not broker.frozen}

    def controller(self) -> int | None:
        data, _ = self.zookeeper.get("/controller")
        return json.loads(data)["brokerid"] if data else None

    def controller_epoch(self) -> int:
        return int(self.zookeeper.get("/controller_epoch")[0])

    def view(self, id: int, topics=None) -> Metadata:
        return metadata(self.brokers[id].port, topics)

    def await_served(self, seconds: float, ids=None) -> float:
        """Until each living broker names all living ones, and the controller that ZooKeeper names."""
        def look():
            controller = self.controller()
            for id in ids or self.living:
                view = self.view(id, ())
                if not set(self.living) <= view.brokers or view.controller != controller or controller is None:
                    return f"broker {id} knows {sorted(view.brokers)} and controller {view.controller}; it is {controller}"
        return eventually("every broker knows the others", seconds, look)

    def partitions(self, topics) -> dict[tuple[str, int], Partition]:
        """As the controller's word has reached some living broker."""
        for id in self.living:
            with contextlib.suppress(OSError, ValueError):
                found = self.view(id, topics).topics
                return {(topic, index): one for topic, all in found.items() for index, one in all.items()}
        raise Lost("no broker answers")

    def await_led(self, topics, seconds: float = 60) -> float:
        """Until every living broker names a living leader for every partition."""
        def look():
            for id in self.living:
                for topic in topics:
                    found = self.view(id, [topic]).topics[topic]
                    if not found:
                        return f"broker {id} does not know {topic}"
                    for index, one in found.items():
                        if one.leader not in self.living:
                            return f"broker {id} says {topic}-{index} is led by {one.leader}"
        return eventually("every partition is led", seconds, look, 0.02)

    def await_full(self, topics, seconds: float = 60) -> float:
        """Until every replica is in sync, by the word of every living broker."""
        def look():
            seen = {}
            for id in self.living:
                for topic in topics:
                    found = self.view(id, [topic]).topics[topic]
                    if not found:
                        return f"broker {id} does not know {topic}"
                    for index, one in found.items():
                        if set(one.isr) != set(one.replicas) or one.leader not in self.living:
                            return f"broker {id} says {topic}-{index} has leader {one.leader}, replicas {one.replicas}, in sync {one.isr}"
                        if seen.setdefault((topic, index), one.leader) != one.leader:
                            return f"brokers name different leaders of {topic}-{index}"
        return eventually("every replica is in sync", seconds, look)

    def leader_of(self, topic: str, partition: int) -> int:
        return self.partitions([topic])[topic, partition].leader

    def existing(self, topics) -> list[str]:
        """These, and the internal ones that exist."""
        known = {topic for topic, _ in self.partitions(None)}
        return [*topics, *(topic for topic in INTERNAL if topic in known)]

    # What can be done.

    def create_topic(self, name: str, partitions: int, replication: int = 3, **configs) -> None:
        config = {key.replace("_", "."): str(value) for key, value in configs.items()}
        admin = self.admin()
        admin.create_topics([NewTopic(name, partitions, replication, config=config)], operation_timeout=30)[name].result(60)
        self.await_full([name], 30)

    def add_partitions(self, name: str, total: int) -> None:
        admin = self.admin()
        admin.create_partitions([NewPartitions(name, total)], operation_timeout=30)[name].result(60)

    def delete_topic(self, name: str) -> None:
        admin = self.admin()
        admin.delete_topics([name], operation_timeout=30)[name].result(60)

    def admin(self) -> AdminClient:
        """To be kept until its answers are there."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "error_cb": lambda _: None})

    @contextlib.contextmanager
    def other_admin(self):
        """kafka-python's, which knows reassignments and elections."""
        client = kafka.admin.KafkaAdminClient(bootstrap_servers=[broker.address for broker in self.living.values()])
        try:
            yield client
        finally:
            client.close()

    def reassign(self, wanted: dict[tuple[str, int], list[int]]) -> None:
        with self.other_admin() as admin:
            answers = admin.alter_partition_reassignments({TopicPartition(*one): replicas for one, replicas in wanted.items()})
        if refused := {one: error for one, error in answers.items() if error is not None}:
            raise Failure(f"the reassignment is refused: {refused}")

    def await_reassigned(self, seconds: float) -> float:
        def look():
            with self.other_admin() as admin:
                left = admin.list_partition_reassignments()
            return f"{left}" if left else None
        return eventually("the reassignment ends", seconds, look, 0.5)

    def elect_preferred(self) -> None:
        with self.other_admin() as admin:
            admin.elect_leaders(ElectionType.PREFERRED, raise_errors=False)

    def expire(self, id: int) -> None:
        """Ends the broker's ZooKeeper session, as its owner could."""
        key = self.network.sessions[f"broker{id}"]
        member = next(member for member in self.zookeeper.members if member.runs and not member.frozen)
        Session(member.port, key, patience=5).close()

    def try_to_expire(self, id: int) -> None:
        """The same, of a session that may be over."""
        with contextlib.suppress(Lost, Expired, OSError):
            self.expire(id)

    # Links.

    def ways_between(self, id: int, others=None) -> list[tuple[str, str]]:
        """Both ways between a broker and others, by default all others."""
        names = [f"broker{other}" for other in others or self.brokers if other != id]
        return [way for name in names for way in ((f"broker{id}", name), (name, f"broker{id}"))]

    def ways_to_zookeeper(self, ids=None, members=None) -> list[tuple[str, str]]:
        names = [member.name for member in members or self.zookeeper.members]
        return [way for id in ids or self.brokers for name in names for way in ((f"broker{id}", name), (name, f"broker{id}"))]


def all_ways(cluster: Cluster) -> list[tuple[str, str]]:
    return list({way for id in cluster.brokers for way in cluster.ways_between(id)}) + cluster.ways_to_zookeeper()
