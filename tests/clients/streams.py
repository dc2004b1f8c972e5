"""Kafka Streams' system tests StreamsSmokeTest and StreamsEosTest with exactly_once_v2, while clients and the broker come and go.

Both are programs of Kafka's own test jars: a driver that produces, processors (Streams applications), and a verification that reads
everything back. In each, processors join, leave and are killed, and the broker is stopped with SIGTERM, killed with SIGKILL and
started again at once. It holds when the tests' own verification says so.

    smoke   windows, suppression, joins of tables and counts over 20,000 records; wants SUCCESS
    eos     a sub-topology behind a repartition topic, standby tasks; wants ALL-RECORDS-DELIVERED
"""

import argparse
import signal
import sys
from pathlib import Path

import program
from cluster import Cluster, Failure, write_properties
from java import Program, Steps

PARTITIONS = 5
# On a busy machine.
SETTLE_SECONDS_MAX = 180
VERIFY_SECONDS_MAX = 600
SESSION_SECONDS = 6
RUNNING = "REBALANCING -> RUNNING"
WORKS = r"processed \d+ records from topic"
# Smoke's driver, once it has produced everything.
VERIFIES = "Get some more results"
SMOKE = ("data", "echo", "max", "min", "min-suppressed", "min-raw", "dif", "sum", "sws-raw", "sws-suppressed", "cnt", "avg", "tagg", "fk")
EOS = ("data", "echo", "min", "sum", "repartition", "max", "cnt")
# The test asks for three replicas of its changelogs and cannot be told otherwise; those that exist it takes as they are.
EOS_STORES = (3, 7, 14, 18)


def main() -> int:
    parser = program.arguments(__doc__)
    parser.add_argument("--classpath", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--short", action="store_true", help="only eos, with fewer events")
    parser.add_argument("--only", choices=["smoke", "eos"])
    options = parser.parse_args()
    tests = {"smoke": smoke, "eos": eos}
    names = [options.only] if options.only else ["eos"] if options.short else list(tests)

    def work(folder: Path) -> None:
        steps = Steps()
        for name in names:
            print(name, flush=True)
            Run(options, folder / name, steps).run(tests[name])

    return program.run("streams", f"Streams ({' and '.join(names)}) on {options.broker}", options, work)


class Run:
    """A cluster with the programs that run against it."""

    def __init__(self, options: argparse.Namespace, folder: Path, steps: Steps):
        self.options = options
        self.folder = folder
        self.steps = steps
        self.cluster = Cluster(folder, options.zookeeper, broker=options.broker)
        self.programs: list[Program] = []
        self.driver: Program | None = None

    def run(self, test) -> None:
        try:
            self.cluster.start()
            test(self)
        finally:
            for program in self.programs:
                program.clear()
            self.cluster.stop()

    def create_topics(self, names: list[str], **configs) -> None:
        for name in names:
            self.cluster.create_topic(name, PARTITIONS, **configs)

    def program(self, test: str, name: str, command: str) -> Program:
        file = self.folder / f"{name}.properties"
        write_properties(file, {
            "bootstrap.servers": self.cluster.bootstrap, "state.dir": self.folder / f"{name}-state", "processing.guarantee": "exactly_once_v2",
            "num.stream.threads": 2, "replication.factor": 1, "num.standby.replicas": 1, "buffered.records.per.partition": 100,
            "commit.interval.ms": 1000, "auto.offset.reset": "earliest", "acks": "all", "session.timeout.ms": 1000 * SESSION_SECONDS,
            # Every task moves at once, not after probing rebalances.
            "acceptable.recovery.lag": 2**63 - 1,
        })
        program = Program(name, self.folder, self.options.classpath, [f"org.apache.kafka.streams.tests.{test}", file, command])
        self.programs.append(program)
        return program

    def restart_broker(self) -> None:
        self.cluster.broker.stop()
        self.cluster.broker.start()
        self.cluster.broker.wait_until_it_accepts()
        self.steps.done("the broker was stopped and serves again")

    def kill_broker(self) -> None:
        self.cluster.kill_broker()
        self.cluster.broker.wait_until_it_accepts()
        self.steps.done("the broker was killed and serves again")

    def processed(self, *programs: Program) -> None:
        """Each takes part from now on; or all was produced already, on a busy machine, and the driver waits for the last results."""
        for program in programs:
            program.mark()
        for program in programs:
            program.wait_for(WORKS, SETTLE_SECONDS_MAX, unless=lambda: VERIFIES in self.driver.printed())

    def left(self, gone: Program, *others: Program) -> None:
        """One is killed; the others take over its tasks once its session has run out."""
        for program in others:
            program.mark()
        gone.stop(signal.SIGKILL)
        for program in others:
            program.wait_for(RUNNING, SETTLE_SECONDS_MAX)
        self.processed(*others)


def joined(program: Program) -> None:
    program.start()
    program.wait_for(RUNNING, SETTLE_SECONDS_MAX)


def smoke(run: Run) -> None:
    run.create_topics(SMOKE)
    run.driver = driver = run.program("StreamsSmokeTest", "driver", "run")
    first, second, third = (run.program("StreamsSmokeTest", name, "process") for name in ("first", "second", "third"))
    joined(first)
    driver.start()
    run.processed(first)
    run.steps.done("the first processor works")
    run.restart_broker()
    run.processed(first)
    joined(second)
    run.processed(second)
    run.steps.done("the second works")
    run.left(first, second)
    run.steps.done("the first was killed, the second goes on")
    run.kill_broker()
    run.processed(second)
    joined(third)
    run.steps.done("the third is there")
    closed(second, "SMOKE-TEST-CLIENT")
    if "Result Verification" in driver.printed():
        raise Failure("the driver was through before all had happened")
    if driver.wait(VERIFY_SECONDS_MAX) != 0 or "\nSUCCESS\n" not in driver.printed():
        raise Failure(f"the verification fails: {driver.out}")
    figures = [line for line in driver.printed().splitlines() if line.startswith("record")]
    run.steps.done(f"the verification says SUCCESS, {', '.join(figures)}")
    closed(third, "SMOKE-TEST-CLIENT")
    run.steps.done("the third has closed")


def eos(run: Run) -> None:
    run.create_topics(EOS)
    changelogs = [f"EosTest-KSTREAM-AGGREGATE-STATE-STORE-{number:010}-changelog" for number in EOS_STORES]
    run.create_topics(changelogs, cleanup_policy="compact")
    run.driver = driver = run.program("StreamsEosTest", "driver", "run")
    first, second, third = (run.program("StreamsEosTest", name, "process-complex") for name in ("first", "second", "third"))
    driver.start()
    joined(first)
    joined(second)
    run.processed(first, second)
    run.steps.done("two processors work")
    run.kill_broker()
    run.processed(first, second)
    run.steps.done("they go on")
    if not run.options.short:
        joined(third)
        run.processed(third)
        run.steps.done("a third works")
        run.restart_broker()
        run.processed(first, second, third)
        run.steps.done("they go on")
        run.left(third, first, second)
        run.steps.done("the third was killed, the others go on")
        joined(third)
        run.cluster.kill_broker()
        run.left(second, first, third)
        run.steps.done("the broker and the second were killed at once, the others go on")
        closed(third, "EOS-TEST-CLIENT")
        joined(second)
        run.processed(first, second)
        run.steps.done("the third has closed, the second works again")
    run.left(second, first)
    run.steps.done("the second was killed, the first goes on")
    closed(first, "EOS-TEST-CLIENT")
    driver.stop()
    verify = run.program("StreamsEosTest", "verify", "verify-complex")
    verify.start()
    verify.wait(VERIFY_SECONDS_MAX)
    if "ALL-RECORDS-DELIVERED" not in verify.printed():
        raise Failure(f"the verification fails: {verify.out}, {verify.log}")
    produced = next(line for line in driver.printed().splitlines() if line.startswith("Producer closed"))
    run.steps.done(f"the verification says ALL-RECORDS-DELIVERED; {produced}")


def closed(program: Program, prefix: str) -> None:
    """Ends in order: its transaction, its membership, its threads."""
    program.stop()
    if f"{prefix}-CLOSED" not in program.printed():
        raise Failure(f"{program.name} did not close in order: {program.out}, {program.log}")


if __name__ == "__main__":
    sys.exit(main())
