"""Writes batches outside of transactions: a call ends once all of its batches are answered, or its time is over.

Next: producers.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ...proto.pulsar.messages import NO_TXN
from ...proto.pulsar.settings import PulsarSettings
from ..requests import Exchange
from .producers import Batch, LineKey, Producers

TIMED_OUT = "Timeout"
Batches = Mapping[int, Sequence[tuple[bytes, int]]]
"""By tablet: (data, records)…, each one batch."""
Numbers = Mapping[int, Sequence[int]]
"""By tablet: the number of each batch's last record, where the writer numbers."""
NOT_NUMBERED: Numbers = {}


def batches_of(
    batches: Batches,
    numbers: Numbers,
    make: Callable[[int, bytes, int, int], Batch],
) -> list[Batch]:
    """Returns `make(tablet, data, records, number or -1)` of each batch, in order."""
    return [
        make(tablet, data, records, numbers[tablet][n] if tablet in numbers else -1)
        for tablet, items in batches.items()
        for n, (data, records) in enumerate(items)
    ]


def merged(written: dict[int, tuple[int, int]], batch: Batch, offset: int) -> None:
    """Widens a partition's (first offset, end offset) by a batch; a dropped repeat has no offset."""
    if offset >= 0:
        first, end = written.get(batch.tablet, (offset, offset))
        written[batch.tablet] = min(first, offset), max(end, offset + batch.records)


@dataclass(slots=True, eq=False)
class _Write:
    """One call; `unended` counts its batches that have not ended."""

    call: bytes
    exchange: Exchange[PulsarSettings]
    unended: int = 0
    keys: dict[LineKey, None] = field(default_factory=dict)
    written: dict[int, tuple[int, int]] = field(default_factory=dict)
    errors: dict[int, tuple[str, str]] = field(default_factory=dict)

    def batch_ended(self, batch: Batch, error: str, offset: int) -> None:
        if error:
            where = self.exchange.tablet_words(batch.tablet)
            detail = f"{where} refused a batch: {error}"
            if error == TIMED_OUT:
                detail = f"{where} did not answer for a batch in time: it may be written"
            self.errors.setdefault(batch.tablet, (error, detail))
        else:
            merged(self.written, batch, offset)
        self.unended -= 1
        if not self.unended:
            self.finish()

    def finish(self) -> None:
        error, detail = "", ""
        if self.errors:
            error = next(iter(self.errors.values()))[0]
            detail = "; ".join(text for _, text in self.errors.values())
        self.exchange.end(self.call, error, self.written, detail)


class PlainWrites:
    def __init__(self, exchange: Exchange[PulsarSettings], producers: Producers) -> None:
        self._exchange = exchange
        self._producers = producers

    def write(
        self, call: bytes, producer: str, batches: Batches, numbers: Numbers, tx: bytes | None
    ) -> None:
        """Sends batches; the call ends with {tablet: (first offset, end offset)} of those that were written.

        Its error is the first one of a batch that was refused, Timeout if it may be written. `tx` is for
        counters.
        """
        write = _Write(call, self._exchange)
        self._exchange.open(call, lambda _: self._expire(write))
        items = batches_of(
            batches,
            numbers,
            lambda tablet, data, records, number: Batch(
                tablet, data, records, tx, NO_TXN, write, number
            ),
        )
        write.unended = len(items)
        for batch in items:
            write.keys[self._producers.queue(producer, batch)] = None
        if not items:
            write.finish()

    def _expire(self, write: _Write) -> None:
        dropped = self._producers.drop_waiting(write.keys, write)
        late = self._producers.abandon(write.keys, write)
        for batch in late + dropped:
            write.batch_ended(batch, TIMED_OUT, -1)
