"""Reads in the Pulsar-style mode: each partition as it is now, up to its max read position, filtered here.

    m ─▶ max read position     entries from the offset to there ─▶ aborted_ids.py ─▶ messages
    c<subscription> ─▶ what it has acknowledged     j<subscription> ─▶ what open transactions are about to

A subscription's rows are in the partition's tablet. What is pending is not handed out: who acknowledged it too
would conflict.

Next: hooks.py.
"""

from collections.abc import Callable, Iterator
from typing import Any

from ...proto.pulsar.messages import TRANSACTIONAL, TxnID
from ...proto.pulsar.settings import PulsarSettings
from ...tablets.intervals import Ranges
from ...tablets.pulsar.rows import Cursor, of_name
from ..in_place_views import InPlaceViews
from ..snapshot_reads import Snapshot
from .aborted_ids import AbortedIds

CURSOR, PENDING, CUMULATIVE = b"c", b"j", b"k"


class PulsarViews(InPlaceViews):
    """Reads the released state of all hosts."""

    def __init__(
        self,
        nodes: list[Any],
        check_open: Callable[[], None],
        settings: PulsarSettings,
        rtt_ms: float,
    ) -> None:
        committed = settings.isolation == "read_committed"
        super().__init__(nodes, check_open, rtt_ms, committed=committed)
        self._aborted = AbortedIds()

    # partitions ----------------------------------------------------------------------------

    def filtered(
        self, tablet: int, offset: int, end: int, committed: bool
    ) -> Iterator[tuple[int, Any]]:
        entries = self.entries(tablet, offset, end)
        if committed:
            bounds = self.log_meta(tablet)  # read after `end` was: it has every marker that matters
            return self._aborted.shown(tablet, self.rows(tablet), bounds, entries)
        return ((first, row) for first, row in entries if row[3] <= TRANSACTIONAL)

    def highest_number(self, tablet: int, producer: str) -> int | None:
        """Returns the highest number of a producer's that a partition has had, None for none."""
        self.follow()
        number: int | None = self.rows(tablet).get(b"p" + producer.encode())
        return number

    def last_sequence(self, snap: Snapshot, tablet: int, producer: bytes) -> int | None:
        raise AssertionError("numbers.py has them")

    def aborted(self, tablet: int) -> int:
        """Counts the aborted transactions whose messages a partition's log may hold."""
        return self._aborted.count(tablet, self.rows(tablet), self.log_meta(tablet))

    # subscriptions -------------------------------------------------------------------------

    def cursor(self, tablet: int, consumer: str) -> Cursor | None:
        """Returns what a subscription has acknowledged, None where there is none."""
        row = self.rows(tablet).get(of_name(CURSOR, consumer))
        return None if row is None else Cursor(*row)

    def moved(self, snap: Snapshot, tablet: int, consumer: str) -> int:
        return self.consumer(snap, tablet, consumer)[3]

    def consumer(
        self, snap: Snapshot, tablet: int, consumer: str
    ) -> tuple[int | None, int, Ranges, int]:
        """Returns (position, missed, ranges beyond it that are acknowledged, 1 or without a subscription 0).

        An acknowledgement is no condition on where its reader began, only on that there was a subscription.
        """
        self.follow()
        cursor = self.cursor(tablet, consumer)
        if cursor is None:
            return None, 0, (), 0
        position = cursor.position
        if not cursor.individual:
            position = self.visible_from(tablet, position)
        return position, cursor.missed, cursor.ranges, 1

    def _pending(self, tablet: int, consumer: str) -> list[tuple[int, tuple[int, int, int]]]:
        """Returns the pending ranges, as (begin, (end, most, least))."""
        prefix = of_name(PENDING, consumer)
        rows = self.rows(tablet).scan(prefix, prefix + b"\xff" * 9)
        return [(int.from_bytes(key[-8:], "big"), row) for key, row in rows]

    def pending_ranges(self, tablet: int, consumer: str) -> list[tuple[int, int]]:
        row = self.rows(tablet).get(of_name(CUMULATIVE, consumer))
        ranges = [(begin, row[0]) for begin, row in self._pending(tablet, consumer)]
        return ranges if row is None else [(0, row[2]), *ranges]

    def pending(self, tablet: int, consumer: str) -> list[tuple[int, int, TxnID, bool]]:
        """Returns (begin, end, transaction, cumulative) of what open transactions have acknowledged, ascending."""
        pending = [
            (begin, end, TxnID(most, least), False)
            for begin, (end, most, least) in self._pending(tablet, consumer)
        ]
        row = self.rows(tablet).get(of_name(CUMULATIVE, consumer))
        cursor = self.cursor(tablet, consumer)
        if row is not None and cursor is not None:
            pending.insert(0, (cursor.position, row[2], TxnID(*row[:2]), True))
        return pending

    def standing(self, tablet: int, consumer: str) -> tuple[int, int] | None:
        """Returns (lag, missed); the lag counts the messages that readers are shown, and reads their entries."""
        cursor = self.cursor(tablet, consumer)
        if cursor is None:
            return None
        start, end = self.now(tablet)
        position = max(cursor.position, start)
        lag = self.lag(tablet, position, end, cursor.ranges)
        return lag, cursor.missed + position - cursor.position

    def lag(self, tablet: int, begin: int, end: int, taken: Ranges) -> int:
        """Counts the messages that readers are shown; it reads their entries."""
        lag = 0
        for first, row in self.filtered(tablet, begin, end, self._committed):
            low, high = max(first, begin), min(first + row[2], end)
            lag += high - low
            lag -= sum(min(high, e) - max(low, b) for b, e in taken if b < high and low < e)
        return lag

    def position_fields(self, tablet: int, consumer: str) -> dict[str, Any]:
        cursor = self.cursor(tablet, consumer)
        pending = [
            {"begin": begin, "end": end, "txn_id": str(id), "cumulative": cumulative}
            for begin, end, id, cumulative in self.pending(tablet, consumer)
        ]
        return {"committed": None if cursor is None else cursor.position, "pending": pending}

    def consumers(self, tablet: int) -> list[str]:
        rows = self.rows(tablet).scan(CURSOR, CURSOR + b"\xff")
        return [key[1:-1].decode() for key, _ in rows]
