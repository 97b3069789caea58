"""Searches for a reader's next batch, or tells how long to wait before the next attempt.

    attempt ─▶ lanes of the group ─▶ free range? ─ read it ─▶ (transaction, batch)
                    └ no records ─▶ seconds to wait: the reader waits, on a thread or in an event loop

Nothing here waits, so threads and asyncio share it. A policy (process_policy.py) may make it read less, or end
the wait.

Next: leased_transaction.py.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ...errors import Dropped, LeaseLost, SnapshotTooOld, TransactionClosed
from ..columns.batch import ReadBatch, counted
from ..transaction.snapshot_reader import Reading, below, end_of
from .consumer_group import Group
from .group_state import FreeRange, Member, PartitionLease
from .lane_sharing import ANSWER_SECONDS
from .leased_transaction import Leased, LeasedTransaction

if TYPE_CHECKING:
    from ..context import Context
    from .process_policy import ProcessPolicy

Ack: TypeAlias = Literal["list", "each"]
_TRIES = 20
_SOON_SECONDS = 0.05
_LOOK_SECONDS = 5.0
"""A waiting reader looks again after this long: no wake-up tells that a lease ran out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """The options of a reader; see Engine.reader. The reader that takes them checks them."""

    max_records: int
    max_bytes: int
    in_flight: int
    lease_seconds: float
    until_idle: bool
    ack: Ack = "list"


@dataclass(slots=True)
class Wait:
    """One call of a thread or task that waits for a batch.

    `deadline` is None for ever, or until all is consumed. `held` counts the reader's own flights that it waits
    for, `lapsed` those that had lapsed when it began.
    """

    deadline: float | None
    lapsed: int
    held: int = 0
    share_until: float = 0.0
    """It waits so long for the owner of the store to tell which partitions it may read."""


class BatchSearch:
    """Finds the next batch for one member of a group. Its reader's threads share it."""

    def __init__(
        self,
        context: "Context",
        group: Group,
        member: Member,
        options: ReaderOptions,
        who: str,
    ) -> None:
        """`who` names the reader in messages."""
        self.group = group
        self.member = member
        self.policy: ProcessPolicy | None = None
        self._context = context
        self.max_records, self.max_bytes = options.max_records, options.max_bytes
        self._until_idle = options.until_idle
        self._ack_each = options.ack == "each"
        self._who = who

    def check(self) -> None:
        """Raises when no batch can come any more: engine or reader is closed, the topic was dropped, or another
        one has the reader's name."""
        self._context.check()
        if self.member.departed:
            raise TransactionClosed("the reader is closed; open another with db.reader()")
        if self.member.producer is not None:
            self._context.runtime.hooks.check_producer(self.member.producer)
        info = self.group.info
        if self._context.topic(info.name).id != info.id:
            raise Dropped(f"topic {info.name!r} was dropped, and created anew: open another reader")

    def idle(self) -> bool:
        """Returns whether all records are consumed, and no reader has a batch in flight."""
        self.check()
        with self._context.runtime.snapshot() as snap:
            self._context.runtime.confirm()
            return self.group.idle(Reading(self._context.runtime, snap))

    def attempt(
        self, wait: Wait, kind: type[LeasedTransaction] = LeasedTransaction
    ) -> tuple[Leased | None, float]:
        """Returns (the next batch, 0), or (None, seconds to wait); 0 seconds: there is nothing to read.

        It reads from disk, and may wait for another host. The first one takes the reader's name over, where writers
        have identities: what an earlier process left open under it holds positions and output back.
        """
        group, member = self.group, self.member
        if member.takes_over and not self._context.runtime.owns_this_thread():
            self.check()
            member.takes_over = False
            self._context.runtime.hooks.take_over(member.producer)
        while True:
            self.check()
            group.tidy()
            if 0 < wait.held <= member.lapsed - wait.lapsed and not member.flights:
                raise LeaseLost(
                    f"{self._who} waited {group.lease_seconds:g} s for room, and "
                    f"{counted(wait.held, 'batch', 'batches')} in flight did not end in that time: their leases "
                    "expired, and the records are read again; commit or roll back each transaction"
                )
            changes = group.changes
            leased = self._find(kind)
            if leased is not None:
                return leased, 0.0
            flights, sent = group.under_way(member)
            if group.changes != changes:
                continue  # what was looked at is old
            full = flights >= member.in_flight
            waits = full or sent or (group.sharing.waits and self._awaits_share(wait))
            waits = waits and not self._context.runtime.owns_this_thread()
            pause = _LOOK_SECONDS if waits else self._left(wait)
            if pause:
                pause = min(pause, group.next_due())
            wait.held = flights if full or (pause and self._until_idle) else 0
            return None, pause

    def _awaits_share(self, wait: Wait) -> bool:
        if self.policy is not None and self.policy.stopping:
            return False
        now = time.monotonic()
        wait.share_until = wait.share_until or now + ANSWER_SECONDS
        return now < wait.share_until

    def _left(self, wait: Wait) -> float:
        """Returns how many seconds to wait for records when there are none."""
        if self.policy is not None and self.policy.stopping:
            return 0.0
        if wait.deadline is not None:
            return max(0.0, min(wait.deadline - time.monotonic(), _LOOK_SECONDS))
        if not self._until_idle:
            return _LOOK_SECONDS
        if self.idle():
            return 0.0
        # Mode "kafka" answers a commit before its position can be seen, and wakes nobody then.
        return _LOOK_SECONDS if self.group.flying else _SOON_SECONDS

    def _find(self, kind: type[LeasedTransaction]) -> Leased | None:
        for tries in reversed(range(_TRIES)):
            try:
                return self._search(kind)
            except SnapshotTooOld:  # trimmed just where it was about to read
                if not tries:
                    raise
        return None

    def _search(self, kind: type[LeasedTransaction]) -> Leased | None:
        """Looks through the reader's lanes, and begins a transaction only for records."""
        group, member = self.group, self.member
        group.refresh(member)
        lanes = group.lanes_for(member)
        if not lanes:
            return None
        runtime = self._context.runtime
        reading = Reading(runtime, runtime.snapshot())
        alone = member.producer is None  # else its producer has positions of its own
        tx: LeasedTransaction | None = None
        try:
            for lane in lanes:
                with lane.lock:
                    changes = lane.changes
                    free = group.free(member, lane, reading, self.max_records)
                    if free is None:
                        continue
                    if tx is None:
                        tx = kind(self._context, member.producer)
                        if alone:
                            tx.life.use_reading(reading)
                    if not alone:
                        free = group.free(member, lane, tx.life.view(), self.max_records)
                    batch = None if free is None else self._read(tx, lane, free, changes)
                if batch is not None:
                    return Leased(tx, batch)
        finally:
            if tx is None or not alone:
                reading.snap.close()
            if tx is not None and tx.life.flight is None:
                tx.rollback()
        return None

    def _read(
        self, tx: LeasedTransaction, lane: PartitionLease, free: FreeRange, changes: int
    ) -> ReadBatch | None:
        group, reading = self.group, tx.life.view()
        begin, end, moved, log_end, redeliveries = free
        most = min(self.max_records, end - begin)
        if self.policy is not None:
            most = self.policy.limit(lane.number, begin, most, redeliveries)
        segments, _ = reading.segments(group.info, lane.number, begin, most, self.max_bytes)
        if group.individual or redeliveries:
            segments = below(segments, end)
        if not segments:
            return None
        read_to = end_of(segments)
        more = read_to < log_end
        flight = group.begin(self.member, lane, begin, read_to, more, changes)
        if flight is None:
            return None
        tx.take(group, flight, moved)
        if self._ack_each:
            offsets = [s.offset + i for s in segments for i in range(s.hi - s.lo)]
            hooks = self._context.runtime.hooks
            hooks.acknowledge_each(tx.life.tx, lane.tablet, group.consumer, offsets)
        batch = ReadBatch(group.info.name, group.info.format, segments, more)
        batch.redeliveries = flight.redeliveries
        return batch
