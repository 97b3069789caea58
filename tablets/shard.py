"""The table shard tablet: keeps rows with the place that wrote them, and checks a transaction's reads of them.

Keys, behind the tablet's prefix:

    r<key>   `Row`      its value is opaque here, except to ADD, MAX and MIN: a msgpack number

A key read is valid while the row's version is the one seen (absence is a version too). A range read is valid
while count and hash over exactly the part seen are unchanged. ADD, MAX and MIN read no version, so
counters do not conflict; they are evaluated here, at the transaction's place.

Next: catalogue.py.
"""

from collections.abc import Iterable
from math import isfinite
from typing import NamedTuple, TypeAlias

import msgpack

from ..proto.messages import ADD, DELETE, MAX, MIN, PUT, PUT_IF_ABSENT, ShardPart
from ..proto.ranges import range_digest
from ..proto.reasons import NotANumber, RangeChanged, RowChanged, SumTooLarge, Why
from .participant import DROPPED, Participant


class Row(NamedTuple):
    """A table's row; (step, n) is the place of the transaction that last changed it."""

    step: int
    n: int
    value: bytes

    @property
    def version(self) -> tuple[int, int]:
        return self.step, self.n


RowFields: TypeAlias = tuple[int, int, bytes]
"""A `Row` as the store returns it."""
_ABSENT = (None, None, None)
"""Stands for a row that does not exist."""


def number_of(value: bytes) -> int | float | None:
    """Returns the number that a row holds, or None if it holds something else (bool and NaN included)."""
    try:
        number = msgpack.unpackb(value)
    except Exception:  # msgpack raises many unrelated errors for bytes that are not its own
        return None
    return number if type(number) in (int, float) and number == number else None


def evaluate(op: int, old: bytes | None, value: bytes) -> bytes | None:
    """Returns a row's value after one update, None for absent. Pure."""
    if op == PUT:
        return value
    if op == DELETE:
        return None
    if old is None:
        return value
    if op == PUT_IF_ABSENT:
        return old
    a, b = number_of(old), number_of(value)
    assert a is not None and b is not None, "checked before execution"
    result = a + b if op == ADD else max(a, b) if op == MAX else min(a, b)
    packed: bytes = msgpack.packb(result)
    return packed


def _in_ranges(
    keys: Iterable[bytes], ranges: tuple[tuple[bytes, bytes, int, int, int], ...]
) -> bool:
    return any(begin <= key < end for key in keys for begin, end, _, _, _ in ranges)


class Shard(Participant[ShardPart, ShardPart]):
    """Invariant: a row's place is the place of the last transaction that changed it."""

    __slots__ = ()

    def check(self, body: ShardPart, early: bool) -> Why | None:
        part = body if type(body) is ShardPart else ShardPart(*body)
        space = self.space
        for key, version in part.reads:
            row: RowFields | None = space.get(b"r" + key)
            actual = row[:2] if row is not None else None
            if actual != (tuple(version) if version is not None else None):
                return RowChanged(key, version, actual)
        for begin, end, limit, count, digest in part.ranges:
            rows: list[tuple[bytes, RowFields]] = space.scan(b"r" + begin, b"r" + end, limit=limit)
            row_count, hashed = range_digest((key[1:], step, n) for key, (step, n, _) in rows)
            if (row_count, hashed) != (count, digest):
                return RangeChanged(begin, count, row_count)
        return self._check_numbers(part.writes)

    def _check_numbers(self, writes: tuple[tuple[bytes, int, bytes], ...]) -> Why | None:
        """Returns None, or which row ADD, MAX or MIN cannot change."""
        space = self.space
        held: dict[bytes, bytes | None] = {}
        several = len(writes) > 1  # perhaps of one key
        for key, op, value in writes:
            if key in held:
                old = held[key]
            else:
                stored: RowFields | None = space.get(b"r" + key)
                _, _, old = stored or _ABSENT
            if op in (ADD, MAX, MIN) and old is not None:
                total = number_of(old)
                if total is None:
                    return NotANumber(key, "number", "other")
                if op == ADD and not _fits(total, number_of(value)):
                    return SumTooLarge(key, "64 bits", "more")
            if several:
                held[key] = evaluate(op, old, value)
        return None

    def stage(self, tx: bytes, part: ShardPart) -> ShardPart:
        return part

    def apply(self, body: ShardPart, step: int, n: int) -> None:
        space = self.space
        part = body if type(body) is ShardPart else ShardPart(*body)
        if part.drop:
            space.put(DROPPED, step)
        for key, op, value in part.writes:
            row_key = b"r" + key
            row: RowFields | None = space.get(row_key)
            _, _, old = row or _ABSENT
            new = evaluate(op, old, value)
            if op == PUT_IF_ABSENT and old is not None:
                continue
            if new is None:
                if row is not None:
                    space.put_version(row_key, row, None, step)
            else:
                space.put_version(row_key, row, (step, n, new), step)

    def must_wait_for(self, earlier: ShardPart, later: ShardPart) -> bool:
        a, b = ShardPart(*earlier), ShardPart(*later)
        if a.drop or b.drop:
            return True
        a_writes = {key: None for key, _, _ in a.writes}
        b_writes = {key: None for key, _, _ in b.writes}
        return (
            any(key in a_writes for key in b_writes)
            or any(key in a_writes for key, _ in b.reads)
            or any(key in b_writes for key, _ in a.reads)
            or _in_ranges(a_writes, b.ranges)
            or _in_ranges(b_writes, a.ranges)
        )


def addable(old: bytes, value: bytes) -> bool:
    """Returns whether the sum of two numbers can be stored.

    msgpack holds integers of 64 bits; a sum beyond them is refused, never wrapped. An infinite or NaN sum is
    refused too: it would absorb whatever is added later.
    """
    total = number_of(old)
    return total is not None and _fits(total, number_of(value))


def _fits(total: int | float, more: int | float | None) -> bool:
    if more is None:
        return False
    result = total + more
    return isfinite(result) if isinstance(result, float) else -(1 << 63) <= result < (1 << 64)
