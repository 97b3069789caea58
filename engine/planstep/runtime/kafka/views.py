"""Reads in the Kafka-style mode: each partition as it is now, up to its last stable offset, filtered here.

    m ─▶ last stable offset     rows from the offset to there ─▶ read_committed filter ◀── aborted index
    c, n of the group coordinator ─▶ position, unless one is pending: UNSTABLE_OFFSET_COMMIT, look again

There is no snapshot: two partitions are read one after the other, and a transaction that commits between
the two reads is seen in one of them. All that is read is durable.

Next: hooks.py.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from ...coordinator.kafka.groups import pending_of, position_of
from ...host.log_entries import ROWS
from ...host.versions import Pin
from ...proto.ids import GROUPS, tablet_id, tablet_prefix
from ...proto.kafka.coordinators import group_of
from ...proto.kafka.messages import ABORT, COMMIT, TRANSACTIONAL
from ...proto.kafka.settings import KafkaSettings
from ...proxy.read_filter import Aborted, Kinds, aborted_between, visible
from ...tablets.intervals import Ranges
from ..in_place_views import DurableRows, InPlaceViews
from ..snapshot_reads import Snapshot
from ..writer_numbers import WRITER
from .errors import kafka_error

KINDS = Kinds(TRANSACTIONAL, COMMIT, ABORT)
Positions = dict[tuple[str, int], int]
"""(consumer, partition's tablet) → the client's next position, in its consumer's memory."""


class LiveSnapshot(Snapshot):
    """Reads the present state at each call; holds the positions of one client, if it keeps some."""

    __slots__ = ("positions", "stable")

    def __init__(
        self,
        positions: Positions | None = None,
        stable: bool = False,
        pin: Pin | None = None,
    ) -> None:
        super().__init__(0, {}, pin)
        self.positions = positions
        self.stable = stable  # waits for the transaction that a pending position depends on


class KafkaViews(InPlaceViews):
    """Reads the released state of all hosts."""

    def __init__(
        self,
        nodes: list[Any],
        check_open: Callable[[], None],
        settings: KafkaSettings,
        rtt_ms: float,
    ) -> None:
        committed = settings.isolation == "read_committed"
        super().__init__(nodes, check_open, rtt_ms, committed=committed)
        self._settings = settings

    def look(self, pin: Pin | None = None) -> Snapshot:
        return LiveSnapshot(pin=pin)

    # partitions ----------------------------------------------------------------------------

    def standing(self, tablet: int, consumer: str) -> tuple[int, int] | None:
        """Returns (lag, 0); markers count as lag, as they do in Kafka."""
        position, _ = self.committed(tablet, consumer)
        if position is None:
            return None
        return max(0, self.log_meta(tablet).end - position), 0

    def filtered(
        self, tablet: int, offset: int, end: int, committed: bool
    ) -> Iterator[tuple[int, Any]]:
        aborted: list[Aborted] = []
        if committed:
            aborted = aborted_between(self._index(tablet, offset), offset, end)
        return visible(self.entries(tablet, offset, end), aborted, KINDS)

    def _index(self, tablet: int, offset: int) -> Iterator[Any]:
        """Yields the rows of the aborted index from a marker's offset on."""
        store, prefix = self._store(tablet), tablet_prefix(tablet) + b"a"
        at = prefix + offset.to_bytes(8, "big")
        while rows := store.scan(at, prefix + b"\xff" * 9, limit=ROWS):
            for key, row in rows:
                yield row
                at = key + b"\x00"

    def last_sequence(self, snap: Snapshot, tablet: int, producer: bytes) -> int | None:
        raise AssertionError("numbers.py has them")

    # consumers -----------------------------------------------------------------------------

    def moved(self, snap: Snapshot, tablet: int, consumer: str) -> int:
        return 0  # positions are the group's: the last commit wins

    def consumer(
        self, snap: Snapshot, tablet: int, consumer: str
    ) -> tuple[int | None, int, Ranges, int]:
        """Returns (offset of the next record to read, …); a transaction waits while a position is pending.

        A client uses a position in its own memory first, as a consumer of Kafka does; a fetched one would be
        old on arrival where another reader got the partition's records first.
        """
        assert isinstance(snap, LiveSnapshot)
        positions = snap.positions
        position = None if positions is None else positions.get((consumer, tablet))
        if position is None:
            if snap.stable and self._committed:
                position = self.stable_position(tablet, consumer)
            else:
                position, _ = self.committed(tablet, consumer)
            if position is None:
                return None, 0, (), 0
        return self.visible_from(tablet, position), 0, (), 0

    def stable_position(self, tablet: int, consumer: str) -> int | None:
        """Returns a position once no transaction is about to move it. KafkaError after max_block_ms."""
        deadline = time.monotonic() + self._settings.max_block_ms / 1000
        while True:
            self.request()
            self.follow()
            position, pending = self.committed(tablet, consumer)
            if not pending:
                return position
            self._check_open()
            if time.monotonic() > deadline:
                raise kafka_error("UNSTABLE_OFFSET_COMMIT", f"consumer {consumer!r}")
            time.sleep(self._settings.retry_backoff_ms / 1000)

    def _group(self, consumer: str) -> DurableRows:
        group = group_of(consumer, len(self._nodes))
        return DurableRows(self._store(group), group)

    def committed(self, tablet: int, consumer: str) -> tuple[int | None, bool]:
        """Returns (committed position or None, whether another one waits for its transaction's marker)."""
        rows = self._group(consumer)
        pending = bool(pending_of(rows, consumer, tablet))  # first: one that ends now has moved
        return position_of(rows, consumer, tablet), pending

    def group(self, consumer: str) -> tuple[int, tuple[str, ...]]:
        """Returns (generation, members) of a consumer's group; generation 0 when it never had a member."""
        row = self._group(consumer).get(b"g" + consumer.encode())
        return (0, ()) if row is None else row

    def group_fields(self, consumer: str) -> dict[str, Any]:
        generation, members = self.group(consumer)
        return {"generation": generation, "members": members}

    def position_fields(self, tablet: int, consumer: str) -> dict[str, Any]:
        moves = pending_of(self._group(consumer), consumer, tablet)
        pending = [{"producer": producer, "position": at} for producer, at in moves]
        return {"committed": self.committed(tablet, consumer)[0], "pending": pending}

    def consumers(self, tablet: int) -> list[str]:
        names: dict[str, None] = {}
        suffix = tablet_prefix(tablet)
        for number in range(len(self._nodes)):
            group = tablet_id(GROUPS, number, 0)
            prefix = tablet_prefix(group)
            for key, _ in self._store(group).scan(prefix + b"c", prefix + b"d"):
                if key[-4:] == suffix and key[-5:-4] == b"\x00":
                    names[key[5:-5].decode()] = None
        return sorted(name for name in names if not name.startswith(WRITER))
