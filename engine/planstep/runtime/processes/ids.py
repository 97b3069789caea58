"""Hands out transaction ids in blocks: the owner to its links, a link to its process's transactions.

Ids grow with time, as the coordinator forgets the oldest ones. So a block that was not used up in time is left.

Next: peer.py.
"""

import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable

from ...proto.frame_checks import MalformedFrame
from ...proto.ids import KIND_SHIFT, PROXY, tx_id

BLOCK = 256
_USED_SECONDS = 60.0
_ASK_AT = 64
_KEPT = 8192
NUMBERS = 1 << 16
"""The numbers of one owner's links."""
_OF_LINK = PROXY << KIND_SHIFT | 1 << 27


def address_of(generation: int, connection: int) -> int:
    """Returns the address of the client in a process, by the link with which it began. It is no owner's.

    Two have the same only after 2,048 owners.
    """
    return _OF_LINK | (generation & 0x7FF) << 16 | connection % NUMBERS


class Blocks:
    """The newest blocks that an owner has given, and to which processes: each is named by its first link.

    Older ids count, as a transaction may be long.
    """

    def __init__(self, generation: int) -> None:
        self.generation = generation.to_bytes(4, "big")
        self._firsts: list[int] = []
        self._of: list[tuple[int, int]] = []
        self._oldest = 0

    def add(self, first: int, process: tuple[int, int]) -> None:
        self._firsts.append(first)
        self._of.append(process)
        if len(self._firsts) > _KEPT:
            del self._firsts[: _KEPT // 2]
            del self._of[: _KEPT // 2]
            self._oldest = self._firsts[0]

    def has(self, tx: bytes, process: tuple[int, int]) -> bool:
        """Returns whether a transaction's id is of one of the process's blocks, or of an owner before this one."""
        if tx[:4] != self.generation:
            return tx[:4] < self.generation
        number = int.from_bytes(tx[4:], "big")
        at = bisect_right(self._firsts, number) - 1
        if at < 0:
            return number < self._oldest
        return number < self._firsts[at] + BLOCK and self._of[at] == process


class Ids:
    """Gives the ids of an attached process's transactions. It asks for a block before it needs one."""

    def __init__(self, ask: Callable[[], None], wait: Callable[["Ids"], None]) -> None:
        self._ask, self._wait = ask, wait
        self._lock = threading.Lock()
        self._blocks: deque[tuple[float, int, int, int]] = deque()  # (when, generation, next, end)
        self._asked = False
        self._instead: Callable[[], bytes] | None = None
        self._given = (0, 0)  # generation and counter behind the newest block

    @property
    def empty(self) -> bool:
        return not self._blocks

    def add(self, generation: int, first: int, number: int) -> None:
        """Adds a block. MalformedFrame for one that was given before: its ids may be under way."""
        with self._lock:
            if (generation, first) < self._given:
                raise MalformedFrame("transaction ids that the owner has given before")
            self._given = generation, first + number
            self._blocks.append((time.monotonic(), generation, first, first + number))
            self._asked = False

    def forget(self) -> None:
        """Forgets all blocks: they are of an owner that is gone."""
        with self._lock:
            self._blocks.clear()
            self._asked = False

    def replace(self, other: Callable[[], bytes]) -> None:
        """Takes ids from elsewhere: this process owns the store now."""
        self._instead = other

    def __iter__(self) -> "Ids":
        return self

    def __next__(self) -> bytes:
        while True:
            if self._instead is not None:
                return self._instead()
            tx = self._next()
            if tx is not None:
                return tx
            self._wait(self)

    def _next(self) -> bytes | None:
        with self._lock:
            now = time.monotonic()
            blocks = self._blocks
            while blocks and now - blocks[0][0] > _USED_SECONDS:
                blocks.popleft()
            left = sum(end - at for _, _, at, end in blocks)
            ask = left < _ASK_AT and not self._asked
            self._asked = self._asked or ask
            tx = None
            if blocks:
                when, generation, number, end = blocks.popleft()
                tx = tx_id(generation, number)
                if number + 1 < end:
                    blocks.appendleft((when, generation, number + 1, end))
        if ask:
            self._ask()
        return tx
