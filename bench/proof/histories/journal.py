"""Records the events of a process that may be killed at any moment, as 64-bit words in a mapped file.

    ┌ used ┬ entry ┬ entry ┬ … ┐       an entry counts once `used` has moved past it: kill -9 leaves whole entries
    └──────┴───────┴───────┴───┘

    tapes of clients   tx, begin, proposed, generation, counter, then operations: code, lane, begin, end, version
    tape of ends       tx, outcome, step, n, reply, then published ranges: lane, begin, end

Times are CLOCK_MONOTONIC's, one clock for all processes of a machine; -1 means unknown. One thread writes a
tape; the page cache outlives the process, so nothing is synced.

Next: schema.py, the tables and topics of a history.
"""

import mmap
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

IS_COMMITTED, IS_ABORTED = 1, 2
READ, WRITE, CONSUME, PRODUCE = range(4)
"""Codes of operations."""
OPERATION_WORDS = 5
UNKNOWN = -1
PLAIN = 0
"""The generation and counter of a plain write, whose id only the engine knows."""


class Full(Exception):
    """The tape has no room for the entry."""


class MmapJournal:
    """A journal with one writing thread."""

    def __init__(self, path: Path, words: int) -> None:
        with open(path, "x+b") as file:
            file.truncate(8 * words)  # pages that are never written take no space
            self._words = memoryview(mmap.mmap(file.fileno(), 8 * words)).cast("q")
        self._at = 1

    def add(self, words: Sequence[int]) -> None:
        begin = self._at
        end = begin + 1 + len(words)
        if end > len(self._words):
            raise Full(f"a tape of {len(self._words):,} words is full")
        self._words[begin:end] = array("q", (len(words), *words))
        self._words[0] = self._at = end


def used(path: Path) -> int:
    """Returns the number of words written, 0 for none yet. Cheap enough to poll another process's progress."""
    with open(path, "rb") as file:
        return int.from_bytes(file.read(8), "little")


def entries(path: Path) -> Iterator["array[int]"]:
    """Yields the words of each whole entry."""
    words = array("q")
    with open(path, "rb") as file:
        count = int.from_bytes(file.read(8), "little")
        if count > 1:
            words.fromfile(file, count - 1)
    at = 0
    while at < len(words):
        end = at + 1 + words[at]
        yield words[at + 1 : end]
        at = end
