"""A producer of numbered records: the value of each is its partition and its offset, `3-17`."""

import random
import threading
import time

from cluster import Failure
from confluent_kafka import KafkaException, Producer


class Numbers(threading.Thread):
    """Sends until it is stopped. The kills of the broker are nothing to it."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: int):
        super().__init__(daemon=True)
        self.topic = topic
        self.per_second = per_second
        self.producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5,
                                  "reconnect.backoff.max.ms": 200, "error_cb": lambda _: None, "log_level": 0})
        self.stopping = threading.Event()
        # Of each partition, the offset that its next record will have.
        self.ends = [0] * partitions
        self.failures: list[str] = []

    def run(self) -> None:
        try:
            self.send()
        except KafkaException as error:
            self.failures.append(str(error))

    def send(self) -> None:
        chance = random.Random(0)
        begin, count = time.monotonic(), 0
        while not self.stopping.is_set():
            partition = chance.randrange(len(self.ends))
            self.producer.produce(self.topic, f"{partition}-{self.ends[partition]}", partition=partition, on_delivery=self.delivered)
            self.ends[partition] += 1
            count += 1
            self.producer.poll(max(0, begin + count / self.per_second - time.monotonic()))
        if left := self.producer.flush(60):
            self.failures.append(f"{left} unanswered")

    def delivered(self, error, message) -> None:
        if error is not None:
            self.failures.append(str(error))
        elif message.offset() is None:
            # Sent again, and acknowledged as being there already.
            pass
        elif message.value() != f"{message.partition()}-{message.offset()}".encode():
            self.failures.append(f"{message.value()} is at {message.offset()}")

    def stop(self) -> list[int]:
        self.stopping.set()
        self.join()
        if self.failures:
            raise Failure(f"the producer: {len(self.failures)} failures, the first: {self.failures[0]}")
        return self.ends
