"""A reader: batches of one consumer, each with the transaction that will consume it.

    with db.reader("clicks", consumer="resharder") as reader:
        for tx, batch in reader:                    waits for records; Ctrl-C, or close() elsewhere, ends it
            tx.write_batch("by-user", batch.values, keys=batch.keys)
            tx.submit()                             or tx.commit(), which waits

A batch is of one partition. Several may be in flight: the next is read while the one before is committed.
What is rolled back, or ends in a Conflict, is read again. Readers of one consumer, in any threads of this
process, share the partitions: leases.py.

Next: process.py.
"""

import time
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import (
    Conflict,
    Dropped,
    LeaseLost,
    Overloaded,
    SnapshotTooOld,
    TransactionClosed,
    Undetermined,
)
from ..outcome import Commit
from ..proto.keys import check_name
from ..wakeups import CommitFuture, wait_for
from .batch import ReadBatch
from .checks import seconds, whole
from .lanes import Flight, Lane
from .leases import Group
from .parts import Parts
from .reading import check_limits, end_of
from .transaction import Transaction

if TYPE_CHECKING:
    from .engine import Engine

IN_FLIGHT = 4
_ADMISSION_SECONDS = 30.0
_TRIES = 20
_LOOK_SECONDS = 5.0
"""A reader that waits looks again after this long: leases run out without a word."""


class Leased(NamedTuple):
    """A batch, and the transaction that consumes it: commit it, submit it, or roll it back."""

    tx: Transaction
    batch: ReadBatch


class LeasedTransaction(Transaction):
    """A transaction whose commit waits for its turn behind those that were read before it."""

    group: Group
    flight: Flight | None = None

    def _hand(self, parts: Parts, ending: Any) -> None:
        """Raises Overloaded when there is no room now; what else it raises ends the transaction."""
        assert self.flight is not None
        try:
            self.group.hand(self.flight, self._tx, parts, ending)
        except (Conflict, LeaseLost):
            self.group.ended(self.flight, None)
            raise

    def _read_on(
        self,
        topic: str,
        consumer: str,
        max_records: int,
        max_bytes: int,
        partition: int | None,
        exact: bool = False,
    ) -> ReadBatch:
        self._check_other(topic, consumer)
        return super()._read_on(topic, consumer, max_records, max_bytes, partition, exact)

    def consume(self, topic: str, consumer: str, partition: int, begin: int, end: int) -> None:
        self._check_other(topic, consumer)
        super().consume(topic, consumer, partition, begin, end)

    def _check_other(self, topic: str, consumer: str) -> None:
        if (topic, consumer) == (self.group.info.name, self.group.consumer):
            raise TypeError(
                f"consumer {consumer!r} reads topic {topic!r} through a reader, which gave this batch; "
                "read as another consumer"
            )

    def submit(self) -> "Future[Commit]":
        parts = self._send()
        assert parts is not None, "it consumes a range"
        future = CommitFuture()
        future.set_running_or_notify_cancel()
        deadline = time.monotonic() + _ADMISSION_SECONDS
        pause = 0.001
        self.group.tidy()  # what is in its way may have been dropped
        while True:
            try:
                self._hand(parts, future)
                break
            except Overloaded as error:
                if time.monotonic() + pause > deadline:
                    self._failed(error)
                    raise
                time.sleep(pause)
                pause = min(2 * pause, 0.05)
            except (Conflict, LeaseLost) as error:
                self._failed(error)
                self._take_back()
                future.set_exception(error)
                break
        self._future = future
        return future

    def _commit(self, timeout: float | None) -> Commit:
        future = self.submit()
        try:
            self._result = future.result(timeout)
        except TimeoutError:
            self._failure = error = Undetermined(
                f"transaction {self.id} was not answered within {timeout} s; it goes on, and "
                f"outcome({self.id!r}) tells how it ended"
            )
            raise error from None
        except BaseException as error:
            self._failed(error)
            raise
        self._state = "committed"
        return self._result

    def _take_back(self) -> None:
        super()._take_back()
        if self.flight is not None:
            self.group.ended(self.flight, None)

    def _has_writes(self) -> bool:
        return False  # not lost: the batch is read again, and the group says so

    def __del__(self) -> None:
        super().__del__()
        if self.flight is not None and self._state == "open":
            self.group.gone.append(self.flight)


class Reader:
    """Reads batches for one consumer; of one thread, or shared by several.

    Invariant: it holds leases from its first batch to `close`, or until it is garbage.
    """

    def __init__(
        self,
        engine: "Engine",
        topic: str,
        consumer: str,
        max_records: int,
        max_bytes: int,
        in_flight: int,
        lease_seconds: float,
        name: str,
    ) -> None:
        engine._writable()
        check_name(consumer)
        check_limits(max_records, max_bytes)
        whole("in_flight", in_flight, 1)
        if not seconds("lease_seconds", lease_seconds):
            raise ValueError("lease_seconds is more than 0 seconds")
        self.topic = topic
        self.consumer = consumer
        self.max_records = max_records
        self.max_bytes = max_bytes
        self._engine = engine
        if engine._runtime.one_at_a_time:
            in_flight = 1
        self._group, self._member = engine._join(topic, consumer, lease_seconds, name, in_flight)
        self._info = self._group.info
        self._closed = False
        weakref.finalize(self, self._group.gone.append, self._member).atexit = False

    @property
    def name(self) -> str:
        return self._member.name

    @property
    def partitions(self) -> list[int]:
        """The partitions that are leased to it now; none for an individual consumer."""
        return [lane.number for lane in self._group.lanes if lane.owner is self._member]

    @property
    def in_flight(self) -> int:
        """Batches whose transactions have not ended."""
        return self._member.flights

    def read(self, timeout: float = 0.0) -> Leased | None:
        """The next batch and its transaction; None when none came within `timeout` seconds.

        Waits also while as many batches as `in_flight` are under way.
        """
        deadline = time.monotonic() + seconds("timeout", timeout)
        while True:
            leased = self._try()
            left = deadline - time.monotonic()
            if leased is not None or left <= 0:
                return leased
            queue: SimpleQueue[None] = SimpleQueue()
            with self._group.watch(partial(queue.put, None)):
                leased = self._try()  # what came before the watch began
                if leased is not None:
                    return leased
                wait_for(queue, min(left, _LOOK_SECONDS))

    def idle(self) -> bool:
        """True when all that is there is consumed, and nothing is in flight in any reader."""
        self._check()
        with self._engine._runtime.snapshot() as snap:
            from .reading import Reading

            return self._group.idle(Reading(self._engine._runtime, snap))

    def keep_alive(self) -> None:
        """Renews the leases of a batch that takes longer than `lease_seconds`."""
        self._check()
        self._group.renew(self._member)

    def _check(self) -> None:
        self._engine._check()
        if self._closed:
            raise TransactionClosed("the reader is closed; open another with db.reader()")
        if self._engine._topic(self.topic).id != self._info.id:
            raise Dropped(
                f"topic {self.topic!r} was dropped, and created anew: open another reader"
            )

    def _try(self, made: type[LeasedTransaction] = LeasedTransaction) -> Leased | None:
        """A batch that is there now; reads from disk, and may wait for another host."""
        for _ in range(_TRIES):
            try:
                return self._look(made)
            except SnapshotTooOld:
                pass  # trimmed just where it was about to read
        return None

    def _look(self, made: type[LeasedTransaction]) -> Leased | None:
        self._check()
        group, member = self._group, self._member
        group.tidy()
        group.refresh(member)
        lanes = group.lanes_for(member)
        if not lanes:
            return None
        tx = made(self._engine, member.producer)
        try:
            for lane in lanes:
                with lane.lock:
                    batch = self._read(tx, lane)
                if batch is not None:
                    return Leased(tx, batch)
        finally:
            if tx.flight is None:
                tx.rollback()
        return None

    def _read(self, tx: LeasedTransaction, lane: Lane) -> ReadBatch | None:
        group = self._group
        reading = tx._view()
        changes = lane.changes
        found = group.free(self._member, lane, reading)
        if found is None:
            return None
        begin, end = found
        most = self._limit(lane.number, begin, min(self.max_records, end - begin))
        segments, _ = reading.segments(self._info, lane.number, begin, most, self.max_bytes)
        if not segments:
            return None
        flight = group.begin(self._member, lane, begin, end_of(segments), changes)
        if flight is None:
            return None
        tx.group, tx.flight = group, flight
        if group.individual:
            tx._conditions.acknowledge(lane.tablet, self.consumer, begin, flight.end)
        else:
            tx._conditions.consume(lane.tablet, self.consumer, begin, flight.end)
        tx._conditions.fence(lane.tablet, self.consumer, reading.moved(lane.tablet, self.consumer))
        self._engine._consuming[tx._tx] = tx._conditions
        tx._waitable = False
        more = flight.end < reading.bounds(lane.tablet)[1]
        return ReadBatch(self.topic, self._info.format, segments, more)

    def _limit(self, partition: int, begin: int, most: int) -> int:
        return most

    def close(self) -> None:
        """Gives its partitions to others; batches that were not submitted are read again by them."""
        if not self._closed:
            self._closed = True
            self._group.leave(self._member)

    def __iter__(self) -> Iterator[Leased]:
        while not self._closed:
            try:
                leased = self.read(timeout=_LOOK_SECONDS)
            except TransactionClosed:
                return  # closed meanwhile
            if leased is not None:
                yield leased

    def __enter__(self) -> "Reader":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Reader {self.name!r} of {self.consumer!r} on topic {self.topic!r}>"
