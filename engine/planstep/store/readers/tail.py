"""Lets the views of one store share what they have read, so that a later view costs the turns since the last one.

    epoch    tables as of turn T, pinned · values of the turns since · values before those, for open views
      ▲  ▲
      │  └─ a view at turn 5        another at turn 8        get: what the view sees of the turns, then the tables
      └──── tail: where the record of turn 9 is expected ─ read on ─▶ a view at turn 9
                                                         └ not there ─▶ readonly.py looks at the whole log again

A tail takes only records that continue its own chain, up to a turn that the owner's mark shows. All else is left to
the look at the whole log, which knows what recovery knows of damage. Examples are another generation, a mark
of another boot, and a record that is neither here nor in the next segment.

Once the owner has written a checkpoint, the next view begins a new epoch. It pins the tables again, and keeps
the turns behind the checkpoint. Views of the old epoch stay as they are.

Next: readonly.py.
"""

import os
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

from ...errors import EngineClosed
from ...proto.stored import AnyRow
from ..layers import MISSING, Change, Changed, Changes, Layer
from ..log.extents import Extent
from ..log.records import START, TURN, Record, crc_before, read_record, size_at
from ..log.segments import Folder, segment_files, segment_parts
from ..recovery import ReadBack
from ..turn import decode_changes
from .released_mark import Mark, MarkReader

_READ_BYTES, _READ_BYTES_MAX = 16 << 10, 1 << 20
_since = _turn = itemgetter(0)


class Position(NamedTuple):
    """The place of the next record: behind the one of `turn`, whose crc it names."""

    generation: int
    segment: str
    offset: int
    crc: int
    turn: int


class Taken(NamedTuple):
    """A turn that was read from the log: its changes, the place of its payload, the next payload's address."""

    turn: int
    changes: Changes
    run: Extent | None
    next_address: int


def taken_from(segment: str, record: Record) -> Taken:
    run, end = None, record.address + record.payload_length
    if record.payload_length:
        run = Extent(record.address, segment, record.payload_offset, record.payload_length)
    return Taken(record.turn, decode_changes(record.changes), run, end)


def position_behind(found: ReadBack, checkpoint: int, turn: int) -> Position | None:
    """Returns the place behind the record of `turn`; None if the log does not tell."""
    for segment, record, data in found.turns:
        if record.turn > turn:
            crc = crc_before(data, record.offset)
            return Position(segment_parts(segment)[0], segment, record.offset, crc, turn)
    if not found.whole or found.last_turn(checkpoint) != turn:
        return None
    generation, _ = segment_parts(found.segment)
    return Position(generation, found.segment, found.offset, found.crc, turn)


class Epoch:
    """Holds the tables as of one turn and the turns since, for views that share them; it closes with the last view.

    Invariants: who reads the tables or files holds `reading`, and finds them open. Who scans the turns, or takes
    one, holds `lock`, for a moment. `value` needs none: what an open view sees is in `_older` before a newer value
    takes its place. `runs` only grows.
    """

    def __init__(self, folder: Folder, table: Any, txn: Any, lease: Any, held: int) -> None:
        """`held`: the folder's descriptor, -1 for none. The epoch closes all of these."""
        self.folder = folder
        self.held = held
        self.table = table
        self.txn = txn
        self.transaction: int = table.newest(txn)
        self.lock = threading.Lock()
        self.reading = threading.Lock()  # taken without the other
        self.closed = False
        self.base = self.turn = 0
        self.next_address = 0
        self.turns: list[Taken] = []
        self.layer = Layer()
        self.runs: list[Extent] = []
        self._older: dict[bytes, list[tuple[int, Change]]] = {}
        """Key → (the turn that changed it, its value before; `MISSING`: that of the tables), for open views."""
        self._views: dict[int, int] = {}  # turn → views of it
        self._whole = (
            True  # nothing of a turn beyond `turn` is here: none is being taken, or was broken off
        )
        self._lease = lease
        self._mark = MarkReader(folder.path / "released", folder.store_id, held)

    def begin(self, turn: int, next_address: int) -> None:
        """Notes the tables' turn, and the address behind its payload."""
        self.base = self.turn = turn
        self.next_address = next_address

    # views ---------------------------------------------------------------------------------

    def enter(self, turn: int) -> None:
        """Adds a view as of a turn. EngineClosed."""
        with self.lock:
            self.check_open()
            self._views[turn] = self._views.get(turn, 0) + 1

    def leave(self, turn: int) -> None:
        """Takes a view out, and closes the epoch with the last one."""
        with self.lock:
            left = self._views.pop(turn) - 1
            if left:
                self._views[turn] = left
            if self._views:
                if self._whole and min(self._views) == self.turn:
                    self._older = {}
                return
            self.closed = True
        self._end()

    def discard(self) -> None:
        """Closes the epoch if no view has entered it."""
        with self.lock:
            if self._views or self.closed:
                return
            self.closed = True
        self._end()

    def _end(self) -> None:
        with self.reading:
            try:
                self.folder.close()
                self.txn.abort()
                self.txn = None  # its reader slot is free once no reference is left
            finally:
                try:
                    self.table.close()
                finally:
                    self._mark.close()
                    self._lease.close()
                    if self.held >= 0:
                        os.close(self.held)

    def check_open(self) -> None:
        if self.closed:
            raise EngineClosed("the store was closed while it was read")

    # reading -------------------------------------------------------------------------------

    def mark(self) -> Mark | None:
        """Reads the owner's mark as it is now, wherever the folder is by now. IoError, StoreClosed."""
        with self.lock:
            self.check_open()
            return self._mark.read()

    def outdated(self) -> bool:
        """Returns whether the tables were written since. EngineClosed, Corruption."""
        with self.lock:
            self.check_open()
            return bool(self.table.committed() != self.transaction)

    def value(self, key: bytes, turn: int) -> Change:
        """Returns what a view as of `turn` sees of the turns since the tables; `MISSING` if it sees the tables."""
        value = self.layer.values.get(key, MISSING)
        if self._older:  # asked behind the value: a turn that is taken now adds to it first
            return self._as_of(turn, key, value)
        return value

    def _as_of(self, turn: int, key: bytes, newest: Change) -> Change:
        versions = self._older.get(key)
        if versions is None or versions[-1][0] <= turn:
            return newest
        return versions[bisect_right(versions, turn, key=_since)][1]

    def between(
        self, begin: bytes, end: bytes, reverse: bool, limit: int | None, turn: int
    ) -> Changed:
        """Lists what such a view sees of the turns in a range, in its order: all, or at least `limit` values."""
        with self.lock:
            if turn == self.turn and self._whole:
                return self.layer.between(begin, end, reverse, limit)
            newest = self.layer.between(begin, end, reverse)
            seen = [(key, self._as_of(turn, key, value)) for key, value in newest]
        return [(key, value) for key, value in seen if value is not MISSING]

    def unchanged(self, tablet: bytes, since: int, turn: int) -> bool:
        """Returns whether the turns from behind `since` up to `turn` are here, and none changed such a key."""
        with self.lock:
            begin = bisect_right(self.turns, since, key=_turn)
            turns = self.turns[begin : bisect_right(self.turns, turn, key=_turn)]
        return self.base <= since and not any(
            key.startswith(tablet) for taken in turns for key in taken.changes
        )

    def row(self, key: bytes) -> AnyRow:
        """Returns the tables' row. The caller holds `reading`."""
        row: AnyRow = self.table.get(key, self.txn)
        return row

    # growing -------------------------------------------------------------------------------

    def take(self, turns: Iterable[Taken]) -> None:
        """Adds turns, in order. If it is interrupted, open views stay as they are, and no more may be taken."""
        with self.lock:
            values, older = self.layer.values, self._older
            self._whole = False
            for taken in turns:
                if self._views:
                    for key in taken.changes:
                        before = taken.turn, values.get(key, MISSING)
                        older.setdefault(key, []).append(before)
                self.layer.update(taken.changes)
                if taken.run is not None:
                    self.runs.append(taken.run)
                self.turns.append(taken)
                self.turn, self.next_address = taken.turn, taken.next_address
            self._whole = True


def run_of(runs: list[Extent], address: int) -> Extent | None:
    at = bisect_right(runs, address, key=lambda run: run.address) - 1
    return runs[at] if at >= 0 and address < runs[at].address + runs[at].length else None


class Tail:
    """Reads a log on behind what was read. Invariants: who uses it holds `lock`; `epoch` has the turns up to
    `position`, which is None once the tail has lost its way.
    """

    def __init__(self, epoch: Epoch, position: Position | None) -> None:
        self.lock = threading.Lock()
        self.epoch = epoch
        self.position = position


def read_on(folder: Folder, position: Position, until: int) -> tuple[list[Taken], Position] | None:
    """Reads the turns behind `position` up to turn `until`; None if they are not where they are expected.

    IoError; Corruption for a segment that is another file.
    """
    turns: list[Taken] = []
    while position.turn < until:
        for record in _records_at(folder, position):
            if record.kind != TURN or record.turn != position.turn + 1:
                return None
            turns.append(taken_from(position.segment, record))
            position = _behind(position, record)
            if position.turn == until:
                break
        else:
            begun = _next_segment(folder, position)
            if begun is None:
                return None
            position = begun
    return turns, position


def _behind(position: Position, record: Record) -> Position:
    end = record.offset + record.size
    return position._replace(offset=end, crc=record.crc, turn=record.turn)


def _next_segment(folder: Folder, position: Position) -> Position | None:
    """Returns the place behind the first record of the segment that goes on where this one ends."""
    names = [path.name for path in segment_files(folder.path, folder.files)]
    later = next((name for name in names if name > position.segment), "")
    if not later or segment_parts(later)[0] != position.generation:
        return None
    begun = position._replace(segment=later, offset=0)
    start = next(_records_at(folder, begun, first=True), None)
    if start is None or start.kind != START or start.turn != position.turn:
        return None
    return _behind(begun, start)


def _records_at(folder: Folder, position: Position, first: bool = False) -> Iterator[Record]:
    """Yields the valid records from a place on. `first`: the segment's first record, which continues no chain."""
    generation, name, begin, crc, _ = position
    previous: int | None = None if first else crc
    at, size = 0, _READ_BYTES
    data = folder.read(name, begin, size)
    while True:
        record = read_record(data, at, folder.store_id, generation, previous, begin)
        if record is not None:
            yield record
            at, previous = at + record.size, record.crc
            continue
        needed = size_at(data, at)
        if at + needed <= len(data):
            return  # zeros, or damage
        begin, at = begin + at, 0
        size = max(needed, min(2 * size, _READ_BYTES_MAX))
        data = folder.read(name, begin, size)
        if len(data) < needed:
            return
