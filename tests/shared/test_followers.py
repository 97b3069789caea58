"""Tests followers: what they show, when, and what ends them.

The numbers are those of the scenarios that replication is accepted by.
"""

import gc
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import replica_kit
from kit import Child, background, in_threads, python, until
from replica_kit import Line, Machines, rows

import planstep
from planstep.host.tablet_space import HostSpace
from planstep.runtime.follower import is_versioned
from planstep.shared.files_log import FileObjects
from planstep.store import disk_store
from planstep.store.files import Files, io_error

machines = replica_kit.machines
line = replica_kit.line

WRITER = """
import sys
import planstep

db = planstep.open(sys.argv[1], replicate=sys.argv[2], takeover=True)
table = db.create_table("t", exist_ok=True)
for line in sys.stdin:
    place = table.put("k", int(line))
    print(place.step, place.n, db.turn, flush=True)
"""

FOLLOWER = """
import sys, threading
import planstep

planstep.follow(sys.argv[1], sys.argv[2])
print(flush=True)
threading.Event().wait()
"""

LOOKS = """
import sys
import planstep

with planstep.open(sys.argv[1], read_only=True) as db:
    print(db.table("t").get("k"))
"""


def begun(machines: Machines, name: str = "a", **settings: Any) -> planstep.Engine:
    db = machines.open(name, **settings)
    db.create_table("t").put("k", 0)
    return db


def follow(machines: Machines, name: str = "f", **settings: Any) -> planstep.Follower:
    return planstep.follow(machines.folder(name), machines.url, **settings)


def shown(me: planstep.Follower, at_least: Any) -> dict[Any, Any]:
    with me.snapshot(at_least=at_least) as view:
        return dict(view.scan("t"))


# what it shows ----------------------------------------------------------------------------------


def test_26_it_shows_a_commit_by_its_place_or_the_owner_s_turn(machines: Machines) -> None:
    with (
        Child(WRITER, machines.folder("a"), machines.url) as owner,
        planstep.follow(machines.folder("f"), made(machines, owner)) as me,
    ):
        for number in range(1, 50):
            owner.tell(number)
            step, n, turn = map(int, owner.line().split())
            at_least = planstep.Place(step, n) if number % 2 else turn
            with me.snapshot(at_least=at_least) as view:
                assert view.get("t", "k") == number


def made(machines: Machines, owner: Child) -> str:
    """Returns the URL once the owner has made the log."""
    owner.tell(0)
    owner.line()
    return machines.url


def test_a_place_that_does_not_come_is_a_time_out(machines: Machines) -> None:
    with begun(machines) as db, follow(machines) as me:
        with pytest.raises(TimeoutError, match="turn 1000000 was not reached"):
            me.snapshot(at_least=1_000_000, timeout=0.1)
        with pytest.raises(TimeoutError, match="lag"):
            me.snapshot(max_lag=0, timeout=0.1)
        with me.snapshot(at_least=db.turn, max_lag=30) as view:
            assert view.get("t", "k") == 0
        assert me.lag().turns == 0
        for wrong in (True, "now", -1, 1.5):
            with pytest.raises((TypeError, ValueError)):
                me.snapshot(at_least=wrong)  # type: ignore[arg-type]


def test_snapshots_of_a_follower_are_the_owner_s(machines: Machines) -> None:
    """Transfers, and rows that come and go: each snapshot has the same sum, and stays as it is."""
    accounts, step_rows = 20, {}
    with begun(machines) as db, follow(machines) as me:
        for i in range(accounts):
            db.table("t").put(i, 100)
        db.table("t").delete("k")
        db.create_topic("moves", partitions=2)
        until(lambda: me.db.tables() and me.db.topics())
        me.snapshot(at_least=db.turn).close()
        random_ = random.Random(1)
        stop = threading.Event()

        def transfer() -> None:
            while not stop.is_set():
                with db.transaction() as tx:
                    a, b = random_.sample(range(accounts), 2)
                    have = tx.get("t", a, 0)
                    tx.put("t", b, tx.get("t", b, 0) + have)
                    tx.delete("t", a)
                    tx.write("moves", b"%d" % have, partition=a % 2)

        def look() -> None:
            for _ in range(60):
                with me.snapshot() as view:
                    held = dict(view.scan("t"))
                    ends = view.bounds("moves")
                    assert sum(held.values()) == 100 * accounts
                    seen = step_rows.setdefault(view.step, (held, ends))
                    time.sleep(0.01)
                    assert seen == (held, ends) == (dict(view.scan("t")), ends)
                    assert view.bounds("moves") == ends
                    assert [view.get("t", key) for key in held] == list(held.values())

        with background(transfer):
            try:
                in_threads([look, look])
            finally:
                stop.set()
        assert shown(me, db.turn) == rows(db)


def test_the_versioned_rows_are_those_that_tablets_keep_versions_of(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[bytes, None] = {}
    really = HostSpace.put_version

    def put_version(space: HostSpace, key: bytes, *rest: Any) -> None:
        seen[space._prefix + key] = None
        really(space, key, *rest)

    monkeypatch.setattr(HostSpace, "put_version", put_version)
    with begun(machines) as db:
        db.table("t").delete("k")
        topic = db.create_topic("c", format="utf8")
        for n in range(3):
            topic.write(str(n))
        with db.transaction() as tx:
            tx.read("c", "reader", max_records=1)
        topic.drop_consumer("reader")
        topic.trim(1)
        store = db._runtime.nodes[0].host.store
        versioned = {key for key, _ in store.scan(b"", b"\xff" * 9) if is_versioned(key)}
    assert {key[4:5] for key in seen} == {b"r", b"m", b"c", b"f"}
    assert all(map(is_versioned, seen)) and versioned <= seen.keys()


def test_readers_wait_for_records_and_new_names(machines: Machines) -> None:
    with begun(machines) as db, follow(machines) as me:
        db.create_topic("c", format="utf8")
        until(lambda: "c" in me.db.topics())
        with background(lambda: me.db.topic("c").read(0, timeout=60)) as (read,):
            db.write("c", "hello")
            assert list(read.result(60).values) == ["hello"]
        db.drop_topic("c")
        until(lambda: "c" not in me.db.topics())


@pytest.mark.parametrize("mode", ["kafka", "pulsar"])
def test_each_mode_is_followed(machines: Machines, mode: Any) -> None:
    with machines.open("a", mode=mode) as db:
        db.create_topic("out", format="utf8").write("1")
        with follow(machines) as me:
            topic = me.db.topic("out")
            assert list(topic.read(0).values) == ["1"]
            with db.transaction() as tx:
                tx.write("out", "2")
                tx.flush()
                turn = db.turn
                until(lambda: me.db.turn >= turn)
                assert list(topic.read(0).values) == ["1"], "it has not committed"
            until(lambda: list(topic.read(0).values) == ["1", "2"])
            with pytest.raises(planstep.NotSupported):
                me.snapshot()
            with pytest.raises(planstep.NotSupported):
                topic.write("3")


def test_a_store_with_messages_between_turns_is_taken_over_and_not_shown(
    machines: Machines,
) -> None:
    with begun(machines, placement="separate"), follow(machines) as me:
        with pytest.raises(planstep.NotSupported, match="placement"):
            me.db.table("t").get("k")
        with me.lead(placement="separate") as db:
            assert rows(db) == {"k": 0}


def test_others_read_its_folder(machines: Machines) -> None:
    with begun(machines) as db, follow(machines) as me:
        db.table("t").put("k", 7)
        me.snapshot(at_least=db.turn).close()
        assert python(LOOKS, machines.folder("f")).stdout == "7\n"
        assert me.db.backup(machines.folder("copy")).rows == 1
    with planstep.open(machines.folder("copy")) as copy:
        assert rows(copy) == {"k": 7}


def test_a_url_alone_is_followed_in_a_temporary_folder(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    with pytest.raises(planstep.IoError):
        planstep.open(machines.url, follow=True, read_only=True)
    with begun(machines) as db, planstep.open(machines.url, follow=True, read_only=True) as other:
        assert rows(other) == {"k": 0}
        db.table("t").put("k", 1)
        until(lambda: rows(other) == {"k": 1})
        assert len(list((tmp_path / "tmp").iterdir())) == 1
        with pytest.raises(planstep.NotSupported):
            other.table("t").put("k", 2)
    assert not list((tmp_path / "tmp").iterdir())


def test_a_kept_folder_goes_on_where_it_was(machines: Machines) -> None:
    told: list[int] = []
    with begun(machines) as db:
        for number in range(5):
            with follow(machines, progress=told.append) as me:
                assert shown(me, db.turn) == {"k": number}
            db.table("t").put("k", number + 1)
        assert told == list(range(1, db.turn)), "each turn is taken once"
        with planstep.open(
            machines.folder("f"), replicate=machines.url, follow=True, read_only=True
        ) as same:
            until(lambda: rows(same) == {"k": 5})
            assert planstep.open(machines.folder("f"), read_only=True) is same
            same.close()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"follow": True, "replicate": "file:///x"}, "read_only"),
        ({"follow": True, "read_only": True}, "URL"),
        ({"follow": True, "read_only": True, "replicate": "file:///x", "takeover": True}, "lead"),
        ({"follow": 1, "read_only": True, "replicate": "file:///x"}, "follow is"),
    ],
)
def test_settings_that_do_not_fit(tmp_path: Path, settings: Any, error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        planstep.open(tmp_path / "x", **settings)
    with pytest.raises(ValueError, match="a store is a folder"):
        planstep.open("file:///x")
    with pytest.raises(ValueError, match="a store is a folder"):
        planstep.open("s3://x/y", follow=True, read_only=True, replicate="file:///x")
    assert not list(tmp_path.iterdir())


def test_turns_are_numbers_of_replicated_stores(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "x") as db, pytest.raises(planstep.NotSupported):
        db.turn  # noqa: B018


# bad days ---------------------------------------------------------------------------------------


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


# taking over ------------------------------------------------------------------------------------


def test_25_a_follower_s_reader_never_goes_back_over_takeovers(machines: Machines) -> None:
    steps: list[int] = []
    values: list[int] = []
    with begun(machines) as first, follow(machines, "reader") as me:
        stop = threading.Event()

        def look() -> None:
            while not stop.is_set():
                with me.snapshot() as view:
                    steps.append(view.step)
                    values.append(view.get("t", "k"))

        owner = first
        with background(look):
            for number in range(1, 9):
                for _ in range(10):
                    owner.table("t").add("k", 1)
                with follow(machines, f"m{number}") as standby:
                    led = standby.lead()
                if number > 1:
                    owner.close()
                owner = led
            owner.table("t").add("k", 1)
            me.snapshot(at_least=owner.turn).close()
            stop.set()
        assert steps == sorted(steps) and values == sorted(values)
        assert shown(me, owner.turn) == {"k": 81}
        owner.close()


def test_32_by_command_after_a_close(machines: Machines) -> None:
    db = begun(machines)
    with follow(machines) as me:
        db.close()
        with me.lead() as led:
            assert rows(led) == {"k": 0}
            led.table("t").put("k", 1)
        with pytest.raises(planstep.EngineClosed):
            me.lag()
    with machines.open("a") as db:
        assert rows(db) == {"k": 1}


def test_33_mode_kafka_over_a_takeover_by_a_follower(machines: Machines) -> None:
    old = machines.open("a", mode="kafka")
    old.create_topic("out", format="utf8")
    with old.transaction(worker="w") as tx:
        tx.write("out", "first")
    tx = old.transaction(worker="w")
    tx.write("out", "never")
    tx.flush()
    (before,) = old.transactional_ids()
    with follow(machines) as me, me.lead() as db:
        with db.transaction(worker="w") as new:
            new.write("out", "second")
        until(lambda: not db.transactional_ids(only_open=True))
        (after,) = db.transactional_ids()
        assert (after.producer, after.epoch > before.epoch) == (before.producer, True)
        until(lambda: list(db.topic("out").read(0).values) == ["first", "second"])
        with pytest.raises(planstep.PlanstepError):
            tx.commit()
    old.close()


def test_a_fenced_owner_follows_in_its_own_folder(machines: Machines) -> None:
    old = begun(machines)
    with follow(machines) as me, me.lead() as db:
        with pytest.raises(planstep.Fenced):
            old.table("t").put("k", 1)
        old.close()
        with follow(machines, "a") as again:
            db.table("t").put("k", 2)
            assert shown(again, db.turn) == {"k": 2}
            with again.lead() as third:
                third.table("t").put("k", 3)
            with pytest.raises(planstep.Fenced):
                rows(db)


def test_a_folder_that_is_open_twice_is_not_led(machines: Machines) -> None:
    begun(machines).close()
    with follow(machines) as me:
        with planstep.open(machines.folder("f"), read_only=True) as again:
            with pytest.raises(planstep.StoreInUse):
                me.lead()
            assert rows(again) == {"k": 0}
        me.lead().close()


def test_a_lead_that_fails_lets_the_folder_go(machines: Machines, line: Line) -> None:
    with begun(machines) as db:
        me = follow(machines)
        with pytest.raises(planstep.WrongMode):
            me.lead(mode="kafka")
        db.table("t").put("k", 1)
        with follow(machines) as me:
            assert shown(me, db.turn) == {"k": 1}
            with pytest.raises(ValueError, match="hosts"):
                me.lead(hosts=0)
        follow(machines).close()


def test_40_nothing_grows_over_10_000_turns(machines: Machines) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with begun(machines) as db, follow(machines) as me, ThreadPoolExecutor(4) as pool:

        def some(turns: int) -> None:
            goal = db.turn + turns
            while db.turn < goal:
                list(pool.map(lambda n: db.table("t").put(n % 50, "x" * 200), range(200)))
                me.snapshot(at_least=db.turn).close()
            gc.collect()

        some(2_000)
        files, size = open_files(), resident()
        some(8_000)
        assert db.turn > 10_000
        assert open_files() <= files + 2
        assert resident() - size < 64 << 20
        assert me.db.stats()["memory"]["history_bytes"] == 0
