"""Keeps a store in memory with the same turns, for tests, the simulator and `open(":memory:")`.

One layer and one list replace LMDB and the log; the mirrored test holds the two stores equal. `crash()` is
a power loss: the store it returns has everything committed, under the next generation.

Next: log/records.py.
"""

import threading
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Self

from ..errors import Corruption, EngineClosed
from ..proto.stored import AnyRow
from .layers import GONE, Changes, Layer, Rows, merged_scan
from .turn import Show, StoreCounters, Turn, decode_changes


class MemoryStore:
    """A store in memory. Invariant: only `commit` changes what `get` and `scan` see, and all at once."""

    in_doubt = False  # a commit that raises has no effect
    lags = False

    def __init__(self, store_id: bytes = bytes(16), generation: int = 1) -> None:
        self.store_id = store_id
        self.generation = generation
        self.last_turn = 0
        self.clean = True
        self.counters = StoreCounters()
        self._layer = Layer()
        self._payloads: dict[int, bytes] = {}
        self._next = 0
        self._closed = False
        self._mutex = threading.Lock()

    def get(self, key: bytes) -> AnyRow:
        value = self._layer.values.get(key)
        return None if value is GONE else value

    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> Rows:
        with self._mutex:
            rows = self._layer.between(begin, end, reverse, limit)
        return merged_scan([rows], iter(()), reverse, limit)

    def begin(self) -> Turn:
        if self._closed:
            raise EngineClosed("the store is closed")
        return Turn(self, self._next, self._layer.values)

    def abandon(self, turn: Turn) -> None:
        pass

    def commit(self, turn: Turn, show: Show | None = None) -> None:
        net = turn.net()
        if not net and not turn.payloads and not turn.dropped:
            return
        # Goes through the codec, as with the disk store: the store must not share the caller's objects.
        changes = decode_changes(turn.changes())
        for data in turn.payloads:
            if data:  # an empty one shares its address with the next
                self._payloads[self._next] = bytes(data)
            self._next += len(data)
        visible = partial(self._visible, changes)
        if show is None:
            visible()
        else:
            show(visible)
        for address, length in turn.dropped:  # whole, as it was appended
            if length:
                self._payloads.pop(address, None)
        self.last_turn += 1
        self.counters.turns += 1
        self.counters.syncs += 1
        self.counters.payload_bytes += turn.payload_bytes

    def _visible(self, changes: Changes) -> None:
        with self._mutex:
            self._layer.update(changes)
            for key, value in changes.items():
                if value is GONE:
                    self._layer.remove(key)

    def read_payload(self, address: int, length: int) -> bytes:
        """Returns the beginning of the payload appended at this address; Corruption if it was dropped."""
        data = self._payloads.get(address) if length else b""
        if data is None:
            raise Corruption(f"nothing is at payload address {address}")
        return data[:length]

    def checkpoint_due(self, now: float) -> bool:
        return False

    def checkpoint(self, rest: Callable[[float], object] | None = None) -> bool:
        return False

    def close(self) -> None:
        self._closed = True

    def picture(self) -> tuple[Changes, list[tuple[int, bytes]], int]:
        """Captures the store at one moment: (values, payloads by address, the next address)."""
        with self._mutex:
            return dict(self._layer.values), sorted(self._payloads.items()), self._next

    def crash(self) -> Self:
        """Returns the store that opens after a power loss."""
        self._closed = True
        again = copy(self)
        again.reopen()
        return again

    def reopen(self) -> None:
        """Begins the next generation with the committed state."""
        self.generation += 1
        self.clean = self._closed = False
        self.counters = StoreCounters()
