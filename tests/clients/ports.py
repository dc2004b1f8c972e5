"""Ports for servers to listen on: `ports.py [COUNT]` prints some, `quiet_port` gives one to a Python program."""

import contextlib
import random
import socket
import sys

# Below those that Linux gives to outgoing connections, of which one could have the port while its server is down.
RANGE = range(12000, 32000)

_held = []


def quiet_port() -> int:
    """A port of the loopback that nobody listens on, and that nobody else is given while this process lives.

    Every test that asks takes an abstract socket named after the port (so does `quiet_port` of tests/ports.rs), which ends with its process.
    """
    while True:
        port = random.SystemRandom().choice(RANGE)
        claim = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError), socket.socket() as probe:
            claim.bind(f"\0odradek-port-{port}")
            probe.bind(("127.0.0.1", port))
            _held.append(claim)
            return port
        claim.close()


if __name__ == "__main__":
    print(*(quiet_port() for _ in range(int((*sys.argv, 1)[1]))))
