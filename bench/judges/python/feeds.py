"""Finds the records that a consumer got, and in which transaction: each must be once in the topic it feeds.

    in/resharder   [0,3) T1   [3,5) T2   [7,9) T4      committed
                                  (5, 6: no one's)     expected all the same
                              [5,6) T3                 aborted, or undetermined

An origin is the record's source and ordinal in one int. Next: logs.py.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat

from ..trace import CONSUME, CONSUMER, TOPIC
from .history import IS_ABORTED, IS_UNDETERMINED, History, Log

ORDINALS = (1 << 48) + 0x9E3779B1
"""An origin is source × ORDINALS + ordinal. No power of two: hashes of several sources' ordinals would collide."""
Offsets = Mapping[tuple[str, int], Sequence[int]]
Starts = Mapping[tuple[str, int], int]


class Fed:
    """Maps an origin to the last transaction that consumed it.

    expected   of committed ranges; -1: of gaps before or between these
    doubtful   of undetermined transactions
    given_up   of aborted ones
    """

    __slots__ = ("doubtful", "expected", "given_up")

    def __init__(self, history: History, feed: str, offsets: Offsets, starts: Starts) -> None:
        """Reads the consumption of `feed`, "input topic/consumer". `offsets`, `starts`: see `judge`."""
        self.expected: dict[int, int] = {}
        self.doubtful: dict[int, int] = {}
        self.given_up: dict[int, int] = {}
        topic = feed.rpartition("/")[0]
        inputs = history.lanes_of(TOPIC, topic)
        origins: dict[int, _Origins] = {}
        for partition, lane in history.lanes_of(CONSUMER, feed).items():
            known = offsets.get((topic, partition))
            of = origins[lane] = _Origins(history, partition, inputs.get(partition, -1), known)
            at = starts.get((feed, partition), 0)
            ranges = history.consumed.get(lane, ())
            for _, tx, begin, end, _ in sorted(ranges, key=lambda one: one[2]):
                if begin > at:
                    self.expected.update(zip(of.between(at, begin), repeat(-1)))
                self.expected.update(zip(of.between(begin, end), repeat(tx)))
                at = max(at, end)
        for outcome, into in ((IS_ABORTED, self.given_up), (IS_UNDETERMINED, self.doubtful)):
            for tx, _, lane, begin, end, _, _ in history.others_of(CONSUME, outcome):
                if lane in origins:
                    into.update(zip(origins[lane].between(begin, end), repeat(tx)))

    def explains(self, log: Log, origins: list[int]) -> bool:
        """Returns True if all records name their transactions, and were made of a consumed record."""
        if min(log.tx) < 0:
            return False
        doubtful = self.doubtful
        return all(origin in doubtful for origin in set(origins).difference(self.expected))

    def of_aborted(self, origin: int) -> bool:
        """Returns True if only aborted transactions consumed it, and the next committed one begins after it."""
        of_nobody = self.expected.get(origin, 0) < 0 and origin not in self.doubtful
        return of_nobody and origin in self.given_up


class _Origins:
    """The origins of records at the offsets of one input partition."""

    def __init__(
        self, history: History, partition: int, lane: int, offsets: Sequence[int] | None
    ) -> None:
        self._first = partition * ORDINALS
        self._offsets = offsets
        self._named: list[int] | None = None
        log = history.stored.get(lane)
        if offsets is None and log is not None:
            self._offsets = log.offset
            pairs = zip(log.source, log.ordinal, strict=True)
            self._named = [source * ORDINALS + ordinal for source, ordinal in pairs]

    def between(self, begin: int, end: int) -> Iterable[int]:
        if self._offsets is not None:
            begin, end = bisect_left(self._offsets, begin), bisect_left(self._offsets, end)
            if self._named is not None:
                return self._named[begin:end]
        return range(self._first + begin, self._first + end)
