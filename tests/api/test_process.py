"""Tests process: workers, errors, poison records, stopping."""

import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import kit
import pytest
from kit import background

import planstep
from planstep.api.topics.leased_transaction import LeasedTransaction

db = kit.in_out_n


def fill(db: planstep.Engine, records: int) -> None:
    for p in range(4):
        mine = [b"%d" % i for i in range(records) if i % 4 == p]
        db.topic("in").write_batch(mine, keys=[b"u%d" % (int(v) % 7) for v in mine], partition=p)


def count(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
    tx.write_batch("out", batch.values, keys=batch.keys)
    for user, n in batch.count_by_key().items():
        tx.add("n", user, n)


@pytest.mark.parametrize("workers", [1, 4])
def test_every_record_once(db: planstep.Engine, workers: int) -> None:
    fill(db, 1000)
    reports: list[planstep.Progress] = []
    options: Any = {"workers": workers, "max_records": 20, "until_idle": True}
    done = db.process(count, topic="in", consumer="c", progress=reports.append, **options)
    assert (done.records, done.lag, done.skipped, done.dead_lettered) == (1000, 0, 0, 0)
    assert done.transactions >= 50 and reports[-1] == done
    assert sorted(map(int, db.topic("out").read(max_records=2000).values)) == list(range(1000))
    assert sum(n for _, n in db.table("n").scan()) == 1000
    again = db.process(count, topic="in", consumer="c", until_idle=True)
    assert again.records == 0


def test_workers_that_meet_on_a_row_run_again(db: planstep.Engine) -> None:
    fill(db, 200)

    def slow_count(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        tx.put("n", "all", tx.get("n", "all", 0) + len(batch))

    done = db.process(slow_count, "in", "c", workers=4, max_records=10, until_idle=True)
    assert done.records == 200 and db.table("n").get("all") == 200


def poisonous(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
    count(tx, batch)
    for record in batch:
        if record.value in (b"13", b"54", b"58"):
            raise ValueError(f"cannot take {record.value!r}")


def test_the_error_names_the_record(db: planstep.Engine) -> None:
    fill(db, 100)
    with pytest.raises(planstep.ProcessingError, match="partition 1, offset 3") as caught:
        db.process(poisonous, topic="in", consumer="c", until_idle=True, max_records=25)
    error = caught.value
    assert (error.topic, error.partition, error.offset) == ("in", 1, 3)
    assert isinstance(error.__cause__, ValueError) and "13" in str(error.__cause__)
    assert db.topic("in").position("c")[1] == 3  # records before it are processed


@pytest.mark.parametrize("workers", [1, 3])
def test_poison_goes_to_the_dead_letters(db: planstep.Engine, workers: int) -> None:
    fill(db, 100)
    done = db.process(poisonous, "in", "c", workers=workers, dead_letter="dead", until_idle=True)
    assert (done.records, done.dead_lettered, done.skipped) == (100, 3, 0)
    dead = {record.value: record for record in db.topic("dead").read()}
    assert set(dead) == {b"13", b"54", b"58"}
    record = dead[b"13"]
    assert record.key == b"u6"
    assert record.headers == {
        "planstep-topic": "in",
        "planstep-partition": "1",
        "planstep-offset": "3",
        "planstep-consumer": "c",
        "planstep-attempt": "1",
        "planstep-error": "ValueError: cannot take b'13'",
    }
    out = sorted(map(int, db.topic("out").read().values))
    assert out == [i for i in range(100) if i not in (13, 54, 58)]
    assert done.transactions < 60  # halves the batch, and does not go one by one


def test_poison_is_skipped_or_asked_about(db: planstep.Engine) -> None:
    fill(db, 100)
    places: list[tuple[int, int]] = []

    def decide(error: planstep.ProcessingError) -> str:
        places.append((error.partition, error.offset))
        return "retry" if len(places) < 3 else "skip"

    done = db.process(poisonous, topic="in", consumer="c", on_error=decide, until_idle=True)
    assert done.skipped == 3 and len(places) == 5 and len(set(places)) == 3
    with pytest.raises(ValueError, match="on_error returned 'maybe'"):
        db.topic("in").seek("c", "earliest")
        db.process(poisonous, topic="in", consumer="c", on_error=lambda e: "maybe", until_idle=True)


def test_a_record_that_cannot_be_decoded_is_moved_as_it_is(db: planstep.Engine) -> None:
    db.create_topic("texts", format="json")
    db.topic("texts").write_batch([{"n": 1}, {"n": 2}])
    with db.transaction() as tx:
        LeasedTransaction.write_raw(tx, "texts", b"{not json", b"k", None)

    def total(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        tx.add("n", "sum", sum(value["n"] for value in batch.values))

    db.create_topic("dead", format="bytes")
    done = db.process(total, topic="texts", consumer="c", dead_letter="dead", until_idle=True)
    assert done.dead_lettered == 1 and db.table("n").get("sum") == 3
    (record,) = db.topic("dead").read()
    assert record.value == b"{not json" and record.key == b"k"


def test_a_commit_that_cannot_be_is_the_records_fault_too(db: planstep.Engine) -> None:
    db.table("n").put(b"u3", "text")
    fill(db, 100)
    done = db.process(count, topic="in", consumer="c", on_error="skip", until_idle=True)
    assert done.skipped == sum(i % 7 == 3 for i in range(100))


def test_it_stops_when_told(db: planstep.Engine) -> None:
    stop = threading.Event()
    running = threading.Event()

    def fn(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        count(tx, batch)
        running.set()

    with background(lambda: db.process(fn, "in", "c", workers=2, stop=stop)) as (processing,):
        fill(db, 40)
        assert running.wait(20)
        stop.set()
    done: planstep.Progress = processing.result()

    assert done.records + done.lag == 40
    rest = db.process(count, topic="in", consumer="c", until_idle=True)
    assert rest.records == done.lag
    assert sorted(map(int, db.topic("out").read().values)) == list(range(40))


def test_an_interrupt_lets_the_batches_end(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(db, 40)
    wait = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("planstep.api.topics.process.wait_for", wait)
    with pytest.raises(KeyboardInterrupt):
        db.process(count, topic="in", consumer="c", workers=2)
    wait.assert_called_once()
    assert not [t for t in threading.enumerate() if t.name.startswith("worker-")]
    monkeypatch.undo()
    db.process(count, topic="in", consumer="c", until_idle=True)
    assert sorted(map(int, db.topic("out").read().values)) == list(range(40))


def test_when_the_engine_stops_process_does(db: planstep.Engine) -> None:
    fill(db, 40)

    def close(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        threading.Thread(target=db.close).start()
        while not db.closed:
            time.sleep(0.001)
        tx.add("n", "k", 1)

    with pytest.raises(planstep.EngineClosed):
        db.process(close, topic="in", consumer="c")


def test_it_gives_up_on_endless_conflicts(db: planstep.Engine) -> None:
    fill(db, 4)
    turns = iter(range(10**6))

    def meddle(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        tx.get("n", "k")
        tx.put("n", "k", 0)
        db.table("n").put("k", next(turns))

    with pytest.raises(planstep.Conflict) as caught:
        db.process(meddle, topic="in", consumer="c", attempts=5)
    assert "gave up after 5 attempts" in caught.value.__notes__[0]


def test_settings_are_checked(db: planstep.Engine) -> None:
    def run(**settings: Any) -> None:
        settings = {"topic": "in", "consumer": "c", "until_idle": True, **settings}
        db.process(settings.pop("fn", count), **settings)

    db.create_topic("text", format="utf8")
    for wrong, message in (
        ({"workers": 0}, "workers"),
        ({"on_error": "ignore"}, "on_error"),
        ({"on_error": "dead_letter"}, "dead_letter="),
        ({"dead_letter": "in"}, "the very topic"),
        ({"dead_letter": "text"}, "as they are"),
    ):
        with pytest.raises(ValueError, match=message):
            run(**wrong)
    with pytest.raises(TypeError):
        run(fn=3)
    with pytest.raises(planstep.UnknownName):
        run(topic="im")


def test_progress_is_shown(db: planstep.Engine, capsys: pytest.CaptureFixture[str]) -> None:
    fill(db, 40)
    db.process(count, topic="in", consumer="c", until_idle=True, progress=True)
    assert "40 records in" in capsys.readouterr().err


def test_a_process_goes_on_after_reopening(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        for name in ("in", "out"):
            db.create_topic(name, partitions=4)
        db.create_table("n")
        fill(db, 50)
        db.process(count, topic="in", consumer="c", until_idle=True, worker="w1")
    with planstep.open(tmp_path / "s") as db:
        fill(db, 30)
        done = db.process(count, topic="in", consumer="c", until_idle=True, worker="w1")
        assert done.records == 30 and db.topic("out").describe().records == 80


def test_until_idle_returns_as_soon_as_all_is_consumed() -> None:
    """Its caller may hear of a worker's end before the thread ends: it once waited a quarter of the lease then."""
    with planstep.open(":memory:") as db:
        topic = db.create_topic("in")
        for _ in range(300):
            topic.write(b"x")
            done = db.process(
                lambda tx, batch: None,
                topic="in",
                consumer="c",
                until_idle=True,
                lease_seconds=400.0,
            )
            assert done.records == 1
