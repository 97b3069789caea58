"""The store without a disk: the same turns, for tests, the simulator and `open(":memory:")`.

What the disk store reads back from LMDB and the log is here one layer and one list; the mirrored test
holds the two equal. `crash()` is a power loss: what was committed is there again, under the next
generation.

Next: log.py.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from ..errors import EngineClosed
from .layers import GONE, Layer, merged_scan
from .turn import StoreCounters, Turn, decode_changes


class MemoryStore:
    """Invariant: only `commit` changes what `get` and `scan` see, and all at once."""

    def __init__(self, store_id: bytes = bytes(16), generation: int = 1) -> None:
        self.store_id = store_id
        self.generation = generation
        self.last_turn = 0
        self.clean = True
        self.counters = StoreCounters()
        self._layer = Layer()
        self._payloads: list[bytes] = []
        self._addresses: list[int] = []
        self._next = 0
        self._closed = False
        self._mutex = threading.Lock()

    def get(self, key: bytes) -> Any:
        value = self._layer.values.get(key)
        return None if value is GONE else value

    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, Any]]:
        with self._mutex:
            rows = self._layer.between(begin, end, reverse, limit)
        return merged_scan([rows], iter(()), reverse, limit)

    def begin(self) -> Turn:
        if self._closed:
            raise EngineClosed("the store is closed")
        return Turn(self, self._next)

    def abandon(self, turn: Turn) -> None:
        pass

    def commit(self, turn: Turn, before_visible: Callable[[Any], None] | None = None) -> None:
        net = turn.net()
        if not net and not turn.payloads and not turn.dropped:
            return
        # Through the codec, as the disk store's log and LMDB do: nobody keeps the caller's objects.
        changes = decode_changes(turn.changes())
        if before_visible is not None:
            before_visible(changes)
        for data in turn.payloads:
            self._addresses.append(self._next)
            self._payloads.append(bytes(data))
            self._next += len(data)
        with self._mutex:
            self._layer.update(changes)
            for key, value in changes.items():
                if value is GONE:
                    self._layer.remove(key)
        self.last_turn += 1
        self.counters.turns += 1
        self.counters.syncs += 1
        self.counters.payload_bytes += turn.payload_bytes

    def read_payload(self, address: int, length: int) -> bytes:
        at = bisect_right(self._addresses, address) - 1
        begin = address - self._addresses[at]
        return self._payloads[at][begin : begin + length]

    def checkpoint_due(self, now: float) -> bool:
        return False

    def checkpoint(self) -> bool:
        return False

    def close(self) -> None:
        self._closed = True

    def crash(self) -> "MemoryStore":
        """The store that opens after a power loss."""
        self._closed = True
        again = MemoryStore(self.store_id, self.generation + 1)
        again.clean = False
        again._layer, again.last_turn = self._layer, self.last_turn
        again._payloads, again._addresses = self._payloads, self._addresses
        again._next = self._next
        return again
