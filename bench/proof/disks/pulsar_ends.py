"""Ends what a dead process left open in mode "pulsar", and lists what no end may leave behind.

    OPEN of an earlier process ─▶ an operator's abort, or its time-out ─┐
    decided ─▶ driven on by its coordinator, by itself ─────────────────┴▶ nothing is live ─▶ left

Afterwards no row of a transaction is there, each log gives its rows, and each partition's snapshot, with the
markers behind it, gives the aborted ids that its whole log has.

Next: modes.py.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from ....api.engine import Engine
from ....coordinator.pulsar import invariants
from ....proto.ids import host_of
from ....proto.pulsar.messages import ABORT
from ....runtime.in_place_views import DurableRows
from ....tablets.pulsar import rows
from ....tablets.pulsar.ack_log import replayed
from ....tablets.pulsar.snapshots import recover

_LEFTOVERS = {b"t": "live", b"o": "ongoing", b"n": "ongoing", b"y": "pending", b"k": "pending"}
"""Rows that go as their transaction ends, by letter."""


def abort_open(db: Engine, workers: Iterable[str]) -> None:
    """Aborts what earlier processes left open, as an operator; workers' names are nothing to the coordinators."""
    db.abort_left_open()


def is_live(db: Engine) -> bool:
    """Returns whether some transaction has not ended everywhere."""
    runtime: Any = db.context.runtime
    return any(invariants.live_rows(_rows(db, tablet)) for tablet in runtime.hooks.coordinators())


def left(db: Engine) -> Iterator[str]:
    """Yields what is left of transactions although all have ended, and rows that differ from their logs."""
    runtime: Any = db.context.runtime
    coordinators = runtime.hooks.coordinators()
    partitions = [tablet for info in runtime.names.topics.values() for tablet in info.partitions]
    for tablet in (*partitions, *coordinators):
        for letter, what in _LEFTOVERS.items():
            if found := _rows(db, tablet).scan(letter, bytes([letter[0] + 1]), limit=5):
                yield f"tablet {tablet:#x} has something {what} after all ends: {found}"
    for tablet in coordinators:
        space = _rows(db, tablet)
        yield from invariants.violations(space)
        if entries := space.scan(b"l", b"m"):
            yield f"the log of coordinator {tablet:#x} has {len(entries)} entries, and nothing is live"
    for tablet in partitions:
        yield from _differing(db, tablet)


def _differing(db: Engine, tablet: int) -> Iterator[str]:
    space = _rows(db, tablet)
    for key, row in space.scan(b"c", b"d"):
        name = key[1:-1].decode()
        if replayed(space, name, rows.Cursor(*row)) != ({}, None):
            yield f"the log of {name} in {tablet:#x} says that something is pending"
    views: Any = db.context.runtime.views
    start, end, shown = views.log_meta(tablet)
    if shown != end:
        yield f"readers of {tablet:#x} stop at {shown}, and nothing is open before its end, {end}"
    known, markers = recover(space, start, end), []
    for key, value in space.scan(rows.numbered(b"b", start), rows.numbered(b"b", end)):
        entry = rows.Entry(*value)
        if entry.kind == ABORT:
            markers.append((int.from_bytes(key[1:], "big"), entry.most, entry.least))
    if markers != ([] if known is None else known.ids()):
        yield f"the snapshot of {tablet:#x} gives other aborted ids than its log, {markers}"


def _rows(db: Engine, tablet: int) -> DurableRows:
    nodes: Any = db.context.runtime.nodes
    return DurableRows(nodes[host_of(tablet)].host.store, tablet)
