"""Does what docs/migration.md says: takes its commands out of it, and executes them on three brokers, there and back, under load.

    guide [--to ours|kafka] [--kafka-version 3.9.1|3.0.0] [--zookeeper ours|apache|ensemble]

Each broker has a machine of its own as far as its commands can tell: `ps` shows them no other broker. What is printed has to be what the
page says after the command: `Prints nothing`, ``Prints `this` ``, or the same after `Wait until it prints`. With `--to kafka`, Kafka is
replaced by Kafka, to see that the page and this test are right.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1]
sys.path[1:1] = [str(folder) for folder in (TESTS / "clients", TESTS / "clients" / "adapters", TESTS / "suites", TESTS / "suites" / "zookeeper")]

from cluster import ROOT, Failure  # noqa: E402
from load import Load  # noqa: E402
from nodes import JVM, Broker, Cluster, Layout  # noqa: E402
from scripts import kafka_home  # noqa: E402

PAGE = ROOT / "docs" / "migration.md"
WAIT_SECONDS_MAX = 90


class Adopted:
    """A process that a script started: as much of Popen as a broker's node needs."""

    def __init__(self, pid: int):
        self.pid = pid
        self.returncode = None

    def poll(self) -> int | None:
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            state = "Z"
        self.returncode = 0 if state == "Z" else None
        return self.returncode

    def send_signal(self, sent: signal.Signals) -> None:
        os.kill(self.pid, sent)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = 30) -> int:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.05)
        return 0


class Step:
    def __init__(self, section: str, code: str, after: str):
        self.section = section
        self.code = code
        # What must be printed: None where the page does not say, "" for nothing.
        found = re.match(r"(Wait until it prints|Prints) (nothing|`([^`]*)`)", after)
        self.waits = bool(found) and found[1].startswith("Wait")
        self.expected = None if not found else found[3] or ""

    def holds(self, out: str) -> bool:
        return self.expected is None or (self.expected in out if self.expected else not out.strip())


def steps() -> list[Step]:
    found, section = [], ""
    for part in re.split(r"(?m)^(?=## |```sh\n)", PAGE.read_text()):
        if part.startswith("## "):
            section = part.split("\n", 1)[0].removeprefix("## ")
        elif part.startswith("```sh\n"):
            code, _, after = part.removeprefix("```sh\n").partition("\n```\n")
            found.append(Step(section, code, after.strip()))
    return found


class Guide:
    def __init__(self, cluster: Cluster, kafka: Path, odradek: Path):
        self.cluster = cluster
        self.steps = steps()
        self.begin = time.monotonic()
        first = self.cluster.zookeeper.members[0]
        self.environments = {}
        for broker in cluster.brokers.values():
            machine = broker.folder / "machine"
            machine.mkdir()
            (machine / "ps").write_text(f"#!/bin/sh\nexec {shutil.which('ps')} axww | grep -F '{broker.file}'\n")
            (machine / "ps").chmod(0o755)
            self.environments[broker.id] = os.environ | {
                "PATH": f"{machine}:{os.environ['PATH']}", "LOG_DIR": str(broker.folder / "logs"), "KAFKA": str(kafka), "ODRADEK": str(odradek),
                "PROPERTIES": str(broker.file), "DATA": str(broker.data), "ID": str(broker.id), "BOOTSTRAP": cluster.bootstrap,
                "ZOOKEEPER": f"127.0.0.1:{first.port}",
            }
        named = re.findall(r"(?m)^export (\w+)=", "".join(step.code for step in self.steps if step.section == "Settings"))
        if missing := [name for name in named if name not in self.environments[1]]:
            raise Failure(f"the page has settings that this test does not know: {missing}")

    def follow(self, section: str, id: int) -> None:
        chosen = [step for step in self.steps if step.section == section]
        if not chosen:
            raise Failure(f"the page has no section '{section}'")
        for step in chosen:
            self.do(step, id)

    def do(self, step: Step, id: int) -> None:
        begin = time.monotonic()
        while True:
            ran = subprocess.run(["bash", "-c", step.code], env=self.environments[id], capture_output=True, text=True, timeout=120, check=False)
            # grep finds nothing with 1.
            fails = ran.returncode != 0 and not (step.waits or step.expected == "")
            if not fails and step.holds(ran.stdout):
                break
            if not step.waits or time.monotonic() > begin + WAIT_SECONDS_MAX:
                raise Failure(f"broker {id}, {step.code}: exit code {ran.returncode}, and it prints {ran.stdout[-500:]!r} {ran.stderr[-500:]!r}")
            time.sleep(0.5)
        print(f"  {time.monotonic() - self.begin:>6.1f} s  broker {id}  {step.code}  ({time.monotonic() - begin:.1f} s)", flush=True)
        self.look(self.cluster.brokers[id])

    def look(self, broker: Broker) -> None:
        """Whose process the broker is now."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if str(broker.file).encode() in words and b"kafka.Kafka" in words:
                pid = int(path.parent.name)
                if broker.process is None or broker.process.pid != pid:
                    broker.process = Adopted(pid)
                    self.cluster.network.pids[broker.name] = pid
                return
        if broker.process is not None:
            broker.process.poll()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", choices=["ours", "kafka"], default="ours")
    parser.add_argument("--kafka-version", choices=["3.9.1", "3.0.0"], default="3.9.1")
    parser.add_argument("--zookeeper", choices=["ours", "apache", "ensemble"], default="apache")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="brokers-guide-"))
    cluster = Cluster(folder, Layout(("kafka",) * 3, options.kafka_version, options.zookeeper))
    kafka = kafka_home(folder / "kafka", options.kafka_version, (*JVM, "-Xmx400m"))
    load = Load(cluster)
    try:
        with cluster.running():
            load.start()
            guide = Guide(cluster, kafka, ROOT if options.to == "ours" else kafka)
            for id in cluster.brokers:
                guide.follow("Before", id)
            for section in ("One broker", "Back"):
                last = cluster.controller()
                for id in sorted(cluster.brokers, key=lambda id: id == last):
                    guide.follow(section, id)
                    load.await_progress(30)
                if section == "One broker":
                    guide.follow("After", last)
            cluster.await_full(cluster.existing(load.topics), 30)
            for line in load.finish():
                print(line)
    except Failure as failure:
        print(f"FAIL  {failure}\neverything is in {folder}")
        return 1
    finally:
        load.clear()
    if not options.keep:
        shutil.rmtree(folder)
    print(f"ok    the commands of {PAGE.name} do what it says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
