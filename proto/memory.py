"""Keeps a tablet's memory such that a turn can be undone at a cost that does not grow with the memory.

    mark ─▶ a new journal      set, drop ─▶ what was there before      undo ─▶ put back, the newest first

Marks are undone in the opposite order of their making, as a host's registry of tablets does.

Next: shell.py.
"""

from typing import Any, TypeAlias

_GONE = object()
Journal: TypeAlias = list[tuple[dict[Any, Any], Any, Any]]


class Memory:
    """Records each change of the dicts that are changed through it."""

    __slots__ = ("_journal",)

    def __init__(self) -> None:
        self._journal: Journal = []

    def mark(self) -> Journal:
        self._journal = []
        return self._journal

    def undo(self, mark: Journal) -> None:
        for of, key, before in reversed(mark):
            if before is _GONE:
                of.pop(key, None)
            else:
                of[key] = before
        mark.clear()

    def set(self, of: dict[Any, Any], key: Any, value: Any) -> None:
        self._journal.append((of, key, of.get(key, _GONE)))
        of[key] = value

    def drop(self, of: dict[Any, Any], key: Any) -> None:
        if key in of:
            self._journal.append((of, key, of.pop(key)))
