"""Tests transactions of several writes and positions, in each mode, without a Spark."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from sink_kit import Begin, Frame, Session, staged

import planstep
from planstep.api.open_engine import Mode
from planstep.errors import (
    Conflict,
    NoSpace,
    NotSupported,
    PlanstepError,
    StoreInUse,
    TransactionClosed,
    UnknownName,
)
from planstep.spark.commit import positions_in
from planstep.spark.fence import FENCES, Fences
from planstep.spark.transaction import SparkTransaction, transaction

MODES: tuple[Mode, ...] = ("deterministic", "kafka", "pulsar")


class Kit:
    """Makes DataFrames and reads them, for a store with events, records by user, and totals."""

    def __init__(self, path: str, begin: Begin, read: Callable[..., Any], mode: Mode) -> None:
        self.path, self._begin, self._read = path, begin, read
        with planstep.open(path, mode=mode, hosts=2) as db:
            self.has_tables = db.context.runtime.hooks.has_tables
            events = db.create_topic("events", partitions=2, format="utf8")
            db.create_topic("by-user", partitions=2, format="utf8")
            db.create_topic("totals", partitions=2, format="msgpack")
            if self.has_tables:
                db.create_table("counts")
            for n in range(10):
                events.write(f"e{n}", key=f"w{n}")

    def frame(self, *tables: Any) -> Any:
        return Frame(self._begin, *tables)

    @property
    def spark(self) -> Any:
        return Session(self._read)

    def users(self, *users: str) -> Any:
        return self.frame(pa.table({"key": users, "value": [f"of {user}" for user in users]}))

    def counts(self, **counts: int) -> Any:
        return self.frame(pa.table({"key": list(counts), "value": list(counts.values())}))

    def by_user(self) -> list[Any]:
        with planstep.open(self.path) as db:
            for tablet in db.context.topic("by-user").partitions:  # committed, and not shown yet
                db.context.runtime.hooks.wait_stable(tablet)
            return sorted(db.topic("by-user").read(max_records=9999).values)

    def totals(self) -> dict[str, int]:
        with planstep.open(self.path) as db:
            return {
                key: value
                for partition in (0, 1)
                for key, value in db.changelog("totals", partition).items()
            }

    def position(self) -> int:
        """Returns the position that a transaction sees, which waits for those that are still ending."""
        with planstep.open(self.path) as db, db.transaction() as tx:
            return sum(positions_in(tx, "events", "resharder").values())


@pytest.fixture(params=MODES)
def kit(path: str, begin: Begin, read: Callable[..., Any], request: pytest.FixtureRequest) -> Kit:
    return Kit(path, begin, read, request.param)


def test_all_of_it_or_nothing(kit: Kit) -> None:
    with transaction(kit.path) as tx:
        tx.write(kit.users("ann", "bob"), topic="by-user")
        tx.write(kit.counts(ann=1, bob=1), topic="totals", add=True)
        tx.write(kit.users("eve"), topic="by-user")
        assert kit.by_user() == []
    assert tx.committed
    with pytest.raises(ZeroDivisionError), transaction(kit.path) as tx:
        tx.write(kit.users("ann"), topic="by-user")
        tx.write(kit.counts(ann=1), topic="totals", add=True)
        _ = 1 / 0
    assert tx.committed is None
    assert kit.by_user() == ["of ann", "of bob", "of eve"]
    assert kit.totals() == {"ann": 1, "bob": 1}
    assert staged(kit.path) == []


def test_numbers_are_added(kit: Kit) -> None:
    for _ in range(3):
        with transaction(kit.path) as tx:
            tx.write(kit.counts(ann=2, bob=1), topic="totals", add=True)
            tx.write(kit.counts(ann=1), topic="totals", add=True)
            if kit.has_tables:
                tx.write(kit.counts(ann=2, bob=1), table="counts", add=True)
                tx.write(kit.counts(ann=1), table="counts", add=True)
    assert kit.totals() == {"ann": 9, "bob": 3}
    with planstep.open(kit.path) as db:
        if kit.has_tables:
            assert dict(db.table("counts").scan()) == {"ann": 9, "bob": 3}


def test_a_batch_counts_once(kit: Kit) -> None:
    for number, counted in ((0, True), (1, True), (1, False), (0, False), (2, True)):
        with transaction(kit.path, query_id="q", batch_id=number) as tx:
            tx.write(kit.users(f"u{number}"), topic="by-user")
        assert tx.committed is counted
    assert kit.by_user() == ["of u0", "of u1", "of u2"]


def test_positions_move_with_the_records(kit: Kit) -> None:
    """A job takes what comes next, in parts; once all is consumed, it has nothing to do."""
    texts: list[str] = []
    while True:
        with transaction(kit.path) as tx:
            events = tx.read("events", "resharder", max_records=4, spark=kit.spark)
            if tx.records:
                texts += events["value"].to_pylist()
                tx.write(kit.users(*events["value"].to_pylist()), topic="by-user")
        if not tx.records:
            break
    assert tx.committed is False
    assert sorted(texts) == [f"e{n}" for n in range(10)]
    assert kit.by_user() == [f"of e{n}" for n in range(10)]
    with planstep.open(kit.path) as db:
        assert db.topic("events").lag("resharder") == 0


def test_a_second_job_with_the_same_consumer_conflicts(kit: Kit) -> None:
    with pytest.raises(Conflict, match="'resharder'") as raised, transaction(kit.path) as slow:
        slow.read("events", "resharder", spark=kit.spark)
        slow.write(kit.users("slow"), topic="by-user")
        with transaction(kit.path) as quick:
            quick.read("events", "resharder", spark=kit.spark)
            quick.write(kit.users("quick"), topic="by-user")
    assert not raised.value.retryable
    assert kit.by_user() == ["of quick"]
    assert staged(kit.path) == []


def test_positions_that_were_read_elsewhere(kit: Kit) -> None:
    with transaction(kit.path) as tx:
        tx.advance("events", "resharder", {0: (0, 2)})
    assert tx.committed and kit.position() == 2
    with pytest.raises(Conflict), transaction(kit.path) as tx:
        tx.advance("events", "resharder", {0: (0, 3)})
    assert kit.position() == 2


@pytest.mark.parametrize(
    "ranges, error, message",
    [
        ({9: (0, 1)}, ValueError, "topic 'events' has partitions 0 to 1, not 9"),
        ({0: (3, 1)}, ValueError, re.escape("partition 0: [3, 1) ends before it begins")),
        ({0: (-1, 1)}, ValueError, "begin is at least 0, not -1"),
        ({0: (0, 1.5)}, TypeError, "end is an int, not 1.5"),
        ({0: 3}, TypeError, re.escape("ranges is like {partition: (begin, end)}, not {0: 3}")),
        ([(0, 1)], TypeError, "ranges is like"),
    ],
)
def test_ranges_that_are_none(kit: Kit, ranges: Any, error: type[Exception], message: str) -> None:
    with transaction(kit.path) as tx:
        with pytest.raises(error, match=message):
            tx.advance("events", "resharder", ranges)
    assert tx.committed is False and kit.position() == 0


def test_ranges_behind_the_position_skip_records(kit: Kit) -> None:
    with pytest.raises(Conflict) as raised, transaction(kit.path) as tx:
        tx.advance("events", "resharder", {0: (2, 3)})
    assert "expected 2, found 0; this would skip records" in str(raised.value)
    assert raised.value.ahead and not raised.value.consumed and not raised.value.retryable
    with transaction(kit.path) as tx:
        tx.advance("events", "resharder", {0: (0, 3)})
    with pytest.raises(Conflict, match="was consumed before the transaction began"):
        with transaction(kit.path) as tx:
            tx.advance("events", "resharder", {0: (2, 4)})


def test_what_it_refuses(kit: Kit) -> None:
    for ids, error, message in (
        ({"query_id": "q"}, ValueError, "give query_id and batch_id together"),
        ({"batch_id": 1}, ValueError, "give query_id and batch_id together"),
        ({"query_id": 5, "batch_id": "1"}, TypeError, "query_id is a name, not 5"),
        ({"query_id": "", "batch_id": 1}, ValueError, "query_id is a name of 1 to 200 bytes"),
        ({"query_id": "q", "batch_id": "1"}, TypeError, "batch_id is an int, not '1'"),
        ({"query_id": "q", "batch_id": -1}, ValueError, "batch_id is at least 0, not -1"),
    ):
        with pytest.raises(error, match=message):
            transaction(kit.path, **cast(Any, ids))
    with pytest.raises(FileNotFoundError):
        transaction(kit.path + "x")
    with pytest.raises(ValueError, match=re.escape("wait is a number of seconds")):
        transaction(kit.path, wait=cast(Any, "soon"))
    with pytest.raises(TransactionClosed, match="within its `with`"):
        transaction(kit.path).write(kit.users("ann"), topic="by-user")
    with transaction(kit.path) as tx:
        with pytest.raises(TransactionClosed, match="used once"):
            tx.__enter__()
        with pytest.raises(ValueError, match="name one of both"):
            tx.write(kit.users("ann"))
        with pytest.raises(ValueError, match="max_records is 1 or more"):
            tx.read("events", "resharder", max_records=0, spark=kit.spark)
        tx.read("events", "resharder", spark=kit.spark)
        with pytest.raises(ValueError, match="has read topic 'events' for 'resharder' before"):
            tx.advance("events", "resharder", {0: (0, 1)})
        with pytest.raises(UnknownName):
            tx.advance("event", "resharder", {0: (0, 1)})
    with pytest.raises(ValueError, match="adds to a topic's numbers, or writes records there"):
        with transaction(kit.path) as tx:
            tx.write(kit.counts(ann=1), topic="totals")
            tx.write(kit.counts(ann=1), topic="totals", add=True)
    assert kit.totals() == {}


def test_a_failed_write_fails_the_transaction(kit: Kit) -> None:
    """Even if the block goes on."""
    with pytest.raises(PlanstepError, match="write 2 of this transaction has failed"):
        with transaction(kit.path) as tx:
            tx.write(kit.users("ann"), topic="by-user")
            with pytest.raises(UnknownName):
                tx.write(kit.users("bob"), topic="by-users")
    assert kit.by_user() == [] and staged(kit.path) == []


@pytest.mark.parametrize(
    "columns, error, message",
    [
        ({"value": [1]}, ValueError, "add needs a column key"),
        ({"key": ["a"], "value": ["x"]}, TypeError, "add needs a column value with numbers"),
        ({"key": ["a"], "n": [1]}, TypeError, "add needs a column value with numbers"),
        ({"key": ["a"], "value": [1], "partition": [0]}, ValueError, "key and value only"),
        ({"key": ["a"], "value": [None]}, TypeError, "add"),
        ({"key": [None], "value": [1]}, ValueError, "no key"),
    ],
)
def test_numbers_that_cannot_be_added(
    kit: Kit, columns: dict[str, Any], error: type[Exception], message: str
) -> None:
    types = {"key": pa.string(), "value": pa.int64()}
    arrays = {
        name: pa.array(values, types[name] if values == [None] else None)
        for name, values in columns.items()
    }
    if "partition" in arrays:
        arrays["partition"] = arrays["partition"].cast(pa.int32())
    with pytest.raises(error, match=message), transaction(kit.path) as tx:
        tx.write(kit.frame(pa.table(arrays)), topic="totals", add=True)
    assert kit.totals() == {} and staged(kit.path) == []


def test_consumers_with_gaps(path: str, begin: Begin, read: Callable[..., Any]) -> None:
    kit = Kit(path, begin, read, "deterministic")
    with planstep.open(path) as db:
        db.topic("events").create_consumer("each", kind="individual")
    with transaction(path) as tx:
        with pytest.raises(NotSupported, match="individual"):
            tx.read("events", "each", spark=kit.spark)
        with pytest.raises(NotSupported, match="individual"):
            tx.advance("events", "each", {0: (0, 1)})


def test_the_process_that_owns_the_store(kit: Kit) -> None:
    """It commits with the engine that is open there; another process cannot if that owns the store alone."""
    with planstep.open(kit.path, share=False) as db:
        with transaction(db) as tx:
            tx.write(kit.users("ann"), topic="by-user")
        assert db.topic("by-user").read(timeout=30).values == ["of ann"]
        with pytest.raises(StoreInUse):
            kit.users("bob").write.format("planstep").options(
                path=kit.path, topic="by-user", wait=0
            ).save()


def test_a_commit_counts_even_if_fences_cannot_be_compacted(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fences: Fences) -> None:
        raise NoSpace("the disk is full")

    monkeypatch.setattr(Fences, "compact", fail)
    with transaction(kit.path) as tx:
        tx.write(kit.users("ann"), topic="by-user")
    assert tx.committed and kit.by_user() == ["of ann"]


def test_the_owner_reads_on_at_once(kit: Kit) -> None:
    """Mode kafka answers a commit before its positions show: the next transaction waits for them."""
    with planstep.open(kit.path, rtt=0.05) as db:
        for _ in range(3):
            with transaction(db) as tx:
                events = tx.read("events", "resharder", max_records=4, spark=kit.spark)
                tx.write(kit.users(*events["value"].to_pylist()), topic="by-user")
    assert kit.by_user() == [f"of e{n}" for n in range(10)]


def test_leftovers_of_a_killed_driver_go_with_the_next_commit(
    kit: Kit, elsewhere: Callable[..., Any]
) -> None:
    killed = transaction(kit.path).__enter__()
    killed.write(kit.users("ann"), topic="by-user")
    with transaction(kit.path) as tx:
        tx.write(kit.users("bob"), topic="by-user")
    assert len(staged(kit.path)) == 1  # this process may still commit it
    killed._lock.close()  # as its end does
    with transaction(kit.path) as tx:
        tx.write(kit.users("eve"), topic="by-user")
    assert staged(kit.path) == [] and not Path(kit.path, "spark").exists()
    assert kit.by_user() == ["of bob", "of eve"]


def test_fences_stay_few(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modes without tables write a record a batch: those that no longer count are trimmed."""
    monkeypatch.setattr("planstep.spark.fence._COMPACT_RECORDS", 4)

    def commit(query: str, number: int) -> SparkTransaction:
        with transaction(kit.path, query_id=query, batch_id=number) as tx:
            pass
        return tx

    assert commit("early", 5).committed
    for number in range(9):
        assert commit("q", number).committed
    assert not commit("early", 5).committed and not commit("q", 8).committed
    with planstep.open(kit.path) as db:
        if not kit.has_tables:
            assert db.topic(FENCES).describe().records < 9
