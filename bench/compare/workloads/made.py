"""Makes the records of workloads that load no input: each has a (source, ordinal) to follow it by.

    Maker      one source's records, numbered as they are written; batches of the trace
    between()  latencies of the records that were due between two moments

Next: held_open.py.
"""

from array import array

from ...judges.trace import IDENTITY_BYTES, TOPIC, Batch, identity
from ..measure import Latencies
from .base import Run
from .driving import Arrivals


class Maker:
    """Makes records for one thread. `size`: bytes of a record, identity included."""

    def __init__(self, run: Run, source: int, size: int, name: str) -> None:
        self._run, self.source, self._name = run, source, name
        self._filler = b"m" * max(0, size - IDENTITY_BYTES)
        self._lane = run.trace.lane(TOPIC, "made", source)
        self.size = IDENTITY_BYTES + len(self._filler)
        self.count = self.bytes = 0

    def make(self, count: int, tx: int = -1) -> list[bytes]:
        """Returns the next records; they count once `wrote` is called."""
        filler, source = self._filler, self.source
        return [identity(source, n, tx) + filler for n in range(self.count, self.count + count)]

    def wrote(self, count: int, intended: int, written: int | None, tx: int = -1) -> Batch:
        """Counts the next `count` records as written; returns their row of `batches`."""
        size = count * self.size
        batch = Batch(tx, self._name, self._lane, self.count, count, size, intended, written)
        self.count += count
        self.bytes += size
        return batch


def between(arrivals: Arrivals, sources: range, begin: int, end: int) -> Latencies:
    """Returns end-to-end latencies of the records of `sources` that were due in [begin, end)."""
    found = Latencies()
    for source in sources:
        came: array[int] = arrivals.came[source]
        for due, at in zip(arrivals.due[source], came, strict=True):
            if at and begin <= due < end:
                found.add(at - due)
    return found
