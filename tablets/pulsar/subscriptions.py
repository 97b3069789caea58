"""Keeps what each subscription of a partition has acknowledged, and what open transactions are about to.

    Ack outside of a transaction ─▶ cursor
    Ack in a transaction ─▶ conflict? ─▶ log ─▶ pending ──EndTxnOnSubscription──▶ log ─▶ cursor, or free again

    acknowledgement of T2    conflicts with
    a range                  anything of it acknowledged; anything pending, T2's own included
    cumulative to P          P at or before the position; another one's pending cumulative; T2's own at or beyond P
    a range and cumulative   nothing, either way: the two kinds are separate, as Pulsar allows
    outside of transactions  nothing: it wins, and what it covers is no longer pending

Keys, behind the tablet's prefix, besides those of pending_rows.py and ack_log.py:

    c<S>                    `rows.Cursor`
    u<most 8><least 8><S>   a transaction that ended here and is above its coordinator's mark

A losing acknowledgement is refused before it is logged; Pulsar logs it first. So replaying the log gives what is
pending. Ranges are widened over markers and aborted messages, so gaps of the log make none here.

Next: pending_rows.py.
"""

from typing import Any

from ...proto.batched_log import FLUSH, Position
from ...proto.memory import Journal, Memory
from ...proto.pulsar.messages import (
    NO_TXN,
    Ack,
    DropSubscription,
    Ended,
    EndTxnOnSubscription,
    Seek,
    Shell,
    SwitchLog,
)
from ...proto.shell import Answer, Keys, Wake
from ..intervals import RANGES_MAX, overlap_end, raised, unconsumed
from .ack_log import ABORT, ACK, COMMIT, AckLogs
from .cursors import applied, raised_to
from .pending_rows import PendingRows
from .rows import Cursor, of_name, of_txn
from .transaction_buffer import TransactionBuffer

CURSOR, CURSOR_END, ENDED = b"c", b"d", b"u"
CONFLICT, REFUSED = "TransactionConflict", "NotAllowedError"


class Subscriptions:
    """Handles acknowledgements and ends for all subscriptions of one partition.

    Invariants: a transaction's acknowledgement is pending from its record in the log on until its end's. A position
    falls by Seek only.
    """

    __slots__ = (
        "_buffer",
        "_ending",
        "_id",
        "_memory",
        "_reserved",
        "_shell",
        "_space",
        "logs",
        "rows",
    )

    def __init__(self, tablet: int, space: Keys, shell: Shell, buffer: TransactionBuffer) -> None:
        self._id = tablet
        self._space = space
        self._shell = shell
        self._buffer = buffer
        self._memory = Memory()
        self._reserved: dict[str, tuple[tuple[Any, ...], ...]] = {}
        """By subscription: ACK records that wait in the log's buffer."""
        self._ending: dict[tuple[str, int, int], tuple[int, ...]] = {}
        """Ends that wait in the log's buffer: the coordinators that asked for them."""
        self.logs = AckLogs(space, shell)
        self.rows = PendingRows(space)

    def mark(self) -> tuple[Journal, Any]:
        return self._memory.mark(), self.logs.mark()

    def undo(self, mark: tuple[Journal, Any]) -> None:
        memory, logs = mark
        self._memory.undo(memory)
        self.logs.undo(logs)

    def handle(self, message: Any) -> None:
        kind = type(message)
        if kind is Ack:
            self._ack(message)
        elif kind is EndTxnOnSubscription:
            self._end(message)
        elif kind is Seek:
            self._seek(message)
        elif kind is DropSubscription:
            self._drop(message)
        elif kind is SwitchLog:
            self.logs.switch(message.batching)
            if message.client != -1:
                self._answer(message, "")
        else:
            assert kind is Wake and message.what == FLUSH, message
            self.logs.wake(*message.detail)

    def cursor(self, name: str) -> Cursor | None:
        """Returns what a subscription has acknowledged."""
        row: tuple[Any, ...] | None = self._space.get(of_name(CURSOR, name))
        return None if row is None else Cursor(*row)

    def trimmed(self, start: int) -> None:
        """Moves each subscription to the log's new start; what it had not acknowledged before it is missed."""
        for key, row in self._space.scan(CURSOR, CURSOR_END):
            cursor = Cursor(*row)
            if cursor.position < start:
                position, ranges, missed = raised(cursor.position, cursor.ranges, start)
                missed += cursor.missed
                new = cursor._replace(position=position, ranges=ranges, missed=missed)
                self._store(key[len(CURSOR) : -1].decode(), cursor, new)

    def _answer(self, request: Any, error: str) -> None:
        self._shell.send(request.client, Answer(request.request, self._id, error, None))

    # acknowledging -------------------------------------------------------------------------

    def _ack(self, message: Ack) -> None:
        cursor = self.cursor(message.subscription) if usable(message.subscription) else None
        if cursor is None:
            self._answer(message, "SubscriptionNotFound")
            return
        error = self._malformed(message, cursor)
        if error:
            self._answer(message, error)
        elif (message.most, message.least) == NO_TXN:
            self._plain(message, cursor)
        else:
            self._pend(message, cursor)

    def _malformed(self, message: Ack, cursor: Cursor) -> str:
        ranges, position, end = message.ranges, message.position, self._buffer.bounds.end
        if position is not None:
            fits = not ranges and not cursor.individual and 0 <= position <= end
            return "" if fits else REFUSED
        at = 0
        for low, high in ranges:
            if not at <= low < high <= end:
                return REFUSED
            at = high
        if not ranges:
            return REFUSED
        return "TooManyGaps" if len(cursor.ranges) + len(ranges) > RANGES_MAX else ""

    def _plain(self, message: Ack, cursor: Cursor) -> None:
        name, position = message.subscription, cursor.position
        if message.position is not None:
            if message.position > position:
                self._store(name, cursor, raised_to(cursor, message.position))
        else:
            new = cursor
            for low, high in message.ranges:
                self.rows.clear(name, low, high, position)
                new = applied(new, low, high, self._buffer.next_shown)
            self._store(name, cursor, new)
        self._answer(message, "")

    def _pend(self, message: Ack, cursor: Cursor) -> None:
        name, most, least = message.subscription, message.most, message.least
        ended = self._buffer.has_ended(most, least) or self._has_ended(name, most, least)
        # An end that waits in the log's buffer is before this, too: nothing would end it any more.
        if ended or (name, most, least) in self._ending:
            self._answer(message, REFUSED)
            return
        if self._conflicts(message, cursor):
            self._answer(message, CONFLICT)
            return
        record = ACK, most, least, message.ranges, message.position
        self._memory.set(self._reserved, name, (*self._reserved.get(name, ()), record))

        def done(error: str, at: Position | None) -> None:
            left = tuple(other for other in self._reserved[name] if other is not record)
            self._memory.set(self._reserved, name, left)
            if not error:
                self._apply_ack(name, record)
                assert at is not None
                self._count(name, at, record)
            self._answer(message, error)

        self.logs.of(name).append(record, done)

    def _conflicts(self, message: Ack, cursor: Cursor) -> bool:
        name = message.subscription
        reserved = self._reserved.get(name, ())
        if message.position is not None:
            position, own = message.position, (message.most, message.least)
            pending = [(r[1:3], r[4]) for r in reserved if r[4] is not None]
            row = self.rows.cumulative(name)
            if row is not None:
                pending.append((row[:2], row[2]))
            late = position <= cursor.position
            return late or any(who != own or at >= position for who, at in pending)
        taken = [span for record in reserved for span in record[3]]
        return any(
            overlap_end(cursor.position, cursor.ranges, low, high) is not None
            or self.rows.between(name, low, high, cursor.position)
            or any(begin < high and low < end for begin, end in taken)
            for low, high in message.ranges
        )

    def _apply_ack(self, name: str, record: tuple[Any, ...]) -> None:
        """Makes a logged acknowledgement pending, but for what was acknowledged since it was checked."""
        _, most, least, ranges, position = record
        cursor = self.cursor(name)
        assert cursor is not None, "a subscription is dropped behind its log's buffer"
        if position is not None and position > cursor.position:
            self.rows.set_cumulative(name, most, least, position)
        for low, high in ranges:
            for begin, end in unconsumed(cursor.position, cursor.ranges, low, high):
                self.rows.add(name, begin, end, most, least)

    def _store(self, name: str, before: Cursor, cursor: Cursor) -> None:
        """Stores a cursor that has moved on; what it has passed is no longer pending, nor needed in the log."""
        shown = self._buffer.next_shown(cursor.position)
        if shown > cursor.position:
            cursor = raised_to(cursor, shown)
        self._space.put(of_name(CURSOR, name), tuple(cursor))
        if cursor.position == before.position:
            return
        self.rows.clear(name, before.position, cursor.position, before.position)
        pending = self.rows.cumulative(name)
        if pending is not None and pending[2] <= cursor.position:
            self.rows.drop_cumulative(name)
        self.logs.trim(name, cursor.position)

    # ends ----------------------------------------------------------------------------------

    def _has_ended(self, name: str, most: int, least: int) -> bool:
        return self._space.get(of_name(of_txn(ENDED, most, least), name)) is not None

    def _end(self, message: EndTxnOnSubscription) -> None:
        name, most, least = message.subscription, message.most, message.least
        key = name, most, least
        reserved = any(record[1:3] == (most, least) for record in self._reserved.get(name, ()))
        if key in self._ending:
            self._memory.set(self._ending, key, (*self._ending[key], message.source))
        elif reserved or self.rows.has(name, most, least):
            self._memory.set(self._ending, key, (message.source,))
            self._log_end(name, most, least, message.commit)
        else:  # unknown, dropped, or ended before
            self._note_end(name, most, least)
            self._tell(message.source, most, least, name)

    def end_to(self, most: int, begin: int, end: int) -> None:
        """Aborts what is pending of a coordinator's transactions [begin, end): nobody knows them any more."""
        for least, name in self.rows.of_marks(most, begin, end):
            if (name, most, least) not in self._ending:
                self._memory.set(self._ending, (name, most, least), ())
                self._log_end(name, most, least, commit=False)
        for key, _ in self._space.scan(of_txn(ENDED, most, begin), of_txn(ENDED, most, end)):
            self._space.delete(key)

    def _log_end(self, name: str, most: int, least: int, commit: bool) -> None:
        record = COMMIT if commit else ABORT, most, least

        def done(error: str, at: Position | None) -> None:
            sources = self._ending[name, most, least]
            self._memory.drop(self._ending, (name, most, least))
            if error:
                return  # the coordinator asks again
            assert at is not None
            ranges, position = self.rows.take(name, most, least)
            if commit:
                self._commit(name, ranges, position)
            self._note_end(name, most, least)
            self._count(name, at, record)
            for source in sources:
                self._tell(source, most, least, name)

        self.logs.of(name).append(record, done)

    def _commit(self, name: str, ranges: list[tuple[int, int]], position: int | None) -> None:
        cursor = self.cursor(name)
        assert cursor is not None
        new = cursor
        for low, high in ranges:
            new = applied(new, low, high, self._buffer.next_shown)
        if position is not None and position > new.position:
            new = raised_to(new, position)
        self._store(name, cursor, new)

    def _note_end(self, name: str, most: int, least: int) -> None:
        if not self._buffer.has_ended(most, least):
            self._space.put(of_name(of_txn(ENDED, most, least), name), 1)

    def _count(self, name: str, at: Position, record: tuple[Any, ...]) -> None:
        cursor = self.cursor(name)
        assert cursor is not None, "a subscription is dropped behind its log's buffer"
        self.logs.count(name, at, record, cursor.position)

    def _tell(self, source: int, most: int, least: int, name: str) -> None:
        self._shell.send(source, Ended(self._id, most, least, name, ""))

    # seek, drop ----------------------------------------------------------------------------

    def _seek(self, message: Seek) -> None:
        name, row = message.subscription, None
        bounds = self._buffer.bounds
        if not usable(name) or not 0 <= message.position <= bounds.end:
            self._answer(message, REFUSED)
            return
        row = self._space.get(of_name(CURSOR, name))
        if row is not None:
            self._forget(name)
        individual, moves = (bool(row[0]), row[4] + 1) if row is not None else (False, 0)
        if message.individual is not None:
            individual = message.individual
        position = max(bounds.start, message.position)
        self._space.put(of_name(CURSOR, name), tuple(Cursor(individual, position, 0, (), moves)))
        self._answer(message, "")

    def _drop(self, message: DropSubscription) -> None:
        name = message.subscription
        if usable(name) and self._space.get(of_name(CURSOR, name)) is not None:
            self._forget(name)
            self._space.delete(of_name(CURSOR, name))
            self.logs.drop(name)
        self._answer(message, "")

    def _forget(self, name: str) -> None:
        """Drops what is pending, and the log's entries."""
        self.logs.flush(name)
        self.rows.drop(name)
        self.logs.forget(name)


def usable(name: str) -> bool:
    """Returns whether a name may be part of keys: neither empty, nor long, nor with a zero byte."""
    return 0 < len(name.encode()) <= 400 and "\0" not in name
