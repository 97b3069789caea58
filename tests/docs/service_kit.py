"""Runs the services of the examples, and asks them as clients do: again, until there is an answer."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
WAIT_SECONDS = 120.0


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def asked(port: int, method: str, path: str, key: str = "") -> dict[str, Any] | None:
    """Returns an answer; None if there was none, or the service said to ask again."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        line.request(method, path, headers={"Idempotency-Key": key})
        answer = line.getresponse()
        body = json.loads(answer.read())
    except (OSError, http.client.HTTPException):
        return None
    finally:
        line.close()
    assert answer.status in (200, 503), (answer.status, body)
    return dict(body) if answer.status == 200 else None


class Clients:
    """Clients that each ask for one thing after the other, at whichever port answers."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self.answers: dict[str, dict[str, Any]] = {}
        self.repeated = 0

    def ask(self, method: str, path: str, key: str = "") -> dict[str, Any]:
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until:
            for port in self.ports:
                answer = asked(port, method, path, key)
                if answer is not None:
                    return answer
                self.repeated += 1
            time.sleep(0.05)
        raise AssertionError("nobody answers")

    def place(self, client: int, orders: int) -> None:
        for n in range(orders):
            key = f"{client}/{n}"
            self.answers[key] = self.ask("POST", f"/orders?user=u{client}&cents={n}", key)

    def wait_for(self, number: int) -> None:
        """Waits until so many orders are placed."""
        until = time.monotonic() + WAIT_SECONDS
        while len(self.answers) < number:
            assert time.monotonic() < until, "they are too slow"
            time.sleep(0.001)


@contextmanager
def served(
    command: list[str], store: Path, end: signal.Signals = signal.SIGTERM
) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs a server of one of the examples, with all its processes; ends it by a signal, and kills what is left."""
    environ = {**os.environ, "PLANSTEP_STORE": str(store)}
    output = store.with_suffix(".output")
    with output.open("wb") as file:
        server = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=DOCS / "examples",
            env=environ,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield server
        server.send_signal(end)
        server.wait(60)
    except BaseException:
        print(output.read_text()[-10_000:])
        raise
    finally:
        try:
            os.killpg(server.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        server.wait(60)
