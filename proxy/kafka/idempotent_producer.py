"""The idempotent producer: writes without transactions; a client creates one at first use.

    write(call, batches) ─▶ Produce to each partition ─▶ all answered ─▶ the call ends

A batch that fails leaves its partition's sequences unknown. Nothing new is sent until the rest is answered;
then all partitions continue under the next epoch, which such a producer takes by itself (KIP-360). After the
last epoch, or a fatal error, it asks for another producer id.

Java moves only the failed partition to the new epoch. It sends the failed batch again under it, which may
write it twice; here the batch's call gets the error instead. Next: client.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...proto.kafka.messages import InitProducer
from ...proto.kafka.settings import KafkaSettings, kind_of_error
from ..requests import TIMED_OUT, Asking, Exchange
from ..sender import EXPIRED, Batch, Sender, batch_detail
from .produce import OUT_OF_ORDER, produce

EPOCHS_MAX = 32_766
"""The last epoch a producer gets: epochs are int16, and the highest is for fencing."""


@dataclass(slots=True)
class _Write:
    """A call of `write`; `unended` counts by tablet the batches that have not ended."""

    unended: dict[int, int]
    written: dict[int, tuple[int, int]] = field(default_factory=dict)
    errors: dict[int, tuple[str, str]] = field(default_factory=dict)


class Plain:
    """Writes batches without transactions.

    Invariant: a call is in `_writes`, or in `_inits`, until it ends.
    """

    def __init__(self, exchange: Exchange[KafkaSettings], coordinator: int, handle: int) -> None:
        self._exchange = exchange
        self._coordinator = coordinator
        self._handle = handle
        make = produce(exchange)
        self._sender = Sender(exchange, None, make, OUT_OF_ORDER, self._ended, self._advance)
        self._asking: Asking | None = None
        self._writes: dict[bytes, _Write] = {}
        self._inits: dict[bytes, None] = {}
        self._has_id = self._drains = False

    def init(self, call: bytes) -> None:
        """Gets a producer id; ends with the handle."""
        self._inits[call] = None
        self._exchange.open(call, self._expire)
        self._advance()

    def write(
        self, call: bytes, batches: Mapping[int, Sequence[tuple[bytes, int]]], tx: bytes | None
    ) -> None:
        write = _Write({tablet: len(items) for tablet, items in batches.items() if items})
        self._writes[call] = write
        self._exchange.open(call, self._expire)
        for tablet in write.unended:
            self._sender.queue(tablet, batches[tablet], tx, call)
        if not write.unended:
            self._finish(call)
        self._advance()

    def _expire(self, call: bytes) -> None:
        if call in self._inits:
            del self._inits[call]
            self._exchange.end(call, TIMED_OUT)
        else:
            for batch in self._sender.drop_unsent(call):
                self._ended(batch, TIMED_OUT, -1)
            self._sender.expire(call)
        if not self._inits and not self._writes and self._asking is not None:
            self._asking.cancel()
            self._asking = None
        self._advance()

    def _advance(self) -> None:
        if self._drains and not self._sender.sent:
            self._drains = False
            if self._sender.epoch < EPOCHS_MAX:
                self._sender.start(self._sender.producer, self._sender.epoch + 1)
            else:
                self._has_id = False
        self._sender.dispatch(lambda _: self._has_id and not self._drains)
        if not self._has_id:
            if self._asking is None and not self._sender.sent and (self._inits or self._writes):
                self._ask()
            return
        inits, self._inits = self._inits, {}
        for call in inits:
            self._exchange.end(call, "", self._handle)

    def _ask(self) -> None:
        timeout_ms = self._exchange.settings.transaction_timeout_ms

        def answered(error: str, value: Any) -> None:
            self._asking = None
            if error:
                self._refused(error)
            else:
                self._has_id = True
                self._sender.start(*value)
                self._advance()

        self._asking = Asking(
            self._exchange,
            self._coordinator,
            lambda address, n: InitProducer(address, n, None, timeout_ms),
            answered,
        )

    def _refused(self, error: str) -> None:
        inits, self._inits = self._inits, {}
        for call in inits:
            self._exchange.end(call, error)
        for batch in self._sender.drop_unsent():
            self._ended(batch, error, -1)

    def _ended(self, batch: Batch, error: str, offset: int) -> None:
        write, tablet = self._writes[batch.owner], batch.tablet
        if not error:
            first, _ = write.written.get(tablet, (offset, offset))
            write.written[tablet] = (first, offset + batch.records)
        else:
            if batch.sequence >= 0:
                self._drains = True
                kind = kind_of_error(error)
                if error != EXPIRED and not kind.abortable:
                    self._has_id = False  # it asks for another once the rest is answered
            name = TIMED_OUT if error == EXPIRED else error
            detail = batch_detail(batch, error, self._exchange.tablet_words)
            write.errors.setdefault(tablet, (name, detail))
        write.unended[tablet] -= 1
        if not any(write.unended.values()):
            self._finish(batch.owner)

    def _finish(self, call: bytes) -> None:
        write = self._writes.pop(call)
        error, detail = "", ""
        if write.errors:
            error = next(iter(write.errors.values()))[0]
            detail = "; ".join(text for _, text in write.errors.values())
        self._exchange.end(call, error, write.written, detail)
