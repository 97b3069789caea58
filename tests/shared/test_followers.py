"""Tests followers: what they show, when, and what ends them.

The numbers are those of the scenarios that replication is accepted by.
"""

import random
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import replica_kit
from follower_kit import begun, follow, shown
from kafka_kit import MemoryPartition
from kit import Child, background, in_threads, python, until
from replica_kit import Machines, rows

import planstep
from planstep.host.tablet_space import HostSpace
from planstep.runtime.follower import is_versioned
from planstep.shared.kafka_log import KafkaLog, open_partition

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

LOOKS = """
import sys
import planstep

with planstep.open(sys.argv[1], read_only=True) as db:
    print(db.table("t").get("k"))
"""


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
        for wrong in ("now", 1.5, True, (1, 2), None.__class__):
            with pytest.raises(TypeError, match=r"the place of a commit.*or db\.turn, not "):
                me.snapshot(at_least=wrong)  # type: ignore[arg-type]


def test_waiting_for_a_turn_asks_the_log_at_its_pace(machines: Machines) -> None:
    with begun(machines) as db, follow(machines) as me:

        def asked() -> int:
            return sum(me._tail.stats()["requests"].values())

        before = asked()
        in_threads([partial(waits, me)] * 3)
        assert asked() - before < 40
        turn = db.turn + 1
        with background(lambda: db.table("t").put("k", 1)):
            assert shown(me, turn) == {"k": 1}


def test_a_follower_of_a_busy_owner_that_keeps_up_has_no_lag(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begun(machines) as db, follow(machines) as me:
        log = me._tail._followed.log
        read = log.read

        def read_more(limit_bytes: int, wait: float) -> Any:
            db.table("t").put("k", 1)  # so no read finds nothing
            return read(limit_bytes, wait)

        with monkeypatch.context() as patch:
            patch.setattr(log, "read", read_more)
            time.sleep(3)
            me.snapshot(max_lag=2, timeout=600).close()


def waits(me: planstep.Follower) -> None:
    with pytest.raises(TimeoutError):
        me.snapshot(at_least=1_000_000, timeout=1)


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


def test_a_log_that_can_wait_is_followed_without_rests(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = MemoryPartition()

    def opened(url: str, root: Any, timeout: float = 60) -> Any:
        found = open_partition(partition, root)
        return KafkaLog(partition, found, timeout), found

    monkeypatch.setattr("planstep.runtime.replication.open_shared_log", opened)
    monkeypatch.setattr("planstep.runtime.snapshotting.open_shared_log", opened)
    replicate = planstep.Replicate("kafka://nowhere:9092/shop")
    with planstep.open(machines.folder("a"), replicate=replicate) as db:
        db.create_table("t").put("k", 0)
        with planstep.follow(machines.folder("f"), replicate) as me:
            assert not me._tail._followed.log.polls
            for number in range(100):
                place = db.table("t").put("k", number)
                assert shown(me, place) == {"k": number} == rows(db)
            with me.lead() as led:
                led.table("t").put("k", "led")
                with pytest.raises(planstep.Fenced):
                    rows(db)
                with pytest.raises(planstep.Fenced):
                    db.table("t").put("k", "old")
