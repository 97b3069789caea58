"""Keeps the reads of a transaction, as the conditions under which it may commit.

    row read      (tablet, key)      → place seen, or None for absent      at most one of each
    range read    (tablet, [b, e))   → count and hash of exactly the part seen
    consumed      (tablet, consumer) → [begin, end) of offsets, growing at its end
    fences        (tablet, consumer) → the step that last moved the consumer, where it was moved
    acknowledged  (tablet, consumer) → ranges of offsets, of individual consumers
    ends          tablet             → the log's end, where a read says that there was no more

A transaction that writes nothing needs none of them: it read one snapshot.

Next: transaction.py.
"""

from bisect import bisect_left
from typing import Any

from ...errors import TransactionTooLarge
from ...proto.ids import Place
from ...proto.ranges import RANGE_ROWS_MAX, range_digest
from .snapshot_reader import Row


class Conditions:
    """The conditions of one transaction. Invariant: all are of one snapshot, so a repeated read adds nothing."""

    __slots__ = ("acked", "consumed", "ends", "fences", "ranged", "ranges", "rows")

    def __init__(self) -> None:
        self.rows: dict[int, dict[bytes, Place | None]] = {}
        self.ranges: dict[int, dict[tuple[bytes, bytes], tuple[int, int]]] = {}
        self.consumed: dict[int, dict[str, tuple[int, int]]] = {}
        self.acked: dict[int, dict[str, list[tuple[int, int]]]] = {}
        self.fences: dict[int, dict[str, int]] = {}
        self.ends: dict[int, int] = {}
        self.ranged = 0

    def saw_row(self, tablet: int, key: bytes, place: Place | None) -> None:
        self.rows.setdefault(tablet, {})[key] = place

    def saw_range(self, shards: tuple[int, ...], begin: bytes, end: bytes, rows: list[Row]) -> None:
        """Notes that `rows` are all rows of the table in [begin, end), in key order."""
        by_shard: dict[int, list[tuple[bytes, int, Any]]] = {tablet: [] for tablet in shards}
        for key, tablet, (step, n), _ in rows:
            by_shard[tablet].append((key, step, n))
        for tablet, versions in by_shard.items():
            ranges = self.ranges.setdefault(tablet, {})
            if any(b <= begin and end <= e for b, e in ranges):
                continue
            for b, e in [r for r in ranges if begin <= r[0] and r[1] <= end]:
                self.ranged -= ranges.pop((b, e))[0]
            ranges[begin, end] = range_digest(versions)
            self.ranged += len(versions)

    def consume(self, tablet: int, consumer: str, begin: int, end: int) -> None:
        consumers = self.consumed.setdefault(tablet, {})
        known = consumers.get(consumer)
        assert known is None or known[1] == begin, "ranges of one consumer follow each other"
        consumers[consumer] = (begin if known is None else known[0], end)

    def acknowledge(self, tablet: int, consumer: str, begin: int, end: int) -> None:
        """Consumes a range for an individual consumer, whose ranges need not follow each other."""
        ranges = self.acked.setdefault(tablet, {}).setdefault(consumer, [])
        at = bisect_left(ranges, (begin, end))
        ranges.insert(at, (begin, end))
        if at + 1 < len(ranges) and ranges[at + 1][0] == end:
            ranges[at : at + 2] = [(begin, ranges[at + 1][1])]
        if at and ranges[at - 1][1] == begin:
            ranges[at - 1 : at + 1] = [(ranges[at - 1][0], ranges[at][1])]

    def fence(self, tablet: int, consumer: str, moved: int) -> None:
        if moved:
            self.fences.setdefault(tablet, {})[consumer] = moved

    def no_more(self, tablet: int, consumer: str, end: int, moved: int) -> None:
        """Makes the log's end a condition, which the consumer has read to. Its position becomes one too: a seek
        could move it back."""
        self.ends[tablet] = end
        self.fences.setdefault(tablet, {})[consumer] = moved

    def floor(self, tablet: int) -> int | None:
        """Returns the lowest offset of a partition that the transaction is about to consume."""
        begins = [begin for begin, _ in list(self.consumed.get(tablet, {}).values())]
        begins += [ranges[0][0] for ranges in list(self.acked.get(tablet, {}).values())]
        return min(begins, default=None)

    def floors(self) -> dict[int, int]:
        """Returns the floor of each partition that the transaction is about to consume from."""
        floors = {tablet: self.floor(tablet) for tablet in [*self.consumed, *self.acked]}
        return {tablet: floor for tablet, floor in floors.items() if floor is not None}

    def consumed_to(self, tablet: int, consumer: str) -> int | None:
        """Returns the offset up to which this transaction has read, None when it has not read there."""
        known = self.consumed.get(tablet, {}).get(consumer)
        return None if known is None else known[1]

    def partitions_read(self) -> dict[int, Any]:
        """Returns a dict whose keys are the partitions with conditions."""
        if self.acked or self.ends:
            return {**self.consumed, **self.acked, **self.ends}
        return self.consumed

    def consumed_of(self, tablet: int) -> tuple[tuple[str, int, int], ...]:
        return tuple([(consumer, *held) for consumer, held in self.consumed[tablet].items()])

    def acked_of(self, tablet: int) -> tuple[tuple[str, int, int], ...]:
        return tuple(
            (consumer, begin, end)
            for consumer, pieces in self.acked[tablet].items()
            for begin, end in pieces
        )

    def check_ranged(self) -> None:
        if self.ranged > RANGE_ROWS_MAX:
            raise TransactionTooLarge(
                f"a transaction that writes may scan at most {RANGE_ROWS_MAX:,} rows, not "
                f"{self.ranged:,}: they are read again when it commits; scan in db.snapshot(), or "
                "narrow the range"
            )

    def reads_of(self, tablet: int) -> tuple[tuple[bytes, tuple[int, Any] | None], ...]:
        return tuple(
            (key, None if place is None else (place[0], place[1]))
            for key, place in self.rows.get(tablet, {}).items()
        )

    def ranges_of(self, tablet: int) -> tuple[tuple[bytes, bytes, int, int, int], ...]:
        """Returns (begin, end, limit, count, hash); one row more than was seen proves a change."""
        return tuple(
            (begin, end, count + 1, count, digest)
            for (begin, end), (count, digest) in self.ranges.get(tablet, {}).items()
        )
