"""Remembers which transactions were aborted in a partition, in little memory.

    coordinator 0   chunk 0                       chunk 1
      leasts        17  12  19  …   65,536 ids    70,001  70,000
      markers        4   9  15  …                200,310 200,311    ascending: the order of the abort markers
      order          1   0   2  …                      1       0    indices, by least

An entry is hidden if its transaction's id is here and the entry lies before the id's marker. Ids join at the
back, with the highest marker, and leave at the front, once the log was trimmed beyond their marker (first in,
first out). So a range of markers is a range of ids, and what was read twice is recognised by its marker.

An id takes 18 bytes and the arrays' spare room, whatever its coordinator: 10^6 ids are below 25 MB.

`mark` takes constant time. `undo` removes what was added since. A trim replaces the lists of chunks instead of
changing them, so a mark keeps the chunks that it may have to restore.

Packed ids, little endian, by coordinator: (most 8, count 4, width of a least 1, of a marker 1), leasts, markers.

Next: snapshots.py.
"""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from struct import Struct
from typing import TypeAlias

from ...proto.pulsar.messages import ABORT, COMMIT, TRANSACTIONAL
from .rows import EntryRow

CHUNK_IDS = 1 << 16
_HEAD = Struct("<qIBB")
_NARROW = 1 << 32
_LAST = (1 << 63) - 1
Mark: TypeAlias = tuple[dict[int, list["_Chunk"]], int, int]


class _Chunk:
    """Holds ids of one coordinator. Invariants: markers ascend; `order` sorts leasts, equal ones by marker."""

    __slots__ = ("leasts", "markers", "order")

    def __init__(self, leasts: Iterable[int] = (), markers: Iterable[int] = ()) -> None:
        self.leasts = array("q", leasts)
        self.markers = array("q", markers)
        self.order = array("H", sorted(range(len(self.leasts)), key=self.leasts.__getitem__))

    def add(self, least: int, marker: int) -> None:
        leasts, order, number = self.leasts, self.order, len(self.leasts)
        if number == 0 or least >= leasts[order[-1]]:
            order.append(number)
        else:
            order.insert(bisect_right(order, least, key=leasts.__getitem__), number)
        leasts.append(least)
        self.markers.append(marker)

    def pop(self) -> None:
        """Removes the id with the highest marker."""
        at = bisect_right(self.order, self.leasts[-1], key=self.leasts.__getitem__) - 1
        del self.order[at], self.leasts[-1], self.markers[-1]

    def marker_of(self, least: int) -> int:
        """Returns the marker of an id, the highest one if it has several, or -1."""
        leasts, order = self.leasts, self.order
        if not leasts[order[0]] <= least <= leasts[order[-1]]:
            return -1
        number = order[bisect_right(order, least, key=leasts.__getitem__) - 1]
        return self.markers[number] if leasts[number] == least else -1


def _packed(numbers: "array[int]") -> tuple[int, bytes]:
    """Returns (bytes of a number, the column), with 4 bytes a number if they suffice."""
    column = array("I", numbers) if max(numbers) < _NARROW else numbers[:]
    if sys.byteorder == "big":
        column.byteswap()
    return column.itemsize, column.tobytes()


def _unpacked(width: int, data: bytes) -> "array[int]":
    column = array("I" if width == 4 else "q", data)
    if sys.byteorder == "big":
        column.byteswap()
    return array("q", column)


class Aborted:
    """The aborted transactions of one partition, as a tablet or a reader of its rows remembers them.

    Invariants: each id that was added has a marker above `last` of then. An id with a marker below the trimmed
    start is not there.
    """

    __slots__ = ("_chunks", "_start", "last")

    def __init__(self) -> None:
        self._chunks: dict[int, list[_Chunk]] = {}
        self._start = 0
        self.last = -1
        """The highest marker that was ever added, -1 for none."""

    def mark(self) -> Mark:
        return self._chunks, self._start, self.last

    def kept(self) -> "Aborted":
        """Returns the same ids, of which a later trim takes none away; what is added later may show."""
        kept = Aborted()
        kept._chunks, kept._start, kept.last = self.mark()
        return kept

    def undo(self, mark: Mark) -> None:
        self._chunks, self._start, self.last = mark
        for most in list(self._chunks):
            chunks = self._chunks[most]
            while chunks and chunks[-1].markers[-1] > self.last:
                chunks[-1].pop()
                if not chunks[-1].markers:
                    chunks.pop()
            if not chunks:
                del self._chunks[most]

    def add(self, most: int, least: int, marker: int) -> bool:
        """Adds an id whose abort marker lies at offset `marker`; returns False if that was added before."""
        if marker <= self.last:
            return False
        self.last = marker
        chunks = self._chunks.setdefault(most, [])
        if not chunks or len(chunks[-1].markers) == CHUNK_IDS:
            chunks.append(_Chunk())
        chunks[-1].add(least, marker)
        return True

    def contains(self, most: int, least: int, offset: int) -> bool:
        """Returns whether an entry at `offset` of transaction (most, least) is hidden."""
        # Ids end about in their order: mostly one chunk holds numbers around this one.
        for chunk in reversed(self._chunks.get(most, ())):
            marker = chunk.marker_of(least)
            if marker >= 0:
                return marker > offset and marker >= self._start
        return False

    def hides(self, offset: int, row: EntryRow) -> bool:
        """Returns whether readers are not shown the entry at `offset`: a marker, or an aborted message."""
        _, _, _, kind, most, least, *_ = row
        return kind in (COMMIT, ABORT) or (
            kind == TRANSACTIONAL and self.contains(most, least, offset)
        )

    def trim(self, start: int) -> None:
        """Forgets the ids whose markers lie before `start`, the log's new start."""
        if start <= self._start:
            return
        self._start = start
        passed = any(chunks[0].markers[-1] < start for chunks in self._chunks.values())
        if passed:
            rest = {
                most: [chunk for chunk in chunks if chunk.markers[-1] >= start]
                for most, chunks in self._chunks.items()
            }
            self._chunks = {most: chunks for most, chunks in rest.items() if chunks}

    # ranges of markers ---------------------------------------------------------------------

    def _ranges(self, after: int, upto: int) -> "list[tuple[int, list[tuple[_Chunk, slice]]]]":
        """Returns by coordinator, ascending, the parts of chunks with after < marker <= upto."""
        low = max(after, self._start - 1)
        ranges = []
        for most in sorted(self._chunks):
            parts = []
            for chunk in self._chunks[most]:
                begin, end = bisect_right(chunk.markers, low), bisect_right(chunk.markers, upto)
                if begin < end:
                    parts.append((chunk, slice(begin, end)))
            if parts:
                ranges.append((most, parts))
        return ranges

    def __len__(self) -> int:
        return self.count()

    def count(self, after: int = -1) -> int:
        """Returns the number of ids whose markers lie beyond `after`."""
        ranges = self._ranges(after, _LAST)
        return sum(part.stop - part.start for _, parts in ranges for _, part in parts)

    def ids(self, after: int = -1) -> list[tuple[int, int, int]]:
        """Returns (marker, most, least) of the ids with a marker beyond `after`, in their order."""
        return sorted(
            (chunk.markers[i], most, chunk.leasts[i])
            for most, parts in self._ranges(after, _LAST)
            for chunk, part in parts
            for i in range(part.start, part.stop)
        )

    def nth_marker(self, after: int, n: int) -> int:
        """Returns the marker of the n-th id (from 1) beyond marker `after`; there must be so many."""
        markers = array("q")
        for _, parts in self._ranges(after, _LAST):
            for chunk, part in parts:
                # Ids that are not among the first n of their chunk are not among the first n of all.
                markers += chunk.markers[part.start : min(part.stop, part.start + n)]
        return sorted(markers)[n - 1]

    # packing -------------------------------------------------------------------------------

    def capacity(self, limit_bytes: int) -> int:
        """Returns how many ids `pack` can put into so many bytes, at least 1, whatever their coordinators."""
        heads = _HEAD.size * len(self._chunks)
        leasts = (chunk.leasts[chunk.order[-1]] for of in self._chunks.values() for chunk in of)
        width = 4 if max(leasts, default=0) < _NARROW else 8
        return max(1, (limit_bytes - heads) // (width + (4 if self.last < _NARROW else 8)))

    def pack(self, after: int = -1, upto: int = _LAST) -> bytes:
        """Packs the ids with after < marker <= upto."""
        packed = []
        for most, parts in self._ranges(after, upto):
            leasts, markers = array("q"), array("q")
            for chunk, part in parts:
                leasts += chunk.leasts[part]
                markers += chunk.markers[part]
            (wide, first), (broad, second) = _packed(leasts), _packed(markers)
            packed += [_HEAD.pack(most, len(leasts), wide, broad), first, second]
        return b"".join(packed)

    def load(self, data: bytes) -> None:
        """Adds packed ids, but for those with markers up to `last`: they are here already.

        It is part of building: no mark taken before it may be undone behind it.
        """
        known, at = self.last, 0
        while at < len(data):
            most, count, wide, broad = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            middle, end = at + count * wide, at + count * (wide + broad)
            leasts, markers = _unpacked(wide, data[at:middle]), _unpacked(broad, data[middle:end])
            at = end
            first = bisect_right(markers, known)
            if first < count:
                self._extend(most, leasts[first:], markers[first:])
                self.last = max(self.last, markers[-1])

    def _extend(self, most: int, leasts: "array[int]", markers: "array[int]") -> None:
        chunks = self._chunks.setdefault(most, [])
        if chunks and len(chunks[-1].markers) < CHUNK_IDS:
            last = chunks.pop()
            leasts, markers = last.leasts + leasts, last.markers + markers
        for at in range(0, len(leasts), CHUNK_IDS):
            chunks.append(_Chunk(leasts[at : at + CHUNK_IDS], markers[at : at + CHUNK_IDS]))
