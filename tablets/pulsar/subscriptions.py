"""Keeps what each subscription of a partition has acknowledged, and what open transactions are about to.

    Ack outside of a transaction ─▶ cursor
    Ack in a transaction ─▶ conflict? ─▶ log ─▶ pending ──EndTxnOnSubscription──▶ log ─▶ cursor, or free again

    acknowledgement of T2    conflicts with
    a range                  anything of it acknowledged; anything pending, T2's own included
    cumulative to P          P at or before the position; another one's pending cumulative; T2's own at or beyond P
    a range and cumulative   nothing, either way: the two kinds are separate, as Pulsar allows
    outside of transactions  nothing: it wins, and what it covers is no longer pending

Keys, behind the tablet's prefix, besides those of pending_rows.py; S is a subscription's name and a zero byte:

    c<S>                    `rows.Cursor`
    l<S>l…, l<S>L, l<S>v…   its log (../../proto/batched_log.py): ACK, COMMIT and ABORT records
    h<S>                    the log's index: (records since, highest offset, ((entry, offset), …))
    u<most 8><least 8><S>   a transaction that ended here and is above its coordinator's mark
    B                       whether the logs are batched, once that was switched

Entries up to an indexed one are about offsets up to the index's: they go once the position has reached it (PIP-153).
A losing acknowledgement is refused before it is logged; Pulsar logs it first. So replaying the log gives what is
pending: `replayed`. Ranges are widened over markers and aborted messages, so gaps of the log make none here.

Next: pending_rows.py.
"""

from typing import Any

from ...proto.batched_log import BatchedLog, Position, Rows, entries_of
from ...proto.memory import Journal, Memory
from ...proto.pulsar.messages import (
    NO_TXN,
    Ack,
    DropSubscription,
    Ended,
    EndTxnOnSubscription,
    Seek,
    Shell,
)
from ...proto.shell import Answer, Keys
from ..intervals import RANGES_MAX, consumed, overlap_end, raised, unconsumed
from .pending_rows import PendingRows
from .rows import Cursor, of_name, of_txn
from .transaction_buffer import TransactionBuffer

CURSOR, LOG, INDEX, ENDED, BATCHING = b"c", b"l", b"h", b"u", b"B"
ACK, COMMIT, ABORT = range(3)
"""The first field of a log's record; then most, least, and of an ACK the ranges and the position or None."""
CONFLICT, REFUSED = "TransactionConflict", "NotAllowedError"


class Subscriptions:
    """Handles acknowledgements and ends for all subscriptions of one partition.

    Invariants: a transaction's acknowledgement is pending from its record in the log on until its end's. Replaying a
    subscription's log gives its pending rows. A position falls by Seek only.
    """

    __slots__ = (
        "_buffer",
        "_ending",
        "_id",
        "_logs",
        "_memory",
        "_reserved",
        "_shell",
        "_space",
        "rows",
    )

    def __init__(self, tablet: int, space: Keys, shell: Shell, buffer: TransactionBuffer) -> None:
        self._id = tablet
        self._space = space
        self._shell = shell
        self._buffer = buffer
        self._memory = Memory()
        self._logs: dict[str, BatchedLog] = {}
        self._reserved: dict[str, tuple[tuple[Any, ...], ...]] = {}
        """By subscription: ACK records that wait in the log's buffer."""
        self._ending: dict[tuple[str, int, int], tuple[int, ...]] = {}
        """Ends that wait in the log's buffer: the coordinators that asked for them."""
        self.rows = PendingRows(space)

    def mark(self) -> tuple[Journal, Any]:
        return self._memory.mark(), {name: log.mark() for name, log in self._logs.items()}

    def undo(self, mark: tuple[Journal, Any]) -> None:
        memory, logs = mark
        self._memory.undo(memory)
        for name in list(self._logs):
            if name in logs:
                self._logs[name].undo(logs[name])
            else:
                del self._logs[name]

    def handle(self, message: Any) -> None:
        kind = type(message)
        if kind is Ack:
            self._ack(message)
        elif kind is EndTxnOnSubscription:
            self._end(message)
        elif kind is Seek:
            self._seek(message)
        else:
            assert kind is DropSubscription, message
            self._drop(message)

    def log(self, name: str) -> BatchedLog:
        """Returns a subscription's log."""
        log = self._logs.get(name)
        if log is None:
            prefix = of_name(LOG, name)
            log = BatchedLog(self._space, self._shell, self._shell.settings.ack_log, prefix, None)
            switched = self._space.get(BATCHING)
            if switched is not None:
                log.batching = bool(switched)
            self._logs[name] = log
        return log

    def wake(self, prefix: bytes, number: int) -> None:
        """Writes the buffer of a log whose delay has passed."""
        self.log(prefix[len(LOG) : -1].decode()).wake(number)

    def switch(self, batching: bool) -> None:
        """Writes the logs through the buffered writer, or record by record, from now on."""
        self._space.put(BATCHING, int(batching))
        for log in self._logs.values():
            log.switch(batching)

    def cursor(self, name: str) -> Cursor | None:
        """Returns what a subscription has acknowledged; what was trimmed counts as missed."""
        row: tuple[Any, ...] | None = self._space.get(of_name(CURSOR, name))
        if row is None:
            return None
        cursor = Cursor(*row)
        start = self._buffer.bounds.start
        if start <= cursor.position:
            return cursor
        position, ranges, missed = raised(cursor.position, cursor.ranges, start)
        missed += cursor.missed
        return cursor._replace(position=position, ranges=ranges, missed=missed)

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
                self._store(name, cursor, _raised(cursor, message.position))
        else:
            new = cursor
            for low, high in message.ranges:
                self.rows.clear(name, low, high, position)
                new = self._applied(new, low, high)
            self._store(name, cursor, new)
        self._answer(message, "")

    def _pend(self, message: Ack, cursor: Cursor) -> None:
        name, most, least = message.subscription, message.most, message.least
        if self._buffer.has_ended(most, least) or self._has_ended(name, most, least):
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
                self._index(name, at, record)
            self._answer(message, error)

        self.log(name).append(record, done)

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

    def _applied(self, cursor: Cursor, begin: int, end: int) -> Cursor:
        """Returns the cursor with [begin, end) acknowledged, and what is not shown beside it."""
        position, ranges = cursor.position, cursor.ranges
        for low, high in unconsumed(position, ranges, begin, end):
            before = max((stop for _, stop in _upto(ranges, low)), default=position)
            if before < low and self._buffer.next_shown(before) >= low:
                low = before
            stop = self._buffer.next_shown(high)
            beyond = unconsumed(position, ranges, low, max(high, stop))
            position, ranges = consumed(position, ranges, low, beyond[0][1])
        return cursor._replace(position=position, ranges=ranges)

    def _store(self, name: str, before: Cursor, cursor: Cursor) -> None:
        """Stores a cursor that has moved on; what it has passed is no longer pending, nor needed in the log."""
        shown = self._buffer.next_shown(cursor.position)
        if shown > cursor.position:
            cursor = _raised(cursor, shown)
        self._space.put(of_name(CURSOR, name), tuple(cursor))
        if cursor.position == before.position:
            return
        self.rows.clear(name, before.position, cursor.position, before.position)
        pending = self.rows.cumulative(name)
        if pending is not None and pending[2] <= cursor.position:
            self.rows.drop_cumulative(name)
        self._trim_log(name, cursor.position)

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
            self._index(name, at, record)
            for source in sources:
                self._tell(source, most, least, name)

        self.log(name).append(record, done)

    def _commit(self, name: str, ranges: list[tuple[int, int]], position: int | None) -> None:
        cursor = self.cursor(name)
        assert cursor is not None
        new = cursor
        for low, high in ranges:
            new = self._applied(new, low, high)
        if position is not None and position > new.position:
            new = _raised(new, position)
        self._store(name, cursor, new)

    def _note_end(self, name: str, most: int, least: int) -> None:
        if not self._buffer.has_ended(most, least):
            self._space.put(of_name(of_txn(ENDED, most, least), name), 1)

    def _tell(self, source: int, most: int, least: int, name: str) -> None:
        self._shell.send(source, Ended(self._id, most, least, name, ""))

    # the log's index -----------------------------------------------------------------------

    def _index(self, name: str, at: Position, record: tuple[Any, ...]) -> None:
        """Counts a record, and adds an entry to the index behind enough of them, at a batch's last one."""
        key = of_name(INDEX, name)
        since, highest, entries = self._space.get(key) or (0, 0, ())
        if record[0] == ACK:
            ends = [high for _, high in record[3]]
            highest = max([highest, record[4] or 0, *ends])
        since += 1
        lag = self._shell.settings.ack_log_index_min_lag * max(1, len(entries))
        if since >= lag and at.batch_index == at.batch_size - 1:
            since, entries = 0, (*entries, (at.entry, highest))
        self._space.put(key, (since, highest, entries))
        cursor = self.cursor(name)
        if entries and cursor is not None:
            self._trim_log(name, cursor.position)

    def _trim_log(self, name: str, position: int) -> None:
        key = of_name(INDEX, name)
        index = self._space.get(key)
        passed = [entry for entry, highest in index[2] if highest <= position] if index else []
        if passed:
            self.log(name).delete_before(passed[-1] + 1)
            self._space.put(key, (index[0], index[1], index[2][len(passed) :]))

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
            for key, _ in self._space.scan(of_name(LOG, name), of_name(LOG, name) + b"\xff"):
                self._space.delete(key)
            self._logs.pop(name, None)
        self._answer(message, "")

    def _forget(self, name: str) -> None:
        """Drops what is pending, and the log's entries; the log's numbers go on."""
        log = self.log(name)
        while log.buffered:
            log.flush()
        self.rows.drop(name)
        log.delete_before((1 << 63) - 1)
        if self._space.get(of_name(INDEX, name)) is not None:
            self._space.delete(of_name(INDEX, name))


def usable(name: str) -> bool:
    """Returns whether a name may be part of keys: neither empty, nor long, nor with a zero byte."""
    return 0 < len(name.encode()) <= 400 and "\0" not in name


def _raised(cursor: Cursor, position: int) -> Cursor:
    """Returns the cursor with everything before `position` acknowledged."""
    at, ranges, _ = raised(cursor.position, cursor.ranges, position)
    return cursor._replace(position=at, ranges=ranges)


def _upto(ranges: tuple[tuple[int, int], ...], end: int) -> tuple[tuple[int, int], ...]:
    """Returns the last of the ranges that end at or before `end`, or none."""
    low, high = 0, len(ranges)
    while low < high:
        middle = (low + high) // 2
        if ranges[middle][1] <= end:
            low = middle + 1
        else:
            high = middle
    return ranges[max(0, low - 1) : low]


def pending_of(space: Rows, name: str) -> tuple[dict[int, tuple[int, int, int]], Any]:
    """Returns a subscription's pending ranges by their begin, and its cumulative one, as the rows have them."""
    prefix = of_name(b"j", name)
    rows = space.scan(prefix, prefix + b"\xff" * 9)
    return {int.from_bytes(key[-8:], "big"): row for key, row in rows}, space.get(
        of_name(b"k", name)
    )


def replayed(space: Rows, name: str) -> dict[int, tuple[int, int]]:
    """Returns (most, least) by pending offset as the log has it: equal to the rows, after every turn."""
    cursor = Cursor(*space.get(of_name(CURSOR, name)))
    pending: dict[int, tuple[int, int]] = {}
    for entry in entries_of(space, of_name(LOG, name)):
        for op, most, least, *what in entry.records.values():
            if op != ACK:
                pending = {at: who for at, who in pending.items() if who != (most, least)}
                continue
            for low, high in what[0]:
                for begin, end in unconsumed(cursor.position, cursor.ranges, low, high):
                    pending.update(dict.fromkeys(range(begin, end), (most, least)))
    return pending
