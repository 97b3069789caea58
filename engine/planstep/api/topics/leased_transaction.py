"""Implements the transaction that a reader returns with a batch: it consumes the batch, and commits in its turn.

    take(group, flight) ─▶ consumes the range ─ submit ─▶ group.hand: in the order in which batches were read
                                              └ rollback, Conflict, dropped ─▶ group.ended: read again

Next: process.py.
"""

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

from ...errors import Conflict, LeaseLost, NotSupported, Overloaded
from ...proto.messages import Parts
from ...runtime.outcome import Commit, undetermined
from ...runtime.wait_primitives import CommitFuture
from ..columns.batch import ReadBatch
from ..transaction.lifecycle import Lifecycle
from ..transaction.snapshot_reader import Reading
from ..transaction.topic_writes import Outbox
from ..transaction.transaction import Transaction
from .consumer_group import Group
from .group_state import InFlightBatch

if TYPE_CHECKING:
    from ...runtime.catalog import TopicInfo
    from ...runtime.group_commit import ReplySink, Waiter

_ADMISSION_SECONDS = 30.0


class LeasedLifecycle(Lifecycle):
    """Makes a commit wait for those of batches that were read before."""

    group: Group
    flight: InFlightBatch | None = None
    back: float | None = None
    """The seconds after which its batch is handed out again, if it is handed back."""

    def use_reading(self, reading: Reading) -> None:
        """Makes it read from the snapshot in which its batch was found, and close that."""
        self._reading = reading

    def hand(self, parts: Parts, ending: "ReplySink", attended: bool = False) -> "Waiter | None":
        """Hands the commit to the group. Overloaded when there is no room now; other errors end the transaction."""
        assert self.flight is not None
        try:
            return self.group.hand(self.flight, self.tx, parts, ending, attended)
        except (Conflict, LeaseLost):
            self.group.ended(self.flight, None)
            raise

    def send(self) -> Parts | None:
        parts = super().send()
        assert self.flight is not None
        self.flight.sent = True
        return parts

    def submit(self) -> "Future[Commit]":
        future, _ = self._submit(False)
        return future

    def _submit(self, attended: bool) -> "tuple[Future[Commit], Waiter | None]":
        parts = self.send()
        assert parts is not None, "it consumes a range"
        future = CommitFuture()
        deadline = time.monotonic() + _ADMISSION_SECONDS
        pause = 0.001
        waiter: Waiter | None = None
        self.group.tidy()  # what is in its way may have been dropped
        while True:
            try:
                waiter = self.hand(parts, future, attended)
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
        return future, waiter

    def commit(self, timeout: float | None) -> Commit:
        future, waiter = self._submit(True)
        try:
            if waiter is not None:
                self._runtime.threads.attend(waiter, timeout)
            late = waiter is not None and waiter.answer is None
            self.result = future.result(0.0 if late else timeout)
        except TimeoutError:
            self._runtime.replies.unheard(self.tx)
            self.failure = undetermined(self.tx, timeout, self._runtime.turns.doubt())
            raise self.failure from None
        except BaseException as error:
            self._runtime.replies.unheard(self.tx)
            self.failed(error)
            raise
        self.state = "committed"
        return self.result

    def take_back(self) -> None:
        super().take_back()
        if self.flight is not None:
            self.group.ended(self.flight, None, self.back)

    def _loses_writes(self) -> bool:
        return False  # not lost: the batch is read again, and the group says so

    def __del__(self) -> None:
        super().__del__()
        if self.flight is not None and self.state == "open":
            self.group.collected.append(self.flight)


class LeasedTransaction(Transaction):
    """A transaction whose commit waits for those of batches that were read before its own."""

    life: LeasedLifecycle
    _lifecycle = LeasedLifecycle

    def take(self, group: Group, flight: InFlightBatch, moved: int) -> None:
        """Takes the flight of its batch, so that the commit consumes the flight's range.

        `moved` is the step that last moved the consumer, as of the transaction's snapshot.
        """
        self.life.group, self.life.flight = group, flight
        tablet, consumer, conditions = flight.lane.tablet, group.consumer, self.contents.conditions
        if group.individual:
            conditions.acknowledge(tablet, consumer, flight.begin, flight.end)
        else:
            conditions.consume(tablet, consumer, flight.begin, flight.end)
        conditions.fence(tablet, consumer, moved)
        self._context.consuming[self.life.tx] = conditions
        self.contents.waitable = False

    def nack(self) -> None:
        """Rolls back, and hands the batch back for a time; see Leased."""
        redelivery = self._runtime.hooks.redelivery
        if redelivery is None:
            raise NotSupported(
                f'mode "{self._runtime.mode}" has no negative acknowledgements: mode "pulsar" has them; here '
                "tx.rollback() hands the batch back at once"
            )
        self.life.check_open()
        self.life.back = redelivery.nack_seconds
        self.rollback()

    def write_raw(self, topic: str, value: bytes, key: bytes | None, headers: bytes | None) -> None:
        """Writes one record whose value, key and headers are encoded already."""
        info = self._context.topic(topic)
        outbox = self.contents.outboxes.get(topic) or Outbox(info, self._context.keyless(info))
        size = len(value) + len(key or b"") + len(headers or b"")
        self._add(outbox, [value], [key], [headers], size, None)

    def _consumed(self, topic: str, consumer: str) -> "TopicInfo":
        if (topic, consumer) == (self.life.group.info.name, self.life.group.consumer):
            raise TypeError(
                f"consumer {consumer!r} reads topic {topic!r} through a reader, which gave this batch; "
                "read as another consumer"
            )
        return super()._consumed(topic, consumer)


class Leased(NamedTuple):
    """A batch, and the transaction that consumes it: commit it, submit it, or roll it back."""

    tx: Transaction
    batch: ReadBatch

    def nack(self) -> None:
        """Rolls back, and hands the batch back: it is handed out again after `nack_redelivery_delay_ms`.

        Until then readers of an individual consumer go on with other records; a partition of a cumulative one
        waits. `batch.redeliveries` counts. NotSupported except in mode "pulsar".
        """
        assert isinstance(self.tx, LeasedTransaction)
        self.tx.nack()
