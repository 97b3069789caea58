"""Tests LMDB's reader slots: an owner works without a free one, and a reader without one gets an error."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

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
    children = []

    def take(store: Path, wanted: int = 1 << 20) -> int:
        table = store / "host-0" / "table"
        child = subprocess.Popen(
            [sys.executable, "-c", HOLD, table, str(wanted)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        assert child.stdout is not None
        return int(child.stdout.readline())

    yield take
    for child in children:
        child.communicate()


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
        more = [
            threading.Thread(target=lambda: seen.append(db.table("t").get("k"))) for _ in range(8)
        ]
        for thread in more:
            thread.start()
        for thread in more:
            thread.join(60)
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
    words = [sys.executable, "-c", LOOK, store]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


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
for n in range(3):
    print(flush=True)
    sys.stdin.readline()
    try:
        newer = look.newer()
        look.close()
        look = newer
        said = "went on"
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
        child = subprocess.Popen(
            [sys.executable, "-c", FOLLOW, tmp_path / "s"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with child:
            assert child.stdin is not None and child.stdout is not None
            said = []
            for free in (8, 0, 0):  # the owner's own turns and checkpoints take one now and then
                assert child.stdout.readline() == "\n"
                hold(tmp_path / "s", max(0, 1_000 - free - reader_slots.taken(env_of(db))))
                print(file=child.stdin, flush=True)
                said.append(child.stdout.readline())
                # A reader that went on holds one slot only, and so does one that was refused.
                lines = env_of(db).readers().splitlines()
                assert [line.split()[0] for line in lines].count(str(child.pid)) == 1
            assert said[0] == "went on\n"
            assert all(refused.endswith(" 1000\n") for refused in said[1:])


def test_slots_of_killed_readers_count_no_more(tmp_path: Path, hold: Callable[..., int]) -> None:
    """Only an owner's checkpoints free them, and there is no owner."""
    filled(tmp_path / "s").close()
    reader = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path / "s" / "host-0" / "table", "1050"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert reader.stdin is not None and reader.stdout is not None
    assert reader.stdout.readline() == b"1050\n"
    hold(tmp_path / "s", 1)  # while any process has the file open, LMDB keeps all slots
    reader.kill()
    reader.wait()
    reader.stdin.close()
    reader.stdout.close()
    assert look(tmp_path / "s") == "1\n"


def env_of(db: planstep.Engine) -> Any:
    store: Any = db._runtime.nodes[0].host.store
    return store._table._env


class _Struck(Exception):
    """A signal handler's error."""


def test_a_read_that_is_struck_anywhere_leaves_the_places_to_others(
    tmp_path: Path, hold: Callable[..., int]
) -> None:
    with filled(tmp_path / "s") as db:
        hold(tmp_path / "s")
        store: Any = db._runtime.nodes[0].host.store
        spare = store._table.pin()  # otherwise a read would use the slot that LMDB's binding keeps
        steps = 0

        def struck_at(step: int) -> bool:
            """Interrupts a read at a step in store/tables/reader_slots.py; returns whether there is such a step."""
            left = step

            def trace(frame: Any, event: str, arg: object) -> Any:
                nonlocal left
                if frame.f_code.co_filename != reader_slots.__file__:
                    return trace if event == "call" else None
                if event == "line":
                    left -= 1
                    if left == 0:
                        raise _Struck
                return trace

            before = sys.gettrace()  # for the coverage tracer
            sys.settrace(trace)
            try:
                store.get(b"no such key")
            except _Struck:
                return True
            finally:
                sys.settrace(before)
            return False

        while struck_at(steps + 1):
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
