"""Two kinds of broker in one cluster, and the way from one to the other."""

import signal
import time

from case import LED_SECONDS, SETTLE_SECONDS, SHUTDOWN_SECONDS, Run, case
from cluster import Failure
from nodes import eventually

def elected(run: Run, kind: str) -> int:
    """Deletes /controller until a broker of this kind is elected. The others stand still meanwhile, far less than a session: ours would be first
    each time."""
    for _ in range(60):
        controller = run.cluster.controller()
        if controller is not None and run.cluster.brokers[controller].kind == kind:
            run.cluster.await_served(SETTLE_SECONDS)
            return controller
        others = [broker for broker in run.cluster.brokers.values() if broker.kind != kind]
        for broker in others:
            broker.freeze()
        try:
            run.cluster.zookeeper.delete("/controller")
            time.sleep(0.2)
        finally:
            for broker in others:
                broker.thaw()
    raise Failure(f"no broker of kind {kind} is elected")


def work_for_the_controller(run: Run, name: str) -> None:
    """What it decides: a topic is made, grows and goes, a broker dies and comes back, a preferred leader is elected."""
    run.cluster.create_topic(name, 3)
    run.cluster.add_partitions(name, 5)
    run.cluster.await_full([name], SETTLE_SECONDS)
    id = run.chance.choice([id for id in run.cluster.brokers if id != run.cluster.controller()])
    begin = time.monotonic()
    run.cluster.brokers[id].kill()
    run.cluster.await_led([name, *run.load.topics], 60)
    run.measured(f"every partition led after SIGKILL of broker {id}", time.monotonic() - begin, LED_SECONDS)
    run.cluster.start_again(id)
    run.cluster.await_full([name], SETTLE_SECONDS)
    run.cluster.elect_preferred()

    def preferred():
        wrong = [one for one, found in run.cluster.partitions([name]).items() if found.leader != found.replicas[0]]
        return f"{wrong} have another leader" if wrong else None
    eventually("preferred leaders lead", SETTLE_SECONDS, preferred)
    run.cluster.delete_topic(name)
    eventually(f"{name} is gone", SETTLE_SECONDS, lambda: "there" if name in run.cluster.view(id, None).topics else None)


def roll(run: Run, wanted: dict[int, str], what: str) -> None:
    """One broker after the other becomes another kind; after each, either kind has been the controller."""
    for id in run.chance.sample(sorted(wanted), len(wanted)):
        begin = time.monotonic()
        broker = run.cluster.brokers[id]
        broker.stop(signal.SIGTERM)
        run.measured(f"{what}: broker {id} has stopped", time.monotonic() - begin, SHUTDOWN_SECONDS)
        broker.become(wanted[id])
        run.cluster.start_again(id)
        run.settle(f"{what}: broker {id} is {wanted[id]}, every replica in sync")
        for kind in sorted({one.kind for one in run.cluster.brokers.values()}):
            run.say(f"broker {elected(run, kind)} is the controller, {kind}")
            if not run.short or id == max(wanted):
                work_for_the_controller(run, f"by-{kind}-{what}-{id}")
                run.settle()
        run.load.kill_producer("transactional")
        run.load.await_progress(SETTLE_SECONDS)


@case(begins_as="kafka")
def migration(run: Run) -> None:
    """Three of Kafka's brokers become ours, one at a time, and Kafka's again, under load. With --brokers kafka, they stay what they are; with
    --brokers upgraded --kafka-version 3.0.0, it is Kafka's own upgrade, and the way back."""
    roll(run, {id: run.cluster.layout.brokers[id - 1] for id in run.cluster.brokers}, "there")
    roll(run, {id: "kafka" for id in run.cluster.brokers}, "back")
