"""A store at one moment, for who reads on in it while turns and checkpoints go on.

    frozen layer + live layer ─▶ one layer        runs ─▶ newer payloads        LMDB ─▶ a pinned transaction

Between two turns, and not amid a checkpoint's handing over: what is in none of the three is in no turn either.

Next: readers/pinned.py.
"""

from typing import Any, NamedTuple

from .layers import Layer
from .log.extents import Extent
from .log.log_writer import LogEnd
from .tables.table import Table
from .unsaved import Unsaved


class Picture(NamedTuple):
    """Newer keys, newer payloads, the next payload's address, LMDB's read transaction, which its holder ends."""

    layer: Layer
    runs: list[Extent]
    next_address: int
    txn: Any


def take_picture(log: LogEnd, unsaved: Unsaved, table: Table) -> Picture:
    with log.appending, unsaved.mutex:
        live, frozen = unsaved.layers
        values, runs, end = dict(live.values), list(unsaved.runs), log.address
        txn = table.pin()
    layer = Layer()
    if frozen is not None:  # nobody changes it any more
        layer.update(frozen.values)
    layer.update(values)
    return Picture(layer, runs, end, txn)
