"""Stores one host's state: a log of turns, which is the truth, and LMDB as its checkpoint.

    begin ─▶ Turn: put, delete, append_payload ─▶ commit: one append, one sync, then visible

MemoryStore and DiskStore implement the same protocol; tests hold them equal. host/host.py drives them.
Next: layers.py, turn.py, log/records.py, disk_store.py.
"""

from collections.abc import Callable
from typing import Protocol

from ..proto.stored import AnyRow
from .disk_store import DiskStore
from .layers import Rows
from .memory_store import MemoryStore
from .turn import Show, StoreCounters, Turn

__all__ = ["DiskStore", "MemoryStore", "Show", "Store", "StoreCounters", "Turn"]


class Store(Protocol):
    """The operations a host uses of its store. `get` and `scan` see the last committed turn, from any thread."""

    store_id: bytes
    clean: bool
    """The store was closed in order the last time, so there is no need to look for what a crash may leave."""
    counters: StoreCounters

    @property
    def generation(self) -> int: ...
    @property
    def last_turn(self) -> int: ...
    @property
    def in_doubt(self) -> bool:
        """The turn that failed may count all the same, so it must not run again."""

    @property
    def lags(self) -> bool:
        """A shared log may have turns that this store has not: only that log's owner knows the last one."""

    def get(self, key: bytes) -> AnyRow: ...
    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> Rows: ...
    def begin(self) -> Turn: ...
    def commit(self, turn: Turn, show: Show | None = None) -> None:
        """Syncs the turn once, then makes it visible; an empty turn does nothing. IoError: the turn never
        happened.
        """

    def abandon(self, turn: Turn) -> None: ...
    def read_payload(self, address: int, length: int) -> bytes: ...
    def checkpoint_due(self, now: float) -> bool: ...
    def checkpoint(self, rest: Callable[[float], object] | None = None) -> bool: ...
    def close(self) -> None: ...
    def crash(self) -> object:
        """Releases everything and writes nothing, as the end of the process would."""
