"""Filters aborted data out of a read, for modes whose log has data before its transaction's end.

    entries    A A │ B │ A │ abort A │ B │ commit B │ …     up to the last stable offset, in the log's order
    aborted    (A, 0, 4)                                    those that overlap them, from the partition's index
    shown      ─ ─ │ B │ ─ │    ─    │ B │    ─               in the log's order

As in org.apache.kafka.clients.consumer.internals.CompletedFetch, aborted transactions wait in a heap by first
offset; their producers' data is skipped from there to the abort marker. Without aborted transactions all data
is shown, which is read_uncommitted. Markers are never shown but take an offset each, so positions have holes.
A reader continues behind the entries it took, whether any was shown or not.

The mode defines the numbers of an entry's kinds (`Kinds`).

Next: tablets/kafka/partition.py, whose rows these are.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop
from typing import Any, NamedTuple, TypeAlias

Entry: TypeAlias = tuple[int, tuple[Any, ...]]
"""(offset, row): (address, length, records, producer, epoch, sequence, kind …)."""
Aborted: TypeAlias = tuple[int, int, int]
"""(producer, first offset, its marker's offset)."""


class Kinds(NamedTuple):
    """The kinds of a mode's entries: data inside a transaction, and its two markers; any other is shown."""

    transactional: int
    commit: int
    abort: int


def visible(entries: Iterable[Entry], aborted: Iterable[Aborted], kinds: Kinds) -> Iterator[Entry]:
    """Yields the entries that a reader is shown, in their order.

    `aborted`: all that overlap them (`aborted_between`), or () for read_uncommitted.
    """
    transactional, commit, abort = kinds
    waiting = [(first, producer) for producer, first, _ in aborted]
    heapify(waiting)
    out: dict[int, None] = {}  # producers whose transactional data is aborted at this offset
    for offset, row in entries:
        _, _, records, producer, _, _, kind, *_ = row
        while waiting and waiting[0][0] < offset + records:
            out[heappop(waiting)[1]] = None
        if kind == abort:
            out.pop(producer, None)
        elif kind != commit and not (kind == transactional and producer in out):
            yield offset, row


def aborted_between(
    rows: Iterable[tuple[int, int, int, int]], begin: int, end: int
) -> list[Aborted]:
    """Returns the aborted transactions that overlap offsets [begin, end).

    `rows` are the index's (producer, first, marker, last stable offset then) in the order of their
    markers. They start at or before the first marker from `begin` on. It stops at a row whose last stable
    offset is `end` or more: every transaction that ends behind it also began there.
    """
    aborted = []
    for producer, first, last, stable in rows:
        if last >= begin and first < end:
            aborted.append((producer, first, last))
        if stable >= end:
            break
    return aborted
