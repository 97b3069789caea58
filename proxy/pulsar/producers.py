"""Sends batches of messages: one line for each producer's name and partition, one batch of it on the way at a time.

    queue ─▶ waiting ─▶ on the way, numbered ─▶ answered: the next one goes
                            └── no answer, or refused for now: the same again, under the same number

A batch's number is that of its last message, counted by producer and partition from 0. It is given when the batch
is first sent, and never given again: the number of a batch that was refused is spent, since a copy of its message
may still arrive. So a partition that drops repeats (PIP-6) never takes one batch for another. A writer may number
its batches itself instead.

A batch holds messages of one transaction, or of none, and is sent until it is answered: only a plain write has a
time-out. Without deduplication a batch whose answer was lost may be written twice, as in Pulsar. Pulsar's producer
has many batches on the way at a time, in order on one connection; here the network may change their order.

Next: transaction.py, plain_writes.py, whose batches these are.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ...proto.pulsar.messages import LEAST_MAX, Send, TxnID
from ...proto.pulsar.settings import PulsarSettings
from ..requests import Asking, Exchange

LineKey = tuple[str, int]
"""A producer's name and a partition's tablet."""


class Owner(Protocol):
    """Waits for batches."""

    def batch_ended(self, batch: "Batch", error: str, offset: int) -> None:
        """Takes a batch's end: the offset of its first message, -1 for a repeat that was dropped."""


@dataclass(slots=True, eq=False)
class Batch:
    """A batch of messages for one partition; `sequence` is its last message's number, -1 if not given yet."""

    tablet: int
    data: bytes
    records: int
    tx: bytes | None
    id: TxnID
    owner: Owner
    sequence: int = -1


@dataclass(slots=True)
class _Line:
    """Invariant: `batch` and `asking` are the batch on the way, or both None; then `waiting` is empty."""

    waiting: deque[Batch] = field(default_factory=deque)
    batch: Batch | None = None
    asking: Asking | None = None


class Producers:
    """A process's producers.

    Invariants: the numbers of a line rise; of those that it gives itself none is left out.
    """

    def __init__(self, exchange: Exchange[PulsarSettings]) -> None:
        self._exchange = exchange
        self._lines: dict[LineKey, _Line] = {}
        self._next: dict[LineKey, int] = {}

    def queue(self, name: str, batch: Batch) -> LineKey:
        """Sends a batch behind those of its line, and calls its owner once it is answered."""
        assert batch.records > 0
        key = name, batch.tablet
        line = self._lines.setdefault(key, _Line())
        line.waiting.append(batch)
        if line.batch is None:
            self._send_next(key, line)
        return key

    def go_on_after(self, name: str, tablet: int, sequence: int) -> None:
        """Numbers from behind `sequence` on, the last number that a partition has had of this name."""
        self._next[name, tablet] = max(self._next.get((name, tablet), 0), sequence + 1)

    def drop_waiting(self, keys: Iterable[LineKey], owner: Owner) -> list[Batch]:
        """Removes and returns an owner's batches that were not sent, without a call of `batch_ended`."""
        dropped: list[Batch] = []
        for key in keys:
            line = self._lines.get(key)
            if line is not None:
                dropped += [batch for batch in line.waiting if batch.owner is owner]
                line.waiting = deque(batch for batch in line.waiting if batch.owner is not owner)
        return dropped

    def abandon(self, keys: Iterable[LineKey], owner: Owner) -> list[Batch]:
        """Gives up an owner's batches that are on the way, and returns them; they may be written."""
        abandoned: list[Batch] = []
        for key in keys:
            line = self._lines.get(key)
            if line is not None and line.batch is not None and line.batch.owner is owner:
                assert line.asking is not None
                line.asking.cancel()
                abandoned.append(line.batch)
                self._send_next(key, line)
        return abandoned

    def _send_next(self, key: LineKey, line: _Line) -> None:
        line.batch = line.asking = None
        if not line.waiting:
            del self._lines[key]
            return
        name, tablet = key
        line.batch = batch = line.waiting.popleft()
        if batch.sequence < 0:
            batch.sequence = self._next.get(key, 0) + batch.records - 1
        assert batch.sequence <= LEAST_MAX
        self._next[key] = max(self._next.get(key, 0), batch.sequence + 1)

        def answered(error: str, offset: int) -> None:
            batch.owner.batch_ended(batch, error, -1 if error else offset)
            self._send_next(key, line)  # only now: behind a failure its owner drops the rest

        line.asking = Asking(
            self._exchange,
            tablet,
            lambda address, number: Send(
                address, number, *batch.id, name, batch.sequence, batch.data, batch.records
            ),
            answered,
            batch.tx,
            first_counts=True,
        )
