"""What a process says that is killed at any moment: words of 64 bits in a file that it has mapped.

    ┌ used ┬ entry ┬ entry ┬ … ┐       an entry counts once `used` has moved behind it: kill -9 leaves whole ones
    └──────┴───────┴───────┴───┘

    BEGUN     tx, begin, proposed, generation, counter, then operations: code, lane, begin, end, version
    ENDED     tx, outcome, step, n, reply, then what was published: lane, begin, end
    LOOKED    begin, reply, step, then what a reader in another process saw of everything: see schema.py

Times are CLOCK_MONOTONIC's, one clock for all processes of a machine; -1 stands for what is not known. One
thread writes a tape; a page cache outlives the process, so nothing is synced.

Next: schema.py, what is written to and where.
"""

import mmap
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

BEGUN, ENDED, LOOKED = 1, 2, 3
IS_COMMITTED, IS_ABORTED = 1, 2
READ, WRITE, CONSUME, PRODUCE = range(4)
"""Codes of operations."""
OPERATION_WORDS = 5
UNKNOWN = -1
PLAIN = 0
"""The generation and counter of a plain write: its id is the engine's own business."""


class Full(Exception):
    """The tape has no room for the entry."""


class Tape:
    """Written by one thread."""

    def __init__(self, path: Path, words: int) -> None:
        with open(path, "xb") as file:
            file.truncate(8 * words)  # pages that are never written take no room
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8 * words)
        self._words = memoryview(self._map).cast("q")
        self._size = words
        self._at = 1

    def add(self, kind: int, words: Sequence[int]) -> None:
        begin = self._at
        end = begin + 2 + len(words)
        if end > self._size:
            raise Full(f"a tape of {self._size:,} words is full")
        self._words[begin:end] = array("q", (len(words), kind, *words))
        self._words[0] = self._at = end

    def close(self) -> None:
        self._words.release()
        self._map.close()


def used(path: Path) -> int:
    """How many words; 0 where nothing was written yet. Cheap: for who looks how far others have come."""
    with open(path, "rb") as file:
        return int.from_bytes(file.read(8), "little")


def entries(path: Path) -> Iterator[tuple[int, "array[int]"]]:
    """(kind, words) of whole entries."""
    words = array("q")
    with open(path, "rb") as file:
        count = int.from_bytes(file.read(8), "little")
        if count > 1:
            words.fromfile(file, count - 1)
    at = 0
    while at < len(words):
        size, kind = words[at], words[at + 1]
        yield kind, words[at + 2 : at + 2 + size]
        at += 2 + size
