"""One host's store: a log of turns that is the truth, and LMDB as its checkpoint.

    begin ─▶ Turn: put, delete, append_payload ─▶ commit: one append, one sync, then visible

Two implementations, held equal by tests: MemoryStore and DiskStore.
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
    """What a host needs of its store. `get` and `scan` see the last committed turn, from any thread."""

    store_id: bytes
    clean: bool
    """It was closed in order the last time; what a crash may leave need not be looked for."""
    counters: StoreCounters

    @property
    def generation(self) -> int: ...
    @property
    def last_turn(self) -> int: ...
    def get(self, key: bytes) -> AnyRow: ...
    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> Rows: ...
    def begin(self) -> Turn: ...
    def commit(self, turn: Turn, show: Show | None = None) -> None:
        """One append, one sync, then visible; nothing for an empty turn. IoError: the turn never was."""

    def abandon(self, turn: Turn) -> None: ...
    def read_payload(self, address: int, length: int) -> bytes: ...
    def checkpoint_due(self, now: float) -> bool: ...
    def checkpoint(self, rest: Callable[[float], object] | None = None) -> bool: ...
    def close(self) -> None: ...
    def crash(self) -> object:
        """Lets go of all and writes nothing, as the end of the process would."""
