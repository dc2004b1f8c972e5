"""aiokafka."""

import asyncio

import common
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

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
    consumer = AIOKafkaConsumer(bootstrap_servers=options.bootstrap, enable_auto_commit=False, auto_offset_reset="earliest")
    await consumer.start()
    partitions = [TopicPartition(options.topic, partition) for partition in range(options.partitions)]
    consumer.assign(partitions)
    ends = await consumer.end_offsets(partitions)
    left = {partition for partition in partitions if ends[partition] > 0}
    while left:
        batches = await consumer.getmany(timeout_ms=30_000, max_records=5000)
        if not batches:
            raise SystemExit("nothing came for 30 seconds")
        for partition, batch in batches.items():
            for record in batch:
                yield record
            if batch[-1].offset + 1 >= ends[partition]:
                left.discard(partition)
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


if __name__ == "__main__":
    options = common.arguments()
    asyncio.run(globals()[options.command](options))
