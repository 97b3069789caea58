"""Keeps a shared log in memory: several openers in one process, as machines, for tests and models.

Next: counts.py.
"""

import threading

from .objects_log import ObjectsLog, open_root
from .patient import LOG_TIMEOUT
from .shared_log import Root


class MemoryShared:
    """The objects of a log, in a dict. Invariant: an object does not change while it is there."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def open_as(
        self, machine: str, root: Root | None = None, timeout: float = LOG_TIMEOUT
    ) -> tuple[ObjectsLog, Root]:
        """Opens the log once more, for a machine of this name; `root` as in `open_shared_log`."""
        where = f"memory of {machine}"
        return ObjectsLog(self, where, timeout), open_root(self, where, root)

    def create(self, name: str, data: bytes) -> bool:
        with self._lock:
            free = name not in self.objects
            if free:
                self.objects[name] = data
            return free

    def get(self, name: str) -> bytes | None:
        return self.objects.get(name)

    def sync(self, name: str) -> None:
        pass

    def names(self, prefix: str, start: str = "") -> list[str]:
        with self._lock:
            return sorted(name for name in self.objects if name.startswith(prefix) and name > start)

    def sizes(self) -> dict[str, int]:
        with self._lock:
            return {name: len(data) for name, data in self.objects.items()}

    def remove(self, name: str) -> None:
        with self._lock:
            self.objects.pop(name, None)

    def tidy(self) -> None:
        pass

    def close(self) -> None:
        """Does nothing: other openers go on."""
