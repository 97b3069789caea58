"""Keeps the readers' own copies of partitions' aborted ids, read from durable rows beside running turns.

    first use   the newest snapshot, then the markers behind it up to the log's end
    later       the markers that have come since

Row `m` is put last: who has seen it finds every marker up to its end. All of them are read, since a marker may lie
behind the max read position while an older transaction is open. An id is hidden by the markers of one `m`, so of a
log that goes on no id is taken in half.

Next: views.py.
"""

import threading
from collections.abc import Iterator
from typing import Any

from ...proto.pulsar.messages import TRANSACTIONAL
from ...tablets.pulsar.aborted import Aborted
from ...tablets.pulsar.snapshots import INDEX, load, read_markers
from ..in_place_views import DurableRows, InPlaceBounds

_TRIES = 5


class AbortedIds:
    """The ids of all partitions that were read. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, tuple[Aborted, int]] = {}
        """By tablet: the ids, and the offset before which all markers are read."""

    def shown(
        self,
        tablet: int,
        rows: DurableRows,
        bounds: InPlaceBounds,
        entries: Iterator[tuple[int, Any]],
    ) -> Iterator[tuple[int, Any]]:
        """Yields those of `entries`, all before the max read position of `bounds`, that were not aborted."""
        with self._lock:  # another reader may trim the ids while this one goes through its entries
            aborted = self._upto(tablet, rows, bounds).kept()
        for offset, row in entries:
            _, _, _, kind, most, least, *_ = row
            if kind < TRANSACTIONAL:
                yield offset, row
            elif kind == TRANSACTIONAL:
                with self._lock:
                    hidden = aborted.contains(most, least, offset)
                if not hidden:
                    yield offset, row

    def count(self, tablet: int, rows: DurableRows, bounds: InPlaceBounds) -> int:
        with self._lock:
            return len(self._upto(tablet, rows, bounds))

    def _upto(self, tablet: int, rows: DurableRows, bounds: InPlaceBounds) -> Aborted:
        known = self._known.get(tablet)
        aborted, read_to = known if known is not None else _loaded(rows)
        if read_to < bounds.end:
            read_markers(rows, aborted, max(read_to, bounds.start), bounds.end)
            read_to = bounds.end
        aborted.trim(bounds.start)
        self._known[tablet] = aborted, read_to
        return aborted


def _loaded(rows: DurableRows) -> tuple[Aborted, int]:
    """Returns the ids of the newest snapshot, and where to read on; without one, all of the log is read.

    A segment may go while they are read: its index has changed then.
    """
    for _ in range(_TRIES):
        index = rows.get(INDEX)
        try:
            loaded = load(rows)
        except TypeError:  # a segment that the index named is gone
            continue
        if rows.get(INDEX) == index:
            return loaded or (Aborted(), 0)
    return Aborted(), 0
