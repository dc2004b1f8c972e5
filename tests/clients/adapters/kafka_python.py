"""kafka-python."""

import time

import common
import journal
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaConnectionError

VERSIONS = {"0.9": (0, 9), "0.10": (0, 10)}


def settings(options):
    config = {"bootstrap_servers": options.bootstrap}
    if options.protocol:
        config["api_version"] = VERSIONS[options.protocol]
    return config


def producer(options):
    codec = None if options.codec == "none" else options.codec
    more = {"enable_idempotence": False} if options.protocol else {}
    return KafkaProducer(**settings(options), compression_type=codec, acks="all", linger_ms=20, batch_size=1 << 17,
                         max_request_size=common.REQUEST_SIZE_MAX, **more)


def finish(client, sent):
    client.flush(120)
    for future in sent:
        future.get(120)
    client.close()


def produce(options):
    client = producer(options)
    sent = []
    for key, value in common.messages(options):
        sent.append(client.send(options.topic, value, key))
        if len(sent) == 10_000:
            # A failed one raises here, and no future is kept for longer.
            for future in sent:
                future.get(120)
            sent.clear()
    finish(client, sent)


def send(options):
    client = producer(options)
    sent = []
    for record in common.read_records(options.input):
        timestamp = None if record.timestamp < 0 else record.timestamp
        sent.append(client.send(options.topic, record.value, record.key, record.headers, record.partition, timestamp))
    finish(client, sent)


def received(options):
    consumer = KafkaConsumer(**settings(options), enable_auto_commit=False, auto_offset_reset="earliest",
                             isolation_level=options.isolation,
                             max_partition_fetch_bytes=common.REQUEST_SIZE_MAX if options.protocol else 1 << 20)
    partitions = [TopicPartition(options.topic, partition) for partition in range(options.partitions)]
    consumer.assign(partitions)
    ends = consumer.end_offsets(partitions)
    silent_since = time.monotonic()
    # The end may be a control record, which does not come.
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        batches = consumer.poll(1000, max_records=5000)
        if batches:
            silent_since = time.monotonic()
        elif time.monotonic() > silent_since + 30:
            raise SystemExit("nothing came for 30 seconds")
        for batch in batches.values():
            yield from batch
    consumer.close()


def consume(options):
    with open(options.output, "wb") as target:
        for record in received(options):
            timestamp = -1 if record.timestamp is None else record.timestamp
            target.write(common.frame(record.partition, record.offset, timestamp, record.key, record.value))


def read(options):
    common.write_records(options.output, [
        common.Record(record.partition, record.offset, record.timestamp, record.key, record.value, list(record.headers))
        for record in received(options)
    ])


def times(options):
    consumer = KafkaConsumer(**settings(options))
    answers = []
    for partition, timestamp in common.read_queries(options.input):
        asked = TopicPartition(options.topic, partition)
        found = consumer.offsets_for_times({asked: timestamp})[asked]
        answers.append((partition, timestamp, -1 if found is None else found.offset))
    consumer.close()
    common.write_answers(options.output, answers)


class Range(RangePartitionAssignor):
    """As a leader, the library's own forgets members when static and dynamic ones take turns in the list."""

    @classmethod
    def assign(cls, cluster, members):
        return super().assign(cluster, static_first(members))


class RoundRobin(RoundRobinPartitionAssignor):
    """The same."""

    @classmethod
    def assign(cls, cluster, members):
        return super().assign(cluster, static_first(members))


def static_first(members):
    return sorted(members, key=lambda member: member.group_instance_id is None)


ASSIGNORS = {"range": Range, "roundrobin": RoundRobin, "cooperative-sticky": CooperativeStickyAssignor}


class Listener(ConsumerRebalanceListener):
    def __init__(self, member, consumer, commit):
        self.member = member
        self.consumer = consumer
        self.commit = commit

    def on_partitions_revoked(self, revoked):
        self.commit()
        self.member.lost([one.partition for one in revoked])

    def on_partitions_lost(self, lost):
        self.member.lost([one.partition for one in lost])

    def on_partitions_assigned(self, assigned):
        self.member.gained(self.consumer.group_metadata().generation_id, [one.partition for one in assigned])


def group(options):
    member = journal.Member(options)
    consumer = KafkaConsumer(
        **settings(options), group_id=options.group, group_instance_id=options.instance, enable_auto_commit=False,
        auto_offset_reset="earliest", session_timeout_ms=options.session,
        heartbeat_interval_ms=options.session // journal.HEARTBEATS_IN_SESSION,
        partition_assignment_strategy=[ASSIGNORS[options.assignor]],
    )

    def commit():
        member.commit(lambda offsets: consumer.commit(
            {TopicPartition(options.topic, partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()}, 10_000))

    consumer.subscribe([options.topic], listener=Listener(member, consumer, commit))
    while not member.stopping:
        try:
            batches = consumer.poll(100, max_records=200)
        except KafkaConnectionError:
            # It does not wait for a broker that is away for long.
            time.sleep(0.1)
            continue
        member.got((record.partition, record.offset, record.value) for batch in batches.values() for record in batch)
        commit()
    consumer.close()
    member.left()


if __name__ == "__main__":
    options = common.arguments()
    globals()[options.command](options)
