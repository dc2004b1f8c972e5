"""What goes on in a cluster while it is disturbed, and the look at what is left.

Into one topic write three producers, one idempotent, one without idempotence, one transactional, each a process of `history`; two readers
follow along, one for each isolation level. Into another one goes what `clients/numbers_producer.py` sends, for a group of two members whose
journals `clients/group_checks.py` judges.
"""

import signal
import subprocess
from pathlib import Path

import clients
import group_checks
import judge
import segments
from cluster import Failure
from confluent_kafka import Consumer, KafkaException, TopicPartition
from nodes import Cluster, eventually
from numbers_producer import Numbers

HERE = Path(__file__).resolve().parent
HISTORY = [str(clients.HOME / "venv" / "bin" / "python"), "-B", str(HERE / "history.py")]
# Names and kinds.
PRODUCERS = {kind: kind for kind in ("idempotent", "plain", "transactional")}
ISOLATIONS = ("read_committed", "read_uncommitted")
RATE = 60
PARTITIONS = 6
# Never to expire, however slow a machine is.
GROUP_SESSION_MS = 30_000
END_SECONDS_MAX = 150
CONFLUENT = next(client for client in clients.MODERN if client.name == "confluent")


class Load:
    def __init__(self, cluster: Cluster, topic: str = "events", group: bool = True, producers: dict[str, str] = PRODUCERS, replication: int = 3,
                 rate: int = RATE, folder: str | None = None, **configs):
        self.cluster = cluster
        self.topic = topic
        self.numbers_topic = f"{topic}-numbers" if group else None
        self.producers = producers
        self.replication = replication
        self.rate = rate
        self.configs = configs
        self.folder = cluster.folder / (folder or topic)
        self.folder.mkdir()
        self.processes: dict[str, subprocess.Popen] = {}
        self.members: dict[str, subprocess.Popen] = {}
        self.numbers: Numbers | None = None

    @property
    def topics(self) -> list[str]:
        return [self.topic, *([self.numbers_topic] if self.numbers_topic else [])]

    def journal(self, name: str) -> Path:
        return self.folder / f"{name}.journal"

    def launch(self, name: str, *words) -> None:
        command = [*HISTORY, *map(str, words), "--name", name, "--journal", str(self.journal(name)), "--bootstrap", self.cluster.bootstrap,
                   "--topic", self.topic, "--partitions", str(PARTITIONS)]
        with open(self.folder / f"{name}.out", "ab") as output:
            self.processes[name] = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    def start(self) -> "Load":
        for topic in self.topics:
            self.cluster.create_topic(topic, PARTITIONS, self.replication, **self.configs)
        self.start_history()
        if self.numbers_topic:
            self.numbers = Numbers(self.cluster.bootstrap, self.numbers_topic, PARTITIONS, RATE)
            self.numbers.start()
            for number in (1, 2):
                self.start_member(f"member{number}")
        self.await_progress(60)
        return self

    def start_history(self) -> None:
        for name in self.producers:
            self.start_producer(name)
        for isolation in ISOLATIONS:
            self.launch(f"follows-{isolation}", "read", "--isolation", isolation, "--follow")

    def start_producer(self, name: str) -> None:
        self.launch(name, "produce", "--kind", self.producers[name], "--rate", self.rate)

    def start_member(self, name: str) -> None:
        self.members[name] = CONFLUENT.start(
            self.folder / f"{name}.out", "group", "--bootstrap", self.cluster.bootstrap, "--topic", self.numbers_topic, "--group", self.topic,
            "--assignor", "range", "--session", GROUP_SESSION_MS, "--journal", self.journal(name))

    def kill_producer(self, name: str) -> None:
        """SIGKILL, and its next life."""
        self.processes[name].kill()
        self.processes[name].wait()
        self.start_producer(name)

    # While it goes on.

    def acknowledged(self, name: str) -> int:
        path = self.journal(name)
        return sum(" acked " in line for line in judge.whole_lines(path.read_text())) if path.exists() else 0

    def check_alive(self) -> None:
        for name, process in [*self.processes.items(), *self.members.items()]:
            if process.poll() is not None:
                raise Failure(f"{name} ended with {process.returncode}: {(self.folder / f'{name}.out').read_text(errors='replace')[-400:].strip()}")

    def await_progress(self, seconds: float) -> float:
        """Until something more is acknowledged to each producer. Gives the seconds that it took."""
        before = {name: self.acknowledged(name) for name in self.producers}

        def look():
            self.check_alive()
            stuck = [name for name in self.producers if self.acknowledged(name) == before[name]]
            return f"nothing new for {', '.join(stuck)}" if stuck else None
        return eventually("every producer goes on", seconds, look, 0.1)

    def silence(self) -> float:
        """The longest time for which no producer had an acknowledgement, in seconds."""
        longest = 0.0
        for name in self.producers:
            times = [int(line.split(" ", 1)[0]) for line in judge.whole_lines(self.journal(name).read_text()) if " acked " in line]
            longest = max([longest, *((after - before) / 1e6 for before, after in zip(times, times[1:]))])
        return longest

    # The end.

    def finish(self) -> list[str]:
        """Stops everything, looks, and gives a summary. The cluster has settled before."""
        self.check_alive()
        for name in self.producers:
            self.end(name)
        summary = [self.finish_group()] if self.numbers_topic else []
        eventually("no transaction is open", 60, self.open_transaction, 0.2)
        for isolation in ISOLATIONS:
            self.end(f"follows-{isolation}")
            self.launch(f"reads-{isolation}", "read", "--isolation", isolation)
        for isolation in ISOLATIONS:
            self.await_end(f"reads-{isolation}")
        self.dump_replicas()
        lines = [line for path in sorted(self.folder.glob("*.journal")) if not path.name.startswith("member")
                 for line in judge.whole_lines(path.read_text())]
        breaches, judged = judge.judge(lines)
        if breaches:
            raise Failure("\n      ".join(["the history does not hold:", *breaches]))
        return [*judged, *summary, f"the longest silence was {self.silence():.1f} s"]

    def end(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGTERM)
        self.await_end(name)

    def await_end(self, name: str) -> None:
        process = self.processes.pop(name)
        try:
            code = process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failure(f"{name} does not end within {END_SECONDS_MAX} s") from None
        if code != 0:
            raise Failure(f"{name} ended with {code}: {(self.folder / f'{name}.out').read_text(errors='replace')[-400:].strip()}")

    def finish_group(self) -> str:
        ends = self.numbers.stop()
        observer = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": self.topic, "log_level": 0})

        def committed():
            found = observer.committed([TopicPartition(self.numbers_topic, partition) for partition in range(PARTITIONS)], 20)
            return [max(one.offset, 0) for one in found]

        eventually("the group commits all", 90, lambda: None if (at := committed()) == ends else f"{at} of {ends}", 0.3)
        at = committed()
        observer.close()
        for name, member in self.members.items():
            member.send_signal(signal.SIGTERM)
        for name, member in self.members.items():
            if member.wait(60) != 0:
                raise Failure(f"{name} ended with {member.returncode}")
        journals = [group_checks.Journal(name, name, judge.whole_lines(self.journal(name).read_text())) for name in self.members]
        self.members = {}
        return f"group: {group_checks.judge(journals, ends, at)}"

    def open_transaction(self) -> str | None:
        """Complains while the two isolation levels end at different offsets."""
        for partition in range(PARTITIONS):
            ends = {}
            for isolation in ISOLATIONS:
                asking = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": "unused", "isolation.level": isolation, "log_level": 0})
                try:
                    ends[isolation] = asking.get_watermark_offsets(TopicPartition(self.topic, partition), 10)[1]
                except KafkaException as error:
                    return str(error)
                finally:
                    asking.close()
            if len(set(ends.values())) > 1:
                return f"partition {partition} ends at {ends}"
        return None

    def dump_replicas(self) -> None:
        """From the files; a follower may be a moment behind."""
        def ends():
            found = {}
            for (topic, partition), one in self.cluster.partitions([self.topic]).items():
                for id in one.replicas:
                    last = segments.lines(self.cluster.brokers[id].data / f"{topic}-{partition}", partition)[-1]
                    if found.setdefault(partition, last) != last:
                        return f"partition {partition}: {last} on broker {id}, {found[partition]} elsewhere"
            return None

        eventually("every replica has everything", 20, ends, 0.5)
        assigned = self.cluster.partitions([self.topic])
        for id, broker in self.cluster.brokers.items():
            # Elsewhere may be what a broker missed to delete.
            its = ",".join(str(partition) for (_, partition), one in sorted(assigned.items()) if id in one.replicas)
            command = [*HISTORY, "replicas", "--topic", self.topic, "--journal", self.journal(f"replica{id}"), "--only", its, f"broker{id}={broker.data}"]
            subprocess.run([str(word) for word in command], check=True)

    def clear(self) -> None:
        if self.numbers is not None:
            self.numbers.stopping.set()
        for process in [*self.processes.values(), *self.members.values()]:
            if process.poll() is None:
                process.kill()
                process.wait()
