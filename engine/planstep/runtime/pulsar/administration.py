"""Looks into coordinators, transaction buffers and subscriptions, and aborts open transactions for an operator.

    coordinators' rows t   ─▶ transactions     partitions' rows m, o, w and snapshots ─▶ buffers
    subscriptions' rows c, j, k ─▶ positions   AbortTxn ─▶ coordinator

Next: views.py.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ...coordinator.pulsar.describe import record_text
from ...coordinator.pulsar.invariants import live_rows
from ...coordinator.pulsar.states import ABORTING, COMMITTING, OPEN, STATE_NAMES, Transaction
from ...errors import IoError, PulsarError
from ...host.describe import part_name
from ...proto.batched_log import entries_of
from ...proto.ids import host_of
from ...proto.pulsar.messages import TRANSACTIONAL, AbortTxn, TxnID
from ...tablets.pulsar.rows import Bounds, numbered, of_txn
from ...tablets.pulsar.snapshots import Stored, stored
from ..administration import BufferStats, CoordinatorStats, PendingAck, PositionState
from ..catalog import TopicInfo
from ..identity import Waiting
from ..open_transactions import OpenTransaction
from .errors import pulsar_error
from .writing import OUTCOMES_KEPT

if TYPE_CHECKING:
    from .hooks import PulsarHooks

_ANSWERED_SECONDS = 5.0
_IS_OVER = ("TransactionNotFound", "InvalidTxnStatus", "AlreadyCommitted", "AlreadyTimedOut")


class PulsarAdministration:
    def __init__(self, mode: "PulsarHooks") -> None:
        self._mode = mode
        self._runtime = mode.runtime
        self._views = mode.in_place_views
        self._aborted: dict[TxnID, None] = {}  # here, so that it may be asked for again

    # transactions --------------------------------------------------------------------------

    def _live(self) -> Iterator[tuple[TxnID, Transaction]]:
        for number, tablet in enumerate(self._mode.coordinators()):
            if self._mode.up(tablet):
                for least, row in live_rows(self._views.rows(tablet)).items():
                    yield TxnID(number, least), row

    def open_transactions(self) -> list[OpenTransaction]:
        now_ms, behind = time.time_ns() // 1_000_000, dict[int, int]()
        found = [self._described(id, row, now_ms, behind) for id, row in self._live()]
        return sorted(found, key=lambda one: -(one.age_seconds or 0.0))

    def _described(
        self, id: TxnID, row: Transaction, now_ms: int, behind: dict[int, int]
    ) -> OpenTransaction:
        name = partial(part_name, self._runtime.names)
        participants = [
            name(tablet) if consumer is None else f"{name(tablet)} for {consumer}"
            for tablet, consumer in row.participants
        ]
        tablets = sorted({tablet for tablet, _ in row.participants})
        return OpenTransaction(
            str(id),
            STATE_NAMES[row.state],
            None,
            max(0, now_ms - row.start_ms) / 1000,
            tuple(participants),
            (),
            id.most,
            row.timeout_ms / 1000,
            tuple(
                self._waiting(id, row, tablet, behind)
                for tablet in tablets
                if self._mode.up(tablet)
            ),
        )

    def _waiting(self, id: TxnID, row: Transaction, tablet: int, behind: dict[int, int]) -> Waiting:
        """Returns what a transaction has at a partition; `behind`: counted so far, by tablet."""
        rows = self._views.rows(tablet)
        first: int | None = rows.get(of_txn(b"n", *id))
        if tablet not in behind:
            behind[tablet] = self._behind(tablet)
        pending = [
            f"{consumer} [{begin}, {end})"
            for at, consumer in row.subscriptions
            if at == tablet
            for begin, end, who, _ in self._views.pending(tablet, consumer)
            if who == id
        ]
        stable, records = (None, 0) if first is None else (self._bounds(tablet)[2], behind[tablet])
        participant = part_name(self._runtime.names, tablet)
        return Waiting(participant, first, stable, records, tuple(pending))

    def _bounds(self, tablet: int) -> Bounds:
        return Bounds(*self._views.log_meta(tablet))

    def _behind(self, tablet: int) -> int:
        """Counts the messages of a partition that readers wait for."""
        _, end, max_read = self._bounds(tablet)
        entries = self._views.entries(tablet, max_read, end) if max_read < end else ()
        return sum(row[2] for _, row in entries if row[3] <= TRANSACTIONAL)

    def coordinator_stats(self) -> list[CoordinatorStats]:
        now_ms, stats = time.time_ns() // 1_000_000, []
        for number, tablet in enumerate(self._mode.coordinators()):
            if not self._mode.up(tablet):
                continue
            space = self._views.rows(tablet)
            live, highest = live_rows(space), space.get(b"i")
            states = [row.state for row in live.values()]
            ages = [max(0, now_ms - row.start_ms) / 1000 for row in live.values() if not row.state]
            highest = -1 if highest is None else highest
            stats.append(
                CoordinatorStats(
                    number,
                    host_of(tablet),
                    states.count(OPEN),
                    states.count(COMMITTING),
                    states.count(ABORTING),
                    highest,
                    min(live, default=highest + 1) - 1,
                    max(ages, default=None),
                )
            )
        return stats

    # partitions ----------------------------------------------------------------------------

    def buffer_stats(self, topic: TopicInfo) -> list[BufferStats]:
        memories = self.buffers(topic.partitions)
        link = self._runtime.link
        if link is not None:
            with suppress(IoError):  # no owner answers
                memories = link.call("buffers", *topic.partitions, timeout=_ANSWERED_SECONDS)
        tablets = enumerate(zip(topic.partitions, memories, strict=True))
        return [
            self._buffer(number, tablet, *memory)
            for number, (tablet, memory) in tablets
            if self._mode.up(tablet)
        ]

    def buffers(self, tablets: Iterable[int]) -> list[tuple[str, int | None]]:
        memories = [self._mode.in_use(tablet) for tablet in tablets]
        return [
            ("None", None) if memory is None else (memory.buffer.state, memory.buffer.taken_ms)
            for memory in memories
        ]

    def _buffer(self, partition: int, tablet: int, state: str, taken: int | None) -> BufferStats:
        rows, bounds = self._views.rows(tablet), self._bounds(tablet)
        ongoing = [row for _, row in rows.scan(b"o" + numbered(b"", bounds.max_read), b"p")]
        snapshot = stored(rows) or Stored(None, 0, 0, 0)
        marks = {int.from_bytes(key[1:], "big"): mark for key, mark in rows.scan(b"w", b"x")}
        return BufferStats(
            partition,
            state,
            bounds.start,
            bounds.end,
            bounds.max_read,
            TxnID(*ongoing[0]) if ongoing else None,
            self._behind(tablet),
            len(ongoing),
            self._views.aborted(tablet),
            snapshot.way,
            snapshot.max_read,
            snapshot.bytes,
            snapshot.rows,
            None if taken is None else max(0, time.time_ns() // 1_000_000 - taken) / 1000,
            marks,
        )

    # consumers -----------------------------------------------------------------------------

    def pending_acks(self, topic: TopicInfo, consumer: str) -> list[PendingAck]:
        return [
            PendingAck(number, id, begin, end, cumulative)
            for number, tablet in enumerate(topic.partitions)
            if self._mode.up(tablet)
            for begin, end, id, cumulative in self._views.pending(tablet, consumer)
        ]

    def position_state(self, tablet: int, consumer: str, offset: int) -> PositionState:
        views, cursor = self._views, self._views.cursor(tablet, consumer)
        max_read = self._bounds(tablet).max_read
        shown = offset < max_read and views.filtered(tablet, offset, offset + 1, committed=True)
        if not shown or next(shown, None) is None:
            return PositionState("not shown")
        if cursor is not None:
            taken = ((0, cursor.position), *cursor.ranges)
            if any(begin <= offset < end for begin, end in taken):
                return PositionState("acknowledged")
        for begin, end, id, _ in views.pending(tablet, consumer):
            if begin <= offset < end:
                return PositionState("pending", id)
        return PositionState("free")

    def history(self, txn: TxnID) -> list[tuple[int, str]]:
        coordinators = self._mode.coordinators()
        if txn.most >= len(coordinators) or not self._mode.up(coordinators[txn.most]):
            return []
        name = partial(part_name, self._runtime.names)
        return [
            (entry.number, record_text(name, record))
            for entry in entries_of(self._views.rows(coordinators[txn.most]))
            for record in entry.records.values()
            if record[2] == txn.least
        ]

    # ending --------------------------------------------------------------------------------

    def abort(self, txn: TxnID) -> None:
        coordinators = self._mode.coordinators()
        if txn.most >= len(coordinators):
            raise pulsar_error("TransactionCoordinatorNotFound", f"{txn}: there is no such one")
        try:
            self._mode.requests.request(
                coordinators[txn.most], partial(AbortTxn, most=txn.most, least=txn.least)
            )
        except PulsarError as error:
            if error.name != "TransactionNotFound" or txn not in self._aborted:
                raise pulsar_error(error.name, str(txn)) from None
        self._aborted[txn] = None
        while len(self._aborted) > OUTCOMES_KEPT:
            del self._aborted[next(iter(self._aborted))]
        self._mode.writing.aborted_by_operator(txn)

    def abort_left_open(self) -> tuple[TxnID, ...]:
        own = (
            self._mode.writing.open_ids()
        )  # a host that was started again is of a later generation
        aborted = []
        since = self._runtime.live_since()
        for id, row in [*self._live()]:
            node = self._runtime.nodes[host_of(self._mode.coordinators()[id.most])]
            before = min(node.host.store.generation, since)
            if row.state != OPEN or row.generation >= before or id in own:
                continue
            try:
                self.abort(id)
            except PulsarError as error:
                if error.name not in _IS_OVER:
                    raise
            else:
                aborted.append(id)
        return tuple(aborted)
