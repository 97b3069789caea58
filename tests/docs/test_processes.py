"""Tests the services of the page "Several processes": real servers, whose workers are killed under load."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kit import PLANSTEP, python
from service_kit import DOCS, WAIT_SECONDS, Clients, asked, free_ports, served

import planstep

CLIENTS, ORDERS = 8, 60
WORKERS = 4


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it was killed before, and nobody has told


def values(db: planstep.Engine, topic: str) -> list[Any]:
    return list(db.topic(topic).read(max_records=1_000_000).values)


class Killer:
    """Kills workers of a service while clients use it: the owner of the store, and another one, in turn."""

    def __init__(self, port: int, spared: int = 0) -> None:
        self.killed: list[int] = []
        self.owners: list[int] = []
        self._port = port
        self._spared = spared

    def worker(self, path: str = "/worker") -> dict[str, Any]:
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until:
            answer = asked(self._port, "GET", path)
            if answer is not None and answer["process"] not in self.killed:
                return answer
        raise AssertionError("no worker answers")

    def strike(self) -> None:
        worker = self.worker()
        owner = worker["owner"]
        if len(self.killed) % 2 == 0 and owner not in (*self.killed, self._spared, None):
            self.owners.append(owner)
            self.killed.append(owner)
        else:
            self.killed.append(worker["process"])
        kill(self.killed[-1])


def test_fastapi_workers_go_on_exactly_once_while_they_are_killed(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    store = tmp_path / "s"
    (port,) = free_ports(1)
    clients, killer = Clients([port]), Killer(port)
    command = ["uvicorn", "workers:app", "--port", str(port), "--workers", str(WORKERS)]
    with served(command, store), ThreadPoolExecutor(CLIENTS) as pool:
        clients.ask("GET", "/users/nobody")
        placing = [pool.submit(clients.place, n, ORDERS) for n in range(CLIENTS)]
        for strike in range(1, 9):
            clients.wait_for(strike * CLIENTS * ORDERS // 10)
            killer.strike()
        for one in placing:
            one.result()
        expected = sum(range(ORDERS))
        until = time.monotonic() + WAIT_SECONDS
        for n in range(CLIENTS):
            while clients.ask("GET", f"/users/u{n}")["billed"] != expected:
                assert time.monotonic() < until, "orders are not billed"
                time.sleep(0.05)
    assert len(killer.owners) == 4 and clients.repeated
    assert len(clients.answers) == CLIENTS * ORDERS
    ids = sorted(answer["id"] for answer in clients.answers.values())
    assert len({*ids}) == len(ids)
    with planstep.open(store) as db:
        assert sorted(order["id"] for order in values(db, "orders")) == ids
        assert sorted(order["id"] for order in values(db, "invoices")) == ids
        assert dict(db.table("answers").scan()) == clients.answers
        for table in "spent", "billed":
            assert dict(db.table(table).scan()) == {f"u{n}": expected for n in range(CLIENTS)}
        assert db.topic("orders").lag("billing") == 0
