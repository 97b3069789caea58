"""Runs transactions of the Kafka-style mode: the face's requests, done in Kafka's way.

    commit ─▶ the rest is sent, positions, EndTxn ─▶ answered when the decision is durable, not when
              markers are written: its writes become visible after that
    a writer's numbered records ─▶ numbers.py

Next: hooks.py, producer_sessions.py, numbers.py, views.py; ../client_transactions.py.
"""

from typing import TYPE_CHECKING

from ...proto.messages import PartitionPart, Slice
from ..client_transactions import ClientTransactions, CommitRequest
from ..outcome import Commit
from ..snapshot_reads import Snapshot

if TYPE_CHECKING:
    from .hooks import KafkaHooks


class KafkaTransactions(ClientTransactions):
    """Passes each request to the part that does it: producer_sessions.py, requests.py, numbers.py."""

    _mode: "KafkaHooks"

    def snapshot(self, tx: bytes) -> Snapshot:
        self._mode.runtime.look()
        return self._mode.writing.snapshot(tx) if self._mode.writes else self._views.snapshot()

    def last_sequence(self, snap: Snapshot, tablet: int, producer: bytes) -> int | None:
        return self._mode.numbers.last(snap, tablet, producer)

    def commit_moving(
        self, tx: bytes, parts: dict[int, PartitionPart[Slice]], group: str, timeout: float | None
    ) -> Commit:
        """Commits a writer's transaction: its records, and their last numbers as a group's positions."""
        batches = {tablet: part.slices for tablet, part in parts.items()}
        moved = {tablet: part.producer[2] + 1 for tablet, part in parts.items() if part.producer}
        request = CommitRequest(dict(batches), {group: moved}, {}, False, None)
        return self.commit_request(tx, request, timeout)
