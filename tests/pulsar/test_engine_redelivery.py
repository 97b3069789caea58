"""Tests redelivery in mode "pulsar": negative acknowledgements, the ack time-out, dead letters."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from engine_kit import opened
from hypothesis import given
from hypothesis import strategies as st

import planstep
from planstep.api.topics.process_policy import ProcessPolicy
from planstep.api.topics.redelivery import HandedBack

KINDS = ("cumulative", "individual")
NEVER = 1 << 40  # ms: longer than any test


def filled(kind: str = "individual", count: int = 9, **own: Any) -> Iterator[planstep.Engine]:
    with opened(hosts=1, **own) as db:
        topic = db.create_topic("in", partitions=1, format="utf8")
        db.create_topic("out", partitions=1, format="utf8")
        topic.create_consumer("c", kind=kind)  # type: ignore[arg-type]
        topic.write_batch([f"{n}" for n in range(count)])
        yield db


@pytest.fixture
def make() -> Iterator[Callable[..., planstep.Engine]]:
    made = []

    def make(*args: Any, **own: Any) -> planstep.Engine:
        made.append(filled(*args, **own))
        return next(made[-1])

    yield make
    for engine in made:
        assert next(engine, None) is None


def read(reader: planstep.Reader, timeout: float = 0.0) -> planstep.Leased:
    return reader.read(timeout) or pytest.fail("nothing to read")


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_was_handed_back_comes_again_as_it_was(make: Any, kind: str) -> None:
    db = make(kind, 3, nack_redelivery_delay_ms=0)
    with db.reader("in", "c", max_records=3) as reader:
        for times in range(3):
            leased = read(reader, 30)
            assert leased.batch.redeliveries == times
            assert leased.batch.values == ["0", "1", "2"]
            leased.tx.write("out", "never")
            leased.nack()
        db.topic("in").write("3")  # more records change nothing about the batch
        reader.max_records = 100
        leased = read(reader, 30)
        assert (leased.batch.values, leased.batch.redeliveries) == (["0", "1", "2"], 3)
        leased.tx.commit()
        leased = read(reader)
        assert (leased.batch.values[0], leased.batch.redeliveries) == ("3", 0)
        leased.tx.rollback()
        assert (
            read(reader).batch.redeliveries == 0
        )  # a rollback is the transaction's, not the record's
    assert not db.topic("out").read()


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_held_for_a_minute_and_others_go_on_or_wait(make: Any, kind: str) -> None:
    db = make(kind)
    now = 1_000.0
    with db.reader("in", "c", max_records=3) as a, db.reader("in", "c", max_records=3) as b:
        a.group._clock = lambda: now
        read(a).nack()
        seen: list[str] = []
        for passed in (0.0, 1.0, 59.9):
            now = 1_000.0 + passed
            for reader in (b, a):
                leased = reader.read()
                if leased is not None:
                    seen += leased.batch.values
                    leased.tx.commit()
        assert seen == ([] if kind == "cumulative" else ["3", "4", "5", "6", "7", "8"])
        assert not a.idle()
        now = 1_060.1
        leased = a.read() or read(b)
        assert (leased.batch.values, leased.batch.redeliveries) == (["0", "1", "2"], 1)
        leased.tx.commit()
    assert db.topic("in").lag("c") == 6 - len(seen)


def test_a_batch_is_handed_back_with_asyncio_too(make: Any) -> None:
    async def run(sync: planstep.Engine) -> list[int]:
        times = []
        async with planstep.AsyncEngine(sync).reader("in", "c", max_records=3) as reader:
            for _ in range(3):
                leased = await reader.read(30)
                assert leased is not None and leased.batch.values == ["0", "1", "2"]
                times.append(leased.batch.redeliveries)
                await leased.tx.write("out", "never")
                await leased.nack()
            with pytest.raises(planstep.TransactionClosed):
                await leased.nack()
        return times

    db = make("cumulative", nack_redelivery_delay_ms=1)
    assert asyncio.run(run(db)) == [0, 1, 2]
    assert not db.topic("out").read()


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9), st.integers(0, 3)), max_size=40))
def test_batches_that_were_handed_back_are_remembered_exactly(
    steps: list[tuple[int, int, int]],
) -> None:
    """Against a dict of the offsets: a batch counts once more if it is the same, else anew."""
    back, known = HandedBack(), dict[int, tuple[int, int, int]]()
    for begin, size, what in steps:
        end = begin + size
        if what == 3:
            back.forget(begin)
            known = {at: batch for at, batch in known.items() if batch[1] > begin}
            continue
        times = known[begin][2] if known.get(begin, ())[:2] == (begin, end) else 0
        assert back.count(begin, end) == times
        cut = back.cut(begin, end)
        same = [at for at in range(begin, cut) if known.get(at) == known.get(begin)]
        assert len(same) == cut - begin > 0  # all of one batch, or of none
        assert cut == end or known.get(cut) != known.get(begin)
        back.add(begin, end, float(what))
        for at in [at for at, batch in known.items() if batch[0] < end and begin < batch[1]]:
            del known[at]
        known.update(dict.fromkeys(range(begin, end), (begin, end, times + 1)))
        ranges = [known_range[:3] for known_range in back.ranges]
        assert ranges == sorted(set(known.values()))


def test_handing_back_ends_the_transaction(make: Any) -> None:
    db = make()
    with db.reader("in", "c", max_records=3) as reader:
        leased = read(reader)
        leased.nack()
        for again in (leased.nack, leased.tx.commit, leased.tx.rollback):
            with pytest.raises(planstep.TransactionClosed):
                again()
        done = read(reader)
        done.tx.commit()
        with pytest.raises(planstep.TransactionClosed):
            done.nack()
    with planstep.open(":memory:") as other:
        other.create_topic("in").write(b"a")
        with (
            other.reader("in", "c") as reader,
            pytest.raises(planstep.NotSupported, match="rollback"),
        ):
            read(reader).nack()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "first", (True, False), ids=("the first commits first", "the second commits first")
)
def test_a_batch_in_hand_for_too_long_is_handed_out_again_and_counts_once(
    make: Any, kind: str, first: bool
) -> None:
    """Anomaly A13: somebody has the record in hand, and another one gets it."""
    db = make(kind, 3, ack_timeout_ms=1)
    with db.reader("in", "c", max_records=3) as a, db.reader("in", "c", max_records=3) as b:
        slow = read(a)
        quick = read(b if kind == "individual" else a, 30)
        assert quick.batch.values == slow.batch.values == ["0", "1", "2"]
        assert (slow.batch.redeliveries, quick.batch.redeliveries) == (0, 1)
        winner, loser = (slow, quick) if first else (quick, slow)
        for leased in (winner, loser):
            leased.tx.write("out", "counts" if leased is winner else "never")
        winner.tx.commit()
        with pytest.raises(planstep.PulsarError) as error:
            loser.tx.commit()
        assert error.value.name == "TransactionConflict"
    assert db.topic("out").read().values == ["counts"]
    assert db.topic("in").lag("c") == 0


@pytest.mark.parametrize("ends", ("closes", "is silent"))
@pytest.mark.parametrize("kind", KINDS)
def test_another_reader_takes_over_from_one_that_closes_or_is_silent(
    make: Any, kind: str, ends: str
) -> None:
    """The batch that the first one had in hand counts as handed back, in memory of the group."""
    db = make(kind)
    for _ in range(2):  # the group has ended with its last reader, and counts anew
        now = 1_000.0
        with db.reader("in", "c", max_records=3) as reader, db.reader("in", "c") as other:
            reader.group._clock = lambda: now  # noqa: B023
            leased = read(reader)
            assert leased.batch.redeliveries == 0
            if kind == "cumulative":
                assert other.read() is None
            now += 29
            if ends == "closes":
                reader.close()
            else:
                now += 2
            taken = read(other)
            assert (taken.batch.values, taken.batch.redeliveries) == (leased.batch.values, 1)
            with pytest.raises(planstep.LeaseLost):
                leased.tx.commit()


def fails(tx: Any, batch: planstep.ReadBatch, runs: Counter[str], bad: frozenset[str]) -> list[str]:
    runs.update(batch.values)
    if bad & set(batch.values):
        raise ValueError(batch.values)
    return batch.values


@pytest.mark.parametrize("asynchronous", (False, True), ids=("threads", "asyncio"))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers, in_flight", [(1, 1), (3, 2)])
def test_dead_letters_after_max_redeliver_count(
    make: Any, tmp_path: Any, kind: Any, asynchronous: bool, workers: int, in_flight: int
) -> None:
    runs: Counter[str] = Counter()
    bad = frozenset({"17", "40", "203"})
    options: dict[str, Any] = {
        "dead_letter": "dead", "max_redeliver_count": 2, "until_idle": True, "workers": workers,
        "in_flight": in_flight, "max_records": 50,
    }  # fmt: skip

    def copy(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        tx.write_batch("out", fails(tx, batch, runs, bad))

    async def acopy(tx: planstep.AsyncTransaction, batch: planstep.ReadBatch) -> None:
        await tx.write_batch("out", fails(tx, batch, runs, bad))

    db = make(kind, 300, nack_redelivery_delay_ms=1)
    if asynchronous:

        async def run() -> planstep.Progress:
            return await planstep.AsyncEngine(db).process(acopy, "in", "c", **options)

        done = asyncio.run(run())
    else:
        done = db.process(copy, "in", "c", **options)
    assert (done.dead_lettered, done.skipped, done.lag) == (3, 0, 0)
    dead = db.topic("dead").read()
    assert sorted(dead.values) == sorted(bad)
    assert {headers["planstep-attempt"] for headers in dead.headers} == {"3"}
    assert sorted(db.topic("out").read().values, key=int) == [
        f"{n}" for n in range(300) if f"{n}" not in bad
    ]
    assert all(runs[value] >= 3 for value in bad)  # alone; and before, in batches that were halved


def test_a_failure_that_is_counted_late(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker may get a record, and fail, before the failure that handed it back is counted."""
    counted, real = threading.Event(), ProcessPolicy.failed

    def failed(policy: ProcessPolicy, batch: planstep.ReadBatch, *more: Any) -> float:
        if batch.redeliveries == 1:
            assert counted.wait(30)
        pause = real(policy, batch, *more)
        if batch.redeliveries == 2:
            counted.set()
        return pause

    def fail(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        raise ValueError(batch.values)

    monkeypatch.setattr(ProcessPolicy, "failed", failed)
    db = make("individual", 1, nack_redelivery_delay_ms=1)
    options: dict[str, Any] = {"dead_letter": "dead", "max_redeliver_count": 2, "workers": 2}
    assert db.process(fail, "in", "c", until_idle=True, **options).dead_lettered == 1
    assert counted.is_set()
    assert db.topic("dead").read().headers[0]["planstep-attempt"] == "3"


def test_a_worker_goes_on_while_a_record_is_handed_back(make: Any) -> None:
    """A pause as for "retry" would hold its worker; this one reads on until only that record is left."""
    db = make("individual", 100, nack_redelivery_delay_ms=NEVER)
    stop = threading.Event()
    runs: Counter[str] = Counter()

    def copy(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        tx.write_batch("out", fails(tx, batch, runs, frozenset({"17"})))

    def told(progress: planstep.Progress) -> None:
        if progress.lag == 1:
            stop.set()

    done = db.process(
        copy,
        "in",
        "c",
        dead_letter="dead",
        max_redeliver_count=1,
        max_records=8,
        stop=stop,
        progress=told,
    )
    assert (done.records, done.lag, done.dead_lettered) == (99, 1, 0)


def test_a_record_that_no_worker_ends_moves_too(make: Any) -> None:
    """Each worker that has it hangs; after its third one it is moved, and what they do then conflicts."""
    db = make("individual", 40, ack_timeout_ms=20)
    moved = threading.Event()
    hung: list[str] = []

    def copy(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        if "7" in batch.values and not moved.is_set():
            hung.extend(batch.values)
            assert moved.wait(60)
        tx.write_batch("out", batch.values)

    def told(progress: planstep.Progress) -> None:
        if progress.dead_lettered:
            moved.set()

    db.process(
        copy, "in", "c", dead_letter="dead", max_redeliver_count=1, max_records=4, workers=8,
        until_idle=True, progress=told,
    )  # fmt: skip
    assert db.topic("dead").read().values == ["7"]
    assert sorted(db.topic("out").read().values, key=int) == [f"{n}" for n in range(40) if n != 7]
    assert "TimeoutError" in db.topic("dead").read().headers[0]["planstep-error"]


@pytest.mark.parametrize("mode", ("deterministic", "kafka"))
def test_other_modes_count_too_and_pause_instead(mode: Any) -> None:
    runs: Counter[str] = Counter()
    with planstep.open(":memory:", mode=mode) as db:
        db.create_topic("in", format="utf8").write_batch(["a", "b", "c"])
        db.process(
            lambda tx, batch: fails(tx, batch, runs, frozenset("b")) and None,
            *("in", "c"), dead_letter="dead", max_redeliver_count=2, until_idle=True, max_records=1,
        )  # fmt: skip
        assert db.topic("dead").read().values == ["b"]
    assert runs == {"a": 1, "b": 3, "c": 1}


@pytest.mark.parametrize(
    "options, words",
    [
        ({"max_redeliver_count": 0, "dead_letter": "d"}, "max_redeliver_count"),
        ({"max_redeliver_count": 1}, "dead_letter="),
        ({"max_redeliver_count": 1, "dead_letter": "d", "on_error": "skip"}, "on_error"),
    ],
)
def test_options_that_cannot_be(make: Any, options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make().process(print, "in", "c", **options)
