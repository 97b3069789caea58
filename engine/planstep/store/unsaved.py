"""Tracks changes that are in the log and not in LMDB yet: keys in two layers, payloads as runs of the log.

    turn ─▶ live layer, runs, drops ──freeze──▶ frozen layer ──its LMDB commit──▶ forgotten

Readers (layered_reads.py) ask the live layer first, then the frozen one, then LMDB. Most lookups of a commit are
for keys that are absent because they lie behind the last of their kind: `ends` answers those without LMDB.

Next: checkpointing.py.
"""

import threading
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from .layers import Layer
from .log.extents import Extent

if TYPE_CHECKING:
    from .log.log_writer import LogEnd
    from .tables.table import Table

KIND_BYTES = 5
"""A key's tablet and the byte behind it, which says what kind of row it is."""
Ends: TypeAlias = dict[bytes, bytes]
"""The last key in LMDB by the first `KIND_BYTES` of a key, b"" for none; filled as asked for."""


class Picture(NamedTuple):
    """A store at one moment, for a reader that goes on in it while turns and checkpoints continue.

    Newer keys, newer payloads, the next payload's address, and LMDB's read transaction, ended by the holder.
    """

    layer: Layer
    runs: list[Extent]
    next_address: int
    txn: Any


class Unsaved:
    """Changes that only the log holds.

    Invariants: `layers` is replaced by one assignment, so a reader without the mutex sees one moment.
    A frozen layer no longer changes, and is forgotten only after its LMDB commit.
    """

    def __init__(self) -> None:
        self.mutex = threading.Lock()  # taken after LogEnd.appending
        self.layers: tuple[Layer, Layer | None, Ends] = (Layer(), None, {})
        self.runs: list[Extent] = []
        self.run_starts: list[int] = []
        self.dropped: list[tuple[int, int]] = []
        self.bytes = self.frozen_bytes = 0  # of the log
        self.changed_at = 0.0
        self._frozen_runs = self._frozen_dropped = 0

    def note(self, run: Extent, dropped: list[tuple[int, int]], size: int) -> None:
        """Records a turn's payload and drops; its keys follow when the turn becomes visible."""
        with self.mutex:
            self.bytes += size
            self.changed_at = time.monotonic()
            if run.length:
                self.runs.append(run)
                self.run_starts.append(run.address)
            self.dropped += dropped

    def move(self, moved: dict[int, Extent]) -> None:
        """Replaces runs, by address, that the log has copied to another segment."""
        with self.mutex:
            self.runs = [moved.get(run.address, run) for run in self.runs]

    def run_at(self, address: int) -> Extent | None:
        """Returns the run that holds `address`; None if it is only in LMDB, or unknown."""
        with self.mutex:  # a checkpoint replaces both
            runs, starts = self.runs, self.run_starts
        at = bisect_right(starts, address) - 1
        if 0 <= at < len(runs) and address < runs[at].address + runs[at].length:
            return runs[at]
        return None

    def picture(self, log: "LogEnd", table: "Table") -> Picture:
        """Captures the store between two turns, and never amid a checkpoint's hand-over: every committed turn is in
        at least one of the three.
        """
        with log.appending, self.mutex:
            live, frozen, _ = self.layers
            values, runs, end = dict(live.values), list(self.runs), log.address
            txn = table.pin()
        layer = Layer()
        if frozen is not None:  # it no longer changes
            layer.update(frozen.values)
        layer.update(values)
        return Picture(layer, runs, end, txn)

    # for a checkpoint ----------------------------------------------------------------------

    @property
    def empty(self) -> bool:
        return not len(self.layers[0]) and not self.runs and not self.dropped

    def freeze(self) -> Layer:
        """Freezes all changes for a checkpoint; changes nothing if it raises. The caller holds the mutex."""
        frozen = self.layers[0]
        layers = (Layer(), frozen, self.layers[2])
        self._frozen_runs, self._frozen_dropped = len(self.runs), len(self.dropped)
        self.frozen_bytes, self.bytes, self.layers = self.bytes, 0, layers
        return frozen

    def frozen_payloads(self) -> tuple[list[Extent], list[tuple[int, int]]]:
        """Returns (runs, drops) of the frozen turns."""
        return self.runs[: self._frozen_runs], self.dropped[: self._frozen_dropped]

    def forget_frozen(self) -> None:
        """Forgets the frozen changes, which LMDB now holds. If it raises, it changed nothing and may be called
        again.
        """
        with self.mutex:
            layers: tuple[Layer, Layer | None, Ends] = (self.layers[0], None, {})
            runs = self.runs[self._frozen_runs :]
            starts = [run.address for run in runs]
            dropped = self.dropped[self._frozen_dropped :]
            self.layers, self.runs, self.run_starts = layers, runs, starts
            self.dropped, self.frozen_bytes = dropped, 0
