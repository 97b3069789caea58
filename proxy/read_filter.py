"""The reader leaves out what was aborted, where data lie in the log before their transaction's end.

    entries    A A │ B │ A │ abort A │ B │ commit B │ …     up to the last stable offset, as they lie
    aborted    (A, 0, 4)                                    those that overlap them, from the partition's index
    shown      ─ ─ │ B │ ─ │    ─    │ B │    ─               in the order of the log

As org.apache.kafka.clients.consumer.internals.CompletedFetch does it: aborted transactions wait in a heap by
first offset, their producers are out from there until their abort marker. With none given all data is
shown, which is read_uncommitted. Markers are shown to nobody, and take an offset each: positions have
holes, and a reader goes on behind what it took, whether it was shown anything or not.

Which numbers of an entry's kind mean what, the mode says (`Kinds`).

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
    """Those of `entries`, in their order, that a reader is shown. `aborted`: all that overlap them
    (`aborted_between`), or () for read_uncommitted."""
    transactional, commit, abort = kinds
    waiting = [(first, producer) for producer, first, _ in aborted]
    heapify(waiting)
    out: dict[int, None] = {}  # producers whose transactional data is aborted here
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
    """The aborted transactions that overlap offsets [begin, end).

    `rows` are the index's (producer, first, marker, last stable offset then) in the order of their
    markers, from any marker at or before the first one from `begin` on. No more of them is taken than it
    needs: whatever ends behind a last stable offset of `end` or more also began there.
    """
    found = []
    for producer, first, last, stable in rows:
        if last >= begin and first < end:
            found.append((producer, first, last))
        if stable >= end:
            break
    return found
