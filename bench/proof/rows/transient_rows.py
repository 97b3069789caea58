"""Counts what a mode keeps of transactions only until they end, or until their log is trimmed.

    pulsar   rows of transactions that are live, ongoing, pending, or ended above the low water mark
             entries of the coordinators' logs and the subscriptions'
             ids of aborted ones, until the log was trimmed
    others   nothing

Next: soak.py.
"""

from typing import Any

import planstep
from planstep.proto.ids import host_of
from planstep.runtime.in_place_views import DurableRows
from planstep.tablets.pulsar.snapshots import recover

COUNTS = "transaction_rows", "log_entries", "aborted_ids"
_OF_PARTITIONS = (b"o", b"n", b"z", b"u", b"y", b"j", b"k")
_OF_COORDINATORS = (b"t", b"d", b"v", b"e")


def transient(db: planstep.Engine) -> dict[str, float]:
    """Counts, by the names of COUNTS, what is in the engine's stores now."""
    counter = _COUNTERS.get(db.mode)
    return dict.fromkeys(COUNTS, 0) if counter is None else counter(db)


def _pulsar(db: planstep.Engine) -> dict[str, float]:
    runtime: Any = db.context.runtime
    rows = entries = ids = 0
    partitions = [
        tablet for info in list(runtime.names.topics.values()) for tablet in info.partitions
    ]
    for tablets, letters in (
        (partitions, _OF_PARTITIONS),
        (runtime.hooks.coordinators(), _OF_COORDINATORS),
    ):
        for tablet in tablets:
            space = DurableRows(runtime.nodes[host_of(tablet)].host.store, tablet)
            rows += sum(len(space.scan(letter, _behind(letter))) for letter in letters)
            entries += len(space.scan(b"l", _behind(b"l")))
            if tablets is partitions:
                start, end, _ = runtime.views.log_meta(tablet)
                aborted = recover(space, start, end)
                ids += 0 if aborted is None else len(aborted)
    return dict(zip(COUNTS, (rows, entries, ids), strict=True))


def _behind(letter: bytes) -> bytes:
    return bytes((letter[0] + 1,))


_COUNTERS = {"pulsar": _pulsar}
