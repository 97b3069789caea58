"""Remembers transactions that are over, so that an end that is asked for again is answered as it was (PIP-481).

    over ─▶ e, f rows ─▶ more than `ended_kept`, or older than `ended_kept_ms`: the first to end is forgotten first

Keys, behind the tablet's prefix:

    e<least 8>    (state, why, ended ms)
    f<number 8>   least, in the order of the ends
    E             (the first number that is kept, the next number)

Next: transactions.py.
"""

from typing import Any

from ...proto.pulsar.messages import Shell
from ...proto.shell import Keys
from .states import Transaction

_FORGOTTEN_MAX = 2
"""The most that one end forgets: more than it adds, so a lower limit is reached after a while."""


def _ended_key(least: int) -> bytes:
    return b"e" + least.to_bytes(8, "big")


def _order_key(number: int) -> bytes:
    return b"f" + number.to_bytes(8, "big")


class EndedTransactions:
    """Keeps the rows of ended transactions of one coordinator; all its state is rows."""

    __slots__ = ("_shell", "_space")

    def __init__(self, space: Keys, shell: Shell) -> None:
        self._space = space
        self._shell = shell

    def get(self, least: int) -> tuple[int, int] | None:
        """Returns (state, why) of a transaction that is over and remembered, else None."""
        value: Any = self._space.get(_ended_key(least))
        if value is None or self._too_old(value):
            return None
        state, why, _ = value
        return state, why

    def keep(self, least: int, row: Transaction) -> None:
        """Remembers a transaction that is over now, and forgets those beyond the limits."""
        most, space = self._shell.settings.ended_kept, self._space
        first, after = space.get(b"E") or (0, 0)
        if not most and first == after:
            return
        if most:
            space.put(_ended_key(least), (row.state, row.why, self._shell.now_ms))
            space.put(_order_key(after), least)
            after += 1
        for _ in range(min(_FORGOTTEN_MAX, after - first)):
            oldest = space.get(_order_key(first))
            if after - first <= most and not self._too_old(space.get(_ended_key(oldest))):
                break
            space.delete(_ended_key(oldest))
            space.delete(_order_key(first))
            first += 1
        space.put(b"E", (first, after))

    def _too_old(self, value: tuple[int, int, int]) -> bool:
        return value[2] < self._shell.now_ms - self._shell.settings.ended_kept_ms
