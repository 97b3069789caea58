"""Tests the replicated FastAPI service: machine A is lost for ever under load, B follows and takes over."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from kit import PLANSTEP, Child

import planstep

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

DOCS = Path(__file__).parents[2] / "docs"
SERVICE = DOCS / "examples" / "service.py"
RUN = "import runpy, sys; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
CLIENTS, ORDERS = 8, 60
_WAIT_SECONDS = 120.0


def two_free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return [one.getsockname()[1], other.getsockname()[1]]


def asked(port: int, method: str, path: str, key: str) -> dict[str, Any] | None:
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
    """Clients that each place orders one after the other, on whichever machine answers."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self.answers: dict[str, dict[str, Any]] = {}
        self.many = Event()
        self.repeated = 0

    def ask(self, method: str, path: str, key: str = "") -> dict[str, Any]:
        until = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < until:
            for port in self.ports:
                answer = asked(port, method, path, key)
                if answer is not None:
                    return answer
                self.repeated += 1
            time.sleep(0.05)
        raise AssertionError("no machine answers")

    def place(self, client: int) -> None:
        for n in range(ORDERS):
            key = f"{client}/{n}"
            self.answers[key] = self.ask("POST", f"/orders?user=u{client}&cents={n}", key)
            if len(self.answers) > CLIENTS * ORDERS // 3:
                self.many.set()


def test_clients_go_on_exactly_once_when_the_machine_is_lost(tmp_path: Path) -> None:
    url, a, b = (tmp_path / "log").as_uri(), tmp_path / "a", tmp_path / "b"
    ports = two_free_ports()
    clients = Clients(ports)
    with Child(RUN, SERVICE, a, url, ports[0]) as machine, ThreadPoolExecutor(CLIENTS) as pool:
        clients.ask("GET", "/users/nobody")
        program = ("--", sys.executable, SERVICE, b, url, ports[1])
        with Child(PLANSTEP, "follow", url, b, "--take-over-after", "2s", *program) as follower:
            assert follower.line().startswith("following")
            placing = [pool.submit(clients.place, n) for n in range(CLIENTS)]
            assert clients.many.wait(_WAIT_SECONDS)
            machine.kill()
            shutil.rmtree(a)
            for one in placing:
                one.result()
            told = [clients.ask("GET", f"/users/u{n}")["cents"] for n in range(CLIENTS)]
            follower.process.send_signal(signal.SIGINT)
            follower.process.communicate(timeout=60)
    assert clients.repeated > CLIENTS  # they noticed
    assert told == [sum(range(ORDERS))] * CLIENTS
    ids = sorted(answer["id"] for answer in clients.answers.values())
    assert len({*ids}) == CLIENTS * ORDERS
    with planstep.open(tmp_path / "c", replicate=url) as db:
        orders = db.topic("orders").read(max_records=2 * CLIENTS * ORDERS).values
        assert sorted(order["id"] for order in orders) == ids


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is missing")
def test_the_five_commands_of_the_page(tmp_path: Path) -> None:
    (script,) = re.findall(r"```bash\n(.*?)```", (DOCS / "replication.md").read_text(), re.DOTALL)
    commands = script.strip().splitlines()
    assert len(commands) == 5
    for port, free in zip(("8001", "8002"), two_free_ports(), strict=True):
        script = script.replace(port, str(free))
    (tmp_path / "docs").symlink_to(DOCS)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words, pipe = ["bash", "-c", script], subprocess.PIPE
    shell = subprocess.Popen(
        words, cwd=tmp_path, env={**os.environ, "PATH": path}, stdout=pipe, start_new_session=True
    )
    try:
        said = b""
        while not said.endswith(b'{"user":"ada","cents":250}'):
            piece = os.read(shell.stdout.fileno(), 1 << 16)  # type: ignore[union-attr]
            assert piece, said
            said += piece
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.communicate()
