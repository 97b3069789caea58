"""A reader: batches of one consumer, each with the transaction that will consume it.

    with db.reader("clicks", consumer="resharder") as reader:
        for tx, batch in reader:                    waits for records; Ctrl-C, or close() elsewhere, ends it
            tx.write_batch("by-user", batch.values, keys=batch.keys)
            tx.submit()                             or tx.commit(), which waits

A batch is of one partition. Several may be in flight: the next is read while the one before is committed, and
a reader without room for another waits for it. `read` gives None when there is nothing to read, and else never.
What is rolled back, or ends in a Conflict, is read again. Readers of one consumer, in any threads of this
process, share the partitions: consumer_group.py.

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

from ...errors import (
    Conflict,
    Dropped,
    LeaseLost,
    NotSupported,
    Overloaded,
    SnapshotTooOld,
    TransactionClosed,
    Undetermined,
)
from ...proto.keys import check_name
from ...runtime.outcome import Commit
from ...runtime.wait_primitives import CommitFuture, wait_for
from ..arguments import seconds, whole
from ..columns.batch import ReadBatch, counted
from ..transaction.lifecycle import Lifecycle
from ..transaction.participant_parts import Parts
from ..transaction.snapshot_reader import Reading, below, check_limits, end_of
from ..transaction.topic_writes import Outbox
from ..transaction.transaction import Transaction
from .consumer_group import Group
from .group_state import Flight, Lane

if TYPE_CHECKING:
    from ...runtime.runtime import Runtime
    from ..context import Context

_IN_FLIGHT = 4
_ADMISSION_SECONDS = 30.0
_TRIES = 20
_SOON_SECONDS = 0.05
_LOOK_SECONDS = 5.0
"""A reader that waits looks again after this long: leases run out without a word."""


def window_of(runtime: "Runtime", in_flight: int | None) -> int:
    """How many batches a reader may have at once, checked."""
    if in_flight is None:
        return _IN_FLIGHT
    if whole("in_flight", in_flight, 1) > 1 and runtime.hooks.one_at_a_time:
        raise NotSupported(
            f'mode "{runtime.mode}": a reader has one transaction at a time, so in_flight={in_flight} is not to be '
            "had: leave it out and end each batch before the next read, or open more readers"
        )
    return in_flight


class Limits(NamedTuple):
    """How much a reader takes: records and about bytes of a batch, and batches at once."""

    max_records: int
    max_bytes: int
    in_flight: int


class Leased(NamedTuple):
    """A batch, and the transaction that consumes it: commit it, submit it, or roll it back."""

    tx: Transaction
    batch: ReadBatch


class Wait:
    """One call that waits for a batch, of either face: until when (None: for ever, or until all is consumed),
    for how many of the reader's own flights, and how many of those had lapsed when it began."""

    __slots__ = ("deadline", "held", "lapsed")

    def __init__(self, deadline: float | None, lapsed: int) -> None:
        self.deadline = deadline
        self.held = 0
        self.lapsed = lapsed


class LeasedLifecycle(Lifecycle):
    """Its commit waits for its turn behind those that were read before it."""

    group: Group
    flight: Flight | None = None

    def lend(self, reading: Reading) -> None:
        """It reads as of the snapshot that its batch was looked for in, and closes that."""
        self._reading = reading

    def lent(self, reading: Reading) -> bool:
        return self._reading is reading

    def hand(self, parts: Parts, ending: Any) -> None:
        """Raises Overloaded when there is no room now; what else it raises ends the transaction."""
        assert self.flight is not None
        try:
            self.group.hand(self.flight, self.tx, parts, ending)
        except (Conflict, LeaseLost):
            self.group.ended(self.flight, None)
            raise

    def send(self) -> Parts | None:
        parts = super().send()
        assert self.flight is not None
        self.flight.sent = True
        return parts

    def submit(self) -> "Future[Commit]":
        parts = self.send()
        assert parts is not None, "it consumes a range"
        future = CommitFuture()
        future.set_running_or_notify_cancel()
        deadline = time.monotonic() + _ADMISSION_SECONDS
        pause = 0.001
        self.group.tidy()  # what is in its way may have been dropped
        while True:
            try:
                self.hand(parts, future)
                break
            except Overloaded as error:
                if time.monotonic() + pause > deadline:
                    self.failed(error)
                    raise
                time.sleep(pause)
                pause = min(2 * pause, 0.05)
            except (Conflict, LeaseLost) as error:
                self.failed(error)
                self.take_back()
                future.set_exception(error)
                break
        self.future = future
        return future

    def commit(self, timeout: float | None) -> Commit:
        future = self.submit()
        try:
            self.result = future.result(timeout)
        except TimeoutError:
            self._runtime.replies.unheard(self.tx)
            self.failure = error = Undetermined(
                f"transaction {self.id} was not answered within {timeout} s; it goes on, and "
                f"outcome({self.id!r}) tells how it ended"
            )
            raise error from None
        except BaseException as error:
            self._runtime.replies.unheard(self.tx)
            self.failed(error)
            raise
        self.state = "committed"
        return self.result

    def take_back(self) -> None:
        super().take_back()
        if self.flight is not None:
            self.group.ended(self.flight, None)

    def _loses_writes(self) -> bool:
        return False  # not lost: the batch is read again, and the group says so

    def __del__(self) -> None:
        super().__del__()
        if self.flight is not None and self.state == "open":
            self.group.gone.append(self.flight)


class LeasedTransaction(Transaction):
    """A transaction whose commit waits for its turn behind those that were read before it."""

    life: LeasedLifecycle
    _lifecycle = LeasedLifecycle

    def take(self, group: Group, flight: Flight) -> None:
        """Its batch: consumes the flight's range when it commits."""
        self.life.group, self.life.flight = group, flight
        tablet, consumer, conditions = flight.lane.tablet, group.consumer, self.contents.conditions
        if group.individual:
            conditions.acknowledge(tablet, consumer, flight.begin, flight.end)
        else:
            conditions.consume(tablet, consumer, flight.begin, flight.end)
        conditions.fence(tablet, consumer, self.life.view().moved(tablet, consumer))
        self._context.consuming[self.life.tx] = conditions
        self.contents.waitable = False

    def write_raw(self, topic: str, value: bytes, key: bytes | None, headers: bytes | None) -> None:
        """Writes one record as it is stored."""
        info = self._context.topic(topic)
        outbox = self.contents.outboxes.get(topic) or Outbox(info, self._context.keyless(info))
        size = len(value) + len(key or b"") + len(headers or b"")
        self._add(outbox, [value], [key], [headers], size, None)

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
        if (topic, consumer) == (self.life.group.info.name, self.life.group.consumer):
            raise TypeError(
                f"consumer {consumer!r} reads topic {topic!r} through a reader, which gave this batch; "
                "read as another consumer"
            )


class Reader:
    """Reads batches for one consumer; of one thread, or shared by several.

    Invariant: it holds leases from its first batch to `close`, or until it is garbage.
    """

    def __init__(
        self,
        context: "Context",
        topic: str,
        consumer: str,
        limits: "Limits",
        *,
        lease_seconds: float,
        name: str,
        until_idle: bool,
    ) -> None:
        max_records, max_bytes, in_flight = limits
        context.check_writable()
        check_name(consumer)
        check_limits(max_records, max_bytes)
        whole("in_flight", in_flight, 1)
        lease_seconds = seconds("lease_seconds", lease_seconds)
        if not lease_seconds:
            raise ValueError("lease_seconds is more than 0 seconds")
        self.topic = topic
        self.consumer = consumer
        self.max_records = max_records
        self.max_bytes = max_bytes
        self._context = context
        if context.runtime.hooks.one_at_a_time:
            in_flight = 1
        self.group, self.member = context.groups.join(
            context.topic(topic), consumer, lease_seconds, name, in_flight
        )
        self._info = self.group.info
        self._until_idle = until_idle
        self.closed = False
        weakref.finalize(self, self.group.gone.append, self.member).atexit = False

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def partitions(self) -> list[int]:
        """The partitions that are leased to it now; none for an individual consumer."""
        return [lane.number for lane in self.group.lanes if lane.owner is self.member]

    @property
    def in_flight(self) -> int:
        """Batches whose transactions have not ended."""
        return self.member.flights

    def read(self, timeout: float = 0.0) -> Leased | None:
        """The next batch and its transaction; None when there is nothing to read, for `timeout` seconds.

        Where `in_flight` batches are under way it waits for room, whatever the `timeout`, and before it says
        None for what this reader has submitted, since that may fail and is to be read again then. LeaseLost
        when nobody ends a batch of a full reader for `lease_seconds`. In a future's callback, which runs on a
        thread of the engine's, it waits for neither.
        """
        return self._next(Wait(time.monotonic() + seconds("timeout", timeout), self.member.lapsed))

    def _wait(self) -> Leased | None:
        """The next batch, however long that takes; None when waiting for one has an end, and it came."""
        return self._next(Wait(None, self.member.lapsed))

    def _next(self, wait: Wait) -> Leased | None:
        while True:
            leased, left = self._try(wait)
            if leased is not None or not left:
                return leased
            queue: SimpleQueue[None] = SimpleQueue()
            with self.group.watch(partial(queue.put, None)):
                leased, left = self._try(wait)  # what came before the watch began
                if leased is not None or not left:
                    return leased
                wait_for(queue, left)

    def idle(self) -> bool:
        """True when all that is there is consumed, and nothing is in flight in any reader."""
        self._check()
        with self._context.runtime.snapshot() as snap:
            return self.group.idle(Reading(self._context.runtime, snap))

    def keep_alive(self) -> None:
        """Renews the leases of a batch that takes longer than `lease_seconds`."""
        self._check()
        self.group.renew(self.member)

    def _check(self) -> None:
        self._context.check()
        if self.closed:
            raise TransactionClosed("the reader is closed; open another with db.reader()")
        if self._context.topic(self.topic).id != self._info.id:
            raise Dropped(
                f"topic {self.topic!r} was dropped, and created anew: open another reader"
            )

    def _try(
        self, wait: Wait, made: type[LeasedTransaction] = LeasedTransaction
    ) -> tuple[Leased | None, float]:
        """A batch that is there now, or for how many seconds to wait: 0, there is nothing to read.

        Reads from disk, and may wait for another host.
        """
        group, member = self.group, self.member
        while True:
            self._check()
            group.tidy()
            if 0 < wait.held <= member.lapsed - wait.lapsed and not member.flights:
                raise LeaseLost(
                    f"{self!r} waited {group.lease_seconds:g} s for room, and nobody committed or rolled back "
                    f"{counted(wait.held, 'batch', 'batches')} that it had given: the records are read again; "
                    "end each transaction"
                )
            changes = group.changes
            leased = self._find(made)
            if leased is not None:
                return leased, 0.0
            flights, sent = group.under_way(member)
            if group.changes != changes:
                continue  # what was looked at is old
            full = flights >= member.in_flight
            if (full or sent) and not self._context.runtime.owns_this_thread():
                left = _LOOK_SECONDS
            else:
                left = self._left(wait)
            wait.held = flights if full or (left and self._until_idle) else 0
            return None, left

    def _left(self, wait: Wait) -> float:
        """Seconds to wait for records, none of which are there."""
        if wait.deadline is not None:
            return max(0.0, min(wait.deadline - time.monotonic(), _LOOK_SECONDS))
        if not self._until_idle:
            return _LOOK_SECONDS
        if self.idle():
            return 0.0
        # Mode "kafka" answers a commit before its position can be seen, and wakes nobody then.
        return _LOOK_SECONDS if self.group.flying else _SOON_SECONDS

    def _find(self, made: type[LeasedTransaction]) -> Leased | None:
        for left in reversed(range(_TRIES)):
            try:
                return self._look(made)
            except SnapshotTooOld:  # trimmed just where it was about to read
                if not left:
                    raise
        return None

    def _look(self, made: type[LeasedTransaction]) -> Leased | None:
        """No transaction is begun before there is a record for it."""
        group, member = self.group, self.member
        group.refresh(member)
        lanes = group.lanes_for(member)
        if not lanes:
            return None
        runtime = self._context.runtime
        reading = Reading(runtime, runtime.snapshot())
        tx: LeasedTransaction | None = None
        try:
            for lane in lanes:
                with lane.lock:
                    changes = lane.changes
                    found = group.free(member, lane, reading)
                    if found is None:
                        continue
                    if tx is None:
                        tx = made(self._context, member.producer)
                        if member.producer is None:
                            tx.life.lend(reading)
                    if not tx.life.lent(reading):  # its producer remembers positions of its own
                        found = group.free(member, lane, tx.life.view())
                    batch = None if found is None else self._read(tx, lane, *found, changes)
                if batch is not None:
                    return Leased(tx, batch)
        finally:
            if tx is None or not tx.life.lent(reading):
                reading.snap.close()
            if tx is not None and tx.life.flight is None:
                tx.rollback()
        return None

    def _read(
        self, tx: LeasedTransaction, lane: Lane, begin: int, end: int, changes: int
    ) -> ReadBatch | None:
        group, reading = self.group, tx.life.view()
        most = self._limit(lane.number, begin, min(self.max_records, end - begin))
        segments, _ = reading.segments(self._info, lane.number, begin, most, self.max_bytes)
        if group.individual:
            segments = below(segments, end)
        if not segments:
            return None
        flight = group.begin(self.member, lane, begin, end_of(segments), changes)
        if flight is None:
            return None
        tx.take(group, flight)
        more = flight.end < reading.bounds(lane.tablet)[1]
        return ReadBatch(self.topic, self._info.format, segments, more)

    def _limit(self, partition: int, begin: int, most: int) -> int:
        return most

    def close(self) -> None:
        """Gives its partitions to others; batches that were not submitted are read again by them."""
        if not self.closed:
            self.closed = True
            self.group.leave(self.member)

    def __iter__(self) -> Iterator[Leased]:
        while not self.closed:
            try:
                leased = self._wait()
            except TransactionClosed:
                return  # closed meanwhile
            if leased is None:
                return
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
        name = f" {self.name!r}" if self.name else ""
        return f"<Reader{name} of {self.consumer!r} on topic {self.topic!r}>"
