"""Looks at a whole store from outside: its tables, and the log behind them, up to what its owner has released.

    lease ─▶ LMDB as of turn T (one pinned transaction) + the log's turns T+1 … released ─▶ an epoch

The owner's mark says how far it has released. If the mark is of another boot of the machine, all valid turns in the
log came from the disk and count. If the log continued in a new generation after the mark was read, the mark is read
again.

With several hosts the views must fit together: runtime/consistent_cut.py reads all marks at one moment and
passes each host's here as `until`.

Next: ../recovery.py.
"""

import time
from pathlib import Path
from typing import NamedTuple

from ...errors import Corruption, FormatError, IoError
from ..files import Files, check_there, way_into
from ..log.segments import Folder
from ..meta import Meta, load_meta
from ..recovery import ReadBack, read_back
from ..tables.table import Table
from .reader_lease import Lease
from .released_mark import Mark, read_mark
from .tail import Epoch, Position, position_behind, taken_from

_TRIES = 20
_TRIES_AT_REST = 3
"""Tries for files that do not change, which stay damaged: each try reads a whole log."""


class StoreChanged(IoError):
    """The owner is beyond the mark that was asked for: take a newer mark."""


class Seen(NamedTuple):
    """The result of a look: an epoch with all turns that count, and the place behind them, if the log tells."""

    epoch: Epoch
    generation: int
    position: Position | None


class Place(NamedTuple):
    """A store's folder with its descriptor `held`, which `files` uses. `table`: its tables, if they are open; else
    they are opened, `ownable` for a process that may become the owner.
    """

    folder: Path
    meta: Meta
    files: Files
    held: int
    table: Table | None = None
    ownable: bool = False

    def mark(self) -> Mark | None:
        """Reads the owner's mark as it is now, wherever the folder is by now. IoError."""
        return read_mark(self.folder / "released", self.meta.store_id, self.held)


def look(place: Place, until: Mark | None) -> Seen:
    """Looks at the store as of now, or of `until`. Corruption, IoError, FormatError, TooManyReaders.

    The epoch closes `held` at its end; an error leaves it open.
    """
    opened = Folder(place.folder, place.meta.store_id, place.files, 0)
    at_rest = 0
    for attempt in range(_TRIES):
        before = _state_of(place)
        lease = Lease(place.folder, place.held)
        try:
            return _look_once(place, opened, lease, until)
        except (IoError, Corruption, FormatError) as error:
            lease.close()
            opened.close()
            _check_not_replaced(place)
            # The owner may have checkpointed, begun a segment or been created between two reads.
            at_rest = at_rest + 1 if _state_of(place) == before else 0
            last = attempt == _TRIES - 1 or at_rest == _TRIES_AT_REST
            if last or isinstance(error, StoreChanged):
                raise
            time.sleep(0.005)  # longer than the clock step of file times
        except BaseException:
            lease.close()
            opened.close()
            raise
    raise AssertionError("the last attempt returns or raises")


def _check_not_replaced(place: Place) -> None:
    """Raises IoError if a backup took this store's name since its id was read."""
    try:
        meta = load_meta(place.folder, place.files)
    except (FormatError, IoError):
        return  # the first error says more
    if meta is not None and meta.store_id != place.meta.store_id:
        raise IoError(f"{place.folder}: the store was replaced just now: open it again")


def _look_once(place: Place, opened: Folder, lease: Lease, until: Mark | None) -> Seen:
    mark = place.mark() if until is None else until
    table = _opened_table(place)
    txn = None
    try:
        txn = table.pin()
        lease.name(table.newest(txn))
        checkpoint, address, first, closed, _ = table.state(txn) or (0, 0, "", False, 0)
        found = read_back(
            place.folder,
            place.files,
            place.meta.store_id,
            checkpoint,
            first_segment=first,
            closed=closed,
            proven=0 if mark is None else mark.synced,
        )
        if until is None and mark is not None and mark.generation < found.generation:
            mark = _mark_of(place, found.generation) or mark
        shown = _shown(place, found, checkpoint, mark, until)
        epoch = Epoch(opened, table, txn, lease, place.held)
        epoch.begin(checkpoint, address)
        epoch.take(taken_from(s, record) for s, record, _ in found.turns if record.turn <= shown)
        position = position_behind(found, checkpoint, epoch.turn)
        if position is not None and position.generation != found.generation:
            position = None  # a segment of a later generation was made, and not begun
        return Seen(epoch, found.generation, position)
    except BaseException:
        if txn is not None:
            txn.abort()
        table.close()
        raise


def _opened_table(place: Place) -> Table:
    if place.table is not None:
        return place.table.shared()
    way = way_into(place.folder, place.held)
    check_there(way, place.held)
    table = Table(way / "table", place.meta.store_id, read_only=True, ownable=place.ownable)
    try:
        check_there(way, place.held)
    except BaseException:
        table.close()
        raise
    return table


def _shown(
    place: Place, found: ReadBack, checkpoint: int, mark: Mark | None, until: Mark | None
) -> int:
    """Returns the last turn that counts, of those that were read back."""
    if mark is None or not mark.current:
        return found.last_turn(found.synced)
    if mark.generation < found.generation:
        if until is not None:
            raise StoreChanged(
                f"{place.folder}: its owner has switched to another log segment since turn {mark.turn}"
            )
        return found.synced
    if until is None:
        return max(found.synced, mark.turn)
    if checkpoint > mark.turn:
        raise StoreChanged(f"{place.folder}: turn {mark.turn} is behind the checkpoint")
    # Turns that the log proves beyond the mark were released after the mark was read.
    return mark.turn


def _mark_of(place: Place, generation: int) -> Mark | None:
    """Reads the mark again when the log continued in a new generation; the owner wrote a new mark before that.

    Only the mark of that same generation will do: a turn may have been written twice, and a later generation's
    mark does not say which copy was read. None: no mark was written, and the turns proven by the log count.
    """
    mark = place.mark()
    if mark is None or mark.generation > generation:
        raise IoError(f"{place.folder}: its owner keeps switching log segments; try again")
    return mark if mark.generation == generation else None


def _state_of(place: Place) -> list[tuple[str, int, int]]:
    """Returns what changes when an owner writes: names, sizes and times of its files. IoError."""
    found = []
    for path in (place.folder, place.folder / "table"):
        for name, status in place.files.states(path):
            if name != "leases" and not name.startswith("lock"):
                found.append((name, status.st_size, status.st_mtime_ns))
    return sorted(found)
