"""aiokafka."""

import asyncio
import time

import common
import journal
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaConnectionError

# Sends under way before the oldest is waited for.
UNDER_WAY_MAX = 10_000


async def with_producer(options, sends):
    """Runs `sends`, which yields the future of each send."""
    codec = None if options.codec == "none" else options.codec
    producer = AIOKafkaProducer(bootstrap_servers=options.bootstrap, compression_type=codec, acks="all", linger_ms=20,
                                max_batch_size=1 << 17, max_request_size=common.REQUEST_SIZE_MAX)
    await producer.start()
    under_way = []
    async for future in sends(producer):
        under_way.append(future)
        if len(under_way) == UNDER_WAY_MAX:
            await asyncio.gather(*under_way)
            under_way.clear()
    await asyncio.gather(*under_way)
    await producer.stop()


async def produce(options):
    async def sends(producer):
        for key, value in common.messages(options):
            yield await producer.send(options.topic, value, key)

    await with_producer(options, sends)


async def send(options):
    async def sends(producer):
        for record in common.read_records(options.input):
            timestamp = None if record.timestamp < 0 else record.timestamp
            yield await producer.send(options.topic, record.value, record.key, record.partition, timestamp, record.headers)

    await with_producer(options, sends)


async def received(options):
    consumer = AIOKafkaConsumer(bootstrap_servers=options.bootstrap, enable_auto_commit=False, auto_offset_reset="earliest",
                                isolation_level=options.isolation)
    await consumer.start()
    partitions = [TopicPartition(options.topic, partition) for partition in range(options.partitions)]
    consumer.assign(partitions)
    ends = await consumer.end_offsets(partitions)
    left = {partition for partition in partitions if ends[partition] > 0}
    silent_since = time.monotonic()
    while left:
        batches = await consumer.getmany(timeout_ms=1000, max_records=5000)
        if batches:
            silent_since = time.monotonic()
        for batch in batches.values():
            for record in batch:
                yield record
        # The end may be a control record, which does not come.
        left = {partition for partition in left if await consumer.position(partition) < ends[partition]}
        if left and time.monotonic() > silent_since + 30:
            raise SystemExit("nothing came for 30 seconds")
    await consumer.stop()


async def consume(options):
    with open(options.output, "wb") as target:
        async for record in received(options):
            target.write(common.frame(record.partition, record.offset, record.timestamp, record.key, record.value))


async def read(options):
    common.write_records(options.output, [
        common.Record(record.partition, record.offset, record.timestamp, record.key, record.value, list(record.headers))
        async for record in received(options)
    ])


async def times(options):
    consumer = AIOKafkaConsumer(bootstrap_servers=options.bootstrap)
    await consumer.start()
    answers = []
    for partition, timestamp in common.read_queries(options.input):
        asked = TopicPartition(options.topic, partition)
        found = (await consumer.offsets_for_times({asked: timestamp}))[asked]
        answers.append((partition, timestamp, -1 if found is None else found.offset))
    await consumer.stop()
    common.write_answers(options.output, answers)


ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class Listener(ConsumerRebalanceListener):
    def __init__(self, member, consumer, commit):
        self.member = member
        self.consumer = consumer
        self.commit = commit

    async def on_partitions_revoked(self, revoked):
        await self.commit()
        self.member.lost([one.partition for one in revoked])

    async def on_partitions_assigned(self, assigned):
        # The client has no other way to tell it.
        self.member.gained(self.consumer._coordinator.generation, [one.partition for one in assigned])


async def group(options):
    member = journal.Member(options)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options.bootstrap, group_id=options.group, group_instance_id=options.instance, enable_auto_commit=False,
        auto_offset_reset="earliest", session_timeout_ms=options.session, retry_backoff_ms=100,
        heartbeat_interval_ms=options.session // journal.HEARTBEATS_IN_SESSION,
        partition_assignment_strategy=[ASSIGNORS[options.assignor]],
    )

    committing = asyncio.Lock()

    async def commit():
        # The listener runs in another task.
        async with committing:
            if offsets := member.committing():
                try:
                    await consumer.commit({TopicPartition(options.topic, partition): offset for partition, offset in offsets.items()})
                except Exception as error:
                    member.refused(offsets, error)
                else:
                    member.committed(offsets)

    consumer.subscribe([options.topic], listener=Listener(member, consumer, commit))
    while not member.stopping:
        try:
            await consumer.start()
            break
        except KafkaConnectionError:
            # It does not wait for a broker that is away just then.
            await asyncio.sleep(0.2)
    while not member.stopping:
        batches = await consumer.getmany(timeout_ms=100, max_records=200)
        member.got((record.partition, record.offset, record.value) for batch in batches.values() for record in batch)
        await commit()
    await consumer.stop()
    member.left()


if __name__ == "__main__":
    options = common.arguments()
    asyncio.run(globals()[options.command](options))
