"""A peer with a server of its own, as small as can be: a real process that listens and answers.

As a program it keeps such a server, like planstep.bench.compare.keep_server does for real peers.
"""

import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from planstep.bench.compare import keep_server
from planstep.bench.compare.systems import ENTRIES
from planstep.bench.compare.systems.base import Options
from planstep.bench.compare.systems.entry import SystemEntry
from planstep.bench.compare.systems.servers import Server, end, free_port, start

_PROGRAM = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    with listener.accept()[0] as client:
        while client.recv(100):
            client.sendall(str(os.getpid()).encode())
"""
WARMING = 5


class ToyServer(Server):
    def __init__(self, folder: Path, options: Options) -> None:
        if os.environ.get("TOY_SERVER") == "broken":
            raise OSError("this toy is broken")
        self.version, port = f"1.0 {options.durability}", free_port()
        self.address = f"127.0.0.1:{port}"
        (folder / "data").write_text("some bytes")
        self._child = start([sys.executable, "-c", _PROGRAM, str(port)], folder / "log")
        while True:
            try:
                ask(self.address)
                break
            except OSError:
                assert self._child.poll() is None

    def warm(self) -> None:
        for _ in range(WARMING):
            ask(self.address)
        self.warm_transactions = WARMING
        if os.environ.get("TOY_SERVER") == "dies once it is warm":
            self._child.kill()
            os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)

    def pids(self) -> Sequence[int]:
        return (self._child.pid,)

    def close(self) -> None:
        end(self._child, signal.SIGTERM)


def ask(address: str) -> int:
    """Returns the process id of the server at an address."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), 5.0) as client:
        client.sendall(b"?")
        return int(client.recv(100))


def toy() -> SystemEntry:
    """Returns the entry of a system with such a server."""
    return replace(
        ENTRIES["sqlite"], name="toy", label="Toy 1.0", server=ToyServer, start_s=1.0, warm_s=1.0
    )


def keeper_words(spec: Path) -> list[str]:
    return [sys.executable, __file__, str(spec)]


if __name__ == "__main__":
    ENTRIES["toy"] = toy()
    keep_server.main()
