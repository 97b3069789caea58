"""Tracks the requests, timers and calls of a client outside of turns (a mode may have one); its core builds on it.

    post(messages, …) ─▶ out, timers ─▶ shell ─▶ tablet ─▶ Answer ─▶ handle ─▶ answered
                                └─ no answer in time ─▶ wake ────────────────▶ late
    open(call, …) ─▶ timers ─▶ … ─▶ end(call) ─▶ ended, or, after `call_timeout_ms`, what `expire` says

The core is the client's state machine, without lock, clock or thread. The shell around it sends `out` and runs
the timers (runtime/core_client.py, or a simulator). A tablet is what answers: a partition or a coordinator.

Each request and each timer gets a number of its own. A forgotten number is ignored, so late answers and old
timers need no cancelling. The messages of one request (a Produce of many partitions) share one number:
their answers differ by tablet. `Asking` repeats one request until its final answer.

Next: sender.py and kafka/producer.py, pulsar/transaction.py, which use this.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ..proto.shell import Answer

NUMBERS_MAX = 1 << 62
TIMED_OUT = "REQUEST_TIMED_OUT"
NO_DELAYS: Mapping[str, float] = {}


class RequestSettings(Protocol):
    """A mode's settings for requests, in milliseconds."""

    @property
    def request_timeout_ms(self) -> int: ...
    @property
    def retry_backoff_ms(self) -> int: ...


S = TypeVar("S", bound=RequestSettings, covariant=True)


class Ended(NamedTuple):
    """A call's end: `error` is the protocol's name, "" for none; `detail` says more, for people."""

    call: bytes
    error: str
    value: Any = None
    detail: str = ""


class _Waiting(NamedTuple):
    answered: Callable[[Answer], None]
    late: Callable[[], None]


class Exchange(Generic[S]):
    """Numbers requests and timers, and matches answers to them.

    Its shell takes `out`, `timers` and `ended`. A Produce to many partitions of one host counts once in `requests`.
    Invariant: a call is in `_calls` from `open` to `end`, and ended once.
    """

    def __init__(
        self,
        address: int,
        settings: S,
        asked_again: Callable[[str], bool],
        tablet_words: Callable[[int], str],
        call_timeout_ms: float,
    ) -> None:
        """`asked_again`: whether a request refused with this error is repeated; `tablet_words` names a tablet."""
        self.address = address
        self.asked_again = asked_again
        self.call_timeout_ms = call_timeout_ms
        self.settings = settings
        self.tablet_words = tablet_words
        self.out: list[tuple[int, Any, bytes | None]] = []
        """Messages to send, in order: (target tablet, message, its transaction)."""
        self.timers: list[tuple[float, int]] = []
        """Timers to start: (delay in ms, token); `wake(token)` when one fires."""
        self.ended: list[Ended] = []
        self.requests = 0
        self._waited_ms: float | None = None
        self._of_tx: dict[bytes, int] = {}
        self._number = 0
        self._waiting: dict[int, _Waiting] = {}
        self._timers: dict[int, Callable[[], None]] = {}
        self._calls: dict[bytes, int] = {}

    def take(
        self,
    ) -> tuple[list[tuple[int, Any, bytes | None]], list[tuple[float, int]], list[Ended]]:
        """Returns `out`, `timers` and `ended`, and empties them."""
        output = self.out, self.timers, self.ended
        self.out, self.timers, self.ended = [], [], []
        return output

    # requests ----------------------------------------------------------------------------------

    def number(self) -> int:
        self._number += 1
        assert self._number < NUMBERS_MAX
        return self._number

    def post(
        self,
        messages: Callable[[int, int], Sequence[tuple[int, Any, bytes | None]]],
        answered: Callable[[Answer], None],
        late: Callable[[], None],
    ) -> int:
        """Sends one request, `messages(address, number)`: (target, message, its transaction)….

        Calls `late` once, after request_timeout_ms, and `answered` for each answer until `forget`.
        """
        number = self.number()
        self.requests += 1
        self._waiting[number] = _Waiting(answered, late)
        self.timers.append((self.settings.request_timeout_ms, number))
        sends = messages(self.address, number)
        self.out += sends
        for tx in dict.fromkeys(tx for _, _, tx in sends):
            if tx is not None:
                self._of_tx[tx] = self._of_tx.get(tx, 0) + 1
        return number

    def requests_of(self, tx: bytes) -> int:
        """Returns a transaction's number of requests so far, and forgets it."""
        return self._of_tx.pop(tx, 0)

    def later(self, delay_ms: float, wake: Callable[[], None]) -> int:
        number = self.number()
        self._timers[number] = wake
        self.timers.append((delay_ms, number))
        return number

    def forget(self, number: int) -> None:
        """Ignores this request's answers, or this timer, from now on."""
        self._waiting.pop(number, None)
        self._timers.pop(number, None)

    def awaits(self, number: int) -> bool:
        """Returns whether a request or timer is still needed; a shell may drop any other timer."""
        return number in self._waiting or number in self._timers

    def handle(self, answer: Answer) -> None:
        waiting = self._waiting.get(answer.request)
        if waiting is not None:
            waiting.answered(answer)

    def wake(self, token: int) -> None:
        timer = self._timers.pop(token, None)
        if timer is not None:
            timer()
        elif (waiting := self._waiting.get(token)) is not None:
            waiting.late()

    def lost(self) -> None:
        """Notes that no request on its way is answered any more: each is late now, as if its time were over."""
        self._waited_ms = 0
        for number in list(self._waiting):
            self.wake(number)
        self._waited_ms = None

    @property
    def late_ms(self) -> float:
        """Returns how long a request that is late has waited, in milliseconds."""
        return self.settings.request_timeout_ms if self._waited_ms is None else self._waited_ms

    # calls -------------------------------------------------------------------------------------

    def open(self, call: bytes, expire: Callable[[bytes], None]) -> None:
        """Opens a call; `expire` has to end it once call_timeout_ms are over."""
        assert call not in self._calls, "a call is made once"
        self._calls[call] = self.later(self.call_timeout_ms, lambda: expire(call))

    def end(self, call: bytes, error: str, value: Any = None, detail: str = "") -> None:
        token = self._calls.pop(call, None)
        if token is not None:
            self.forget(token)
        self.ended.append(Ended(call, error, value, detail))


class Asking:
    """Repeats a request until a final answer: at once after a time-out, after a back-off on a retriable error.

    `ended(error, value)` gets the final answer. Answers to earlier attempts are ignored; as in Kafka's
    clients, such an attempt may still be under way. With `first_counts` such an answer is final if it is no
    error. `delays_ms`: errors with a back-off of their own.
    """

    __slots__ = (
        "attempts",
        "delays_ms",
        "earlier",
        "ended",
        "exchange",
        "first_counts",
        "make",
        "number",
        "target",
        "tx",
    )

    def __init__(
        self,
        exchange: Exchange[RequestSettings],
        target: int,
        make: Callable[[int, int], Any],
        ended: Callable[[str, Any], None],
        tx: bytes | None = None,
        delays_ms: Mapping[str, float] = NO_DELAYS,
        *,
        first_counts: bool = False,
    ) -> None:
        self.exchange = exchange
        self.first_counts = first_counts
        self.earlier: list[int] = []
        self.target = target
        self.make = make
        self.ended = ended
        self.tx = tx
        self.delays_ms = delays_ms
        self.attempts = 0
        self._send()

    def cancel(self) -> None:
        self.exchange.forget(self.number)
        for number in self.earlier:
            self.exchange.forget(number)

    def _send(self) -> None:
        self.attempts += 1
        number = self.number = self.exchange.post(
            lambda address, number: ((self.target, self.make(address, number), self.tx),),
            self._answered,
            lambda: self._late(number),
        )

    def _late(self, number: int) -> None:
        if number == self.number:  # otherwise a later attempt is on the way, or about to be
            self._next_attempt()
            self._send()

    def _next_attempt(self) -> None:
        if self.first_counts:
            self.earlier.append(self.number)
        else:
            self.exchange.forget(self.number)

    def _answered(self, answer: Answer) -> None:
        error = answer.error
        if error and answer.request != self.number:
            return  # the last attempt decides, or its time is over already
        if not error or not self.exchange.asked_again(error):
            self.cancel()
            self.ended(answer.error, answer.value)
            return
        self._next_attempt()
        delay = self.delays_ms.get(error, self.exchange.settings.retry_backoff_ms)
        self.number = self.exchange.later(delay, self._send)
