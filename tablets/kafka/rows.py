"""Names the fields of the rows of a partition of mode "kafka".

Next: partition.py, which keeps them.
"""

from typing import NamedTuple


class Bounds(NamedTuple):
    """The log is [start, end); readers of committed data see only offsets before `stable`."""

    start: int = 0
    end: int = 0
    stable: int = 0


EMPTY = Bounds()
"""The bounds of a log before its first append."""


class Entry(NamedTuple):
    """A batch, `length` bytes at `address` of its host's log, or a marker.

    A marker has no bytes, one offset, the sequence -1 and a `coordinator_epoch`; a batch is stored without
    that field.
    """

    address: int
    length: int
    records: int
    producer: int
    epoch: int
    sequence: int
    kind: int
    coordinator_epoch: int | None = None
