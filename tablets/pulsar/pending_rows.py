"""Keeps the acknowledgements of open transactions: what is neither acknowledged nor free.

    position 4     acknowledged (6, 8)     pending (9, 11) of (0,5), (11, 12) of (0,7)     cumulative to 9 of (0,7)

Keys, behind the tablet's prefix; S is a subscription's name and a zero byte:

    j<S><begin 8>                     (end, most, least)        a pending range; no two overlap
    k<S>                              (most, least, position)   the pending cumulative acknowledgement
    y<most 8><least 8><S><begin 8>    1                         the ranges by transaction
    y<most 8><least 8><S>             1                         the cumulative one by transaction

The two kinds know nothing of each other, as in Pulsar. Scans begin at the position, or at a mark: in front of it
lie rows that were deleted, which the store may have to pass one by one.

Next: subscriptions.py.
"""

from ...proto.shell import Keys
from .rows import of_name, of_txn

PENDING, CUMULATIVE, BY_TXN = b"j", b"k", b"y"


def _of(most: int, least: int, name: str, *begin: int) -> bytes:
    return of_name(of_txn(BY_TXN, most, least), name, *begin)


class PendingRows:
    """Reads and changes the pending acknowledgements of one partition's subscriptions.

    Invariant: no range begins before its subscription's position, and none overlaps what is acknowledged.
    """

    __slots__ = ("_space",)

    def __init__(self, space: Keys) -> None:
        self._space = space

    # ranges --------------------------------------------------------------------------------

    def between(
        self, name: str, begin: int, end: int, position: int
    ) -> list[tuple[int, int, int, int]]:
        """Returns the pending ranges that overlap [begin, end), as (begin, end, most, least), ascending."""
        low = of_name(PENDING, name, max(0, position))
        first = of_name(PENDING, name, max(0, begin, position))
        rows = self._space.scan(low, first, reverse=True, limit=1) if low < first else []
        rows += self._space.scan(first, of_name(PENDING, name, end))
        found = [(int.from_bytes(key[-8:], "big"), *row) for key, row in rows]
        return [row for row in found if row[1] > begin]

    def add(self, name: str, begin: int, end: int, most: int, least: int) -> None:
        self._space.put(of_name(PENDING, name, begin), (end, most, least))
        self._space.put(_of(most, least, name, begin), 1)

    def _remove(self, name: str, begin: int, most: int, least: int) -> None:
        self._space.delete(of_name(PENDING, name, begin))
        self._space.delete(_of(most, least, name, begin))

    def clear(self, name: str, begin: int, end: int, position: int) -> None:
        """Takes [begin, end) out of what is pending: somebody has acknowledged it outside of a transaction."""
        for low, high, most, least in self.between(name, begin, end, position):
            self._remove(name, low, most, least)
            if low < begin:
                self.add(name, low, begin, most, least)
            if high > end:
                self.add(name, end, high, most, least)

    # cumulative ----------------------------------------------------------------------------

    def cumulative(self, name: str) -> tuple[int, int, int] | None:
        """Returns (most, least, position) of the pending cumulative acknowledgement."""
        row: tuple[int, int, int] | None = self._space.get(of_name(CUMULATIVE, name))
        return row

    def set_cumulative(self, name: str, most: int, least: int, position: int) -> None:
        self._space.put(of_name(CUMULATIVE, name), (most, least, position))
        self._space.put(_of(most, least, name), 1)

    def drop_cumulative(self, name: str) -> None:
        row = self.cumulative(name)
        if row is not None:
            self._space.delete(of_name(CUMULATIVE, name))
            self._space.delete(_of(row[0], row[1], name))

    # transactions --------------------------------------------------------------------------

    def has(self, name: str, most: int, least: int) -> bool:
        """Returns whether anything of a transaction is pending for a subscription."""
        row = self.cumulative(name)
        if row is not None and row[:2] == (most, least):
            return True
        prefix = _of(most, least, name)
        return bool(self._space.scan(prefix, prefix + b"\xff" * 9, limit=1))

    def take(self, name: str, most: int, least: int) -> tuple[list[tuple[int, int]], int | None]:
        """Removes what a transaction has pending; returns its ranges, ascending, and its cumulative position."""
        prefix = _of(most, least, name)
        ranges, position = [], None
        for key, _ in self._space.scan(prefix, prefix + b"\xff" * 9):
            if key == prefix:
                row = self.cumulative(name)
                assert row is not None and row[:2] == (most, least)
                position = row[2]
                self.drop_cumulative(name)
                continue
            begin = int.from_bytes(key[-8:], "big")
            row = self._space.get(of_name(PENDING, name, begin))
            assert row is not None
            ranges.append((begin, row[0]))
            self._remove(name, begin, most, least)
        return ranges, position

    def of_marks(self, most: int, begin: int, end: int) -> list[tuple[int, str]]:
        """Returns (least, subscription) with something pending of transactions [begin, end) of a coordinator."""
        found: dict[tuple[int, str], None] = {}
        low, high = of_txn(BY_TXN, most, begin), of_txn(BY_TXN, most, end)
        for key, _ in self._space.scan(low, high):
            name = key[17:].split(b"\0", 1)[0]
            found[int.from_bytes(key[9:17], "big"), name.decode()] = None
        return [*found]

    def drop(self, name: str) -> None:
        """Removes everything that is pending for a subscription."""
        self.drop_cumulative(name)
        prefix = of_name(PENDING, name)
        for key, (_, most, least) in self._space.scan(prefix, prefix + b"\xff" * 9):
            self._remove(name, int.from_bytes(key[-8:], "big"), most, least)
