"""Counts what is asked of a shared log, and of the object store that it is in.

Next: patient.py.
"""

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .shared_log import Objects


class Counts:
    """Counters of one store's shared log. All that works on it in a process may share them.

    `requests` by kind, also those that failed; `sent_bytes`, `received_bytes` of their contents.
    `mine_after_doubt`: puts that had another answer than "done", and whose name held the same bytes.
    `void_records`: of Kafka, those that are part of no turn. `floor`: the highest that was seen.
    """

    def __init__(self) -> None:
        self.requests = {"put": 0, "get": 0, "list": 0, "delete": 0}
        self.sent_bytes = self.received_bytes = 0
        self.mine_after_doubt = self.void_records = 0
        self.floor = 1
        self._lock = threading.Lock()

    def add(self, kind: str, sent: int = 0, received: int = 0) -> None:
        with self._lock:
            self.requests[kind] += 1
            self.sent_bytes += sent
            self.received_bytes += received

    def see_floor(self, floor: int) -> int:
        self.floor = max(self.floor, floor)
        return floor


class CountedObjects:
    """An object store whose requests are counted."""

    def __init__(self, objects: "Objects") -> None:
        self.counts = Counts()
        self._objects = objects
        self.sync = objects.sync
        self.tidy = objects.tidy
        self.close = objects.close

    def create(self, name: str, data: bytes) -> bool:
        self.counts.add("put", sent=len(data))
        return self._objects.create(name, data)

    def get(self, name: str) -> bytes | None:
        data = None
        try:
            data = self._objects.get(name)
        finally:
            self.counts.add("get", received=len(data or b""))
        return data

    def names(self, prefix: str, start: str = "") -> list[str]:
        self.counts.add("list")
        return self._objects.names(prefix, start)

    def sizes(self) -> dict[str, int]:
        self.counts.add("list")
        return self._objects.sizes()

    def remove(self, name: str) -> None:
        self.counts.add("delete")
        self._objects.remove(name)
