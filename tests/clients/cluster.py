"""A ZooKeeper and one broker as processes, on free ports of the loopback, in a folder of their own."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from ports import quiet_port
from relay import Relay

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / "bin"
# Where Debian's package puts Apache ZooKeeper.
APACHE_BIN = Path("/usr/share/zookeeper/bin")
START_SECONDS_MAX = 60
KAFKA_SESSION_MS = 6000


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Failure(Exception):
    """A check that does not hold, or could not be made."""


class Process:
    """A server that is started again and again with the same command; its output goes to one file."""

    def __init__(self, name: str, command: list, port: int, folder: Path, environment: dict):
        self.name = name
        self.command = [str(word) for word in command]
        self.port = port
        self.log = folder / f"{name}.out"
        self.environment = os.environ | environment
        self.process = None

    def start(self) -> None:
        with open(self.log, "ab") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                                            env=self.environment, start_new_session=True)

    def wait_until_it_accepts(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not accepts(self.port):
            if self.process.poll() is not None:
                raise Failure(f"the {self.name} ended with {self.process.returncode}: {self.last_line()}")
            if time.monotonic() > deadline:
                raise Failure(f"the {self.name} does not accept connections: {self.last_line()}")
            time.sleep(0.02)
        if self.process.poll() is not None:
            raise Failure(f"somebody else is at the port {self.port} of the {self.name}: {self.last_line()}")

    def last_line(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return f"{lines[-1] if lines else 'no output'} ({self.log})"

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> None:
        """Ends it. One that ended by itself, or does not end, is a failure."""
        if self.process is None:
            return
        process, self.process = self.process, None
        if process.poll() is not None:
            raise Failure(f"the {self.name} ended by itself with {process.returncode}: {self.last_line()}")
        process.send_signal(sent)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failure(f"the {self.name} does not stop within 30 seconds: {self.last_line()}") from None


class Cluster:
    """Both servers. `zookeeper` is `standalone` or `apache`; `broker` is `odradek`, or `kafka` for a real one."""

    def __init__(self, folder: Path, zookeeper: str, properties: dict | None = None, broker: str = "odradek",
                 relay_port: int | None = None):
        self.folder = folder
        self.zookeeper_port = quiet_port()
        self.port = quiet_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.zookeeper_connect = f"127.0.0.1:{self.zookeeper_port}"
        folder.mkdir(parents=True, exist_ok=True)

        zookeeper_file = folder / "zookeeper.properties"
        write_properties(zookeeper_file, {
            "dataDir": folder / "zookeeper-data", "clientPort": self.zookeeper_port, "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": 0, "admin.enableServer": "false", "tickTime": 1000, "4lw.commands.whitelist": "*",
        })
        (folder / "zookeeper-data").mkdir(exist_ok=True)
        logs = {"LOG_DIR": str(folder / "logs"), "ZOO_LOG_DIR": str(folder / "logs"), "SERVER_JVMFLAGS": "-Xmx256m"}
        (folder / "logs").mkdir(exist_ok=True)
        command = {
            "standalone": [BIN / "zookeeper-server-start.sh", zookeeper_file],
            "apache": [APACHE_BIN / "zkServer.sh", "start-foreground", zookeeper_file],
        }[zookeeper]
        self.zookeeper = Process("zookeeper", command, self.zookeeper_port, folder, logs)

        self.server_file = folder / "server.properties"
        write_properties(self.server_file, {
            "broker.id": 0, "listeners": f"PLAINTEXT://{self.bootstrap}", "log.dirs": folder / "data",
            "zookeeper.connect": self.zookeeper_connect, "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1,
            **({} if broker == "odradek" else {"zookeeper.session.timeout.ms": KAFKA_SESSION_MS}),
            **(behind_relay(self.port, relay_port) if relay_port else {}), **(properties or {}),
        })
        # A real one does not start while the node of its former life is there.
        self.seconds_down = 0 if broker == "odradek" else KAFKA_SESSION_MS / 1000 + 1
        self.broker = Process("broker", [*broker_command(broker), self.server_file], self.port, folder, logs)

    def start(self) -> None:
        self.zookeeper.start()
        self.zookeeper.wait_until_it_accepts()
        self.broker.start()
        self.broker.wait_until_it_accepts()
        # Served once an answer to Metadata comes.
        self.script("kafka-topics.sh", "--list")

    def kill_broker(self) -> None:
        """SIGKILL, and at once its next life."""
        self.broker.stop(signal.SIGKILL)
        time.sleep(self.seconds_down)
        self.broker.start()

    def kill_broker_behind(self, relay: Relay, topic: str) -> None:
        """The same, and lets the relay's clients in only once the broker knows the topic.

        Until then it answers Metadata with no brokers and an unknown topic, as Kafka does. Some clients do not survive that:
        librdkafka 2.16 waits for ever for brokers that it gave up, KafkaJS and kcat end.
        """
        relay.closed = True
        self.kill_broker()
        self.broker.wait_until_it_accepts()
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.knows(topic):
            if time.monotonic() > deadline:
                raise Failure(f"the broker does not know {topic} after {START_SECONDS_MAX} s")
            time.sleep(0.02)
        relay.closed = False

    def knows(self, topic: str) -> bool:
        try:
            found = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(topic, 1)
        except KafkaException:
            return False
        return bool(found.brokers) and found.topics[topic].error is None

    def script(self, name: str, *words: str) -> str:
        """Runs one of the ordinary scripts against the broker; gives what it prints."""
        command = [str(BIN / name), "--bootstrap-server", self.bootstrap, *words]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if ran.returncode != 0:
            raise Failure(f"{name} {' '.join(words)}: exit code {ran.returncode}: {(ran.stderr or ran.stdout).strip()}")
        return ran.stdout

    def create_topic(self, name: str, partitions: int, **configs) -> None:
        words = [word for key, value in configs.items() for word in ("--config", f"{key.replace('_', '.')}={value}")]
        self.script("kafka-topics.sh", "--create", "--topic", name, "--partitions", str(partitions), *words)

    def delete_topic(self, name: str) -> None:
        self.script("kafka-topics.sh", "--delete", "--topic", name)

    def stop(self) -> None:
        """Stops the broker, then ZooKeeper; both, even when one fails."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.zookeeper.stop)
            stack.callback(self.broker.stop)


def behind_relay(port: int, relay_port: int) -> dict:
    """Clients are told the relay's address; the controller of a real Kafka gets at its broker by another listener."""
    inside = f"INSIDE://127.0.0.1:{quiet_port()}"
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},{inside}", "advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay_port},{inside}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT", "inter.broker.listener.name": "INSIDE",
    }


def broker_command(broker: str, version: str = "3.9.1", options: tuple[str, ...] = ("-Xmx512m",)) -> list:
    if broker == "odradek":
        return [BIN / "kafka-server-start.sh"]
    return kafka_command("kafka.Kafka", version, options)


def kafka_command(main_class: str, version: str = "3.9.1", options: tuple[str, ...] = ("-Xmx512m",)) -> list:
    """Of a server out of a real Kafka's jars."""
    peer = ROOT / "tests" / "peer" / "peer"
    fetched = subprocess.run([peer, "classpath"], capture_output=True, text=True, check=True, env=os.environ | {"KAFKA_VERSION": version})
    return ["java", *options, f"-Dlog4j.configuration=file:{ROOT}/config/log4j.properties", "-cp", fetched.stdout.strip(), main_class]


def write_properties(path: Path, values: dict) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
