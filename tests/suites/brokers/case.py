"""What a case is: it starts from a cluster that is well, disturbs it under load, and wants it well again.

What Kafka promises is asked for always: nothing acknowledged is lost, and so on (judge.py). When it is undisturbed again, the cluster has to be
well within SETTLE_SECONDS, without a restart. The figures are printed, and held to limits where there are some.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from cluster import Failure
from load import Load
from nodes import SESSION_MS, Cluster

SETTLE_SECONDS = 30
# ZooKeeper ends sessions at ticks of a second; the rest is for the controller, on a busy machine.
LED_SECONDS = SESSION_MS / 1000 + 6
CONTROLLER_SECONDS = 1.0
SHUTDOWN_SECONDS = 15


@dataclass
class Run:
    cluster: Cluster
    load: Load
    chance: random.Random
    short: bool
    began: float

    def say(self, text: str) -> None:
        print(f"  {time.monotonic() - self.began:>6.1f} s  {text}", flush=True)

    def measured(self, what: str, seconds: float, at_most: float | None = None) -> None:
        self.say(f"{what}: {seconds:.2f} s")
        if at_most is not None and seconds > at_most:
            raise Failure(f"{what}: {seconds:.2f} s, and may take {at_most:.1f} s")

    def pause(self, least: float, most: float | None = None) -> None:
        time.sleep(self.chance.uniform(least, most or least))

    def settle(self, what: str = "every replica in sync again") -> None:
        """Nothing is disturbed any more: the cluster has to come to itself."""
        begin = time.monotonic()
        self.cluster.network.heal()
        self.cluster.await_served(SETTLE_SECONDS)
        self.cluster.await_full(self.cluster.existing(self.load.topics), max(1, SETTLE_SECONDS - (time.monotonic() - begin)))
        self.measured(what, time.monotonic() - begin, SETTLE_SECONDS)
        self.load.await_progress(SETTLE_SECONDS)

    def a_leader(self, but: int | None = None) -> int:
        """A broker that leads something, and is not this one."""
        leaders = sorted({one.leader for one in self.cluster.partitions([self.load.topic]).values()} - {but, -1})
        return self.chance.choice(leaders)


@dataclass(frozen=True)
class Case:
    act: Callable[[Run], None]
    # Part of the short form.
    short: bool = False
    # Wants an ensemble.
    ensemble: bool = False
    # What all brokers are at its beginning; else what the options say.
    begins_as: str | None = None
    load: dict | None = None

    @property
    def name(self) -> str:
        return self.act.__name__.replace("_", "-")


CASES: dict[str, Case] = {}


def case(**more):
    def keep(act):
        one = Case(act, **more)
        CASES[one.name] = one
        return act
    return keep
