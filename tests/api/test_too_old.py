"""Tests a function slower than its snapshot's life: an error tells what to change, and it does not retry for
ever."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit import background, until

import planstep

SHORT: dict[str, Any] = {"snapshot_bytes": 1_000}


def outlive(db: planstep.Engine) -> None:
    """Overwrites more data than is kept for open snapshots."""
    for _ in range(3):
        db.table("n").put("row", bytes(1_000))


def store(path: Path | str = ":memory:", **settings: Any) -> planstep.Engine:
    db = planstep.open(path, **(settings or SHORT))
    db.create_topic("in").write_batch([b"%d" % n for n in range(4)])
    db.create_table("n").put("row", 0)
    return db


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [r for r in caplog.records if getattr(r, "event", "") == "snapshot_too_old"]


class Slow:
    """Outlives its snapshot the first `times` times."""

    def __init__(self, db: planstep.Engine, times: int = 10**6) -> None:
        self.db, self.times, self.runs = db, times, 0

    def __call__(self, tx: planstep.Transaction, batch: Any = None) -> None:
        self.runs += 1
        tx.get("n", "other")
        if self.runs <= self.times:
            outlive(self.db)
        tx.get("n", "row")
        tx.put("n", "done", self.runs)


def test_process_raises_it_the_second_time(caplog: pytest.LogCaptureFixture) -> None:
    with store() as db:
        slow = Slow(db)
        with pytest.raises(planstep.ProcessingError) as caught:
            db.process(slow, "in", "c", until_idle=True)
        assert slow.runs == 2 and isinstance(caught.value.__cause__, planstep.SnapshotTooOld)
        for word in ("offsets 0 to 3", "snapshot_seconds", "snapshot_bytes", "max_records"):
            assert word in str(caught.value)
        (warning,) = warnings(caplog)
        assert warning.levelno == logging.WARNING and "'in', partition 0" in warning.getMessage()
        assert db.topic("in").position("c")[0] == 0


def test_process_goes_on_where_it_was_once(caplog: pytest.LogCaptureFixture) -> None:
    with store() as db:
        done = db.process(Slow(db, times=1), "in", "c", until_idle=True)
        assert (done.records, done.conflicts) == (4, 0) and len(warnings(caplog)) == 1


def test_on_error_is_asked_and_only_single_records_are_skipped() -> None:
    with store() as db:
        calls: list[tuple[int, int, int]] = []

        def decide(error: planstep.ProcessingError) -> str:
            calls.append((error.offset, error.records, error.attempt))
            return "skip"

        done = db.process(Slow(db), "in", "c", on_error=decide, until_idle=True)
        assert done.skipped == 4 and calls[0] == (0, 4, 1)
        assert [offset for offset, records, _ in calls if records == 1] == [0, 1, 2, 3]


@pytest.mark.parametrize("hosts", [1, 3])
async def test_a_process_of_asyncio_raises_it_too(hosts: int) -> None:
    async with planstep.open_async(":memory:", hosts=hosts, **SHORT) as db:
        await (await db.create_topic("in")).write(b"0")
        table = await db.create_table("n", shards=1)
        await table.put("row", 0)
        runs = 0

        async def slow(tx: planstep.AsyncTransaction, batch: Any = None) -> None:
            nonlocal runs
            runs += 1
            await tx.get("n", "other")
            for _ in range(30):  # until each host has had a turn since
                await table.put("row", bytes(1_000))
            await tx.get("n", "row")
            await tx.put("n", "done", 1)

        with pytest.raises(planstep.ProcessingError):
            await db.process(slow, "in", "c", until_idle=True)
        assert runs == 2
        with pytest.raises(planstep.SnapshotTooOld) as caught:
            await db.run(slow)
        assert runs == 4 and "twice" in caught.value.__notes__[0]


def test_run_raises_it_the_second_time(caplog: pytest.LogCaptureFixture) -> None:
    with store() as db:
        slow = Slow(db)
        with pytest.raises(planstep.SnapshotTooOld, match="snapshot_seconds") as caught:
            db.run(slow)
        assert (
            slow.runs == 2 and "twice" in caught.value.__notes__[0] and len(warnings(caplog)) == 1
        )
        db.run(Slow(db, times=1))
        assert db.table("n").get("done") == 2


@pytest.mark.parametrize("hosts", [1, 3])
@pytest.mark.parametrize("mode", ["deterministic", "kafka"])
def test_the_limits_are_settings(tmp_path: Path, hosts: int, mode: Any) -> None:
    limits: dict[str, Any] = {"snapshot_seconds": 7.5, "snapshot_bytes": 123}
    for path in (":memory:", tmp_path / "s"):
        with planstep.open(path, hosts=hosts, mode=mode, **limits) as db:
            for node in db._runtime.nodes:
                history = node.host.history
                assert (history.ms_max, history.bytes_max) == (7_500, 123)
    with planstep.open(tmp_path / "s") as db:
        history = db._runtime.nodes[0].host.history
        assert (history.ms_max, history.bytes_max) == (60_000, 64 << 20)


def test_a_snapshot_of_a_long_life_sees_what_a_short_one_does_not() -> None:
    for settings, lives in (({}, True), (SHORT, False), ({"snapshot_seconds": 1e-3}, False)):
        with store(**{"snapshot_bytes": 64 << 20, **settings}) as db, db.snapshot() as view:
            for _ in range(10**4):
                outlive(db)
                try:
                    assert view.get("n", "row") == 0
                except planstep.SnapshotTooOld as error:
                    assert not lives and "snapshot_seconds" in str(error)
                    break
                if lives:
                    break
            else:
                raise AssertionError("it lived on")


def anew(db: planstep.Engine) -> None:
    """Drops table and topic, and creates others of the same names."""
    for kind, drop, create in (
        ("n", db.drop_table, db.create_table),
        ("in", db.drop_topic, db.create_topic),
    ):
        drop(kind)
        create(kind)


def test_a_snapshot_does_not_show_what_has_the_name_later() -> None:
    with store() as db, db.snapshot() as view:
        anew(db)
        reads: tuple[Callable[[], Any], ...] = (
            lambda: view.get("n", "row"),
            lambda: view.scan("n"),
            lambda: view.count("n"),
            lambda: list(view.scan_arrow("n")),
            lambda: view.read("in"),
            lambda: view.bounds("in"),
            lambda: view.position("in", "c"),
            lambda: view.consumer("in", "c"),
            lambda: view.to_arrow("in"),
            lambda: list(view.iter_batches("in")),
        )
        for read in reads:
            with pytest.raises(planstep.SnapshotTooOld, match="was created in step"):
                read()
        assert db.table("n").count() == 0 and not db.topic("in").read()


@pytest.mark.parametrize("writes", [False, True])
def test_a_transaction_does_not_read_what_has_the_name_later(writes: bool) -> None:
    with store() as db:
        runs = 0

        def fn(tx: planstep.Transaction) -> Any:
            nonlocal runs
            runs += 1
            tx.get("n", "other")
            if runs == 1:
                anew(db)
                db.table("n").put("row", 5)
            if writes:
                tx.put("n", "other", 1)
            with pytest.raises(planstep.SnapshotTooOld) if runs == 1 else nullcontext():
                tx.read("in", "c")
            return tx.get("n", "row")

        assert db.run(fn) == 5 and runs == 2


def test_writes_to_a_table_do_not_go_to_a_later_one_of_its_name() -> None:
    """The later one may have another format."""
    with planstep.open(":memory:") as db:
        db.create_table("w", format="json")
        committed, asked, scanned, written = (db.transaction() for _ in range(4))
        for tx in (committed, asked, scanned, written):
            tx.put("w", "k", {"a": 1})
        db.drop_table("w")
        db.create_table("w", format="msgpack")
        uses: tuple[Callable[[], Any], ...] = (
            committed.commit,
            lambda: asked.get("w", "k"),
            lambda: scanned.scan("w"),
            lambda: written.put("w", "k", 2),
        )
        for use in uses:
            with pytest.raises(planstep.Dropped):
                use()
        for tx in (asked, scanned, written):
            tx.rollback()
        assert db.table("w").scan() == []


@pytest.mark.parametrize("mode", ["deterministic", "kafka"])
def test_a_read_that_waits_ends_when_its_topic_is_dropped(mode: Any) -> None:
    with planstep.open(":memory:", mode=mode) as db:
        topic = db.create_topic("t")
        tx = db.transaction()

        def ends(read: Callable[[], Any]) -> None:
            with pytest.raises(planstep.UnknownName):
                read()

        waiting = partial(ends, partial(topic.read, timeout=600))
        with background(waiting, partial(ends, partial(tx.read, "t", "c", timeout=600))):
            until(lambda: sum(map(len, db._runtime.turns.watches.watched.values())) == 2)
            db.drop_topic("t")
        tx.rollback()


def test_process_begins_again_where_its_function_creates_a_table() -> None:
    with store() as db:

        def fn(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
            db.create_table("made", exist_ok=True)
            tx.put("made", "n", tx.get("made", "n", 0) + len(batch))

        assert db.process(fn, "in", "c", max_records=1, until_idle=True).transactions == 4
        assert db.table("made").get("n") == 4


def test_a_host_that_is_started_again_keeps_them(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s", hosts=3, snapshot_bytes=123) as db:
        db._runtime.stop_host(1)
        db._runtime.start_host(1)
        assert db._runtime.nodes[1].host.history.bytes_max == 123


def test_settings_that_are_wrong_or_differ(tmp_path: Path) -> None:
    for wrong in ({"snapshot_seconds": 0}, {"snapshot_bytes": 0}, {"snapshot_bytes": 1.5}):
        with pytest.raises((ValueError, TypeError)):
            planstep.open(tmp_path / "s", **wrong)
    with planstep.open(tmp_path / "s", snapshot_bytes=123):
        planstep.open(tmp_path / "s").close()  # it did not say
        planstep.open(tmp_path / "s", snapshot_bytes=123).close()
        with pytest.raises(planstep.WrongMode, match="snapshot_bytes=123, not 124"):
            planstep.open(tmp_path / "s", snapshot_bytes=124)
        with pytest.raises(planstep.WrongMode, match=r"snapshot_seconds=60\.0, not 1"):
            planstep.open(tmp_path / "s", snapshot_seconds=1)
