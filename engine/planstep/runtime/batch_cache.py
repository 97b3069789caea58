"""Caches batches that were read in part, so that reading a few records at a time decodes each batch once.

Next: snapshot_reads.py.
"""

import threading

from ..proto.batch import Batch


class BatchCache:
    """Batches that were read in part, in memory: checked once, not for each record.

    A published batch never changes, and its offset is never given to another.
    """

    def __init__(self, bytes_max: int = 8 << 20) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        self._held: dict[tuple[int, int], Batch] = {}
        self._lock = threading.Lock()

    def get(self, key: tuple[int, int]) -> Batch | None:
        return self._held.get(key)

    def put(self, key: tuple[int, int], batch: Batch) -> None:
        if key in self._held or len(batch.data) > self._bytes_max // 4:
            return
        with self._lock:
            if self._held.setdefault(key, batch) is batch:
                self.bytes += len(batch.data)
            while self.bytes > self._bytes_max:
                self.bytes -= len(self._held.pop(next(iter(self._held))).data)
