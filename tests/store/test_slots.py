"""Tests LMDB's reader slots: an owner works without a free one, and a reader without one gets an error."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from kit import Child, in_threads, python, struck_at

import planstep
from planstep.errors import TooManyReaders
from planstep.store.tables import reader_slots

HOLD = """
import sys, lmdb
env = lmdb.open(sys.argv[1], readonly=True, max_spare_txns=0, map_size=1 << 30)
held, wanted = [], int(sys.argv[2])
try:
    while len(held) < wanted:
        held.append(env.begin())
except lmdb.ReadersFullError:
    pass
print(len(held), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def hold() -> Iterator[Callable[..., int]]:
    """Takes slots of a store, or all free ones, in another process, as any program may."""
    with ExitStack() as stack:

        def take(store: Path, wanted: int = 1 << 20) -> int:
            child = stack.enter_context(Child(HOLD, store / "host-0" / "table", wanted))
            return int(child.line())

        yield take


def filled(path: Path) -> planstep.Engine:
    db = planstep.open(path)
    db.create_table("t").put("k", 1)
    db.create_topic("a", format="utf8").write("one")
    checkpoint(db)
    return db


def checkpoint(db: planstep.Engine) -> None:
    store: Any = db._runtime.nodes[0].host.store
    store.checkpoint()


def works(db: planstep.Engine, path: Path, name: str) -> None:
    """Runs everything that an owner does."""
    for n in range(3):
        with db.transaction() as tx:
            tx.put("t", n, tx.get("t", "k"))
            tx.write("a", "more")
        checkpoint(db)
    assert db.table("t").get("k") == 1 and db.table("t").get("no") is None
    assert len(list(db.table("t").scan())) == 4
    assert db.topic("a").read().values[0] == "one"
    db.backup(path.with_name(name))
    with planstep.open(path.with_name(name), read_only=True) as copy:
        assert copy.table("t").get("k") == 1


def test_an_owner_goes_on_without_a_free_slot(tmp_path: Path, hold: Callable[..., int]) -> None:
    db = filled(tmp_path / "s")
    assert hold(tmp_path / "s") > 1_000
    works(db, tmp_path / "s", "copy")
    db.close()


def test_nobody_opens_without_a_free_slot_and_it_is_no_damage(
    tmp_path: Path, hold: Callable[..., int]
) -> None:
    """Another program holds all of them before any owner could keep some."""
    filled(tmp_path / "s").close()
    places = hold(tmp_path / "s")
    for settings in ({}, {"read_only": True}):
        with pytest.raises(TooManyReaders, match="1,086 readers have") as refused:
            planstep.open(tmp_path / "s", **settings)
        assert (refused.value.readers, refused.value.limit) == (places, 1_000) == (1_086, 1_000)
    with pytest.raises(TooManyReaders):
        planstep.restore(tmp_path / "s", tmp_path / "copy")
    assert os.listdir(tmp_path) == ["s"]


def test_many_threads_read_without_a_free_slot(tmp_path: Path, hold: Callable[..., int]) -> None:
    """More threads than kept slots read at once: they wait for each other, and finish."""
    with filled(tmp_path / "s") as db:
        hold(tmp_path / "s")
        table: Any = db._runtime.nodes[0].host.store._table
        inside = threading.Barrier(reader_slots.KEPT + 1, timeout=60)
        seen = []

        def read() -> None:
            with table.pin():
                inside.wait()  # all kept slots are taken now
                inside.wait()

        threads = [threading.Thread(target=read) for _ in range(reader_slots.KEPT)]
        for thread in threads:
            thread.start()
        inside.wait()
        in_threads([lambda: seen.append(db.table("t").get("k"))] * 8)
        inside.wait()
        for thread in threads:
            thread.join(60)
        assert seen == [1] * 8
        works(db, tmp_path / "s", "copy")


LOOK = """
import sys, planstep
try:
    with planstep.open(sys.argv[1], read_only=True) as db:
        print(db.table("t").get("k"))
except planstep.TooManyReaders as error:
    print(error.readers, error.limit)
"""


def look(store: Path) -> str:
    return python(LOOK, store).stdout


def test_a_reader_that_is_one_too_many_is_told_so(tmp_path: Path, hold: Callable[..., int]) -> None:
    """Readers leave some free, so that a later owner finds its own."""
    with filled(tmp_path / "s") as db:
        limit = 1_000
        hold(tmp_path / "s", limit - 1 - reader_slots.taken(env_of(db)))
        assert look(tmp_path / "s") == "1\n"
        hold(tmp_path / "s", 1)
        assert look(tmp_path / "s") == "1001 1000\n"
        works(db, tmp_path / "s", "copy")
    with planstep.open(tmp_path / "s") as db:
        works(db, tmp_path / "s", "another")


FOLLOW = """
import pathlib, sys, planstep
from planstep.store.readers.readonly import ReadOnlyStore

look = ReadOnlyStore.open(pathlib.Path(sys.argv[1]) / "host-0")
epochs = {look._epoch}
for n in range(3):
    print(flush=True)
    sys.stdin.readline()
    if n == 2:
        look._tail.position = None  # it has lost its way, and looks at the whole store
    try:
        newer = look.newer()
        look.close()
        look = newer
        said = "pinned again" if look._epoch not in epochs else "went on"
        epochs.add(look._epoch)
    except planstep.TooManyReaders as error:
        said = f"{error.readers} {error.limit}"
    newer = None
    print(said, flush=True)
sys.stdin.readline()  # until it has been looked at
look.close()
"""


def test_a_reader_that_follows_leaves_some_free_as_well(
    tmp_path: Path, hold: Callable[..., int]
) -> None:
    with filled(tmp_path / "s") as db:
        with Child(FOLLOW, tmp_path / "s") as child:
            said = []
            for free in (8, 0, 0):  # the owner's own turns and checkpoints take one now and then
                assert child.line() == ""
                db.table("t").put("k", len(said))
                db._runtime.nodes[0].host.store.checkpoint()
                hold(tmp_path / "s", max(0, 1_000 - free - reader_slots.taken(env_of(db))))
                child.tell()
                said.append(child.line())
                # A reader that went on holds one slot only, and so does one that was refused.
                lines = env_of(db).readers().splitlines()
                assert [line.split()[0] for line in lines].count(str(child.process.pid)) == 1
            child.end()
        assert said[:2] == ["pinned again", "went on"]
        assert said[2].endswith(" 1000")


def test_slots_of_killed_readers_count_no_more(tmp_path: Path, hold: Callable[..., int]) -> None:
    """Only an owner's checkpoints free them, and there is no owner."""
    filled(tmp_path / "s").close()
    with Child(HOLD, tmp_path / "s" / "host-0" / "table", 1050) as reader:
        assert reader.line() == "1050"
        hold(tmp_path / "s", 1)  # while any process has the file open, LMDB keeps all slots
    assert look(tmp_path / "s") == "1\n"


def env_of(db: planstep.Engine) -> Any:
    store: Any = db._runtime.nodes[0].host.store
    return store._table._env


def test_a_read_that_is_struck_anywhere_leaves_the_places_to_others(
    tmp_path: Path, hold: Callable[..., int]
) -> None:
    with filled(tmp_path / "s") as db:
        hold(tmp_path / "s")
        store: Any = db._runtime.nodes[0].host.store
        spare = store._table.pin()  # otherwise a read would use the slot that LMDB's binding keeps
        steps = 0

        def watched(frame: FrameType) -> bool:
            return frame.f_code.co_filename == reader_slots.__file__

        while struck_at(steps + 1, watched, lambda: store.get(b"no such key")):
            steps += 1
            seen: list[Any] = []
            reads = threading.Thread(
                target=lambda seen=seen: seen.append(db.table("t").get("k")), daemon=True
            )
            reads.start()
            reads.join(60)
            assert seen == [1], f"struck at step {steps}, and nobody reads any more"
            checkpoint(db)
        assert steps > 3
        spare.abort()
