"""Tracks proposals that wait for their plan, so that the host asks the coordinator about overdue ones.

    proposed or staged ─▶ waiting ─ planned, withdrawn ─▶ gone
                             └ ASK_AFTER_MS ─▶ Ask: if the client has died, nothing else would end the proposal

A proposal is a tablet's part of a transaction; the plan gives the transaction its place in the one order.

Next: host.py, which uses this.
"""

from collections.abc import Callable, Iterator
from typing import Any

from ..proto.ids import tx_text
from ..store import Store
from ..tablets.participant import TxRecord
from .tablet_space import stored_tablets

ASK_AFTER_MS = 2_000


class Proposals:
    """Holds the waiting proposals in memory; after a restart `find` reads them from the store."""

    def __init__(self, number: int, store: Store) -> None:
        self._number = number
        self._store = store
        self._waiting: dict[tuple[int, bytes], int] = {}
        self._ended: dict[tuple[int, bytes], None] = {}  # ended, as the running turn sees it

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def find(self) -> None:
        """Finds proposals that outlived a restart, so that they are asked about in time."""
        for prefix in stored_tablets(self._store, self._number):
            for key, value in self._store.scan(prefix + b"t", prefix + b"u"):
                if not TxRecord._make(value).step:
                    self._waiting[int.from_bytes(prefix, "big"), key[5:]] = 0
        for tablet, tx in self.staged_before(1 << 32):
            self._waiting[tablet, tx] = 0

    def wait_for_clients(self, now_ms: int) -> None:
        """Asks about no proposal for a while: clients of the owner before are about to hand in again."""
        self._waiting = dict.fromkeys(self._waiting, now_ms)

    def staged_before(self, generation: int) -> list[tuple[int, bytes]]:
        """Returns (partition, transaction) of payloads that an older engine staged and never proposed."""
        return [
            (int.from_bytes(prefix, "big"), key[5:])
            for prefix in stored_tablets(self._store, self._number)
            for key, _ in self._store.scan(prefix + b"s", prefix + b"t")
            if len(key) == 17 and int.from_bytes(key[5:9], "big") < generation
        ]

    def came(self, tablet: int, tx: bytes, now_ms: int) -> None:
        self._waiting[tablet, tx] = now_ms
        self._ended.pop((tablet, tx), None)

    def due(self, now_ms: int, tablet_of: Callable[[int], Any]) -> Iterator[tuple[Any, bytes]]:
        """Yields (tablet, transaction) to ask about; notes those that have their plan or are gone."""
        for (tablet, tx), since in list(self._waiting.items()):
            participant = tablet_of(tablet)
            record = participant.space.get(b"t" + tx)
            if record is None:
                over = participant.space.get(b"s" + tx) is None
            else:
                over = TxRecord._make(record).step > 0
            if over:
                self._ended[tablet, tx] = None
            elif now_ms < since:  # the clock was set back: start counting again
                self._waiting[tablet, tx] = now_ms
            elif now_ms - since >= ASK_AFTER_MS:
                self._waiting[tablet, tx] = now_ms
                yield participant, tx

    def undo(self) -> None:
        self._ended.clear()

    def durable(self) -> None:
        for ended in self._ended:
            self._waiting.pop(ended, None)
        self._ended.clear()

    def __repr__(self) -> str:
        last = max((key[1] for key in self._waiting), default=None)
        return f"last {tx_text(last) if last else '-'}"
