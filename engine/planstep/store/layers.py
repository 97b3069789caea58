"""Keeps the changes that are not in LMDB yet, as decoded objects found by key and scanned in order.

    newest ──▶ the turn's own changes ▸ live layer ▸ frozen layer (being written) ▸ base (LMDB)

A layer maps key → value, GONE for a deletion. A scan sorts the keys that came since the last one into those of
their tablet (their first four bytes) and letter (the fifth), and bisects. Keys of a letter mostly come in their
order, so they are appended.

Next: turn.py.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, TypeAlias

from ..proto.stored import AnyRow, Stored


class _Gone:
    __slots__ = ()

    def __repr__(self) -> str:
        return "GONE"


GONE: Final = _Gone()
MISSING: Final = _Gone()
Change: TypeAlias = "Stored | _Gone"
"""A key's new value: a row, or `GONE`."""
Changes: TypeAlias = dict[bytes, Change]
Changed: TypeAlias = list[tuple[bytes, Change]]
"""Changes in the order of a scan."""
Rows: TypeAlias = list[tuple[bytes, AnyRow]]
"""The result of a scan: keys and rows, without deletions."""


class Layer:
    """Changes by key. Invariant: `_order`, sorted by tablet and letter, and `_fresh` hold exactly the keys of
    `values`."""

    __slots__ = ("_fresh", "_order", "values")

    def __init__(self) -> None:
        self.values: Changes = {}
        self._order: dict[bytes, dict[bytes, list[bytes]]] = {}
        self._fresh: list[bytes] = []

    def __len__(self) -> int:
        return len(self.values)

    def update(self, changes: Changes) -> None:
        values = self.values
        self._fresh += [key for key in changes if key not in values]
        values.update(changes)

    def remove(self, key: bytes) -> None:
        """Removes a key; only valid in a layer with no layer or base below it."""
        keys = self._ordered()[key[:4]][key[4:5]]
        del self.values[key]
        del keys[bisect_left(keys, key)]

    def _ordered(self) -> dict[bytes, dict[bytes, list[bytes]]]:
        """Returns the keys of each tablet and letter, sorted. It may be interrupted anywhere: no key is sorted in
        twice."""
        order = self._order
        for key in self._fresh:
            letters = order.get(key[:4])
            if letters is None:
                letters = order[key[:4]] = {}
            keys = letters.get(key[4:5])
            if not keys:
                letters[key[4:5]] = [key]
            elif key > keys[-1]:
                keys.append(key)
            else:
                at = bisect_left(keys, key)
                if keys[at] != key:
                    keys.insert(at, key)
        if self._fresh:
            self._fresh = []
        return order

    def _runs(self, begin: bytes, end: bytes, reverse: bool) -> Iterator[list[bytes]]:
        """Yields the keys of each tablet and letter with some between them, in the order of the scan."""
        order = self._ordered()
        low, high = begin[:5], end[:5]
        tablets = [begin[:4]]
        if begin[:4] != end[:4]:
            tablets = sorted((t for t in order if low[:4] <= t <= high[:4]), reverse=reverse)
        for tablet in tablets:
            letters = order.get(tablet, {})
            for letter in sorted(letters, reverse=reverse):
                if low <= tablet + letter <= high:
                    yield letters[letter]

    def between(
        self, begin: bytes, end: bytes, reverse: bool = False, limit: int | None = None
    ) -> Changed:
        """Lists (key, value or GONE) with begin <= key < end, in the order of the scan.

        With `limit` it stops after that many values that are not GONE.
        """
        if not self.values:
            return []
        rows: Changed = []
        values = self.values
        for keys in self._runs(begin, end, reverse):
            first, last = bisect_left(keys, begin), bisect_left(keys, end)
            if limit is None:
                found = keys[first:last]
                rows += [(key, values[key]) for key in (found[::-1] if reverse else found)]
                continue
            for at in range(last - 1, first - 1, -1) if reverse else range(first, last):
                if limit <= 0:
                    return rows
                value = values[keys[at]]
                rows.append((keys[at], value))
                limit -= value is not GONE
        return rows


def merge(
    upper: Changed, lower: Iterator[tuple[bytes, Change]], reverse: bool
) -> Iterator[tuple[bytes, Change]]:
    """Merges two ordered runs; on equal keys `upper` wins. `upper` has the order of `lower`."""
    at = 0
    count = len(upper)
    for key, value in lower:
        while at < count and ((upper[at][0] > key) if reverse else (upper[at][0] < key)):
            yield upper[at]
            at += 1
        if at < count and upper[at][0] == key:
            yield upper[at]
            at += 1
        else:
            yield key, value
    yield from upper[at:]


def layered(
    layers: list[Layer], begin: bytes, end: bytes, reverse: bool, limit: int | None
) -> list[Changed]:
    """Lists the changes of each layer, newest first, that a scan can need.

    A deletion above may hide one row below, so the limit grows by one for each.
    """
    found = []
    for layer in layers:
        rows = layer.between(begin, end, reverse, limit)
        found.append(rows)
        if limit is not None:
            limit += sum(1 for _, value in rows if value is GONE)
    return found


def merged_scan(
    layers: list[Changed],
    base: Iterator[tuple[bytes, Change]],
    reverse: bool,
    limit: int | None,
) -> Rows:
    """Scans the base under layers, newest layer first, all in the scan's order; deleted keys are left out."""
    rows = base
    for layer in reversed(layers):
        if layer:
            rows = merge(layer, rows, reverse)
    result: Rows = []
    if limit == 0:
        return result
    for key, value in rows:
        if value is not GONE:
            result.append((key, value))
            if limit is not None and len(result) >= limit:
                break
    return result
