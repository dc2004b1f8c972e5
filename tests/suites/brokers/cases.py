"""The cases that disturb one kind of brokers. Each says what it does."""

import contextlib
import json
import signal
import time
from collections.abc import Callable

import network
from case import CONTROLLER_SECONDS, LED_SECONDS, SETTLE_SECONDS, SHUTDOWN_SECONDS, Run, case
from cluster import Failure
from confluent_kafka.admin import NewTopic
from load import PARTITIONS, Load
from nodes import LAG_MS, SESSION_MS, all_ways, eventually

# Brokers that die, or seem to.


def killed_and_back(run: Run, id: int, what: str) -> None:
    begin = time.monotonic()
    run.cluster.brokers[id].kill()
    run.cluster.await_led(run.load.topics, 60)
    run.measured(f"every partition led again after SIGKILL of {what}, broker {id}", time.monotonic() - begin, LED_SECONDS)
    run.load.await_progress(SETTLE_SECONDS)
    run.pause(0, 1)
    run.measured("it is back", run.cluster.start_again(id))
    run.settle()


@case(short=True)
def kill_leader(run: Run) -> None:
    """SIGKILL of a broker that leads partitions and is not the controller."""
    for _ in range(1 if run.short else 3):
        killed_and_back(run, run.a_leader(run.cluster.controller()), "a leader")


@case(short=True)
def kill_controller(run: Run) -> None:
    for _ in range(1 if run.short else 3):
        killed_and_back(run, run.cluster.controller(), "the controller")


@case()
def kill_at_random(run: Run) -> None:
    """SIGKILL of one broker, and often of a second one before the first is back; producers, too."""
    for number in range(3 if run.short else 12):
        victims = run.chance.sample(sorted(run.cluster.brokers), run.chance.choice([1, 1, 2]))
        for id in victims:
            run.cluster.brokers[id].kill()
            run.pause(0, 2)
        name = run.chance.choice(sorted(run.load.producers))
        run.load.kill_producer(name)
        run.say(f"{number}: killed brokers {victims} and the {name} producer")
        run.pause(0, SESSION_MS / 1000 + 2)
        for id in run.chance.sample(victims, len(victims)):
            run.cluster.launch(id)
            run.pause(0, 2)
        for id in victims:
            run.cluster.brokers[id].wait_until_it_accepts()
        if number % 3 == 2:
            run.settle()
        else:
            run.pause(0, 5)
    run.settle()


@case()
def kill_all(run: Run) -> None:
    """All brokers at once, and back in any order."""
    for _ in range(1 if run.short else 4):
        for id in run.chance.sample(sorted(run.cluster.brokers), 3):
            run.cluster.brokers[id].kill()
        run.say("all brokers killed")
        run.pause(0, 2)
        for id in run.chance.sample(sorted(run.cluster.brokers), 3):
            run.cluster.launch(id)
        for broker in run.cluster.brokers.values():
            broker.wait_until_it_accepts()
        run.settle()


@case(short=True)
def rolling_restart(run: Run) -> None:
    """SIGTERM of one broker after the other, the controller last."""
    for round in range(1 if run.short else 3):
        last = run.cluster.controller()
        for id in sorted(run.cluster.brokers, key=lambda id: (id == last, id)):
            begin = time.monotonic()
            run.cluster.brokers[id].stop(signal.SIGTERM)
            run.measured(f"controlled shutdown of broker {id}{', the controller' if id == last else ''}", time.monotonic() - begin, SHUTDOWN_SECONDS)
            # Leaders have moved before it ended.
            run.measured("every partition led", run.cluster.await_led(run.load.topics, 60), 2 if id != last else 4)
            run.cluster.start_again(id)
            run.settle()


@case(short=True)
def freeze_leader(run: Run) -> None:
    """SIGSTOP of a leader until it has lost its session; it wakes up, and believes that it leads still."""
    for _ in range(1 if run.short else 4):
        id = run.a_leader(run.cluster.controller())
        begin = time.monotonic()
        run.cluster.brokers[id].freeze()
        run.cluster.await_led(run.load.topics, 60)
        run.measured(f"every partition led again after SIGSTOP of broker {id}", time.monotonic() - begin, LED_SECONDS)
        run.pause(0, 4)
        run.cluster.brokers[id].thaw()
        run.settle()


@case(short=True)
def freeze_controller(run: Run) -> None:
    """SIGSTOP of the controller for a minute: when it wakes up, it changes nothing."""
    id = run.cluster.controller()
    run.cluster.brokers[id].freeze()
    seconds = SESSION_MS / 1000 + (4 if run.short else 54)
    begin = time.monotonic()
    run.cluster.await_led(run.load.topics, 60)
    run.measured("every partition led again", time.monotonic() - begin, LED_SECONDS)
    run.load.await_progress(SETTLE_SECONDS)
    time.sleep(max(0, seconds - (time.monotonic() - begin)))

    def state():
        """What a controller changes: of each partition the leader, its epoch, and the epoch of the controller that said so."""
        found = {}
        for topic in run.load.topics:
            for partition in range(PARTITIONS):
                one = json.loads(run.cluster.zookeeper.get(f"/brokers/topics/{topic}/partitions/{partition}/state")[0])
                # In-sync replicas grow again, by the word of their leaders.
                found[topic, partition] = one["leader"], one["leader_epoch"], one["controller_epoch"]
        return found

    controller, epoch, before = run.cluster.controller(), run.cluster.controller_epoch(), state()
    run.cluster.brokers[id].thaw()
    run.say(f"the former controller, broker {id}, wakes up")
    run.pause(3, 4)
    if (now := (run.cluster.controller(), run.cluster.controller_epoch())) != (controller, epoch):
        raise Failure(f"the controller was {controller} in epoch {epoch}, and is {now}")
    # The controller itself may give leaderships back to a broker that is there again.
    changed = {key: (before[key], one) for key, one in state().items() if one[:2] != before[key][:2] and one[2] != epoch}
    if changed:
        raise Failure(f"the former controller changed something, for it was not that of epoch {epoch}: {changed}")
    run.settle()


# Links.


def cut_off(run: Run, ways, state: str, seconds: float) -> None:
    run.cluster.network.disturb(*ways, state=state)
    time.sleep(seconds)


@case(short=True)
def partition_leader(run: Run) -> None:
    """A leader and the others do not hear of each other; clients and ZooKeeper reach them all."""
    for _ in range(1 if run.short else 5):
        id = run.a_leader(None if run.chance.randrange(2) else run.cluster.controller())
        state = run.chance.choice([network.LOST, network.HELD, network.CUT])
        seconds = LAG_MS / 1000 + run.chance.uniform(2, 6)
        controller = ", the controller," if id == run.cluster.controller() else ""
        run.say(f"broker {id}{controller} is apart for {seconds:.0f} s, {state}")
        cut_off(run, run.cluster.ways_between(id), state, seconds)
        run.settle()


@case(short=True)
def one_way(run: Run) -> None:
    """Between two brokers, bytes vanish in one direction."""
    for _ in range(1 if run.short else 6):
        source, destination = (f"broker{id}" for id in run.chance.sample(sorted(run.cluster.brokers), 2))
        seconds = LAG_MS / 1000 + run.chance.uniform(2, 6)
        run.say(f"nothing gets from {source} to {destination} for {seconds:.0f} s; the controller is {run.cluster.controller()}")
        cut_off(run, [(source, destination)], network.LOST, seconds)
        run.settle()


@case()
def flaps(run: Run) -> None:
    """Links that are reset and let in again, all the time."""
    ways = all_ways(run.cluster)
    for _ in range(60 if run.short else 300):
        way = run.chance.choice(ways)
        if run.chance.randrange(2):
            run.cluster.network.reset(way)
        else:
            run.cluster.network.disturb(way, state=network.CUT)
            run.pause(0, 0.3)
            run.cluster.network.disturb(way)
        run.pause(0, 0.2)
    run.settle()


@case()
def slow_links(run: Run) -> None:
    """Every link has 50 ms each way, then 100 kB/s each way."""
    for more in ({"delay": 0.05}, {"rate": 100_000}):
        run.cluster.network.disturb(*all_ways(run.cluster), **more)
        run.measured(f"with {more}: every producer goes on", run.load.await_progress(SETTLE_SECONDS))
        time.sleep(10 if run.short else 60)
        run.cluster.await_full(run.load.topics, SETTLE_SECONDS)
    run.settle()


@case()
def away_from_zookeeper(run: Run) -> None:
    """A leader loses ZooKeeper until its session is over; the other brokers reach it."""
    for _ in range(1 if run.short else 4):
        id = run.a_leader(None if run.chance.randrange(2) else run.cluster.controller())
        state = run.chance.choice([network.LOST, network.HELD, network.CUT])
        run.say(f"broker {id} has no ZooKeeper, {state}; the controller is {run.cluster.controller()}")
        cut_off(run, run.cluster.ways_to_zookeeper([id]), state, SESSION_MS / 1000 + run.chance.uniform(2, 5))
        run.settle()


# ZooKeeper.


@case(short=True)
def zookeeper_outage(run: Run) -> None:
    """All of ZooKeeper is away, killed or silent, for 1 s, 20 s, 2 min, 10 min."""
    for seconds in (1, 20) if run.short else (1, 20, 120, 600):
        how = run.chance.choice(["killed", "silent"]) if seconds != 1 else "killed"
        members = run.cluster.zookeeper.members
        for member in members:
            member.kill() if how == "killed" else member.freeze()
        time.sleep(seconds / 2)
        goes_on = True
        if seconds >= 20:
            with contextlib.suppress(Failure):
                goes_on = False
                run.load.await_progress(min(5, seconds / 4))
                goes_on = True
        time.sleep(seconds / 2 - (min(5, seconds / 4) if not goes_on else 0))
        for member in members:
            member.start() if how == "killed" else member.thaw()
        run.say(f"ZooKeeper was {how} for {seconds} s; producers {'went on' if goes_on else 'stood still'} without it")
        run.settle(f"every replica in sync after {seconds} s without ZooKeeper")


@case(ensemble=True)
def zookeeper_members(run: Run) -> None:
    """Members of the ensemble are killed and frozen, its leader, too; brokers keep their sessions."""
    def registrations():
        return {id: run.cluster.zookeeper.get(f"/brokers/ids/{id}")[1].owner for id in run.cluster.brokers}

    before = registrations()
    for number in range(2 if run.short else 6):
        member = run.cluster.zookeeper.leader() if number % 2 == 0 else run.chance.choice(run.cluster.zookeeper.members)
        how = run.chance.choice(["killed", "frozen"])
        member.kill() if how == "killed" else member.freeze()
        run.measured(f"{member.name} was {how}; every producer goes on", run.load.await_progress(SETTLE_SECONDS))
        run.pause(3, 6)
        member.start() if how == "killed" else member.thaw()
        eventually("the ensemble is whole", 30, lambda: run.cluster.zookeeper.session().close())
        run.settle()
    if (after := registrations()) != before:
        run.say(f"sessions were lost: {before}, then {after}")


@case(short=True)
def expired_sessions(run: Run) -> None:
    """The sessions of a broker and of the controller end by force; nobody is restarted."""
    for number in range(2 if run.short else 6):
        controller = run.cluster.controller()
        id = controller if number % 2 else run.chance.choice([id for id in run.cluster.brokers if id != controller])
        owner = run.cluster.zookeeper.get(f"/brokers/ids/{id}")[1].owner

        def registered():
            stat = run.cluster.zookeeper.get(f"/brokers/ids/{id}")[1]
            return None if stat is not None and stat.owner != owner else "not yet"
        run.cluster.expire(id)
        run.measured(f"broker {id}{', the controller,' if id == controller else ''} has a new session", eventually("it registers", 30, registered))
        run.settle()


# The controller.


@case(short=True)
def deleted_controller(run: Run) -> None:
    """The node /controller is deleted, at any moment, also twice: there is one controller again within a second."""
    for number in range(3 if run.short else 12):
        twice = number % 3 != 0
        epoch = run.cluster.controller_epoch()
        begin = time.monotonic()
        run.cluster.zookeeper.delete("/controller")
        if twice:
            # The second time while the first election is under way, or has just ended.
            if number % 3 == 2:
                eventually("somebody is elected", 30, lambda: None if run.cluster.controller() else "nobody", 0.001)
            else:
                run.pause(0, 0.05)
            run.cluster.zookeeper.delete("/controller")
            begin = time.monotonic()
        eventually("somebody is elected", 30, lambda: None if run.cluster.controller() else "nobody", 0.002)
        run.measured(f"a controller after {'two deletions' if twice else 'a deletion'} of its node", time.monotonic() - begin, CONTROLLER_SECONDS)
        run.cluster.await_served(SETTLE_SECONDS)
        run.measured("every broker names it", time.monotonic() - begin)
        if run.cluster.controller_epoch() == epoch:
            raise Failure(f"the controller's epoch is {epoch} as before")
        run.pause(0, 1.5)
        if number % 3 == 1:
            # It has something to do.
            run.cluster.create_topic(f"after-{number}", 3)
    run.settle()


@case(load={"replication": 2, "min_insync_replicas": 1, "group": False})
def reassignment(run: Run) -> None:
    """Partitions move from broker to broker while brokers are restarted and killed."""
    topic = run.load.topic
    rings = [[1, 2], [2, 3], [3, 1]]
    for number in range(2 if run.short else 6):
        wanted = {(topic, partition): rings[(partition + number) % 3] for partition in range(PARTITIONS)}
        run.cluster.network.disturb(*all_ways(run.cluster), rate=200_000)
        run.cluster.reassign(wanted)
        run.pause(0, 0.5)
        id = run.cluster.controller() if number % 2 else run.chance.choice(sorted(run.cluster.brokers))
        how = run.chance.choice([signal.SIGTERM, signal.SIGKILL])
        run.cluster.brokers[id].stop(how)
        run.say(f"reassignment {number}, and {how.name} to broker {id}")
        run.pause(0, 2)
        run.cluster.start_again(id)
        run.cluster.network.heal()
        run.measured("the reassignment is through", run.cluster.await_reassigned(90))
        run.settle()
        found = {one: set(partition.replicas) for one, partition in run.cluster.partitions([topic]).items()}
        if found != {one: set(replicas) for one, replicas in wanted.items()}:
            raise Failure(f"the replicas are {found}, and should be {wanted}")
        for one, replicas in wanted.items():
            for broker in run.cluster.brokers.values():
                folder = broker.data / f"{topic}-{one[1]}"
                if broker.id == id and broker.id not in replicas and folder.exists():
                    # Kafka tells a broker once, and not again when it was away.
                    run.say(f"broker {id}, which was away, still has {folder.name}")
                elif broker.id not in replicas:
                    eventually(f"broker {broker.id} removes {folder.name}", 30, lambda: "there" if folder.exists() else None)


@case(short=True, begins_as="ours", load={"producers": {"leader": "leader", "idempotent": "idempotent"}, "rate": 2500, "replication": 2,
                                        "min_insync_replicas": 1, "group": False})
def planned_moves(run: Run) -> None:
    """Leaderships move by preferred elections and controlled shutdowns: what a leader has acknowledged with acks=1 is not lost either."""
    topic = run.load.topic
    for number in range(40 if run.short else 200):
        # The others keep fetches short between the same brokers.
        turned = {one: partition.replicas[::-1] for one, partition in run.cluster.partitions([topic]).items() if (one[1] + number) % 2}
        run.cluster.reassign(turned)
        run.cluster.await_reassigned(SETTLE_SECONDS)
        run.cluster.elect_preferred()
        run.pause(0, 0.2)
    run.say(f"half of the partitions were given to their other replicas {number + 1} times")
    for id in sorted(run.cluster.brokers) * (1 if run.short else 4):
        run.cluster.brokers[id].stop(signal.SIGTERM)
        run.cluster.await_led([topic], 60)
        run.cluster.start_again(id)
        run.settle(f"broker {id} was stopped and is in sync again")
    run.settle()


@case(short=True, load={"group": False})
def recreated_topic(run: Run) -> None:
    """A topic is deleted and made again while one of its brokers is down: nothing of the old one is served."""
    for number in range(1 if run.short else 3):
        name = f"again{number}"
        old = Load(run.cluster, name, group=False, producers={"old": "idempotent"}, folder=f"{name}-old").start()
        run.pause(1, 2)
        old.finish()
        id = run.chance.choice(sorted(run.cluster.brokers))
        run.cluster.brokers[id].stop(run.chance.choice([signal.SIGTERM, signal.SIGKILL]))
        run.cluster.await_led([name], 60)
        run.cluster.delete_topic(name)
        # The broker that is down leads some of it.
        assignment = [[(partition + place) % 3 + 1 for place in range(3)] for partition in range(PARTITIONS)]
        admin = run.cluster.admin()

        def make(assigned):
            admin.create_topics([NewTopic(name, PARTITIONS, replica_assignment=assigned)], operation_timeout=10)[name].result(30)
        # Kafka deletes a topic only once all of its brokers are there; some do not wait for that. A broker of Kafka that is the
        # controller does not forget it then.
        if number % 2 == 0 and all(broker.kind == "ours" for broker in run.cluster.brokers.values()):
            run.cluster.zookeeper.forget_topic(name, PARTITIONS)
            # Nobody can be given a replica who is not there.
            others = [[one for one in replicas if one != id] for replicas in assignment]
            eventually("the topic can be made again", 10, lambda: make(others), 0.5)
            run.say(f"{name} is deleted by hand and made again while broker {id} is down")
            run.cluster.start_again(id)
            run.cluster.reassign({(name, partition): replicas for partition, replicas in enumerate(assignment)})
            run.cluster.await_reassigned(SETTLE_SECONDS)
        else:
            run.cluster.start_again(id)
            eventually("the topic can be made again", SETTLE_SECONDS, lambda: make(assignment), 0.5)
            run.say(f"{name} is deleted when broker {id} is back, and made again")
        run.cluster.await_full([name], SETTLE_SECONDS)
        new = Load(run.cluster, name, group=False, producers={"new": "idempotent"}, folder=f"{name}-new")
        new.start_history()
        new.await_progress(SETTLE_SECONDS)
        run.cluster.elect_preferred()
        run.settle()
        for line in new.finish():
            run.say(line)


# Everything.


def disturbances(run: Run, id: int) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """What may happen to a broker: how it begins, and how it ends."""
    cluster, network_ = run.cluster, run.cluster.network
    broker = cluster.brokers[id]
    other = run.chance.choice([one for one in cluster.brokers if one != id])
    state = run.chance.choice([network.LOST, network.HELD, network.CUT])

    def links(ways, **what):
        return lambda: network_.disturb(*ways, **what), lambda: network_.disturb(*ways)

    def nothing():
        """It is over by itself."""
    return {
        "killed": (broker.kill, lambda: cluster.launch(id)),
        "stopped": (lambda: broker.stop(signal.SIGTERM), lambda: cluster.launch(id)),
        "frozen": (broker.freeze, broker.thaw),
        f"apart from the others, {state},": links(cluster.ways_between(id), state=state),
        f"apart from broker {other}, {state},": links(cluster.ways_between(id, [other]), state=state),
        f"not heard by broker {other}": links([(f"broker{id}", f"broker{other}")], state=network.LOST),
        f"without ZooKeeper, {state},": links(cluster.ways_to_zookeeper([id]), state=state),
        "slow": links([*cluster.ways_between(id), *cluster.ways_to_zookeeper([id])], delay=0.1, rate=300_000),
        "without its session": (lambda: cluster.try_to_expire(id), nothing),
        "not in /controller": (lambda: cluster.zookeeper.delete("/controller"), nothing),
    }


@case()
def anything(run: Run) -> None:
    """One or two brokers at a time have any of the troubles above, of any length; producers die, too."""
    for number in range(4 if run.short else 25):
        ends = []
        for id in run.chance.sample(sorted(run.cluster.brokers), run.chance.choice([1, 1, 2])):
            trouble, (begin, end) = run.chance.choice(sorted(disturbances(run, id).items()))
            run.say(f"broker {id} is {trouble} while the controller is {run.cluster.controller()}")
            begin()
            ends.append(end)
            run.pause(0, 1)
        if run.chance.randrange(3) == 0:
            run.load.kill_producer(run.chance.choice(sorted(run.load.producers)))
        run.pause(0.5, SESSION_MS / 1000 + 6)
        for end in ends:
            end()
        for broker in run.cluster.brokers.values():
            broker.wait_until_it_accepts()
        if number % 3 == 2:
            run.settle()
        else:
            run.pause(0, 4)
    run.settle()
