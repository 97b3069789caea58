"""Rows of a partition of the Kafka-style mode, by their fields' names.

Next: partition.py, which keeps them.
"""

from typing import NamedTuple


class Bounds(NamedTuple):
    """The log is [start, end); readers of committed data are shown what is before `stable`."""

    start: int = 0
    end: int = 0
    stable: int = 0


EMPTY = Bounds()
"""Of a log to which nothing was ever appended."""


class Entry(NamedTuple):
    """A batch, `length` bytes at `address` of its host's log; or a marker, which has no bytes, one offset, the
    sequence -1 and a `coordinator_epoch`; a batch is stored without that field."""

    address: int
    length: int
    records: int
    producer: int
    epoch: int
    sequence: int
    kind: int
    coordinator_epoch: int | None = None
