"""Captures a store at one moment, for a reader that goes on in it while turns and checkpoints continue.

    frozen layer + live layer ─▶ one layer        runs ─▶ newer payloads        LMDB ─▶ a pinned transaction

The moment lies between two turns, and never amid a checkpoint's hand-over: every committed turn is in at least
one of the three.

Next: readers/pinned.py.
"""

from typing import Any, NamedTuple

from .layers import Layer
from .log.extents import Extent
from .log.log_writer import LogEnd
from .tables.table import Table
from .unsaved import Unsaved


class Picture(NamedTuple):
    """Newer keys, newer payloads, the next payload's address, and LMDB's read transaction, ended by the holder."""

    layer: Layer
    runs: list[Extent]
    next_address: int
    txn: Any


def take_picture(log: LogEnd, unsaved: Unsaved, table: Table) -> Picture:
    with log.appending, unsaved.mutex:
        live, frozen, _ = unsaved.layers
        values, runs, end = dict(live.values), list(unsaved.runs), log.address
        txn = table.pin()
    layer = Layer()
    if frozen is not None:  # it no longer changes
        layer.update(frozen.values)
    layer.update(values)
    return Picture(layer, runs, end, txn)
