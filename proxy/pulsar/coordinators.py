"""Asks transaction coordinators: new transactions in turn, and at most `max_requests` requests to each at a time.

    ask ─▶ on the way, fewer than max_requests ─▶ answer: ended, and the next one of the queue goes
       └─▶ queue ──────────┘

A request stays on the way while it is repeated (../requests.py). Pulsar's TransactionMetaStoreHandler blocks the
caller's thread at the limit; here the request waits, and its caller with it.

Next: transaction.py.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ...proto.pulsar.settings import PulsarSettings
from ..requests import Asking, Exchange


class Request:
    """One request to a coordinator, on the way or queued."""

    __slots__ = ("_coordinators", "_start", "asking", "number", "over")

    def __init__(
        self,
        coordinators: "Coordinators",
        number: int,
        start: Callable[["Request"], Asking],
    ) -> None:
        self._coordinators = coordinators
        self._start = start
        self.number = number
        self.asking: Asking | None = None
        self.over = False

    def start(self) -> None:
        self.asking = self._start(self)

    def cancel(self) -> None:
        """Forgets the request. One that was sent may still be carried out."""
        if not self.over:
            self.over = True
            if self.asking is not None:
                self.asking.cancel()
                self._coordinators.release(self.number)


class Coordinators:
    """The transaction coordinators, by number.

    Invariant: `_on_the_way[n]` counts the started requests to coordinator n that are not over; while any request
    is queued, it is `max_requests`.
    """

    def __init__(self, exchange: Exchange[PulsarSettings], tablets: Sequence[int]) -> None:
        self._exchange = exchange
        self._tablets = tuple(tablets)
        self._on_the_way = [0] * len(self._tablets)
        self._queues: list[deque[Request]] = [deque() for _ in self._tablets]
        self._last = -1

    def next(self) -> int:
        """Returns the number of the coordinator whose turn it is to open a transaction."""
        self._last = (self._last + 1) % len(self._tablets)
        return self._last

    def ask(
        self,
        number: int,
        make: Callable[[int, int], Any],
        ended: Callable[[str, Any], None],
        tx: bytes | None,
        first_counts: bool = False,
    ) -> Request:
        """Sends `make(address, request number)` to a coordinator, and repeats it until a final answer: `ended`."""

        def start(request: Request) -> Asking:
            def answered(error: str, value: Any) -> None:
                request.over = True
                self.release(number)
                ended(error, value)

            return Asking(
                self._exchange,
                self._tablets[number],
                make,
                answered,
                tx,
                first_counts=first_counts,
            )

        request = Request(self, number, start)
        if self._on_the_way[number] < self._exchange.settings.max_requests:
            self._on_the_way[number] += 1
            request.start()
        else:
            self._queues[number].append(request)
        return request

    def release(self, number: int) -> None:
        """Lets the next request take the place of one that is over."""
        queue = self._queues[number]
        while queue:
            request = queue.popleft()
            if not request.over:
                request.start()
                return
        self._on_the_way[number] -= 1
