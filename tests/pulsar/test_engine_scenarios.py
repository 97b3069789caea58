"""Shows scenarios of mode "pulsar" through the public face: 19, 31 to 33, 41 and 45."""

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow.parquet as parquet
import pytest
from engine_kit import QUICK, acknowledge, is_pending, opened, tablet_of
from kit import PLANSTEP, FullDisk, python, until

import planstep
from planstep.api.engine import Engine
from planstep.api.open_engine import Settings
from planstep.api.slots import Slot
from planstep.bench.proof.disks.engines import abandon, stores_of
from planstep.bench.proof.disks.failing import FastFiles
from planstep.bench.proof.disks.images import Disk
from planstep.bench.proof.disks.recorder import Recorder, watch_mark, watch_tables
from planstep.runtime.open_runtime import open_runtime
from planstep.runtime.open_stores import OpenOptions

KB = 1 << 10
COUNT = 120


@pytest.fixture
def db() -> Iterator[planstep.Engine]:
    with opened() as engine:
        engine.create_topic("in", partitions=1, format="utf8")
        engine.create_topic("out", partitions=1, format="utf8")
        yield engine


def read_all(reader: planstep.Reader) -> list[str]:
    """Reads to the end, and consumes what was read."""
    values: list[str] = []
    for tx, batch in iter(reader.read, None):
        values += batch.values
        tx.commit()
    return values


@pytest.mark.parametrize(
    "end, values", [("commit", ["2", "3"]), ("rollback", ["0", "1", "2", "3"])]
)
def test_a_reader_waits_for_a_position_that_a_transaction_has_pending(
    db: planstep.Engine, end: str, values: list[str]
) -> None:
    """A killed process leaves such a commit, which is being ended. A position beyond it would be no conflict, and
    count its inputs twice."""
    db.topic("in").create_consumer("c")
    db.topic("in").write_batch(["0", "1", "2", "3"])
    before = acknowledge(db, position=2)
    with db.reader("in", "c") as reader:
        assert reader.read(timeout=0.1) is None and not reader.idle()
        getattr(before, end)()
        leased = reader.read(timeout=30)
        assert leased is not None and leased.batch.values == values
        leased.tx.commit()
    assert db.topic("in").lag("c") == 0


def test_a_read_that_a_trim_overtakes_shows_no_aborted_message(db: planstep.Engine) -> None:
    """Another read forgets the ids of what was trimmed; this one has its entries already."""
    for _ in range(COUNT):
        tx = db.transaction()
        tx.write("in", "never")
        tx.flush()
        tx.rollback()
    db.run(lambda tx: tx.write("in", "0"))
    views, tablet = db._runtime.hooks.in_place_views, tablet_of(db)
    db._runtime.hooks.wait_stable(tablet)
    bounds = views.log_meta(tablet)
    entries = list(views.entries(tablet, 0, bounds.end))
    shown = views._aborted.shown(
        tablet, views.rows(tablet), bounds, iter([*entries[-2:], *entries])
    )
    first = next(shown)
    assert db.topic("in").trim({0: bounds.end})
    db.topic("in").write("1")
    assert db.topic("in").read().values == ["1"]
    assert [first, *shown] == [first, first]


# 19: aborted messages --------------------------------------------------------------------------


def test_scenario_19_aborted_messages_stay_hidden_whoever_reads(tmp_path: Path) -> None:
    """By redelivery, after a seek back, by a new consumer, after reopening, in another process, in an export."""
    rng, shown = Random(19), [f"{n}" for n in range(COUNT)]
    with opened(tmp_path / "s", nack_redelivery_delay_ms=0, snapshot_transactions=7) as db:
        topic = db.create_topic("in", partitions=1, format="utf8")
        topic.create_consumer("c", kind="individual")
        for value in shown:
            for _ in range(rng.randrange(3)):
                tx = db.transaction()
                tx.write_batch("in", ["never"] * rng.randrange(1, 4))
                tx.flush()
                tx.rollback()
            with db.transaction() as tx:
                tx.write("in", value)
        db._runtime.hooks.wait_stable(tablet_of(db))
        with db.reader("in", "c", max_records=11) as reader:
            first = [reader.read() or pytest.fail("nothing to read") for _ in range(4)]
            for leased in first:
                leased.nack()
            assert sorted(read_all(reader), key=int) == shown
        topic.seek("c", 0)
        with db.reader("in", "c", max_records=11) as reader:
            assert read_all(reader) == shown
    with opened(tmp_path / "s") as db:
        db.topic("in").create_consumer("late")
        with db.reader("in", "late", max_records=11) as reader:
            assert read_all(reader) == shown
        program = "import sys, planstep; print(*planstep.open(sys.argv[1], read_only=True).topic('in').read())"
        assert "never" not in (read := python(program, tmp_path / "s").stdout)
        assert read.count("Record(") == COUNT
        file = tmp_path / "in.parquet"
        python(PLANSTEP, "export", tmp_path / "s", "--topic", "in", "--to", file)
        assert parquet.read_table(file)["value"].to_pylist() == shown


# 31 to 33: pending acknowledgements ------------------------------------------------------------


def test_scenario_31_pending_messages_come_after_the_abort_once_and_in_order(
    db: planstep.Engine,
) -> None:
    db.topic("in").create_consumer("c", kind="individual")
    db.topic("in").write_batch([f"{n}" for n in range(30)])
    with db.reader("in", "c", max_records=4) as reader:
        assert (reader.read() or pytest.fail("nothing to read")).batch.values[0] == "0"
    pending = acknowledge(db, (0, 5), (10, 15), (20, 30))
    for _ in range(2):  # the reader changes
        with db.reader("in", "c", max_records=3, in_flight=20) as reader:
            held = list(iter(reader.read, None))
            seen = [value for _, batch in held for value in batch.values]
            assert seen == [f"{n}" for n in (*range(5, 10), *range(15, 20))]
    pending.rollback()
    until(lambda: not is_pending(db))
    with db.reader("in", "c", max_records=3) as reader:
        assert read_all(reader) == [f"{n}" for n in range(30)]


def test_scenario_32_pending_messages_in_front_do_not_starve_a_reader(db: planstep.Engine) -> None:
    """There are more of them than a reader takes at once, many times over, also in pieces."""
    topic = db.topic("in")
    topic.create_consumer("c", kind="individual")
    topic.write_batch([f"{n}" for n in range(2_000)])
    pending = acknowledge(db, *((n, n + 3) for n in range(0, 1_600, 4)), (1_600, 1_990))
    with db.reader("in", "c", max_records=10) as reader:
        expected = [f"{n}" for n in (*range(3, 1_600, 4), *range(1_990, 2_000))]
        assert read_all(reader) == expected
        assert not reader.idle() and topic.lag("c") == 1_590  # pending is not consumed
        pending.commit()
        assert reader.idle() and topic.lag("c") == 0


@pytest.mark.parametrize("how", ["rolled back", "refused"])
def test_scenario_33_a_cumulative_abort_rewinds_the_reader_and_nothing_is_lost(
    db: planstep.Engine, how: str
) -> None:
    """Anomaly A7 is for those who read on; a reader goes back."""
    topic, hooks = db.topic("in"), db._runtime.hooks
    topic.write_batch([f"{n}" for n in range(COUNT)])
    fails = 0
    with db.reader("in", "c", max_records=10) as reader:
        for tx, batch in iter(reader.read, None):
            tx.write_batch("out", batch.values)
            first = int(batch.values[0])
            if first % 40 or fails > first // 40:
                tx.commit()
                continue
            fails += 1
            if how == "rolled back":
                tx.flush()
                tx.rollback()
                continue
            db.create_topic("gone", partitions=1, format="utf8")
            hooks.may_send = lambda *_: False  # it leaves with the commit
            tx.write("gone", "never")
            del hooks.may_send
            db.drop_topic("gone")
            with pytest.raises(planstep.Aborted):
                tx.commit()
    assert fails == 3
    assert db.topic("out").read().values == [f"{n}" for n in range(COUNT)]
    assert topic.lag("c") == 0


# 41: power loss --------------------------------------------------------------------------------


def open_over(path: Path, files: FastFiles) -> Engine:
    """Opens an engine over these files, in segments that are small."""
    own = replace(QUICK, transaction_timeout_ms=2_000, nack_redelivery_delay_ms=0)
    settings = Settings(mode="pulsar", hosts=1, durability="full", pulsar=own)
    options = OpenOptions(
        mode="pulsar", hosts=1, durability="full", settings=settings.of_modes, files=files,
        segment_bytes=16 * KB,
    )  # fmt: skip
    slot = Slot()
    slot.engine = db = Engine(str(path), open_runtime(path, options), settings, slot)
    return db


def move_two_of_five(db: planstep.Engine) -> None:
    topic = db.create_topic("in", partitions=1, format="utf8")
    for name in ("out", "dead"):
        db.create_topic(name, partitions=1, format="utf8")
    topic.create_consumer("c", kind="individual")
    topic.write_batch([f"{n}" for n in range(5)])

    def copy(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        tx.write_batch("out", batch.values)
        if {"1", "3"} & set(batch.values):
            raise ValueError

    db.process(copy, "in", "c", dead_letter="dead", max_redeliver_count=1, until_idle=True)


def places(db: planstep.Engine) -> Counter[str]:
    """Counts the places where each message is: not consumed, copied, or among the dead letters."""
    for topic in ("in", "out", "dead"):
        db._runtime.hooks.wait_stable(tablet_of(db, topic))
    until(lambda: not is_pending(db))
    counted = Counter(db.topic("out").read().values + db.topic("dead").read().values)
    with db.transaction() as tx:
        counted.update(tx.read("in", "c").values)
    return counted


def test_scenario_41_a_power_loss_leaves_a_dead_letter_in_exactly_one_place(tmp_path: Path) -> None:
    files = Recorder(tmp_path)
    db = open_over(tmp_path / "s", files)
    for store in stores_of(db):
        watch_tables(store, files)
        watch_mark(store, files)
    move_two_of_five(db)
    assert sorted(db.topic("dead").read().values) == ["1", "3"]
    files.trace.append(("moved",))
    db.close()
    disk, rng, seen, acknowledged = Disk(), Random(41), Counter[str](), False
    for event in files.trace:
        disk.image(tmp_path / "image", rng, Counter())
        acknowledged |= event[0] == "moved"
        seen[judged(tmp_path / "image" / "s", acknowledged)] += 1
        shutil.rmtree(tmp_path / "image")
        if event[0] != "moved":
            disk.step(event)
    assert min(seen[state] for state in ("no message", "none has moved", "moved")) > 3


def judged(path: Path, acknowledged: bool) -> str:
    db = open_over(path, FastFiles())
    try:
        if "c" not in (db.topic("in").consumers() if "in" in db.topics() else ()):
            assert not acknowledged
            return "no message"
        if "dead" not in db.topics() or not (counted := places(db)):
            assert not acknowledged
            return "no message"
        assert counted == Counter(f"{n}" for n in range(5))
        moved = sorted(db.topic("dead").read().values)
        assert moved == ["1", "3"] or not acknowledged
        return "moved" if moved else "none has moved"
    finally:
        abandon(db)


# 45: a full disk -------------------------------------------------------------------------------


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("placement", ["shared", "separate"])
def test_scenario_45_on_a_full_disk_ends_and_trims_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, placement: str, batched: bool
) -> None:
    monkeypatch.setattr("planstep.runtime.open_stores.Files", FullDisk)
    monkeypatch.setattr(FullDisk, "full", False)
    own = {"operation_timeout_ms": 5_000, "log_batching": batched, "ack_log_batching": batched}
    with opened(tmp_path / "s", placement=placement, **own) as db:
        big = db.create_topic("big", partitions=1)
        for name in ("in", "out"):
            db.create_topic(name, partitions=1, format="utf8")
        db.topic("in").write_batch([f"{n}" for n in range(8)])
        left = [db.transaction() for _ in range(4)]
        for n, tx in enumerate(left):
            tx.write("out", f"{n}")
            tx.flush()
        assert left[2].read("in", "c").values
        monkeypatch.setattr(FullDisk, "full", True)
        for size in (4 * KB * KB, 100 * KB, KB, 1):
            with pytest.raises(planstep.NoSpace):
                for _ in range(1_000):
                    big.write(bytes(size))
        left[0].commit()
        left[1].rollback()
        with pytest.raises(planstep.NoSpace):  # its acknowledgement is new
            left[2].commit()
        log = stores_of(db)[0]._log
        before = log.offset
        for _ in range(20):
            with pytest.raises(planstep.NoSpace):
                db.topic("out").write("never")
            with db.transaction() as tx, pytest.raises(planstep.NoSpace):
                tx.write("out", "never")
                tx.flush()
        assert log.offset - before < KB
        assert big.trim(1) == 1 and big.trim(3) == 2
        monkeypatch.setattr(FullDisk, "full", False)
        left[3].commit()
        with db.transaction() as tx:
            tx.write_batch("out", tx.read("in", "c").values)
        assert db.topic("out").read().values == ["0", "3", *(f"{n}" for n in range(8))]
        assert db.topic("in").lag("c") == 0
