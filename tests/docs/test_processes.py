"""Tests the services of the page "Several processes": real servers, whose workers are killed under load."""

import os
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kit import background, python
from service_kit import DOCS, WAIT_SECONDS, Clients, asked, free_ports, served

import planstep

CLIENTS, ORDERS, STRIKES, WORKERS = 8, 60, 6, 4


def values(db: planstep.Engine, topic: str) -> list[Any]:
    return list(db.topic(topic).read(max_records=1_000_000, max_bytes=1 << 30).values)


class Killer:
    """Kills workers of a service: the owner of the store, and one that is attached, in turn."""

    def __init__(self, port: int, path: str) -> None:
        self.killed: list[int] = []
        self.owners: list[int] = []
        self.done = threading.Event()
        self._port, self._path = port, path

    def workers(self) -> dict[int, int]:
        """Waits until all workers answer; returns each one's process id, and the owner that it names."""
        answers: dict[int, int] = {}
        until = time.monotonic() + WAIT_SECONDS
        while len(answers) < WORKERS:
            assert time.monotonic() < until, "too few workers answer"
            answer = asked(self._port, "GET", self._path)
            if answer is not None and answer["process"] not in self.killed:
                answers[answer["process"]] = answer["owner"]
        return answers

    def strike(self, owner: bool) -> None:
        workers = self.workers()
        owners = {pid for pid in workers.values() if pid not in self.killed}
        (pid,) = owners if owner else [pid for pid in workers if pid not in owners][:1]
        self.killed.append(pid)
        os.kill(pid, signal.SIGKILL)
        if owner:
            self.owners.append(pid)


def place(clients: Clients, killer: Killer, client: int) -> None:
    """Places orders until nothing more is killed, each until it has an answer."""
    for n in count():
        if killer.done.is_set() and n >= ORDERS:
            return
        key = f"{client}/{n}"
        clients.answers[key] = clients.ask("POST", f"/orders?user=u{client}&cents={n}", key)


def test_fastapi_workers_go_on_exactly_once_while_they_are_killed(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    store = tmp_path / "s"
    (port,) = free_ports(1)
    clients, killer = Clients([port]), Killer(port, "/worker")
    command = ["uvicorn", "workers:app", "--port", str(port), "--workers", str(WORKERS)]
    with served(command, store), ThreadPoolExecutor(CLIENTS) as pool:
        clients.ask("GET", "/worker")
        placing = [pool.submit(place, clients, killer, n) for n in range(CLIENTS)]
        try:
            for strike in range(STRIKES):
                killer.strike(owner=strike % 2 == 0)
        finally:
            killer.done.set()
        for one in placing:
            one.result()
        sums = Counter[str]()
        for order in clients.answers.values():
            sums[order["user"]] += order["cents"]
        until = time.monotonic() + WAIT_SECONDS
        for user, cents in sums.items():
            while clients.ask("GET", f"/users/{user}")["billed"] != cents:
                assert time.monotonic() < until, "orders are not billed"
                time.sleep(0.05)
    assert len(killer.owners) == STRIKES // 2 and clients.repeated
    ids = sorted(answer["id"] for answer in clients.answers.values())
    assert len({*ids}) == len(ids) >= CLIENTS * ORDERS
    with planstep.open(store) as db:
        assert sorted(order["id"] for order in values(db, "orders")) == ids
        assert sorted(order["id"] for order in values(db, "invoices")) == ids
        assert dict(db.table("answers").scan()) == clients.answers
        for table in "spent", "billed":
            assert dict(db.table(table).scan()) == sums
        assert db.topic("orders").lag("billing") == 0


# gunicorn ------------------------------------------------------------------------------------------


def vote(clients: Clients, killer: Killer, client: int) -> int:
    for n in count():
        if killer.done.is_set() and n >= ORDERS:
            return n
        clients.ask("POST", f"/votes/v{n % 3}?key={client}-{n}")
    raise AssertionError


@pytest.mark.parametrize("preload", [False, True], ids=["workers", "preload"])
def test_gunicorn_workers_go_on_exactly_once_while_they_are_killed(
    preload: bool, tmp_path: Path
) -> None:
    pytest.importorskip("gunicorn")
    pytest.importorskip("flask")
    store = tmp_path / "s"
    (port,) = free_ports(1)
    clients, killer = Clients([port]), Killer(port, "/worker")
    command = ["gunicorn", "wsgi:app", "--bind", f"127.0.0.1:{port}", "--workers", str(WORKERS)]
    with (
        served([*command, *["--preload"] * preload], store) as server,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        clients.ask("GET", "/worker")
        voting = [pool.submit(vote, clients, killer, n) for n in range(CLIENTS)]
        try:
            for strike in range(STRIKES):
                killer.strike(owner=not preload and strike % 2 == 0)
        finally:
            killer.done.set()
        votes = [one.result() for one in voting]
        if preload:
            assert {*killer.workers().values()} == {server.pid}
    keys = sorted(f"{client}-{n}" for client, number in enumerate(votes) for n in range(number))
    with planstep.open(store) as db:
        assert sorted(vote["key"] for vote in values(db, "votes")) == keys
        assert sorted(key for key, _ in db.table("seen").scan()) == keys
        totals = Counter(f"v{int(key.split('-')[1]) % 3}" for key in keys)
        assert dict(db.table("totals").scan()) == totals


# celery --------------------------------------------------------------------------------------------


SEND = """
import sys, time
from tasks import db, thumbnail
tasks = range(int(sys.argv[1]))
for _ in range(60):
    missing = [n for n in tasks if db.table("done").get(str(n)) is None]
    if not missing:
        break
    for n in missing:
        thumbnail.apply_async((f"{'abc'[n % 3]}{n}.png", n), task_id=str(n))
    time.sleep(5)
"""


def test_celery_counts_each_task_once_while_it_is_killed(tmp_path: Path) -> None:
    """Its worker is killed with its pool: a process that dies alone may hold the pool's lock for ever."""
    pytest.importorskip("celery")
    tasks, store = 400, tmp_path / "s"
    command = ["celery", "-A", "tasks", "worker", "--concurrency", str(WORKERS)]
    environ = {**os.environ, "PLANSTEP_STORE": str(store)}

    def send() -> None:
        python(SEND, tasks, env=environ, cwd=DOCS / "examples")

    def done() -> int:
        with planstep.open(store, read_only=True) as db:
            return len(db.table("done").scan()) if "done" in db.tables() else 0

    planstep.open(store).close()
    with background(send):
        for part in 1, 2, 3:
            until = time.monotonic() + WAIT_SECONDS
            with served(command, store, signal.SIGKILL):
                while (now := done()) < part * tasks // 3:
                    assert time.monotonic() < until, f"{now} of {tasks} tasks are done"
                    time.sleep(0.01)
    images = [f"{'abc'[n % 3]}{n}.png" for n in range(tasks)]
    with planstep.open(store) as db:
        assert sorted(one["image"] for one in values(db, "thumbnails")) == sorted(images)
        assert dict(db.table("bytes").scan()) == {
            letter: sum(range(n, tasks, 3)) for n, letter in enumerate("abc")
        }


# multiprocessing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_pool_counts_each_file_once(method: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.txt" for n in range(40)]
    for n, file in enumerate(files):
        file.write_text("tea " * n + "milk")
    program = (
        "import multiprocessing, runpy, sys; "
        f"multiprocessing.set_start_method({method!r}); "
        "sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    pool = DOCS / "examples" / "pool.py"
    words = sum(range(40)) + 40
    for number in words, 0:
        said = python(program, pool, tmp_path / "s", *files).stdout.splitlines()
        assert said == [f"{number} words are new", "('tea', 780) ('milk', 40)"]
