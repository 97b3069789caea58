"""Holds one turn's changes before they are durable: an overlay on the store, with savepoints.

    savepoint ─ put ─ put ─ delete ─ append ─▶ rollback: as if they had not been
                                            └▶ commit: one append to the log, one sync

A key that was absent before the turn, and is put and deleted within it, leaves no trace.

Next: log/records.py.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import msgpack

from ..errors import TransactionTooLarge
from ..histogram import BYTES, SECONDS, Histogram
from ..proto.stored import AnyRow, Stored
from .layers import GONE, MISSING, Change, Changed, Changes, Layer, Rows, merged_scan

if TYPE_CHECKING:
    from . import Store

Show = Callable[[Callable[[], None]], None]
"""Called once a turn is durable, with a callback that makes the turn visible; it calls that when it is ready."""
KEY_BYTES_MAX = 510
"""LMDB's limit of 511 bytes, less the one-byte prefix of the key's kind."""


@dataclass(slots=True)
class StoreCounters:
    """Counters since the store was opened; bytes are bytes passed to write calls."""

    turns: int = 0
    syncs: int = 0
    log_bytes: int = 0
    payload_bytes: int = 0
    checkpoints: int = 0
    checkpoint_syncs: int = 0
    checkpoint_bytes: int = 0
    failed_checkpoints: int = 0
    failed_chores: int = 0
    segments: int = 0
    rewrites: int = 0
    rewritten_bytes: int = 0
    replayed_turns: int = 0
    sync_seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    """Time of a turn's write and sync, as one call."""
    turn_bytes: Histogram = field(default_factory=lambda: Histogram(BYTES))
    """Bytes that a turn appended to the log."""


Savepoint: TypeAlias = tuple[int, int, int]
"""The numbers of changes, payloads and drops at that moment."""


class Turn:
    """One turn's changes. Invariant: undoing the whole undo log restores the store as it was."""

    __slots__ = (
        "_address",
        "_store",
        "below",
        "dropped",
        "live",
        "overlay",
        "payload_bytes",
        "payloads",
        "reserve",
        "undo",
    )

    def __init__(self, store: "Store", address: int, live: Changes) -> None:
        """`live`: the newest changes under the overlay, which do not change while the turn runs."""
        self._store = store
        self.live = live
        self.below = store.get  # under both
        self._address = address
        self.undo: Changed = []
        self.overlay: Changes = {}
        self.payloads: list[bytes] = []
        self.payload_bytes = 0
        self.dropped: list[tuple[int, int]] = []
        self.reserve = False  # frees space, so it may use the reserve segment

    def get(self, key: bytes) -> AnyRow:
        value = self.overlay.get(key, MISSING)
        if value is MISSING:
            return self._store.get(key)
        return None if value is GONE else value

    @property
    def writes(self) -> int:
        """Counts the changes so far; callers only compare two values to see whether it rose."""
        return len(self.undo) + len(self.payloads) + len(self.dropped)

    def put(self, key: bytes, value: Stored) -> None:
        self.undo.append((key, self.overlay.get(key, MISSING)))
        self.overlay[key] = value

    def delete(self, key: bytes) -> None:
        self.undo.append((key, self.overlay.get(key, MISSING)))
        self.overlay[key] = GONE

    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> Rows:
        changed = {key: v for key, v in self.overlay.items() if begin <= key < end}
        if not changed:
            return self._store.scan(begin, end, reverse=reverse, limit=limit)
        own = Layer()
        own.update(changed)
        rows = own.between(begin, end, reverse)
        # Each of our deletions may hide one row below, so ask for that many more.
        below = None if limit is None else limit + len(rows)
        base = self._store.scan(begin, end, reverse=reverse, limit=below)
        return merged_scan([rows], iter(base), reverse, limit)

    def append_payload(self, data: bytes) -> int:
        address = self._address + self.payload_bytes
        self.payloads.append(data)
        self.payload_bytes += len(data)
        return address

    def drop_payload(self, address: int, length: int) -> None:
        self.dropped.append((address, length))

    def savepoint(self) -> Savepoint:
        return len(self.undo), len(self.payloads), len(self.dropped)

    def rollback(self, token: Savepoint) -> None:
        changes, payloads, dropped = token
        undo = self.undo
        while len(undo) > changes:
            key, value = undo.pop()
            if value is MISSING:  # another thread's exception may have come before the put
                self.overlay.pop(key, None)
            else:
                self.overlay[key] = value
        while len(self.payloads) > payloads:
            self.payload_bytes -= len(self.payloads.pop())
        del self.dropped[dropped:]

    def courses(self) -> dict[bytes, list[Change]]:
        """Lists, for each key, all values it had in this turn, in order; used by observers."""
        found: dict[bytes, list[Change]] = {}
        for key, before in self.undo:
            if before is MISSING:
                found[key] = []
            else:
                found[key].append(before)
        for key, course in found.items():
            course.append(self.overlay[key])
        return found

    def net(self) -> Changes:
        """Returns the turn's net changes, without keys that were absent before and are deleted again."""
        overlay = self.overlay
        if GONE not in overlay.values():
            return dict(overlay)
        get = self.below
        return {k: v for k, v in overlay.items() if v is not GONE or get(k) is not None}

    def empty(self) -> bool:
        return not (self.payloads or self.dropped or self.net())

    def changes(self) -> bytes:
        """Encodes the net changes as the log holds them: [key, value, key, value, …], nil for deleted."""
        return encode_changes(self.net())


def encode_changes(changes: Changes) -> bytes:
    """Encodes changes for the log. TransactionTooLarge for a key beyond LMDB's limit: no checkpoint would
    succeed.
    """
    longest = max(map(len, changes), default=0)
    if longest > KEY_BYTES_MAX:
        raise TransactionTooLarge(f"a key of {longest} bytes: the store holds {KEY_BYTES_MAX}")
    values: Iterable[Change | None] = changes.values()
    if GONE in changes.values():
        values = [None if value is GONE else value for value in values]
    flat: list[Change | None] = [None] * (2 * len(changes))
    flat[::2] = changes
    flat[1::2] = values
    data: bytes = msgpack.Packer(use_bin_type=True).pack(flat)  # packb, without the call
    return data


def decode_changes(data: bytes) -> Changes:
    flat = msgpack.unpackb(data, use_list=False)
    keys, values = flat[::2], flat[1::2]
    return {k: GONE if v is None else v for k, v in zip(keys, values, strict=True)}
