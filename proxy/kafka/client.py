"""The producer's client of the Kafka-style mode: what an application's process has of Kafka's protocol.

    init, begin, send, commit, abort ─▶ producer.py   one incarnation of a transactional id each
    plain                            ─▶ idempotent_producer.py      idempotent writes without a transaction
    ask                              ─▶ ../requests.py   one request: Join, Leave, OffsetCommit, TrimTo
                                            │
                    shell ◀── out, timers, ended        handle, wake ◀── shell

It stands outside the hosts' turns: the shell calls it under a lock, takes what is in `out`, `timers` and
`ended`, and feeds back answers and timers. It has no clock and no thread.
What it does is what Java's producer does (KafkaProducer, Sender, TransactionManager), each delay and
limit a setting with Kafka's default; a request is counted as Kafka's wire would have it.

Next: states.py, producer.py; the other side is coordinator/kafka/transactions.py and tablets/kafka/partition.py.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...proto.ids import tablet_text
from ...proto.kafka.settings import KafkaSettings, kind_of_error
from ...proto.shell import Answer
from ..requests import TIMED_OUT, Asking, Ended, Exchange
from .idempotent_producer import Plain
from .producer import FENCED, UNKNOWN_END, Offsets, Producer
from .states import State

__all__ = ["FENCED", "PLAIN", "UNKNOWN_END", "Client", "Ended"]
PLAIN = 0
"""The handle of the producer without transactions: it takes no begin."""

Batches = Mapping[int, Sequence[tuple[bytes, int]]]
"""By tablet: (data, records)…, each one batch."""


class Client:
    """Every call ends once, in `ended`; errors are Kafka's names there, "" for none.

    A handle is an incarnation: it is not used again. Calls with a handle that was dropped are a bug.
    """

    def __init__(
        self,
        address: int,
        settings: KafkaSettings,
        coordinator_of: Callable[[str], int],
        group_of: Callable[[str], int],
        tablet_words: Callable[[int], str] = tablet_text,
    ) -> None:
        """`tablet_words`: how details of errors call a tablet."""
        self._exchange = Exchange(address, settings, kind_of_error, tablet_words)
        self._coordinator_of = coordinator_of
        self._group_of = group_of
        self._producers: dict[int, Producer] = {}
        self._handle = PLAIN
        self._plain: Plain | None = None

    # what the shell takes ----------------------------------------------------------------------

    def take(
        self,
    ) -> tuple[list[tuple[int, Any, bytes | None]], list[tuple[float, int]], list[Ended]]:
        """`out`, `timers` and `ended`, which begin anew."""
        exchange = self._exchange
        taken = exchange.out, exchange.timers, exchange.ended
        exchange.out, exchange.timers, exchange.ended = [], [], []
        return taken

    @property
    def out(self) -> list[tuple[int, Any, bytes | None]]:
        """(target tablet, message, transaction for whose sake): to be sent, in order."""
        return self._exchange.out

    @property
    def timers(self) -> list[tuple[float, int]]:
        """(delay in ms, token): to `wake` then."""
        return self._exchange.timers

    @property
    def ended(self) -> list[Ended]:
        return self._exchange.ended

    def awaits(self, token: int) -> bool:
        """The timer still matters; one that does not may be left out."""
        return self._exchange.awaits(token)

    @property
    def requests(self) -> int:
        """Client requests so far: of a Produce to many partitions of one host one."""
        return self._exchange.requests

    def requests_of(self, tx: bytes) -> int:
        """Those for one transaction; forgotten with the asking."""
        return self._exchange.requests_of(tx)

    # producers ---------------------------------------------------------------------------------

    def init(self, call: bytes, name: str | None) -> None:
        """A producer's incarnation: it fences those before it. Ends with its handle; None: with PLAIN."""
        if name is None:
            self._the_plain().init(call)
            return
        self._handle += 1
        handle = self._handle
        producer = Producer(self._exchange, name, self._coordinator_of(name), self._group_of)

        def ended(error: str, detail: str) -> None:
            if not error:
                self._producers[handle] = producer
            self._exchange.end(call, error, None if error else handle, detail)

        self._exchange.open(
            call, lambda _: producer.drop("no producer id was given in max_block_ms")
        )
        producer.init(ended)

    def begin(self, handle: int, tx: bytes) -> str:
        """Local. The error: "", INVALID_TXN_STATE while one is open, CONCURRENT_TRANSACTIONS while one
        is being ended, or what the producer died of."""
        return self._producers[handle].begin(tx)

    def send(self, handle: int, tx: bytes, batches: Batches) -> int:
        """Never waits; errors are kept for commit. Returns the bytes not answered yet."""
        return self._producers[handle].send(tx, batches)

    def commit(self, call: bytes, handle: int, tx: bytes, offsets: Offsets) -> None:
        """Ends with (epoch, {tablet: (first offset, end offset)}) when the commit is decided; its records are
        visible later. REQUEST_TIMED_OUT: not decided yet, the same call again (with another `call`)
        waits on. With an abortable error it is aborted, and the producer goes on."""
        self._producers[handle].commit(call, tx, offsets)

    def abort(self, call: bytes, handle: int, tx: bytes) -> None:
        self._producers[handle].abort(call, tx)

    def dead(self, handle: int) -> tuple[str, str] | None:
        """(error, detail) of a producer that is at its end, None of one that goes on."""
        producer = self._producers[handle]
        if producer.state is not State.FATAL_ERROR:
            return None
        return producer.error, producer.detail

    def failure(self, handle: int) -> tuple[str, str] | None:
        """(error, detail) with which its open transaction cannot be committed any more, None while it can."""
        producer = self._producers[handle]
        if producer.state not in (State.FATAL_ERROR, State.ABORTABLE_ERROR):
            return None
        return producer.error, producer.detail

    def drop(self, handle: int) -> None:
        """The owner is gone: forgotten here, and nobody is told, as if it had crashed."""
        producer = self._producers.pop(handle, None)
        if producer is not None:
            producer.drop()

    def plain(self, call: bytes, batches: Batches, tx: bytes | None = None) -> None:
        """Ends with {tablet: (first offset, end offset)} of what was written; the error is the first of
        those that were not, `detail` tells each. REQUEST_TIMED_OUT: it may be written. `tx` is for
        counters."""
        self._the_plain().write(call, batches, tx)

    def _the_plain(self) -> Plain:
        if self._plain is None:
            self._plain = Plain(self._exchange, self._coordinator_of(""), PLAIN)
        return self._plain

    # single requests ---------------------------------------------------------------------------

    def ask(self, call: bytes, target: int, make: Callable[[int, int], Any]) -> None:
        """One request, `make(address, request number)`, asked again until max_block_ms are over."""

        def expire(_: bytes) -> None:
            asking.cancel()
            self._exchange.end(call, TIMED_OUT)

        self._exchange.open(call, expire)
        asking = Asking(
            self._exchange,
            target,
            make,
            lambda error, value: self._exchange.end(call, error, value),
        )

    # what the shell brings ---------------------------------------------------------------------

    def handle(self, answer: Answer) -> None:
        self._exchange.handle(answer)

    def wake(self, token: int) -> None:
        self._exchange.wake(token)
