"""Tests followers on bad days: no log, no room, damage, trims, kills.

The numbers are those of the scenarios that replication is accepted by.
"""

import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import replica_kit
from follower_kit import begun, follow, shown
from kit import Child, background, until
from replica_kit import Line, Machines, rows

import planstep
from planstep.runtime.unfinished import making
from planstep.shared.files_log import FileObjects
from planstep.store import disk_store
from planstep.store.files import Files, io_error

machines = replica_kit.machines
line = replica_kit.line

FOLLOWER = """
import sys, threading
import planstep

planstep.follow(sys.argv[1], sys.argv[2])
print(flush=True)
threading.Event().wait()
"""


def test_a_log_that_cannot_be_reached_is_asked_again(machines: Machines, line: Line) -> None:
    with begun(machines) as db, follow(machines) as me:
        line.failing = float("inf")
        until(lambda: me.lag().seconds > 1.5)
        assert rows(me.db) == {"k": 0}, "it goes on showing what it has"
        line.failing = 0
        db.table("t").put("k", 1)
        assert shown(me, db.turn) == {"k": 1}


def test_30_a_full_disk_of_the_follower(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(Files):
        full = False

        def allocate(self, path: Path, size: int) -> None:
            if Full.full and machines.folder("f") in path.parents:
                raise io_error(OSError(28, "No space left on device"), path)
            super().allocate(path, size)

    monkeypatch.setattr("planstep.runtime.open_stores.Files", Full)
    monkeypatch.setattr(disk_store, "SEGMENT_BYTES", 256 << 10)
    with begun(machines) as db, follow(machines) as me:
        Full.full = True
        big = "x" * (1 << 20)
        for n in range(40):
            db.table("t").put("big", f"{n}{big}")
        with pytest.raises(TimeoutError):
            me.snapshot(at_least=db.turn, timeout=2)
        assert rows(me.db)["k"] == 0
        Full.full = False
        assert shown(me, db.turn) == rows(db)
    with machines.open("f") as led:
        assert rows(led)["big"] == f"39{big}"


def test_damage_in_the_log_ends_it(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    db = begun(machines)
    db.create_topic("c")
    with follow(machines) as me, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(me.db.topic("c").read, 0, timeout=600)
        really = FileObjects.get
        struck = threading.Event()

        def get(objects: FileObjects, name: str) -> bytes | None:
            data = really(objects, name)
            if data is None or not struck.is_set() or not name.startswith("log/"):
                return data
            return data[:-9] + b"\x00" + data[-8:]

        monkeypatch.setattr(FileObjects, "get", get)
        view = me.snapshot()
        assert view.get("t", "k") == 0
        struck.set()
        db.table("t").put("k", 1)
        until(lambda: me._tail.failed)
        with pytest.raises(planstep.HostStopped, match="damaged"):
            waiting.result(60)
        for read in (me.lag, lambda: rows(me.db), lambda: me.snapshot(at_least=1), me.lead):
            with pytest.raises(planstep.Corruption, match="damaged"):
                read()
        monkeypatch.undo()
    db.close()
    with follow(machines) as me:
        assert rows(me.db) == {"k": 1}


def test_24_a_follower_that_is_overtaken_by_a_trim_begins_from_a_snapshot(
    machines: Machines,
) -> None:
    settings = machines.replicate(snapshot_bytes=1, keep=1)
    db = planstep.open(machines.folder("a"), replicate=settings)
    db.create_table("t").put("k", 0)
    with follow(machines) as me:
        until(lambda: rows(me.db) == {"k": 0})
        log = me._tail._followed.log
        cut, reads = threading.Event(), log.read

        def read(*wanted: Any) -> Any:
            if cut.is_set():
                raise planstep.LogUnreachable("cut off")
            return reads(*wanted)

        vars(log)["read"] = read
        cut.set()
        until(lambda: me.lag().seconds > 1)
        for number in range(100):
            db.table("t").put("k", number)
        held, turn = rows(db), db.turn
        db.close()  # with a snapshot
        cut.clear()
        until(lambda: me._tail.failed)
        with pytest.raises(planstep.Trimmed):
            rows(me.db)
    with follow(machines) as me:
        assert rows(me.db) == held and me.db.turn > turn
        with me.lead() as led:
            led.table("t").put("k", "goes on")


READER = """
import sys
import planstep

with planstep.open(sys.argv[1], read_only=True) as db, db.snapshot() as view:
    print(view.get("t", "k"), flush=True)
    sys.stdin.readline()
    for call in (lambda: db.table("t").get("k"), lambda: db.topic("c").read(1, timeout=600)):
        try:
            print("read", call(), flush=True)
        except planstep.StoreClosed as error:
            print(error, flush=True)
    print(view.get("t", "k"), view.read("c").values, view.get("t", "else"), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("times", [1, 2])
def test_a_folder_that_others_read_is_replaced_beside_them(machines: Machines, times: int) -> None:
    settings = machines.replicate(snapshot_bytes=1, keep=1)
    db = planstep.open(machines.folder("a"), replicate=settings)
    db.create_table("t").put("k", 0)
    db.create_topic("c", format="utf8").write("old")
    follow(machines).close()
    with ExitStack() as stack:
        readers = []
        for number in range(1, times + 1):
            readers.append(stack.enter_context(Child(READER, machines.folder("f"))))
            assert readers[-1].line() == str(number - 1)
            db.table("t").put("k", number)
            for n in range(100):
                db.table("t").put("else", n)
            db.close()  # with a snapshot, behind which it is trimmed
            follow(machines).close()
            with planstep.open(machines.folder("f"), read_only=True) as look:
                assert rows(look)["k"] == number
            db = planstep.open(machines.folder("a"), replicate=settings)
        around = machines.folder("f.incomplete")
        assert len([path for path in around.iterdir() if path.name != "lock"]) == times
        follow(machines).close()
        for number, reader in enumerate(readers):
            reader.tell()
            for _ in range(2):
                assert "open it again" in reader.line()
            assert reader.line() == f"{number} ['old'] {99 if number else None}"
            reader.tell()
            assert reader.process.wait(60) == 0
    follow(machines).close()
    assert not around.exists()
    db.close()


def test_a_file_system_without_exchange_does_not_replace_what_is_read(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Files, "exchange", lambda *_: False)
    settings = machines.replicate(snapshot_bytes=1, keep=1)
    with planstep.open(machines.folder("a"), replicate=settings) as db:
        db.create_table("t").put("k", 0)
        follow(machines).close()
        for n in range(100):
            db.table("t").put("k", n)
    with Child(READER, machines.folder("f")) as reader:
        assert reader.line() == "0"
        with pytest.raises(planstep.StoreInUse):
            follow(machines)
    with follow(machines) as me:
        assert rows(me.db) == {"k": 99}


def test_an_opening_removes_what_a_killed_restore_left(machines: Machines) -> None:
    with begun(machines):
        pass
    around = machines.folder("a.incomplete")
    (around / "copy" / "host-0").mkdir(parents=True)
    (around / "lock").touch()
    machines.open("a").close()
    assert not around.exists()
    (around / "mine").mkdir(parents=True)
    machines.open("a").close()
    assert (around / "mine").exists(), "it was not left by a restore"


def test_an_opening_leaves_a_copy_that_is_being_made(machines: Machines) -> None:
    with begun(machines):
        pass
    with making(machines.folder("a"), replace=True) as copy:
        copy.mkdir()
        machines.open("a").close()
        assert copy.exists()


def test_a_log_of_another_store_is_refused(machines: Machines, tmp_path: Path) -> None:
    begun(machines).close()
    follow(machines).close()
    other = (tmp_path / "other").as_uri()
    planstep.open(tmp_path / "o", replicate=other).close()
    with pytest.raises(planstep.Diverged):
        planstep.follow(machines.folder("f"), other)
    follow(machines).close()


def test_it_stops_at_any_moment(machines: Machines, line: Line) -> None:
    with begun(machines) as db:
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                db.table("t").add("k", 1)

        with background(write):
            for number in range(20):
                with follow(machines) as me:
                    time.sleep(random.Random(number).random() / 10)
                    line.failing = float("inf") if number % 5 == 0 else 0
                line.failing = 0
            stop.set()
        with follow(machines) as me:
            assert shown(me, db.turn) == rows(db)


def test_a_killed_follower_goes_on(machines: Machines) -> None:
    with begun(machines) as db:
        for number in range(1, 6):
            with Child(FOLLOWER, machines.folder("f"), machines.url) as child:
                child.line()
                for _ in range(20):
                    db.table("t").add("k", 1)
                child.process.send_signal(signal.SIGKILL)
            with follow(machines) as me:
                assert shown(me, db.turn) == {"k": 20 * number}
