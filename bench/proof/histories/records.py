"""Puts a store's records into a trace, and with them the offsets that no writer has learned.

    store's topics ─▶ read_records ─▶ trace.records ─▶ fill_in_offsets ─▶ trace.operations

Next: judge.py.
"""

from typing import Any

from ...judges.trace import COMMITTED, Trace
from .schema import TOPICS, World

_READ, _READ_BYTES = 50_000, 64 << 20


def read_records(view: Any, world: World, trace: Trace) -> None:
    """Reads all records from a SnapshotView."""
    lanes = world.topic_lanes()
    for topic in TOPICS:
        for partition, (first, last) in view.bounds(topic).items():
            at = first
            while at < last:
                batch = view.read(topic, at, partition, _READ, _READ_BYTES)
                offsets = [offset for _, offset in batch.offsets]
                trace.records.add(lanes[topic] + partition, offsets, batch.values)
                at = batch.ends[partition]


def fill_in_offsets(trace: Trace) -> None:
    """Fills in, from the records, the offsets of committed records whose writer never learned them."""
    untold = {row.tx for row in trace.transactions if row.outcome == COMMITTED}
    untold &= {o.tx for o in trace.operations if o.op == "produce" and o.begin < 0}
    first: dict[tuple[int, int], int] = {}
    records = trace.records
    for lane, offset, tx in zip(records.lane, records.offset, records.tx, strict=True):
        if tx in untold:
            first.setdefault((tx, lane), offset)
    for at, one in enumerate(trace.operations):
        if one.tx in untold and (begin := first.get((one.tx, one.lane))) is not None:
            if one.op == "produce":
                trace.operations[at] = one._replace(begin=begin, end=begin + one.records)
