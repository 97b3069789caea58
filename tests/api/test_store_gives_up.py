"""Tests a store that gave up after a failed write and a failed retry: no caller waits for it."""

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kit
import pytest
from kit import background

import planstep

PLACES: list[dict[str, Any]] = [
    {"mode": "deterministic"},
    {"mode": "deterministic", "placement": "separate"},
    {"mode": "deterministic", "hosts": 3},
    {"mode": "kafka"},
    {"mode": "kafka", "placement": "separate"},
    {"mode": "kafka", "hosts": 3},
]


failing_disk = kit.failing_disk


def open_and_write(path: Path, **place: Any) -> planstep.Engine:
    db = planstep.open(path, **place)
    db.create_topic("t", partitions=3, format="utf8")
    db.write("t", "a")
    return db


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place.values())))
def test_every_call_ends_and_says_why(
    tmp_path: Path, failing_disk: Any, place: dict[str, Any]
) -> None:
    db = open_and_write(tmp_path / "s", **place)
    begun = threading.Semaphore(0)

    def works(call: Callable[[], Any]) -> None:
        while True:
            call()
            begun.release()

    def written() -> None:
        with db.transaction() as tx:
            tx.write_batch("t", ["b"] * 3, partition=[0, 1, 2])

    def read() -> None:
        with db.transaction(worker="w") as tx:
            tx.read("t", "c")
            tx.write("t", "d")

    calls = [written, written, read, lambda: db.write("t", "e")]
    with ThreadPoolExecutor(len(calls)) as pool:
        working = [pool.submit(works, call) for call in calls]
        for _ in range(20):
            begun.acquire()
        failing_disk.failures = math.inf
    errors = [future.exception() for future in working]
    assert all(isinstance(error, planstep.PlanstepError) for error in errors), errors
    assert all("made to fail" in str(error) for error in errors), errors
    with pytest.raises(planstep.StoreClosed, match="made to fail"):
        db.write("t", "never")
    held = db._runtime.admission.bytes
    for _ in range(3):
        with pytest.raises(planstep.StoreClosed, match="made to fail"):
            written()
    assert db._runtime.admission.bytes == held
    failing_disk.failures = 0
    db.close()
    with planstep.open(tmp_path / "s") as db:
        db.write("t", "f")


@pytest.mark.parametrize(
    ("place", "waits", "answer"),
    [
        ({"placement": "separate"}, "_served", False),
        ({"hosts": 3}, "_served", False),
        ({"mode": "kafka"}, "committed", (0, True)),
    ],
)
def test_a_read_that_waits_for_a_host_says_why_too(
    tmp_path: Path, failing_disk: Any, place: dict[str, Any], waits: str, answer: Any
) -> None:
    db = open_and_write(tmp_path / "s", **place)
    calls = threading.Semaphore(0)

    def never(*_: Any) -> Any:
        calls.release()
        return answer

    setattr(db._runtime.views, waits, never)

    def read() -> None:
        with db.transaction(worker="w") as tx:
            tx.read("t", "c")

    with pytest.raises(planstep.StoreClosed, match="made to fail"), background(read):
        calls.acquire()
        failing_disk.failures = math.inf
        with pytest.raises(planstep.PlanstepError):
            while True:
                db.write("t", "b")
    failing_disk.failures = 0
    db.close()
