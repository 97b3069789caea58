"""Shares helpers between tests of mode "async": owners that lag behind their shared log, and what they lose."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from replica_kit import Hooks, Machines

import planstep
from planstep.errors import LogUnreachable
from planstep.runtime import snapshotting
from planstep.runtime.unshipped import Lost, lost_turns
from planstep.shared.entry import BEGIN, Entry

FOR_EVER = 3_600.0


def settings(machines: Machines, **more: Any) -> planstep.Replicate:
    """Reads ask nothing: confirmed ones wait for a log that is cut off."""
    return machines.replicate(**{"mode": "async", "max_lag": FOR_EVER, "reads": "local", **more})


def opened(
    machines: Machines, name: str = "a", takeover: bool = False, **more: Any
) -> planstep.Engine:
    return machines.open(name, takeover=takeover, replicate=settings(machines, **more))


OWNER = """
import sys, threading, time
import planstep
from planstep.shared.objects_log import ObjectsLog

append = ObjectsLog.append

def slow(log, entry):
    time.sleep(0.05)
    return append(log, entry)

ObjectsLog.append = slow
settings = planstep.Replicate(sys.argv[2], mode="async", max_lag=float(sys.argv[3]), reads="local")
db = planstep.open(sys.argv[1], replicate=settings, takeover=True)
table = db.create_table("t", exist_ok=True)
lock = threading.Lock()

def write(thread):
    for i in range(1_000_000):
        began = time.monotonic()
        tx = db.transaction()
        tx.put("t", (thread, i), 1)
        tx.commit()
        with lock:
            print(tx.id, thread, i, began, time.monotonic(), flush=True)

for thread in range(3):
    threading.Thread(target=write, args=(thread,), daemon=True).start()
threading.Event().wait()
"""
READER = """
import sys
import planstep

with planstep.open(sys.argv[1], read_only=True) as db:
    print("reads", flush=True)
    sys.stdin.readline()
"""


class Cut:
    """Cuts the turns of one term off from the shared log while it is set, or those above one."""

    def __init__(self, hooks: Hooks, term: int = 1) -> None:
        self.is_set = False
        self.above = 0
        self.term = term
        hooks.before = self

    def __call__(self, entry: Entry) -> None:
        is_its = entry.owner.term == self.term and entry.kind != BEGIN
        if self.is_set and is_its and entry.turn > self.above:
            raise LogUnreachable("the line is cut")


@pytest.fixture
def cut(hooks: Hooks) -> Cut:
    return Cut(hooks)


def store_of(db: planstep.Engine) -> Any:
    return db._runtime.nodes[0].host.store


def die(db: planstep.Engine) -> None:
    """Ends an engine as the end of its process would: nothing more is written or sent."""
    store_of(db)._shared._stopping.set()
    db._runtime.crash()
    db.close()


def ends(machines: Machines) -> list[tuple[int, int]]:
    """Returns (term, turn) of all entries, which are checked to be in order."""
    entries = machines.entries()
    assert [entry.turn for entry in entries] == list(range(1, len(entries) + 1))
    assert all(one.chain == two.before for one, two in pairwise(entries))
    return [(entry.owner.term, entry.turn) for entry in entries]


def lost_in(path: Path) -> Lost:
    with planstep.open(path, read_only=True) as db:
        return lost_turns(path, db._runtime.names, db.mode)


def often(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LOOK_SECONDS", "_PAUSE_SECONDS", "_RETRY_SECONDS"):
        monkeypatch.setattr(snapshotting, name, 0.01)


def floor_of(machines: Machines) -> int:
    floors = (machines.home / "log" / "floor").glob("0*")
    return max([int(path.name) for path in floors], default=1)
