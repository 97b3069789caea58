"""Keeps writers' numbers in the Kafka-style mode: as a group's positions, in the transaction of their records.

    flush ─▶ the producer's transactional id is initialized ─▶ its positions ─▶ the new part ─▶ one transaction:
             which ends what was left open under it             (last + 1)                       records, positions

Kafka's brokers number batches, not records, and forget the numbers with the producer id. So this does what an
exactly-once source connector of Kafka does: the position in the source is committed along with the copies,
under a transactional id that no other writer has. The commit does not check positions; they stay true until then
because one transaction at a time writes under the id.

Next: ../writer_numbers.py, producer_sessions.py.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..outcome import Commit
from ..writer_numbers import NumberedParts, WriterNumbers, writer_of

if TYPE_CHECKING:
    from .hooks import KafkaHooks


class Numbers(WriterNumbers):
    """Invariant: under a producer's lock no other thread moves its positions."""

    _mode: "KafkaHooks"

    def last(self, snap: Any, tablet: int, producer: bytes) -> int | None:
        """Returns the last number of a producer in a partition, None when it has none."""
        name = writer_of(producer)
        self._mode.writing.ready(name)
        return self._last(name, tablet, None)

    def _last(
        self, name: str, tablet: int, positions: dict[tuple[str, int], int] | None
    ) -> int | None:
        position = (positions or {}).get((name, tablet))
        if position is None:
            position = self._mode.in_place_views.stable_position(tablet, name)
        return None if position is None else position - 1

    def begin(self, tx: bytes, name: str, tablets: Iterable[int]) -> dict[int, int | None]:
        self._mode.writing.assign(tx, name)
        positions = self._mode.writing.snapshot(tx).positions
        return {tablet: self._last(name, tablet, positions) for tablet in tablets}

    def write(self, tx: bytes, name: str, parts: NumberedParts, timeout: float | None) -> Commit:
        return self._mode.client_transactions.commit_moving(tx, parts, name, timeout)

    def end(self, tx: bytes) -> None:
        self._mode.writing.forget(tx)
