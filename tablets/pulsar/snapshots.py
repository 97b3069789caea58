"""Stores a partition's aborted ids in snapshot rows, in one of three ways, and recovers them.

    abort markers      4   9  15  21 │ 30  33  38  41 │ 47  52         max read position 50

    single      s            all ten ids, and 50        rewritten whole each time
    parts       q1, q2, …    four ids each              rewritten whole too, one part a turn, under the same keys
                q end        the last two ids, and 50
    segmented   g1, g2, …    four ids each              written once, deleted once the log's start has passed them
                i            the last two ids, 50, and which segments there are

Pulsar has "single" and "segmented" (PIP-196). "parts" is what apache/pulsar issue #16042 proposed before that.
A single snapshot larger than `message_bytes_max` is refused, as Pulsar refuses such a message. It is counted, the
last good one stays, and each recovery reads more of the log.

Recovery loads the newest snapshot and then reads the abort markers of the log from its max read position to
the end. A snapshot may hold ids with markers beyond that position; a marker that is known is not added again.

A crash between two parts leaves new parts before old ones. Ids leave at the front and join at the back. So a
new part ends at or behind the end of the old one that it replaces: the next old part repeats some of its ids, and
none is missing. Only a smaller size of parts can leave a gap. Each part therefore names the marker that it
follows, and recovery reads the log from a gap on. A segment and the index that names it are written in one turn.

Keys, behind the tablet's prefix:

    s            (max read position, packed ids)
    q<number 4>  (the last marker before it or -1, packed ids)
    q end        (the last marker before it or -1, packed ids, max read position)   `END`, behind all others
    g<number 8>  (its last marker, packed ids)
    i            (max read position, number of the next segment, ((number, last marker), …), packed ids)

After a change of the setting, the first snapshot of the new way holds all ids and deletes the other ways' rows.

Next: transaction_buffer.py.
"""

from typing import Any, NamedTuple, Protocol

from ...proto.pulsar.messages import ABORT
from ...proto.shell import Keys
from ...proto.stored import AnyRow
from .aborted import Aborted
from .rows import Entry, EntryRow, numbered

SINGLE, PART, SEGMENT, INDEX = b"s", b"q", b"g", b"i"
END = PART + b"\xff\xff\xff\xff"
WAYS = ("single", "parts", "segmented")
_ROWS = {"single": (SINGLE,), "parts": (PART,), "segmented": (SEGMENT, INDEX)}
_SCANNED_MAX = 1_000


class Rows(Protocol):
    """Reads a partition's rows: a tablet's own space, or a view of another process."""

    def get(self, key: bytes, /) -> AnyRow: ...
    def scan(
        self, begin: bytes, end: bytes, /, *, limit: int | None = None
    ) -> list[tuple[bytes, AnyRow]]: ...


def is_stored(rows: Rows) -> bool:
    """Returns whether there is a snapshot, without decoding it."""
    single, index = (rows.scan(key, key + b"\0", limit=1) for key in (SINGLE, INDEX))
    return bool(single or index or rows.scan(END, END + b"\0", limit=1))


class SnapshotSettings(NamedTuple):
    """Names the way, one of `WAYS`, and sizes of packed ids.

    A segment or a part has up to `segment_bytes`, a single snapshot up to `message_bytes_max`.
    """

    way: str
    segment_bytes: int
    message_bytes_max: int


def _behind(letter: bytes) -> bytes:
    return bytes((letter[0] + 1,))


# reading -----------------------------------------------------------------------------------


def load(rows: Rows) -> tuple[Aborted, int] | None:
    """Returns the newest snapshot's ids, and the offset from which on markers are missing; None without one."""
    aborted = Aborted()
    if (row := rows.get(SINGLE)) is not None:
        max_read, data = row
        aborted.load(data)
        return aborted, max_read
    if (row := rows.get(INDEX)) is not None:
        max_read, _, segments, tail = row
        for number, _ in segments:
            aborted.load(rows.get(numbered(SEGMENT, number))[1])
        aborted.load(tail)
        return aborted, max_read
    parts = rows.scan(PART, _behind(PART))
    if not parts or parts[-1][0] != END:
        return None
    for _, (after, data, *_) in parts:
        if after > aborted.last:
            return aborted, aborted.last + 1
        aborted.load(data)
    return aborted, parts[-1][1][2]


class Stored(NamedTuple):
    """Describes the newest snapshot; `rows` are its segments or parts, with the one that ends it."""

    way: str | None
    max_read: int
    bytes: int
    rows: int


def stored(rows: Rows) -> Stored | None:
    """Describes the newest snapshot, None without one."""
    if (row := rows.get(SINGLE)) is not None:
        return Stored("single", row[0], len(row[1]), 1)
    if (row := rows.get(INDEX)) is not None:
        sealed = [rows.get(numbered(SEGMENT, number)) for number, _ in row[2]]
        size = sum(len(segment[1]) for segment in sealed if segment is not None)
        return Stored("segmented", row[0], size + len(row[3]), len(sealed) + 1)
    parts = rows.scan(PART, _behind(PART))
    if not parts or parts[-1][0] != END:
        return None
    return Stored("parts", parts[-1][1][2], sum(len(row[1]) for _, row in parts), len(parts))


def read_markers(rows: Rows, aborted: Aborted, begin: int, end: int, most: int = 1 << 62) -> int:
    """Adds the abort markers of the entries that begin in [begin, end), of about `most` entries at least.

    Returns the offset to go on from, `end` once all are read.
    """
    while begin < end:
        entries: list[tuple[bytes, EntryRow]] = rows.scan(
            numbered(b"b", begin), numbered(b"b", end), limit=_SCANNED_MAX
        )
        for key, row in entries:
            entry = Entry._make(row)
            if entry.kind == ABORT:
                aborted.add(entry.most, entry.least, int.from_bytes(key[1:], "big"))
        if len(entries) < _SCANNED_MAX:
            return end
        begin = int.from_bytes(entries[-1][0][1:], "big") + 1
        most -= len(entries)
        if most <= 0:
            return begin
    return end


def recover(rows: Rows, start: int, end: int) -> Aborted | None:
    """Returns the aborted ids of the log [start, end), None if it has no snapshot: no transaction was here."""
    loaded = load(rows)
    if loaded is None:
        return None
    aborted, begin = loaded
    read_markers(rows, aborted, max(begin, start), end)
    aborted.trim(start)
    return aborted


# writing -----------------------------------------------------------------------------------


class Snapshots:
    """Writes a partition's snapshots.

    Invariants: the rows of the newest whole snapshot are the only ones that `load` uses. An index names
    exactly the segments that are there. While parts are written, part n + 1 begins behind the last id of part n.
    """

    __slots__ = ("_alone", "_settings", "_space", "_written", "bytes", "refused", "rows", "taken")

    def __init__(self, space: Keys, settings: SnapshotSettings) -> None:
        self._space = space
        self._settings = settings
        self._alone = False  # no rows of other ways are left
        self._written: tuple[int, int] | None = (
            None  # parts written so far, the last one's last marker
        )
        self.taken = 0
        """Snapshots taken since the tablet was started."""
        self.refused = 0
        """Snapshots refused since then, for their size."""
        self.rows = 0
        """Rows with ids written since then; each is a message in Pulsar."""
        self.bytes = 0
        """The bytes of those ids."""

    def mark(self) -> Any:
        return self._alone, self._written, self.taken, self.refused, self.rows, self.bytes

    def undo(self, mark: Any) -> None:
        self._alone, self._written, self.taken, self.refused, self.rows, self.bytes = mark

    @property
    def unfinished(self) -> bool:
        """Says that parts are being written: `go_on` writes the next one, in a turn of its own."""
        return self._written is not None

    def take(self, aborted: Aborted, max_read: int) -> None:
        """Writes a snapshot, of several parts the first one, or the next one while parts are being written."""
        if self._settings.way == "parts":
            self._written = self._written or (0, -1)
            self.go_on(aborted, max_read)
        elif self._settings.way == "segmented":
            self._segmented(aborted, max_read)
        else:
            self._single(aborted, max_read)

    def _put(self, key: bytes, row: tuple[Any, ...], data: bytes) -> None:
        self._space.put(key, row)
        self.rows += 1
        self.bytes += len(data)

    def _done(self) -> None:
        """Ends a whole snapshot: the rows of other ways go."""
        self.taken += 1
        if not self._alone:
            for way, letters in _ROWS.items():
                for letter in letters if way != self._settings.way else ():
                    for key, _ in self._space.scan(letter, _behind(letter)):
                        self._space.delete(key)
            self._alone = True

    def _single(self, aborted: Aborted, max_read: int) -> None:
        data = aborted.pack()
        if len(data) > self._settings.message_bytes_max:
            self.refused += 1
            return
        self._put(SINGLE, (max_read, data), data)
        self._done()

    def go_on(self, aborted: Aborted, max_read: int) -> None:
        """Writes the next part; the last one, with the max read position, ends the snapshot."""
        assert self._written is not None
        number, after = self._written
        capacity = aborted.capacity(self._settings.segment_bytes)
        if aborted.count(after) > capacity:
            last = aborted.nth_marker(after, capacity)
            data = aborted.pack(after, last)
            number += 1
            self._put(PART + number.to_bytes(4, "big"), (after, data), data)
            self._written = number, last
            return
        data = aborted.pack(after)
        self._put(END, (after, data, max_read), data)
        # Parts of an earlier, longer snapshot would be read before the end.
        for key, _ in self._space.scan(PART + (number + 1).to_bytes(4, "big"), END):
            self._space.delete(key)
        self._written = None
        self._done()

    def _segmented(self, aborted: Aborted, max_read: int) -> None:
        _, following, segments, _ = self._index()
        after = segments[-1][1] if segments else -1
        capacity = aborted.capacity(self._settings.segment_bytes)
        while aborted.count(after) >= capacity:
            last = aborted.nth_marker(after, capacity)
            data = aborted.pack(after, last)
            self._put(numbered(SEGMENT, following), (last, data), data)
            segments = (*segments, (following, last))
            after, following = last, following + 1
        data = aborted.pack(after)
        self._put(INDEX, (max_read, following, segments, data), data)
        self._done()

    def _index(self) -> tuple[int, int, tuple[tuple[int, int], ...], bytes]:
        row: tuple[int, int, tuple[tuple[int, int], ...], bytes] | None = self._space.get(INDEX)
        return (0, 1, (), b"") if row is None else row

    def trimmed(self, start: int) -> None:
        """Deletes the segments whose last marker lies before `start`, the log's new start."""
        max_read, following, segments, tail = self._index()
        passed = [number for number, last in segments if last < start]
        if passed:
            for number in passed:
                self._space.delete(numbered(SEGMENT, number))
            self._space.put(INDEX, (max_read, following, segments[len(passed) :], tail))
