"""Tests what a machine takes over besides rows: dropped payload, staged data; and what does not fit.

The numbers are those of the scenarios that replication is accepted by.
"""

import os
import threading
from pathlib import Path
from typing import Any

import pytest
import replica_kit
from kit import until
from replica_kit import Hooks, Machines, nothing

import planstep
from planstep.shared.entry import TURN, Entry, seal
from planstep.shared.registry import open_shared_log
from planstep.shared.shared_log import Position
from planstep.store.files import Files, io_error
from planstep.store.replicated import OWNER_KEY
from planstep.store.turn import encode_changes

machines = replica_kit.machines
hooks = replica_kit.hooks


def _live(db: planstep.Engine) -> int:
    """Returns the bytes of payload that the tables refer to, after a checkpoint."""
    store = db._runtime.nodes[0].host.store
    store.checkpoint()
    return sum(store.table.live().values())


def test_payload_that_was_dropped_is_dropped_on_all_machines(machines: Machines) -> None:
    live = []
    for written, name in enumerate("aba", 1):
        with machines.open(name) as db:
            topic = db.create_topic("log", exist_ok=True)
            for _ in range(10):
                topic.write_batch([b"v" * 1000] * 10)
            db.topic("log").trim(100 * written - 10, 0)
            live.append(_live(db))
    with machines.open("c") as db:
        live.append(_live(db))
    assert live[0] < 100_000 and live[-1] == live[-2]


def test_what_was_staged_and_never_proposed_is_withdrawn_by_a_taker(machines: Machines) -> None:
    old = machines.open("a")
    old.create_topic("log")
    tx = old.transaction()
    for _ in range(10):
        tx.write_batch("log", [b"v" * 1_000_000])
    assert list(old._runtime.nodes[0].host.staged_before(1 << 32))
    with machines.take_over("b") as db:
        host = db._runtime.nodes[0].host
        until(lambda: not list(host.staged_before(1 << 32)))
    old.close()


def test_of_two_takers_one_is_told_that_the_other_was_first(
    machines: Machines, hooks: Hooks
) -> None:
    old = machines.open("a")
    others = []

    def strike(entry: Entry) -> None:
        hooks.before = nothing
        others.append(machines.take_over("b"))

    hooks.before = strike
    with pytest.raises(planstep.Fenced, match=r"term 2 .*process"):
        machines.take_over("c")
    (db,) = others
    db.create_table("t")
    db.close()
    old.close()


@pytest.mark.parametrize("wrong", ["address", "owner", "rows"])
def test_an_entry_that_does_not_fit_is_not_taken(machines: Machines, wrong: str) -> None:
    machines.open("a").close()
    last = machines.entries()[-1]
    row: Any = (*last.owner, last.chain, b"")
    address = last.address
    if wrong == "address":
        address += 1
    elif wrong == "owner":
        row = (last.owner.term + 1, *row[1:])
    changes = encode_changes({} if wrong == "rows" else {OWNER_KEY: row})
    log, root = open_shared_log(machines.url, None)
    log.open(Position(last.turn, last.chain))
    owner = last.owner
    log.append(
        seal(TURN, root.store_id, owner, last.turn + 1, last.chain, address, changes=changes)
    )
    log.close()
    for name in "ab":
        with pytest.raises(planstep.Corruption, match=f"turn {last.turn + 1} of the shared log"):
            machines.take_over(name)


def test_descriptors_and_threads_do_not_grow_with_openings(machines: Machines) -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no list of descriptors")

    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    machines.open("a").close()
    before = held()
    for _ in range(3):
        for end in ("close", "crash"):
            db = machines.open("a")
            with pytest.raises(planstep.OwnedElsewhere):
                machines.open("b")
            if end == "crash":
                db._runtime.crash()
            db.close()
    assert held() == before


def test_a_close_on_a_full_disk_tells_the_shared_log(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(Files):
        full = False

        def allocate(self, path: Path, size: int) -> None:
            if Full.full:
                raise io_error(OSError(28, "No space left on device"), path)
            super().allocate(path, size)

    monkeypatch.setattr("planstep.runtime.open_stores.Files", Full)
    monkeypatch.setattr("planstep.store.disk_store.SEGMENT_BYTES", 256 << 10)
    db = machines.open("a")
    table = db.create_table("t")
    Full.full = True
    for size in (100_000, 1_000, 10):
        with pytest.raises(planstep.NoSpace):
            while True:
                table.put("k", b"x" * size)
    db.close()
    Full.full = False
    machines.open("b").close()  # it was told
