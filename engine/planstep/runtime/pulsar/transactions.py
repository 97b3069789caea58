"""Runs transactions of the Pulsar-style mode: a commit that acknowledges for new subscriptions makes them first.

A subscription that it has read and that was dropped since is not made again: its acknowledgement is refused.

Next: writing.py.
"""

from typing import TYPE_CHECKING

from ..client_transactions import ClientTransactions, CommitRequest
from ..group_commit import ReplySink, Waiter
from ..snapshot_reads import Snapshot

if TYPE_CHECKING:
    from .hooks import PulsarHooks


class PulsarTransactions(ClientTransactions):
    """Passes each request to the part that does it: writing.py, requests.py."""

    _mode: "PulsarHooks"

    def last_sequence(self, snap: Snapshot, tablet: int, producer: bytes) -> int | None:
        return self._mode.numbers.last(snap, tablet, producer)

    def ask(
        self, tx: bytes, request: CommitRequest, ending: ReplySink | None, wait: float | None
    ) -> Waiter:
        for individual, consumers in ((False, request.positions), (True, request.acks)):
            for consumer, tablets in consumers.items():
                for tablet in tablets:
                    if (tablet, consumer) not in request.seen:
                        self._mode.requests.subscribe(tablet, consumer, individual)
        return super().ask(tx, request, ending, wait)
