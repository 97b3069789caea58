"""Nobody is told of an end that others cannot see yet, and everybody who asks is told one.

durable ─▶ shown: to other processes, in the store, in new snapshots, in outcomes ─▶ answers
"""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import planstep
from planstep.store.append import LogEnd
from planstep.store.disk import DiskStore
from planstep.store.mark import ReleasedMark

PATIENCE = 20.0


class Held:
    """One thread's turn, stopped at some point until `go`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, when: str) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None
        self.armed = False
        call = getattr(owner, name)

        def held(*args: Any, **kwargs: Any) -> Any:
            if when == "after":
                answer = call(*args, **kwargs)
            if self.armed and not self.reached.is_set():
                self.reached.set()
                assert self.go.wait(PATIENCE)
            return answer if when == "after" else call(*args, **kwargs)

        monkeypatch.setattr(owner, name, held)

    def run(self, body: Callable[[], object]) -> None:
        self.armed = True
        self.thread = threading.Thread(target=body)
        self.thread.start()
        assert self.reached.wait(PATIENCE)

    def end(self) -> None:
        self.go.set()
        assert self.thread is not None
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


POINTS = [
    (LogEnd, "append", "after"),
    (ReleasedMark, "show", "before"),
    (ReleasedMark, "show", "after"),
    (DiskStore, "commit", "after"),
]


_LOOK = """
import sys, planstep
with planstep.open(sys.argv[1], read_only=True) as db, db.snapshot() as view:
    print(view.step)
"""


def others_see(path: Path) -> int:
    """The step of another process's snapshot."""
    command = [sys.executable, "-c", _LOOK, str(path)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("point", POINTS, ids=[f"{when} {name}" for _, name, when in POINTS])
def test_who_was_told_or_has_seen_is_not_followed_by_one_who_sees_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: tuple[Any, str, str]
) -> None:
    """At each point of a turn: an outcome, another process's look, then the owner's next transaction."""
    path = tmp_path / "s"
    with planstep.open(path) as db:
        table = db.create_table("t", shards=1)
        table.put("k", "old")
        tx = db.transaction()
        tx.put("t", "k", "new")
        held = Held(monkeypatch, *point)
        found: list[Any] = []

        def later() -> None:
            with db.transaction() as after:
                found.append(after.get("t", "k"))
            assert after.commit.place is not None
            found.append(after.commit.place.step)

        reader = threading.Thread(target=later)
        held.run(tx.commit)
        try:
            told = [db.outcome(tx.id).state, *(one.state for one in db.transactions(1))]
            told = told[: 1 + (db.transactions(1)[0].tx == tx.id)]
            step = others_see(path)
            reader.start()
            reader.join(0.3)  # it may have to wait for the release
        finally:
            held.end()
        reader.join(PATIENCE)
        value, at = found
        assert at >= step, "another process was ahead of the owner"
        assert value == "new" or "committed" not in told, "an outcome was ahead of the reads"
        assert db.outcome(tx.id).state == "committed" and table.get("k") == "new"
