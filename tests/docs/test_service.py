"""Tests the replicated FastAPI service: machine A is lost for ever under load, B follows and takes over."""

import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kit import PLANSTEP, Child
from service_kit import DOCS, Clients, free_ports

import planstep

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

SERVICE = DOCS / "examples" / "service.py"
RUN = "import runpy, sys; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
CLIENTS, ORDERS = 8, 60


def test_clients_go_on_exactly_once_when_the_machine_is_lost(tmp_path: Path) -> None:
    url, a, b = (tmp_path / "log").as_uri(), tmp_path / "a", tmp_path / "b"
    ports = free_ports(2)
    clients = Clients(ports)
    with Child(RUN, SERVICE, a, url, ports[0]) as machine, ThreadPoolExecutor(CLIENTS) as pool:
        clients.ask("GET", "/users/nobody")
        program = ("--", sys.executable, SERVICE, b, url, ports[1])
        with Child(PLANSTEP, "follow", url, b, "--take-over-after", "2s", *program) as follower:
            assert follower.line().startswith("following")
            placing = [pool.submit(clients.place, n, ORDERS) for n in range(CLIENTS)]
            clients.wait_for(CLIENTS * ORDERS // 3)
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
    for port, free in zip(("8001", "8002"), free_ports(2), strict=True):
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
