"""The commands of a three-node guide, one after the other, against three brokers on this machine: ports in place of hosts.

    walk [--scripts ours|kafka] [--record]

Each node has a folder of its own with config/server.properties, which has lines that begin with //. What every command prints is held against
walk.txt, which --record writes from Kafka's own commands and brokers (`--scripts kafka`): numbers of brokers, times and ids do not count.
Maven has no scripts, so Kafka's brokers are started and stopped without them.

All of it is in a process namespace of its own, for kafka-server-stop.sh stops every broker of the machine that it sees.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1]
sys.path[1:1] = [str(folder) for folder in (TESTS / "clients", TESTS / "suites", TESTS / "suites" / "zookeeper")]

from cluster import ROOT, Failure, kafka_command  # noqa: E402
from confluent_kafka import Producer  # noqa: E402
from nodes import JVM, Node, ZooKeeper, eventually  # noqa: E402
from ports import quiet_port  # noqa: E402
from scripts import kafka_home  # noqa: E402
from wire import metadata  # noqa: E402

EXPECTED = HERE / "walk.txt"
PROPERTIES = """// A broker of three: the same file on each, but for the next line.
broker.id={id}
// Where clients and the other brokers find it.
listeners=PLAINTEXT://127.0.0.1:{port}
//advertised.listeners=PLAINTEXT://your.host.name:9092
log.dirs={folder}/kafka-logs
num.partitions=3
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
// All members of ZooKeeper.
zookeeper.connect={zookeeper}
"""
# What stands for what differs from run to run.
NEUTRAL = (
    (r"127\.0\.0\.1:\d+", "HOST"), (r"TopicId: \S+", "TopicId: ID"), (r"\t(Leader|Replicas|Isr): [\d,]+", lambda found: re.sub(r"\d+", "N", found[0])),
    (r"[\d.]+ records/sec \([\d.]+ MB/sec\)", "RATE"), (r"[\d.]+ ms", "TIME"), (r"^\[[^\]]*\] ", ""), (r"console-consumer-\d+", "console-consumer-#"), (r"[ \t]+$", ""),
)


class Walk:
    def __init__(self, folder: Path, scripts: str):
        self.folder = folder
        self.scripts = scripts
        self.zookeeper = ZooKeeper("ours" if scripts == "ours" else "apache", folder)
        self.ports = {id: quiet_port() for id in (0, 1, 2)}
        self.servers = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        self.said: list[str] = []
        self.kafkas: list[Node] = []
        self.bin = ROOT / "bin" if scripts == "ours" else kafka_home(folder / "kafka", "3.9.1", JVM) / "bin"
        for id, port in self.ports.items():
            node = folder / f"node{id}"
            (node / "config").mkdir(parents=True)
            (node / "bin").symlink_to(self.bin)
            connect = f"127.0.0.1:{self.zookeeper.members[0].port}"
            (node / "config" / "server.properties").write_text(PROPERTIES.format(id=id, port=port, folder=node, zookeeper=connect))

    def run(self) -> None:
        self.start_brokers()
        self.does("kafka-topics.sh --create --bootstrap-server ABC --replication-factor 1 --partitions 1 --topic mytopic1")
        self.does("kafka-topics.sh --create --bootstrap-server ABC --replication-factor 2 --partitions 2 --topic mytopic2")
        self.does("kafka-topics.sh --list --bootstrap-server ABC")
        self.does("kafka-topics.sh --describe --bootstrap-server ABC")
        self.does("kafka-topics.sh --describe --bootstrap-server ABC --topic mytopic1")
        self.does("kafka-topics.sh --bootstrap-server ABC --alter --partitions 5 --topic mytopic1")
        self.does("kafka-topics.sh --describe --bootstrap-server ABC --topic mytopic1")
        self.does("kafka-console-producer.sh --broker-list ABC --topic mytopic1", given="".join(f"message {number}\n" for number in range(10)))
        self.does("kafka-run-class.sh kafka.tools.GetOffsetShell --topic mytopic1 --time -1 --broker-list ABC --partitions 0", counts=False)
        self.does("kafka-run-class.sh kafka.tools.GetOffsetShell --topic mytopic1 --time -2 --broker-list ABC --partitions 0")
        self.does("kafka-topics.sh --delete --bootstrap-server ABC --topic mytopic2")
        eventually("mytopic2 is gone", 30, lambda: "there" if "mytopic2" in metadata(self.ports[0], None).topics else None)
        self.does("kafka-topics.sh --list --bootstrap-server ABC")
        self.does("kafka-console-consumer.sh --bootstrap-server ABC --topic mytopic1 --from-beginning", until=10)
        self.does("kafka-console-consumer.sh --bootstrap-server ABC --topic mytopic1 --offset latest --partition 1", until=1, meanwhile=self.send_one)
        self.does("kafka-console-consumer.sh --bootstrap-server ABC --topic mytopic1 --from-beginning --max-messages 5", counts=False)
        self.does("kafka-console-consumer.sh --bootstrap-server ABC --topic mytopic1 -group mygroup1 --from-beginning", until=10, counts=False)
        self.does("kafka-consumer-groups.sh --bootstrap-server ABC --list")
        self.does("kafka-consumer-groups.sh --bootstrap-server ABC --group mygroup1 --describe", columns=True)
        self.does("kafka-consumer-groups.sh --bootstrap-server ABC --group mygroup1 --delete")
        self.does("kafka-consumer-groups.sh --bootstrap-server ABC --list")
        self.does("kafka-leader-election.sh --bootstrap-server ABC --topic mytopic1 --partition=2 --election-type preferred")
        self.does("kafka-producer-perf-test.sh --topic mytopic1 --num-records 1000 --record-size 1 --throughput 1000 --producer-props bootstrap.servers=ABC")
        self.stop_brokers()

    def start_brokers(self) -> None:
        self.zookeeper.start()
        for id in self.ports:
            node = self.folder / f"node{id}"
            if self.scripts == "ours":
                environment = os.environ | {"LOG_DIR": str(node / "logs")}
                started = subprocess.run(["bin/kafka-server-start.sh", "-daemon", "config/server.properties"], cwd=node, env=environment,
                                         capture_output=True, text=True, timeout=30, check=False)
                if started.returncode != 0 or started.stdout or started.stderr:
                    raise Failure(f"kafka-server-start.sh -daemon: {started}")
            else:
                command = kafka_command("kafka.Kafka", options=(*JVM, "-Xmx300m", f"-Dkafka.logs.dir={node}/logs"))
                kafka = Node(f"kafka{id}", [*command, node / "config" / "server.properties"], self.ports[id], self.folder, {})
                self.kafkas.append(kafka)
                kafka.start()

        def look():
            known = {id: metadata(port).brokers for id, port in self.ports.items()}
            return None if all(brokers == set(self.ports) for brokers in known.values()) else f"{known}"
        seconds = eventually("every broker knows all three", 60, look)
        print(f"three brokers serve after {seconds:.1f} s", flush=True)

    def stop_brokers(self) -> None:
        if self.scripts == "ours":
            stopped = subprocess.run([self.bin / "kafka-server-stop.sh"], capture_output=True, text=True, timeout=30, check=False)
            if stopped.returncode != 0:
                raise Failure(f"kafka-server-stop.sh: {stopped}")
        for kafka in self.kafkas:
            kafka.send(signal.SIGTERM)

        def look():
            left = [command for path in Path("/proc").glob("[0-9]*/cmdline") if b"kafka.Kafka" in (command := path.read_bytes())
                    and (path.parent / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"]
            return f"{len(left)} are there" if left else None
        print(f"all three have stopped after {eventually('the brokers stop', 40, look, 0.1):.1f} s")
        session = self.zookeeper.session()
        registered = session.children("/brokers/ids")
        session.close()
        if registered:
            raise Failure(f"brokers {registered} are registered after they stopped")

    def does(self, line: str, given: str = "", until: int | None = None, counts: bool = True, columns: bool = False, meanwhile=None) -> None:
        """Runs a command, with `until` to that many lines and an interrupt. Not `counts`: what it prints depends on chance."""
        begin = time.monotonic()
        words = line.replace("ABC", self.servers).split()
        if self.scripts == "kafka" and words[1] == "kafka.tools.GetOffsetShell":
            # The guide is older than the move of this class, which ours knows by both names.
            words[1] = "org.apache.kafka.tools.GetOffsetShell"
        process = subprocess.Popen([str(self.bin / words[0]), *words[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=os.environ | {"LOG_DIR": str(self.folder / "tools")})
        if until is None:
            try:
                out, err = process.communicate(given, timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise Failure(f"{line}: does not end within 60 s") from None
        else:
            out, err = self.interrupted(line, process, until, meanwhile)
        lines = [neutral(one) for one in out.splitlines()]
        if columns:
            lines = [re.sub(r"[ \t]+", " ", re.sub(r"\b\d+\b", "#", one)) for one in lines]
        # Records of several partitions come in any order.
        lines = sorted(lines) if "consumer" in words[0] else lines
        told = lines if counts else ["..."]
        errors = [neutral(one) for one in err.splitlines() if one.strip() and not re.match(r"\s*at |SLF4J|.*WARN", one)]
        errors = errors if counts else [re.sub(r"\d+", "#", one) for one in errors]
        self.said.append("\n".join([f"$ {line}", *told, *(f"! {one}" for one in errors), f"= {process.returncode}"]))
        print(f"{time.monotonic() - begin:>5.1f} s  {line}", flush=True)

    def interrupted(self, line: str, process: subprocess.Popen, until: int, meanwhile) -> tuple[str, str]:
        lines: list[str] = []

        def read():
            for one in process.stdout:
                lines.append(one)
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        deadline = time.monotonic() + 60
        while len(lines) < until:
            if time.monotonic() > deadline or process.poll() is not None:
                process.kill()
                raise Failure(f"{line}: {len(lines)} lines of {until} came: {lines[:3]} {process.stderr.read()[-300:]}")
            if meanwhile:
                meanwhile()
            time.sleep(0.2)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
        process.wait(30)
        reader.join(10)
        return "".join(lines[:until] if meanwhile else lines), err

    def send_one(self) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        producer.produce("mytopic1", "to partition 1", partition=1)
        producer.flush(10)


def neutral(line: str) -> str:
    for pattern, by in NEUTRAL:
        line = re.sub(pattern, by, line)
    return line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", choices=["ours", "kafka"], default="ours")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="brokers-walk-"))
    walk = Walk(folder, options.scripts)
    try:
        walk.run()
    except Failure as failure:
        print(f"FAIL  {failure}\neverything is in {folder}")
        print("\n\n".join(walk.said[-2:]))
        return 1
    finally:
        for node in [*walk.kafkas, *walk.zookeeper.members]:
            node.clear()
    text = "\n\n".join(walk.said) + "\n"
    if options.record:
        EXPECTED.write_text(text)
    differences = [(mine, its) for mine, its in zip(walk.said, EXPECTED.read_text().strip("\n").split("\n\n$ ")) if mine.removeprefix("$ ") != its.removeprefix("$ ")]
    for mine, its in differences:
        print(f"FAIL  it says\n{mine}\n--- and Kafka\n$ {its.removeprefix('$ ')}\n")
    if differences:
        print(f"everything is in {folder}")
        return 1
    shutil.rmtree(folder)
    print(f"ok    {len(walk.said)} commands print what Kafka's do")
    return 0


if __name__ == "__main__":
    sys.exit(main())
