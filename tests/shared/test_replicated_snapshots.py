"""Tests snapshots of replicated stores: made by owners, killed anywhere, trimmed behind, and begun from.

The numbers are those of the scenarios that replication is accepted by.
"""

import logging
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import replica_kit
from kill_kit import calls_of, killed_at, some_of
from kit import Child, until
from replica_kit import Machines, rows

import planstep
from planstep.errors import IoError
from planstep.runtime import seeding, snapshotting
from planstep.runtime.seeding import restore_from
from planstep.runtime.snapshotting import Snapshotter, snapshots_of
from planstep.shared.entry import BEGIN
from planstep.shared.files_log import FileObjects
from planstep.shared.manifest import Manifest
from planstep.shared.registry import open_shared_log
from planstep.shared.settings import Replicate
from planstep.store.verify import verify

machines = replica_kit.machines
LITTLE = 20_000
"""Bytes of log that make a snapshot due, in these tests."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners look often whether a snapshot is due."""
    monkeypatch.setattr(snapshotting, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(snapshotting, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(snapshotting, "_RETRY_SECONDS", 0.01)


def often(machines: Machines, **settings: Any) -> Replicate:
    return Replicate(machines.url, **{"snapshot_bytes": LITTLE, **settings})


def never(machines: Machines) -> Replicate:
    return Replicate(machines.url, snapshot_bytes=1 << 40)


def write(db: planstep.Engine, number: int, to: int = 1_000_000) -> None:
    """Puts rows of 1,000 bytes, and as many records."""
    table, topic = db.create_table("t", exist_ok=True), db.create_topic("top", exist_ok=True)
    for n in range(number):
        table.put(n % to, bytes([n % 256]) * 1000)
        topic.write(b"%d" % n)


def manifests(machines: Machines, turn_max: int | None = None) -> list[Manifest]:
    log, root = open_shared_log(machines.url, None)
    with closing(log), snapshots_of(often(machines), log, root) as snapshots:
        assert snapshots is not None
        return list(snapshots.newest_first(turn_max))


def floor_of(machines: Machines) -> int:
    log, _ = open_shared_log(machines.url, None)
    try:
        return log.floor()
    finally:
        log.close()


def turns_in(machines: Machines) -> list[int]:
    return sorted(int(path.name) for path in (machines.home / "log" / "log").iterdir())


def snapshot_now(db: planstep.Engine, machines: Machines, keep: int = 2) -> None:
    """Makes a snapshot as the owner does, and trims."""
    store: Any = db._runtime.nodes[0].host.store
    settings = often(machines, keep=keep)
    log, root = open_shared_log(machines.url, None)
    with closing(log), snapshots_of(settings, log, root) as snapshots:
        assert snapshots is not None
        Snapshotter(store, settings).make_now(log, snapshots)


def check(machines: Machines, name: str) -> None:
    assert verify(machines.folder(name) / "host-0") == []


def test_an_owner_makes_snapshots_and_trims_the_log(machines: Machines) -> None:
    with machines.open("a", replicate=often(machines)) as db:
        until(lambda: write(db, 20) or (len(manifests(machines)) == 2 and floor_of(machines) > 1))
        expected = rows(db)
    newest, oldest = manifests(machines)
    floor = floor_of(machines)
    assert 1 < floor <= oldest.turn < newest.turn
    begins = [entry.turn for entry in machines_entries(machines, newest.turn)]
    assert begins
    kept = [turn for turn in turns_in(machines) if turn < floor]
    assert kept == [1]  # a BEGIN
    with machines.open("b") as db:
        assert rows(db) == expected
    check(machines, "b")


def machines_entries(machines: Machines, behind: int) -> list[Any]:
    from planstep.shared.shared_log import Position

    log, _ = open_shared_log(machines.url, None)
    try:
        log.open(Position(behind))
        return log.read(1 << 30, 0)
    finally:
        log.close()


def test_an_empty_folder_begins_from_the_newest_snapshot(machines: Machines) -> None:
    with machines.open("a", replicate=never(machines)) as db:
        write(db, 30)
        snapshot_now(db, machines)
        write(db, 5)
        expected = rows(db)
    assert floor_of(machines) == 1  # one snapshot alone is not enough to trim
    taken: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        really = planstep.runtime.replication.ReplicatedFolder.take  # type: ignore[attr-defined]
        patch.setattr(
            "planstep.runtime.replication.ReplicatedFolder.take",
            lambda folder, entry: (taken.append(entry.turn), really(folder, entry))[1],
        )
        with machines.open("b") as db:
            assert rows(db) == expected
    assert taken[0] == manifests(machines)[0].turn + 1


def test_a_folder_behind_the_floor_begins_anew(machines: Machines) -> None:
    with machines.open("a", replicate=never(machines)) as db:
        write(db, 10)
    shutil.copytree(machines.folder("a"), machines.folder("old"))
    with machines.open("a", replicate=never(machines)) as db:
        for _ in range(3):
            write(db, 10)
            snapshot_now(db, machines)
        expected = rows(db)
    with machines.open("old") as db:
        assert rows(db) == expected
        db.table("t").put("more", 1)
    with machines.open("a") as db:
        assert db.table("t").get("more") == 1
    assert sorted(path.name for path in machines.home.iterdir()) == ["a", "log", "old"]
    check(machines, "old")


@pytest.mark.parametrize("part", ["tables", "pack", "manifest"])
@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_22_a_part_of_the_newest_snapshot_is_bad(
    machines: Machines, caplog: pytest.LogCaptureFixture, part: str, how: str
) -> None:
    with machines.open("a", replicate=never(machines)) as db:
        write(db, 10)
        snapshot_now(db, machines)
        write(db, 10)
        snapshot_now(db, machines)
        write(db, 10)
        snapshot_now(db, machines)
        write(db, 3)
        expected = rows(db)
    newest, older = manifests(machines)
    names = {"manifest": [f"snap/{newest.stem}/manifest"], "tables": newest.names[:1]}
    mine = set(newest.packs) - set(older.packs)
    names["pack"] = [f"pack/{pack.name}" for pack in mine]
    path = machines.home / "log" / names[part][0]
    if how == "missing":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(bytes(data))
    with machines.open("b") as db:
        assert rows(db) == expected
    check(machines, "b")
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    expected_errors = 0 if (part, how) == ("manifest", "missing") else 1
    assert len(errors) >= expected_errors
    for record in errors:
        assert newest.stem in record.getMessage()


def test_with_no_whole_snapshot_it_says_so_and_makes_nothing(machines: Machines) -> None:
    with machines.open("a", replicate=never(machines)) as db:
        for _ in range(2):
            write(db, 10)
            snapshot_now(db, machines)
    for manifest in manifests(machines):
        (machines.home / "log" / manifest.names[0]).unlink()
    with pytest.raises(planstep.Trimmed):
        machines.open("b")
    assert not list(machines.home.glob("b.*"))
    with machines.open("a") as db:  # a folder that is at the end needs none
        assert rows(db)


OWNER = """
import planstep, sys
from planstep.runtime.snapshotting import Snapshotter, snapshots_of
from planstep.shared.registry import open_shared_log
from planstep.shared.settings import Replicate

path, url, rounds = sys.argv[2], sys.argv[3], int(sys.argv[4])
settings = Replicate(url, snapshot_bytes=1 << 40)
db = planstep.open(path, replicate=settings)
table, topic = db.create_table("t", exist_ok=True), db.create_topic("top", exist_ok=True)
store = db._runtime.nodes[0].host.store
log, root = open_shared_log(url, None)
for number in range(rounds):
    for n in range(10):
        table.put(n, b"%d" % number * 200)
        topic.write(b"%d" % n * 100)
    if number == rounds - 1:
        print("sent", flush=True)
        arm()
    with snapshots_of(settings, log, root) as snapshots:
        Snapshotter(store, settings).make_now(log, snapshots)
"""


def test_23_a_kill_in_each_step_of_snapshot_and_trim(machines: Machines) -> None:
    calls = calls_of(OWNER, machines.folder("whole"), (machines.home / "other").as_uri(), 4)
    assert calls > 60
    for number, call in enumerate(some_of(calls, 10)):
        home = machines.home / f"{number}"
        home.mkdir()
        here = Machines(home)
        killed_at(call, OWNER, here.folder("a"), here.url, 4)
        with here.take_over("b", replicate=never(here)) as db:
            found = rows(db)
            assert set(found) == set(range(10)) and set(found.values()) == {b"3" * 200}
            assert len(db.topic("top").read()) == 40
            write(db, 5)
            snapshot_now(db, here)
            expected = rows(db)
        check(here, "b")
        with here.open("c") as db:
            assert rows(db) == expected
        newest, oldest = manifests(here)
        assert floor_of(here) == oldest.turn
        named = {*newest.names, *oldest.names}
        packs = {f"pack/{path.name}" for path in (home / "log" / "pack").iterdir()}
        # What a killed one had begun goes with the floor.
        assert {name for name in named if name.startswith("pack/")} <= packs
        shutil.rmtree(home)


OPENER = """
import planstep, sys
arm()
planstep.open(sys.argv[2], replicate=sys.argv[3]).close()
"""


def test_23_a_kill_in_each_step_of_restore(machines: Machines) -> None:
    with machines.open("a", replicate=never(machines)) as db:
        write(db, 3)
    shutil.copytree(machines.folder("a"), machines.folder("old"))
    with machines.open("a", replicate=never(machines)) as db:
        for _ in range(3):
            write(db, 10)
            snapshot_now(db, machines)
        expected = rows(db)
    for kind in ("empty", "old"):
        shutil.copytree(machines.home, machines.home.with_name(kind))
        base = Machines(machines.home.with_name(kind))
        copies = 0

        def fresh(copies: int, base: Machines = base, kind: str = kind) -> Machines:
            home = base.home.with_name(f"{kind}-{copies}")
            shutil.copytree(base.home, home)
            here = Machines(home)
            if kind == "empty":
                shutil.rmtree(here.folder("old"))
            return here

        here = fresh(copies)
        calls = calls_of(OPENER, here.folder("old"), here.url)
        assert calls > 30
        for call in some_of(calls, 7):
            copies += 1
            here = fresh(copies)
            killed_at(call, OPENER, here.folder("old"), here.url)
            with here.open("old") as db:
                assert rows(db) == expected
            check(here, "old")
            assert sorted(path.name for path in here.home.iterdir()) == ["a", "log", "old"]
            shutil.rmtree(here.home)


# owners ----------------------------------------------------------------------------------------


def test_a_failed_snapshot_is_tried_again_and_stops_no_commit(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing = threading.Event()
    failing.set()
    really = FileObjects.create

    def create(objects: FileObjects, name: str, data: bytes) -> bool:
        if failing.is_set() and name.startswith(("snap/", "pack/")):
            raise IoError("no answer")
        return really(objects, name, data)

    monkeypatch.setattr(FileObjects, "create", create)
    with machines.open("a", replicate=often(machines, log_timeout=0.05)) as db:
        write(db, 30)
        until(lambda: [r for r in caplog.records if "a snapshot failed" in r.getMessage()])
        write(db, 30)
        assert manifests(machines) == []
        failing.clear()
        until(lambda: manifests(machines))
        assert len(rows(db)) == 30


def test_a_close_in_order_makes_one_and_a_crash_does_not(machines: Machines) -> None:
    with machines.open("a", replicate=never(machines)) as db:
        write(db, 30)
    assert manifests(machines) == []
    db = machines.open("a", replicate=often(machines, snapshot_bytes=1 << 40))
    write(db, 30)
    db._runtime.crash()
    db.close()
    assert manifests(machines) == []
    for name, size in (("a", 1 << 40), ("a", LITTLE)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(snapshotting, "_LOOK_SECONDS", 1000.0)
            with machines.open(name, replicate=often(machines, snapshot_bytes=size)) as db:
                write(db, 30)
        assert len(manifests(machines)) == (size == LITTLE)


def test_a_zombie_s_snapshot_and_trim_harm_nobody(machines: Machines) -> None:
    zombie = machines.open("a", replicate=never(machines))
    write(zombie, 30)
    snapshot_now(zombie, machines)
    write(zombie, 30)
    with machines.take_over("b", replicate=never(machines)) as db:
        write(db, 30, 7)
        snapshot_now(zombie, machines, keep=1)  # it does not know it yet
        write(db, 5, 7)
        expected = rows(db)
    with machines.open("c") as db:
        assert rows(db) == expected
    with machines.open("b", replicate=never(machines)) as db:
        for _ in range(2):
            write(db, 10, 7)
            snapshot_now(db, machines, keep=1)
        newest = manifests(machines)[0]
        floor = floor_of(machines)
        snapshot_now(zombie, machines, keep=1)
        assert (manifests(machines)[0], floor_of(machines)) == (newest, floor)
        expected = rows(db)
    with pytest.raises((planstep.Fenced, planstep.Undetermined)):  # its slot is below the floor
        zombie.table("t").put("late", 1)
    zombie.close()
    assert manifests(machines)[0].turn >= newest.turn
    with machines.open("d") as db:
        assert rows(db) == expected


def test_many_terms_of_snapshots_and_trims(machines: Machines) -> None:
    expected: dict[Any, Any] = {}
    for number in range(12):
        name = "abc"[number % 3]
        with machines.take_over(name, replicate=often(machines, keep=1 + number % 2)) as db:
            assert number == 0 or rows(db) == expected
            write(db, 12 + number)
            if number % 2:
                snapshot_now(db, machines, keep=1 + number % 2)
            expected = rows(db)
            records = len(db.topic("top").read())
        assert records == sum(12 + n for n in range(number + 1))
        check(machines, name)
    begins = [entry for entry in machines_entries(machines, manifests(machines)[0].turn)]
    assert [entry for entry in begins if entry.kind == BEGIN] or begins
    assert len(turns_in(machines)) < 150


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    yield
    names = {thread.name for thread in threading.enumerate()}
    assert not {name for name in names if name in ("planstep-snapshots", "planstep-tables")}


@pytest.mark.parametrize("how", ["open", "restore"])
def test_who_lists_snapshots_that_go_meanwhile_lists_once_more(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with machines.open("a", replicate=never(machines)) as db:

        def go_on() -> None:
            for _ in range(3):
                write(db, 3)
                snapshot_now(db, machines)

        go_on()
        where = snapshotting if how == "open" else seeding
        really = where.restore_snapshot  # type: ignore[attr-defined]
        tries: list[Manifest] = []

        def slowly(snapshots: Any, manifest: Manifest, *args: Any) -> None:
            tries.append(manifest)
            if len(tries) == 1:
                go_on()
            really(snapshots, manifest, *args)

        monkeypatch.setattr(where, "restore_snapshot", slowly)
        if how == "open":
            with planstep.follow(machines.folder("b"), machines.url) as me:
                assert rows(me.db) == rows(db)
        else:
            restore_from(never(machines), machines.folder("b"))
            with planstep.open(machines.folder("b")) as restored:
                assert rows(restored) == rows(db)
    assert len(tries) > 1 and tries[0].turn < tries[-1].turn


STUCK = """
import os, signal, sys, threading
import planstep
from planstep.errors import IoError
from planstep.shared.files_log import FileObjects

settings = planstep.Replicate(sys.argv[2], snapshot_bytes=1, log_timeout=600)
db = planstep.open(sys.argv[1], replicate=settings)
db.create_table("t").put("k", 1)
runtime, create, struck = db._runtime, FileObjects.create, threading.Event()

def failing(objects, name, data):
    if not struck.is_set():
        struck.set()
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
    raise IoError("away")

FileObjects.create = failing
try:
    db.close()
except KeyboardInterrupt:
    print(struck.is_set(), runtime.snapshotter.ended.is_set(), flush=True)
"""


def test_an_interrupt_ends_a_snapshot_that_closing_waits_for(machines: Machines) -> None:
    with Child(STUCK, machines.folder("a"), machines.url) as child:
        assert child.process.stdout.readline() == "True True\n"
        assert child.process.wait(60) == 0
    machines.open("a").close()
