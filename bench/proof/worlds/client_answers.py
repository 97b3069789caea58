"""Checks the offsets in clients' commit results against the stored records.

    Result.details[partition] = (begin, end) ─▶ the slices from `begin` on have this place, and end at `end`

Next: seed.py.
"""

from typing import Any

from ....proto.ids import COORDINATOR_ID, PARTITION, kind_of, tablet_prefix, tx_text
from ....tablets.partition import Bounds, Entry
from ..simulator.world import World
from .serial_model import Asked


def told(world: World, work: Asked) -> list[str]:
    """Returns a violation (B20) for each result whose offsets are missing or differ from the records'."""
    wrong = []
    for tx, parts in work.asked.items():
        result = world.results.get(tx)
        if result is None or result.reason is not None:
            continue
        for tablet, part in parts.items():
            if kind_of(tablet) != PARTITION or not part.slices or _dropped(world, tablet):
                continue
            detail = result.details.get(tablet)
            repeated = part.dedupe and tablet in result.details and detail is None
            records = sum(count for _, count in part.slices)
            if not repeated and not _there(world, tablet, detail, records, (result.step, result.n)):
                wrong.append(f"B20: {tx_text(tx)} was told {detail} of tablet {tablet:#x}")
    return wrong


def _dropped(world: World, tablet: int) -> bool:
    return world.read(COORDINATOR_ID, b"x" + tablet_prefix(tablet)) is not None


def _there(world: World, tablet: int, detail: Any, records: int, place: tuple[int, int]) -> bool:
    begin, end = detail or (0, 0)
    if detail is None or end - begin != records:
        return False
    meta = world.read(tablet, b"m")
    if meta is None:
        return False
    start = Bounds._make(meta).start
    while begin < end:
        row = world.read(tablet, b"b" + begin.to_bytes(8, "big"))
        if row is None:
            return bool(end <= start or begin < start)  # trimmed since
        entry = Entry._make(row)
        if (entry.step, entry.n) != place:
            return False
        begin += entry.records
    return bool(begin == end)
