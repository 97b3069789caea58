"""Gives a core its tablet's keys in the running turn: all that a core sees of its host and store.

Next: host.py.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..proto.ids import (
    CATALOGUE,
    PARTITION,
    SHARD,
    TABLETS_MAX,
    tablet_id,
    tablet_prefix,
)
from ..proto.stored import AnyRow, Stored, Versioned
from ..store import Store
from ..store.layers import GONE, MISSING, Rows

if TYPE_CHECKING:
    from .host import Host


class HostSpace:
    """Reads and writes a tablet's keys in the running turn (tablets.participant.Space)."""

    __slots__ = ("_host", "_prefix")

    def __init__(self, host: "Host", tablet: int) -> None:
        self._host = host
        self._prefix = tablet_prefix(tablet)

    def get(self, key: bytes) -> AnyRow:
        # Inlines Turn.get: cores read more than anything else.
        turn = self._host.turn
        key = self._prefix + key
        value = turn.overlay.get(key, MISSING)
        if value is MISSING:
            value = turn.live.get(key, MISSING)
            if value is MISSING:
                return turn.below(key)
        return None if value is GONE else value

    def put(self, key: bytes, value: Stored) -> None:
        # Inlines Turn.put: each commit writes four rows.
        turn = self._host.turn
        key = self._prefix + key
        turn.undo.append((key, turn.overlay.get(key, MISSING)))
        turn.overlay[key] = value

    def delete(self, key: bytes) -> None:
        self._host.turn.delete(self._prefix + key)

    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> Rows:
        prefix = self._prefix
        rows = self._host.turn.scan(prefix + begin, prefix + end, reverse=reverse, limit=limit)
        return [(key[4:], value) for key, value in rows]

    def put_version(
        self, key: bytes, old: Versioned | None, new: Versioned | None, step: int
    ) -> None:
        turn = self._host.turn
        key = self._prefix + key
        if old is not None:
            self._host.superseded.append((key, old, step))
        turn.undo.append((key, turn.overlay.get(key, MISSING)))
        turn.overlay[key] = GONE if new is None else new

    def append_payload(self, data: bytes) -> int:
        return self._host.turn.append_payload(data)

    def drop_payload(self, address: int, length: int) -> None:
        self._host.turn.drop_payload(address, length)


def stored_tablets(
    store: Store, host: int, kinds: tuple[int, ...] = (CATALOGUE, PARTITION, SHARD)
) -> Iterator[bytes]:
    """Yields the prefixes of the tablets that have keys in a host's store, without scanning their keys."""
    for kind in kinds:
        at = tablet_prefix(tablet_id(kind, host, 0))
        last = tablet_prefix(tablet_id(kind, host, TABLETS_MAX - 1)) + b"\xff"
        while rows := store.scan(at, last, limit=1):
            prefix = rows[0][0][:4]
            yield prefix
            at = (int.from_bytes(prefix, "big") + 1).to_bytes(4, "big")
