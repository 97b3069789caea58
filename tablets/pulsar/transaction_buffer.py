"""Appends messages and markers to a partition's log, and keeps how far readers may read.

    offset    0 1 2   3 4     5        6 7     8
             │A A A│ │p p│ │commit A│ │B B│ │  p  │ …     B is ongoing: the max read position is 6, where
                                      ╰ max read          readers stop, also for the plain messages behind it

    None ─▶ Initializing ─▶ Ready              a snapshot of aborted ids is there: they are recovered at first use
      ╰───▶ NoSnapshot ──▶ Ready               the first transactional message takes the first snapshot

Keys, behind the tablet's prefix; `s`, `q`, `g` and `i` are snapshots.py's:

    b<offset 8>         a batch, or a marker: `rows.Entry`
    m                   `rows.Bounds`; put last, after the rows that it covers
    o<offset 8>         (most, least)      ongoing transactions by their first message
    n<most 8><least 8>  the offset of an ongoing transaction's first message
    w<most 8>           the low water mark of a coordinator: its transactions up to here have ended
    z<most 8><least 8>  commit             transactions that ended here and are above the mark

Max read moves with the log's end while nothing is ongoing, else with the end of the oldest transaction. Moves are
counted: after `snapshot_transactions` of them, or `snapshot_interval_ms` after the first one, a snapshot is taken.

Kinder than Pulsar, whose buffer forgets an id as soon as it has ended (so a late message joins it again, and its
abort hides what was committed): a late message is refused, and a repeated end writes no second marker. All of
a turn is one write, so what it publishes never waits for the first snapshot.

Next: partition.py.
"""

from typing import Any

from ...proto.pulsar.messages import ABORT, COMMIT, NO_TXN, PLAIN, TRANSACTIONAL, Send, Shell
from ...proto.shell import Keys, Wake
from .aborted import Aborted
from .rows import EMPTY, META, Bounds, Entry, numbered, of_txn, txns_of
from .snapshots import Snapshots, SnapshotSettings, is_stored, load, read_markers

UNUSED, INITIALIZING, NO_SNAPSHOT, READY = "None", "Initializing", "NoSnapshot", "Ready"
RECOVERED_MAX = 10_000
"""The log entries, about, that recovery reads in one turn."""
_LOOKED_AT = 100
RECOVER, TAKE, PART = "recover", "snapshot", "part"
"""What the partition's delayed messages to itself ask the buffer for."""


class TransactionBuffer:
    """Keeps a partition's ongoing and aborted transactions.

    Invariants: `n` and `o` have a row each for every ongoing transaction. Max read is the first message of the
    oldest one, or the log's end; it never falls. No ongoing transaction is at or below its coordinator's mark.
    `aborted` has the abort markers of the log, once the state is Ready; before, nobody may ask for it.
    """

    __slots__ = (
        "_interval",
        "_moves",
        "_recovered",
        "aborted",
        "shell",
        "snapshots",
        "space",
        "state",
        "taken_ms",
    )

    def __init__(self, space: Keys, shell: Shell) -> None:
        self.space = space
        self.shell = shell
        settings = shell.settings
        self.snapshots = Snapshots(
            space,
            SnapshotSettings(
                settings.snapshots, settings.snapshot_segment_bytes, settings.message_bytes_max
            ),
        )
        self.aborted = Aborted()
        self.state = UNUSED
        self._recovered = 0  # the offset before which the markers are known
        self._moves = 0  # of max read since the last snapshot
        self._interval = 0  # number of the last snapshot, so that a timer takes only the next one
        self.taken_ms: int | None = None
        """When the last whole snapshot was taken, None if none was since the tablet was started."""

    def mark(self) -> Any:
        own = self.state, self._recovered, self._moves, self._interval, self.taken_ms
        return own, self.snapshots.mark(), self.aborted, self.aborted.mark()

    def undo(self, mark: Any) -> None:
        own, snapshots, self.aborted, aborted = mark
        self.state, self._recovered, self._moves, self._interval, self.taken_ms = own
        self.snapshots.undo(snapshots)
        self.aborted.undo(aborted)

    @property
    def bounds(self) -> Bounds:
        row: tuple[int, int, int] | None = self.space.get(META)
        return EMPTY if row is None else tuple.__new__(Bounds, row)

    # recovery ------------------------------------------------------------------------------

    def prepare(self) -> bool:
        """Recovers the aborted ids at first use; returns False while a later turn has to go on with it."""
        if self.state in (NO_SNAPSHOT, READY):
            return True
        start, end, _ = self.bounds
        if self.state == UNUSED:
            loaded = load(self.space) if is_stored(self.space) else None
            if loaded is None:
                self.state = NO_SNAPSHOT
                return True
            self.aborted, self._recovered = loaded
            self.state = INITIALIZING
        begin = max(self._recovered, start)
        self._recovered = read_markers(self.space, self.aborted, begin, end, RECOVERED_MAX)
        if self._recovered < end:
            self.shell.later(0, Wake(RECOVER))
            return False
        self.aborted.trim(start)
        self.state = READY
        return True

    # messages ------------------------------------------------------------------------------

    def append(self, message: Send) -> int | str:
        """Appends a batch; returns the offset of its first message, or the error."""
        space, most, least = self.space, message.most, message.least
        transactional = (most, least) != NO_TXN
        if transactional:
            if self.has_ended(most, least):
                return "NotAllowedError"
            if self.state == NO_SNAPSHOT:
                self.state = READY
                self._take()
        start, end, max_read = self.bounds
        address = space.append_payload(message.data)
        kind = TRANSACTIONAL if transactional else PLAIN
        size, producer = len(message.data), message.producer
        entry = Entry(address, size, message.records, kind, most, least, producer, message.sequence)
        space.put(numbered(b"b", end), entry)
        if transactional and space.get(of_txn(b"n", most, least)) is None:
            space.put(of_txn(b"n", most, least), end)
            space.put(numbered(b"o", end), (most, least))
        behind = end + message.records
        moved = not transactional and max_read == end
        space.put(META, Bounds(start, behind, behind if moved else max_read))
        self.shell.appended(visible=moved)
        if moved:
            self._moved()
        return end

    def has_ended(self, most: int, least: int) -> bool:
        """Returns whether the partition knows that the transaction has ended."""
        if least <= self.low_water_mark(most):
            return True
        return self.space.get(of_txn(b"z", most, least)) is not None

    def next_shown(self, offset: int) -> int:
        """Returns the first offset from `offset` on that readers are shown, or max read if there is none."""
        space, max_read = self.space, self.bounds.max_read
        before = space.scan(b"b", numbered(b"b", offset), reverse=True, limit=1)
        if before:  # the entry that may hold it
            first = int.from_bytes(before[0][0][1:], "big")
            entry = Entry(*before[0][1])
            if offset < first + entry.records and offset < max_read:
                if self._is_shown(first, entry):
                    return offset
                offset = first + entry.records
        while offset < max_read:
            rows = space.scan(numbered(b"b", offset), numbered(b"b", max_read), limit=_LOOKED_AT)
            for key, row in rows:  # there are some: entries tile the log
                first, entry = int.from_bytes(key[1:], "big"), Entry(*row)
                if self._is_shown(first, entry):
                    return first
            offset = first + entry.records
        return max(offset, max_read)

    def _is_shown(self, first: int, entry: Entry) -> bool:
        if entry.kind == TRANSACTIONAL:
            return not self.aborted.contains(entry.most, entry.least, first)
        return entry.kind == PLAIN

    # ends ----------------------------------------------------------------------------------

    def end(self, most: int, least: int, commit: bool) -> None:
        """Ends a transaction, unless it has ended before."""
        if not self.has_ended(most, least):
            self._finish(most, least, commit)
            self.space.put(of_txn(b"z", most, least), commit)

    def low_water_mark(self, most: int) -> int:
        """Returns the number up to which a coordinator's transactions have all ended, -1 for none."""
        mark: int | None = self.space.get(numbered(b"w", most))
        return -1 if mark is None else mark

    def raise_mark(self, most: int, mark: int) -> None:
        """Raises a low water mark: what is ongoing at or below it is aborted, since nobody knows it any more."""
        space, begin = self.space, self.low_water_mark(most) + 1
        space.put(numbered(b"w", most), mark)
        for least in txns_of(space, b"z", most, begin, mark + 1):
            space.delete(of_txn(b"z", most, least))
        for least in txns_of(space, b"n", most, begin, mark + 1):
            self._finish(most, least, commit=False)

    def _finish(self, most: int, least: int, commit: bool) -> None:
        """Appends a marker, also for a transaction that wrote nothing here; not for an abort in NoSnapshot."""
        if not commit and self.state == NO_SNAPSHOT:
            return
        space = self.space
        start, end, max_read = self.bounds
        kind = COMMIT if commit else ABORT
        space.put(numbered(b"b", end), Entry(0, 0, 1, kind, most, least, "", -1))
        behind, before = end + 1, max_read
        first: int | None = space.get(of_txn(b"n", most, least))
        if first is not None:
            space.delete(of_txn(b"n", most, least))
            space.delete(numbered(b"o", first))
            if first == max_read:  # else an older one is ongoing
                after = space.scan(numbered(b"o", first + 1), numbered(b"o", end), limit=1)
                max_read = int.from_bytes(after[0][0][1:], "big") if after else behind
        elif max_read == end:
            max_read = behind
        if not commit:
            self.aborted.add(most, least, end)
        space.put(META, Bounds(start, behind, max_read))
        # A commit that waits behind an older transaction has done its part: Phases say so, as in mode kafka.
        self.shell.appended(visible=commit or max_read > before)
        if max_read > before:
            self._moved()

    # snapshots -----------------------------------------------------------------------------

    def _moved(self) -> None:
        """Counts a move of max read; many of them, or the time since the first one, ask for a snapshot."""
        if self.state != READY:
            return  # nothing was aborted here, ever
        settings = self.shell.settings
        self._moves += 1
        if self._moves == 1:
            self.shell.later(settings.snapshot_interval_ms, Wake(TAKE, self._interval))
        if self._moves >= settings.snapshot_transactions:
            self._take()

    def _take(self) -> None:
        self._moves = 0
        self._interval += 1
        self._written(self.snapshots.take)

    def _written(self, write: Any) -> None:
        rows, taken = self.snapshots.rows, self.snapshots.taken
        write(self.aborted, self.bounds.max_read)
        if self.snapshots.taken > taken:
            self.taken_ms = self.shell.now_ms
        for _ in range(self.snapshots.rows - rows):
            self.shell.appended()
        if self.snapshots.unfinished:
            self.shell.later(0, Wake(PART))

    def wake(self, what: str, number: int | None) -> None:
        """Goes on with a snapshot in parts, or takes the one whose time has come."""
        if what == PART and self.snapshots.unfinished:
            self._written(self.snapshots.go_on)
        elif what == TAKE and number == self._interval and self._moves:
            self._take()

    def trimmed(self, start: int) -> None:
        """Forgets the aborted ids whose markers are before `start`, the log's new start."""
        self.aborted.trim(start)
        self.snapshots.trimmed(start)
