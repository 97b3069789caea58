"""Sends single requests through a client outside of turns: plain writes, trims, those of an administrator.

`tx` here is only the id under which the caller waits for its answer. The client's core keeps track of the
requests on their way (../proxy/requests.py). `Flushes` are calls that wait for what a transaction has sent.

Next: core_client.py, which carries them.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import PlanstepError
from ..proto.ids import Place
from .deferred_signals import room_for_a_turn
from .group_commit import Waiter
from .outcome import Commit

if TYPE_CHECKING:
    from .client_hooks import ClientHooks

NO_PLACE = Place(0, None)
"""Such a mode gives transactions no place in a common order."""
Make = Callable[[int, int], Any]
"""(client, request's number) → the message."""


class ClientRequests:
    """Sends requests, and retries each while that may help; each call ends with its answer."""

    def __init__(self, mode: "ClientHooks", trim_to: Callable[[int, int, int], Any]) -> None:
        """`trim_to`: (client, request's number, offset) → the message that trims a partition."""
        self._mode = mode
        self._trim_to = trim_to
        self._runtime = mode.runtime
        self._client = mode.client
        self._core = mode.client.core

    def write(self, tx: bytes, batches: Any) -> None:
        call = self._client.call(partial(self.ended_plain, tx, batches))
        self._core.plain(call, batches, tx)

    def ended_plain(
        self, tx: bytes, tablets: Iterable[int], error: str, value: Any, detail: str
    ) -> None:
        """Answers a plain write to `tablets`; under the client's lock. Of a repeat no offsets are told."""
        mode = self._mode
        self._client.let_go(tx)
        if error:
            mode.client_transactions.answer_call(tx, mode.error(error, detail))
            return
        details = {**dict.fromkeys(tablets), **value}
        done = Commit(tx, NO_PLACE, details, self._runtime.names.of_tablet)
        mode.client_transactions.answer_call(tx, done)

    def trim(self, tx: bytes, tablet: int, offset: int) -> None:
        call = self._client.call(partial(self._ended_ask, tx))
        self._core.ask(call, tablet, lambda client, number: self._trim_to(client, number, offset))

    def _ended_ask(self, tx: bytes, error: str, value: Any, detail: str) -> None:
        if error:
            answer = self._mode.error(error, detail)
            self._mode.client_transactions.answer_call(tx, answer)
        else:
            self._runtime.replies.answers[tx] = Commit(tx, NO_PLACE, {0: value})

    def request(self, target: int, make: Make) -> Any:
        """Sends a request of an administrator or group member, waits, and returns the answer's value."""
        self._runtime.turns.check_open()
        room_for_a_turn()
        tx = self._runtime.new_tx()
        with self._client.locked():
            waiter = self._runtime.replies.waiting[tx] = Waiter(tx, 0, None)
            self._core.ask(self._client.call(partial(self._ended_ask, tx)), target, make)
        self._mode.client_transactions.deliver_requests()
        self._runtime.threads.wait_for(waiter, None)
        return waiter.result().details[0]


class Flushes:
    """Calls that wait until everything that a transaction has sent is answered.

    `failure` returns the error of a transaction that can no longer be committed, else None.
    """

    def __init__(
        self, mode: "ClientHooks", failure: Callable[[bytes], PlanstepError | None]
    ) -> None:
        self._mode = mode
        self._runtime = mode.runtime
        self._failure = failure
        self._waiting: dict[bytes, bytes] = {}  # call → tx

    def wait(self, tx: bytes) -> None:
        """Waits, under no lock. Raises the error when some of it was refused: then it can only be rolled back."""
        self._runtime.turns.check_open()
        mode = self._mode
        call = self._runtime.new_tx()
        with mode.client.locked():
            if tx not in mode.writing.open and tx not in mode.writing.ended:
                return  # it has sent nothing
            waiter = self._runtime.replies.waiting[call] = Waiter(call, 0, None)
            self._waiting[call] = tx
        mode.client_transactions.deliver_requests()
        self._runtime.threads.wait_for(waiter, None)
        mode.client_transactions.without_doubt(waiter)

    def end(self) -> None:
        """Answers flushes that are done or have failed; called after every change, under the client's lock."""
        for call, tx in list(self._waiting.items()):
            failure = self._failure(tx)
            if failure is not None:
                self._runtime.replies.answers[call] = failure
            elif self._mode.client.outstanding(tx):
                continue
            else:
                self._mode.client.flushed(tx)
                self._runtime.replies.answers[call] = Commit(tx, NO_PLACE, {})
            del self._waiting[call]
