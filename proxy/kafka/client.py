"""The client of mode "kafka": runs the application's side of Kafka's protocol.

    init, begin, send, commit, abort ─▶ producer.py   one incarnation of a transactional id each
    plain                            ─▶ idempotent_producer.py      idempotent writes without a transaction
    ask                              ─▶ ../requests.py   one request: Join, Leave, OffsetCommit, TrimTo
                                            │
                    shell ◀── out, timers, ended        handle, wake ◀── shell

It runs outside the hosts' turns: the shell calls it under a lock, takes what it has to send, and feeds back
answers and timers, as with every exchange (../requests.py). It has no clock and no thread.
It follows Java's producer (KafkaProducer, Sender, TransactionManager). Each delay and limit is a setting with
Kafka's default. Requests are counted as Kafka would send them.

Next: states.py, producer.py; the other side is coordinator/kafka/transactions.py and tablets/kafka/partition.py.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...proto.ids import tablet_text
from ...proto.kafka.settings import KafkaSettings, kind_of_error
from ..requests import TIMED_OUT, Asking, Ended, Exchange
from .idempotent_producer import Plain
from .producer import FENCED, UNKNOWN_END, Offsets, Producer
from .states import State

__all__ = ["FENCED", "PLAIN", "UNKNOWN_END", "Client", "Ended"]
PLAIN = 0
"""The handle of the producer without transactions; `begin` does not take it."""

Batches = Mapping[int, Sequence[tuple[bytes, int]]]
"""By tablet: (data, records)…, each one batch."""


class Client(Exchange[KafkaSettings]):
    """Runs a process's producers and single requests.

    Every call ends once, in `ended`, with the name of a Kafka error, "" for none. A handle is one incarnation
    of a producer and is never reused; calling with a dropped handle is a bug.
    """

    def __init__(
        self,
        address: int,
        settings: KafkaSettings,
        coordinator_of: Callable[[str], int],
        group_of: Callable[[str], int],
        tablet_words: Callable[[int], str] = tablet_text,
    ) -> None:
        """Begins without producers; `tablet_words` names a tablet in the details of errors."""
        super().__init__(
            address,
            settings,
            lambda error: kind_of_error(error).retriable,
            tablet_words,
            settings.max_block_ms,
        )
        self._coordinator_of = coordinator_of
        self._group_of = group_of
        self._producers: dict[int, Producer] = {}
        self._handle = PLAIN
        self._plain: Plain | None = None

    # producers ---------------------------------------------------------------------------------

    def init(self, call: bytes, name: str | None) -> None:
        """Opens a new incarnation of a producer, which fences those before it.

        Ends with its handle; for name None with PLAIN, which is not transactional.
        """
        if name is None:
            self._the_plain().init(call)
            return
        self._handle += 1
        handle = self._handle
        producer = Producer(self, name, self._coordinator_of(name), self._group_of)

        def ended(error: str, detail: str) -> None:
            if not error:
                self._producers[handle] = producer
            self.end(call, error, None if error else handle, detail)

        self.open(call, lambda _: producer.drop("no producer id was given in max_block_ms"))
        producer.init(ended)

    def begin(self, handle: int, tx: bytes) -> str:
        """Begins a transaction, without a request.

        Returns the error: "", INVALID_TXN_STATE while one is open, CONCURRENT_TRANSACTIONS while one
        is being ended, or the producer's fatal error.
        """
        return self._producers[handle].begin(tx)

    def send(self, handle: int, tx: bytes, batches: Batches) -> int:
        """Queues batches without waiting and returns the bytes not answered yet; errors show at commit."""
        return self._producers[handle].send(tx, batches)

    def commit(self, call: bytes, handle: int, tx: bytes, offsets: Offsets) -> None:
        """Commits; ends with (epoch, {tablet: (first offset, end offset)}) once the commit is decided.

        Its records are visible later. REQUEST_TIMED_OUT: not decided yet; the same again, under another
        `call`, continues to wait. After an abortable error it is aborted, and the producer goes on.
        """
        self._producers[handle].commit(call, tx, offsets)

    def abort(self, call: bytes, handle: int, tx: bytes) -> None:
        self._producers[handle].abort(call, tx)

    def dead(self, handle: int) -> tuple[str, str] | None:
        """Returns (error, detail) of a producer that has failed for good, otherwise None."""
        producer = self._producers[handle]
        if producer.state is not State.FATAL_ERROR:
            return None
        return producer.error, producer.detail

    def failure(self, handle: int) -> tuple[str, str] | None:
        """Returns (error, detail) if its open transaction can no longer be committed, otherwise None."""
        producer = self._producers[handle]
        if producer.state not in (State.FATAL_ERROR, State.ABORTABLE_ERROR):
            return None
        return producer.error, producer.detail

    def drop(self, handle: int) -> None:
        """Forgets a producer whose owner is gone, without a message, as if it had crashed."""
        producer = self._producers.pop(handle, None)
        if producer is not None:
            producer.drop()

    def plain(self, call: bytes, batches: Batches, tx: bytes | None = None) -> None:
        """Writes without a transaction; ends with {tablet: (first offset, end offset)} of the written batches.

        The error is the first of a batch that was not written, `detail` has all. REQUEST_TIMED_OUT: it may
        be written. `tx` is for counters.
        """
        self._the_plain().write(call, batches, tx)

    def _the_plain(self) -> Plain:
        if self._plain is None:
            self._plain = Plain(self, self._coordinator_of(""), PLAIN)
        return self._plain

    # single requests ---------------------------------------------------------------------------

    def ask(self, call: bytes, target: int, make: Callable[[int, int], Any]) -> None:
        """Sends one request, `make(address, request number)`, and repeats it until max_block_ms are over."""

        def expire(_: bytes) -> None:
            asking.cancel()
            self.end(call, TIMED_OUT)

        self.open(call, expire)
        asking = Asking(self, target, make, partial(self.end, call))
