"""Tests a store that gave up after a failed write and a failed retry: no caller waits for it."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import planstep
from planstep.errors import IoError
from planstep.store.files import Files

PLACES: list[dict[str, Any]] = [
    {"mode": "deterministic"},
    {"mode": "deterministic", "placement": "separate"},
    {"mode": "deterministic", "hosts": 3},
    {"mode": "kafka"},
    {"mode": "kafka", "placement": "separate"},
    {"mode": "kafka", "hosts": 3},
]


class Failing(Files):
    fails = False

    def write(self, fd: int, buffers: Any, offset: int, sync: bool) -> None:
        if sync and Failing.fails:
            raise IoError("made to fail")
        super().write(fd, buffers, offset, sync)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place.values())))
def test_every_call_ends_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: dict[str, Any]
) -> None:
    monkeypatch.setattr("planstep.runtime.open_stores.Files", Failing)
    Failing.fails = False
    db = planstep.open(tmp_path / "s", **place)
    db.create_topic("t", partitions=3, format="utf8")
    db.write("t", "a")
    said: list[BaseException] = []
    begun = threading.Semaphore(0)

    def works(call: Callable[[], Any]) -> None:
        try:
            while True:
                call()
                begun.release()
        except planstep.PlanstepError as error:
            said.append(error)

    def written() -> None:
        with db.transaction() as tx:
            tx.write_batch("t", ["b"] * 3, partition=[0, 1, 2])

    def read() -> None:
        with db.transaction(worker="w") as tx:
            tx.read("t", "c")
            tx.write("t", "d")

    calls = [written, written, read, lambda: db.write("t", "e")]
    threads = [threading.Thread(target=works, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for _ in range(20):
        begun.acquire()
    Failing.fails = True
    for thread in threads:
        thread.join(60)
    assert len(said) == len(threads)
    assert all("made to fail" in str(error) for error in said), said
    with pytest.raises(planstep.StoreClosed, match="made to fail"):
        db.write("t", "never")
    held = db._runtime.admission.bytes
    for _ in range(3):
        with pytest.raises(planstep.StoreClosed, match="made to fail"):
            written()
    assert db._runtime.admission.bytes == held
    Failing.fails = False
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: dict[str, Any], waits: str, answer: Any
) -> None:
    monkeypatch.setattr("planstep.runtime.open_stores.Files", Failing)
    Failing.fails = False
    db = planstep.open(tmp_path / "s", **place)
    db.create_topic("t", partitions=3, format="utf8")
    db.write("t", "a")
    asked = threading.Semaphore(0)

    def never(*_: Any) -> Any:
        asked.release()
        return answer

    monkeypatch.setattr(db._runtime.views, waits, never)
    said: list[BaseException] = []

    def read() -> None:
        try:
            with db.transaction(worker="w") as tx:
                tx.read("t", "c")
        except planstep.PlanstepError as error:
            said.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    asked.acquire()
    Failing.fails = True
    with pytest.raises(planstep.PlanstepError):
        while True:
            db.write("t", "b")
    reader.join(60)
    Failing.fails = False
    db.close()
    assert [type(error) for error in said] == [planstep.StoreClosed]
    assert "made to fail" in str(said[0])
