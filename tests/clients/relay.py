"""A relay between clients and a broker that counts the produce requests which got no answer."""

import asyncio
import threading

PRODUCE = 0


class Relay:
    """Listens on `port` and passes every frame on to `target_port`, in a thread of its own.

    A produce request is unanswered when its last byte was passed on and the connection ended without a whole answer.
    """

    def __init__(self, port: int, target_port: int):
        self.port = port
        self.target_port = target_port
        # Of all connections that have ended.
        self.unanswered = 0
        # While set, who connects is turned away.
        self.closed = False
        self.loop = asyncio.new_event_loop()
        self.listens = threading.Event()
        threading.Thread(target=self.run, daemon=True).start()
        self.listens.wait(10)

    def run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(asyncio.start_server(self.connection, "127.0.0.1", self.port))
        self.listens.set()
        self.loop.run_forever()

    async def connection(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        if self.closed:
            to_client.close()
            return
        try:
            from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            to_client.close()
            return
        waiting: set[bytes] = set()

        async def requests() -> None:
            while True:
                frame = await read_frame(from_client)
                to_broker.write(frame)
                await to_broker.drain()
                # Length, API key, API version, correlation id.
                if int.from_bytes(frame[4:6], "big") == PRODUCE:
                    waiting.add(frame[8:12])

        async def answers() -> None:
            while True:
                frame = await read_frame(from_broker)
                waiting.discard(frame[4:8])
                to_client.write(frame)
                await to_client.drain()

        directions = [asyncio.ensure_future(requests()), asyncio.ensure_future(answers())]
        done, pending = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        if directions[0] in done:
            # The client left: what is under way to it no longer counts.
            waiting.clear()
        for direction in pending:
            direction.cancel()
        # Reads of a connection that has ended fail; that is how one ends.
        await asyncio.gather(*directions, return_exceptions=True)
        self.unanswered += len(waiting)
        for writer in (to_client, to_broker):
            writer.close()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length, "big"))
