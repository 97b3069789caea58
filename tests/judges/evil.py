"""Damages a store in a way that no engine would: replaces a partition's records below its tablet.

    copy of a store ─ DiskStore ─▶ all records of a partition ─ change ─▶ one batch in place of all

The copy opens like any store and reads show the new records, because checksums, digests and bounds agree. It works
for mode "deterministic" on one host.
"""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from planstep.bench.judges.trace import ABORTED, PRODUCE, Operation, Trace, identities, identity
from planstep.proto.batch import Batch, encode_batch
from planstep.proto.ids import CATALOGUE_ID, PARTITION, tablet_prefix
from planstep.store import DiskStore
from planstep.tablets.catalogue import name_key

Values = list[bytes]


def rewrite(store: Path, topic: str, partition: int, change: Callable[[Values], Values]) -> None:
    """Replaces a partition's records by `change(records)`, from the same offset on."""
    disk = DiskStore.open(store / "host-0", create=False, durability="os")
    try:
        catalogue = disk.get(tablet_prefix(CATALOGUE_ID) + name_key(PARTITION, topic))
        prefix = tablet_prefix(catalogue[1][partition])
        turn = disk.begin()
        values: Values = []
        for key, (address, length, _, _, _) in disk.scan(prefix + b"b", prefix + b"c"):
            values += Batch.decode(disk.read_payload(address, length)).values
            turn.delete(key)
            turn.drop_payload(address, length)
        changed = change(values)
        data = encode_batch(changed)
        step, n, start, end = disk.get(prefix + b"m")
        assert end - start == len(values)
        slice_ = (turn.append_payload(data), len(data), len(changed), step, n)
        turn.put(prefix + b"b" + start.to_bytes(8, "big"), slice_)
        turn.put(prefix + b"m", (step, n, start, start + len(changed)))
        disk.commit(turn)
    finally:
        disk.close()


def spoil(store: Path, trace: Trace, kind: str, seed: int) -> None:
    """Plants one anomaly of the kind in the topic that the trace's transactions produced to."""
    draw = random.Random(seed)
    produced = [one for one in trace.operations if one.op == PRODUCE]
    outcomes = {row.tx: row.outcome for row in trace.transactions}
    whole = [one for one in produced if one.records > 1 and outcomes[one.tx] != ABORTED]
    lanes = Counter(one.tx for one in produced)
    if kind == "torn":
        whole = [one for one in whole if lanes[one.tx] > 1]
    given_up = [one for one in produced if outcomes[one.tx] == ABORTED]
    one = draw.choice(given_up if kind == "aborted data visible" else whole)
    lane = trace.lanes[one.lane]
    rewrite(store, lane.name, lane.partition, lambda values: _CHANGES[kind](values, one))


def _first(values: Values, one: Operation) -> int:
    """Returns the index of the transaction's first record."""
    return list(identities(values)[2]).index(one.tx)


def _lost(values: Values, one: Operation) -> Values:
    at = _first(values, one)
    return values[:at] + values[at + 1 :]


def _repeated(values: Values, one: Operation) -> Values:
    at = _first(values, one)
    return values[: at + 1] + values[at:]


def _reordered(values: Values, one: Operation) -> Values:
    at = _first(values, one)
    return [*values[:at], values[at + 1], values[at], *values[at + 2 :]]


def _torn(values: Values, one: Operation) -> Values:
    at = _first(values, one)
    return values[:at] + values[at + one.records :]


def _aborted(values: Values, one: Operation) -> Values:
    return [*values, identity(1 << 16, 0, one.tx)]


_CHANGES: dict[str, Callable[[Values, Operation], Values]] = {
    "lost": _lost,
    "repeated": _repeated,
    "reordered": _reordered,
    "torn": _torn,
    "aborted data visible": _aborted,
}
