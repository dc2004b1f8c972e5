"""Kafka Connect in distributed mode: lines go from one file through a topic into another, while workers and the broker come and go.

Two workers run a FileStreamSource and a FileStreamSink, set up over REST. While lines are appended to the source's file, the broker is
stopped with SIGTERM, then killed with SIGKILL, and started again at once; the worker with the source's task is killed. Afterwards:

    sink        its file holds every line, the first appearances in order
    topic       read by our console consumer, the same; with `exactly.once.source.support` every line exactly once
    REST        both connectors and their tasks are RUNNING, and none was ever restarted by hand

One round with `exactly.once.source.support`, one without.
"""

import argparse
import json
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import program
from cluster import Cluster, Failure, write_properties
from java import Program, Steps
from ports import quiet_port

TOPIC = "lines"
LINES = 10_000
LINES_SHORT = 2_000
LINES_PER_SECOND = 400
START_SECONDS_MAX = 180
DELIVER_SECONDS_MAX = 180


def main() -> int:
    parser = program.arguments(__doc__)
    parser.add_argument("--classpath", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--short", action="store_true", help="one worker, one round, fewer lines, one kill of the broker")
    options = parser.parse_args()
    rounds = ["exactly-once"] if options.short else ["exactly-once", "at-least-once"]

    def work(folder: Path) -> None:
        steps = Steps()
        for name in rounds:
            print(name, flush=True)
            Round(options, folder / name, steps, exactly_once=name == "exactly-once").run()

    return program.run("connect", f"Connect ({' and '.join(rounds)}) on {options.broker}", options, work)


class Worker(Program):
    """A worker of the Connect cluster, with its REST interface."""

    def __init__(self, name: str, folder: Path, classpath: str, bootstrap: str, exactly_once: bool):
        self.port = quiet_port()
        self.id = f"127.0.0.1:{self.port}"
        file = folder / f"{name}.properties"
        write_properties(file, {
            "bootstrap.servers": bootstrap, "group.id": "connect", "listeners": f"http://{self.id}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": "connect-configs", "config.storage.replication.factor": 1,
            "offset.storage.topic": "connect-offsets", "offset.storage.replication.factor": 1, "offset.storage.partitions": 5,
            "status.storage.topic": "connect-status", "status.storage.replication.factor": 1, "status.storage.partitions": 5,
            "offset.flush.interval.ms": 1000, "session.timeout.ms": 6000, "heartbeat.interval.ms": 1000,
            # The tasks of a killed worker move at once.
            "scheduled.rebalance.max.delay.ms": 0,
            "exactly.once.source.support": "enabled" if exactly_once else "disabled", "plugin.discovery": "only_scan",
        })
        super().__init__(name, folder, classpath, ["org.apache.kafka.connect.cli.ConnectDistributed", file])

    def rest(self, method: str, path: str, body: dict | None = None):
        request = urllib.request.Request(f"http://{self.id}{path}", method=method, headers={"Content-Type": "application/json"},
                                         data=None if body is None else json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)


class Round:
    """A cluster, workers, two files."""

    def __init__(self, options: argparse.Namespace, folder: Path, steps: Steps, exactly_once: bool):
        self.options = options
        self.steps = steps
        self.exactly_once = exactly_once
        self.cluster = Cluster(folder, options.zookeeper, broker=options.broker)
        names = ["first"] if options.short else ["first", "second"]
        self.workers = [Worker(name, folder, options.classpath, self.cluster.bootstrap, exactly_once) for name in names]
        self.source = folder / "source.txt"
        self.sink = folder / "sink.txt"
        # The number makes each another one. ASCII: the source counts characters, and goes on after as many bytes.
        self.lines = [f"{number} {'a, <'[number % 4] * (number % 97)}." for number in range(LINES_SHORT if options.short else LINES)]

    def run(self) -> None:
        self.source.touch()
        writer = threading.Thread(target=self.write, daemon=True)
        try:
            self.cluster.start()
            for worker in self.workers:
                worker.start()
            self.set_up()
            self.steps.done(f"{len(self.workers)} worker(s), both connectors run")
            writer.start()
            self.disturb()
            writer.join()
            self.wait_for_sink(len(self.lines), "the last line")
            self.steps.done(f"all {len(self.lines)} lines are through")
            self.wait_until_they_run()
            for worker in self.workers:
                worker.stop()
            self.steps.done("the workers have stopped")
            self.look()
        finally:
            for worker in self.workers:
                worker.clear()
            self.cluster.stop()

    def set_up(self) -> None:
        file = "org.apache.kafka.connect.file.FileStream"
        self.configure("source", {
            "connector.class": f"{file}SourceConnector", "tasks.max": "1", "file": str(self.source), "topic": TOPIC,
            # When a batch is full, the source holds back lines that it has read until the file grows again.
            "batch.size": str(2 * LINES),
            "topic.creation.default.replication.factor": "1", "topic.creation.default.partitions": "1",
        })
        self.configure("sink", {
            "connector.class": f"{file}SinkConnector", "tasks.max": "1", "file": str(self.sink), "topics": TOPIC,
            "consumer.override.isolation.level": "read_committed",
        })
        self.wait_until_they_run()

    def configure(self, name: str, config: dict) -> None:
        # The first answers come when the worker has joined its group; other errors mean something.
        wait(f"the connector {name} is taken", START_SECONDS_MAX,
             lambda: tried(lambda: self.workers[0].rest("PUT", f"/connectors/{name}/config", config)))

    def status(self, name: str) -> dict | None:
        for worker in self.workers:
            if worker.process.poll() is None:
                return tried(lambda worker=worker: worker.rest("GET", f"/connectors/{name}/status"))
        raise Failure("no worker lives")

    def wait_until_they_run(self) -> None:
        def run() -> bool:
            living = {worker.id for worker in self.workers if worker.process.poll() is None}
            for name in ("source", "sink"):
                status = self.status(name)
                parts = [status["connector"], *status["tasks"]] if status else []
                failed = [part for part in parts if part["state"] == "FAILED"]
                if failed:
                    raise Failure(f"{name}: {failed[0]}")
                if len(parts) != 2 or any(part["state"] != "RUNNING" or part["worker_id"] not in living for part in parts):
                    return False
            return True

        wait("both connectors and their tasks run", START_SECONDS_MAX, run)

    def write(self) -> None:
        begin = time.monotonic()
        with open(self.source, "a", encoding="utf-8") as source:
            for number, line in enumerate(self.lines):
                source.write(f"{line}\n")
                ahead = begin + number / LINES_PER_SECOND - time.monotonic()
                if ahead > 0:
                    source.flush()
                    time.sleep(ahead)

    def disturb(self) -> None:
        count = len(self.lines)
        if not self.options.short:
            self.wait_for_sink(count // 8, "the broker's stop")
            self.cluster.broker.stop()
            self.cluster.broker.start()
            self.cluster.broker.wait_until_it_accepts()
            self.steps.done(f"the broker was stopped after {self.lines_in_sink()} lines in the sink and serves again")
        self.wait_for_sink(count // 4, "the broker's kill")
        self.cluster.kill_broker()
        self.cluster.broker.wait_until_it_accepts()
        self.steps.done(f"the broker was killed after {self.lines_in_sink()} lines and serves again")
        if not self.options.short:
            self.wait_for_sink(count // 2, "the worker's kill")
            owner = self.status("source")["tasks"][0]["worker_id"]
            worker = next(worker for worker in self.workers if worker.id == owner)
            worker.stop(signal.SIGKILL)
            self.steps.done(f"the {worker.name} worker was killed after {self.lines_in_sink()} lines, with the source's task")
            self.wait_until_they_run()
            self.steps.done("the other has taken over")
            worker.start()

    def lines_in_sink(self) -> int:
        return self.sink.read_bytes().count(b"\n") if self.sink.exists() else 0

    def wait_for_sink(self, count: int, what: str) -> None:
        last = f"{self.lines[count - 1]}\n".encode()
        wait(f"{what} ({count} lines)", DELIVER_SECONDS_MAX, lambda: self.sink.exists() and last in self.sink.read_bytes())

    def look(self) -> None:
        in_sink = compare("the sink's file", self.sink.read_text(encoding="utf-8"), self.lines)
        printed = self.cluster.script("kafka-console-consumer.sh", "--topic", TOPIC, "--from-beginning", "--isolation-level", "read_committed",
                                      "--timeout-ms", "5000")
        in_topic = compare("the topic", printed, self.lines)
        if in_topic and self.exactly_once:
            raise Failure(f"the topic holds {in_topic} lines twice, in spite of exactly.once.source.support")
        self.steps.done(f"every line is there in order; twice are {in_topic} in the topic, {in_sink} in the sink")


def compare(where: str, text: str, lines: list[str]) -> int:
    """Holds what arrived against what was sent. Gives the number of duplicates."""
    arrived = text.removesuffix("\n").split("\n")
    firsts = list(dict.fromkeys(arrived))
    if firsts != lines:
        at = next((number for number, (one, other) in enumerate(zip(firsts, lines)) if one != other), min(len(firsts), len(lines)))
        raise Failure(f"{where}: {len(firsts)} different lines of {len(lines)}; the first difference is line {at}: "
                      f"{firsts[at:at + 1]} and not {lines[at:at + 1]}")
    return len(arrived) - len(firsts)


def tried(request):
    """Its answer, or None as long as the worker starts or rebalances."""
    try:
        return request()
    except urllib.error.HTTPError as error:
        if error.code in (404, 409, 500, 503):
            return None
        raise Failure(f"{error.url}: {error.code} {error.read().decode(errors='replace')}") from None
    except OSError:
        return None


def wait(what: str, seconds: float, holds) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Failure(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
