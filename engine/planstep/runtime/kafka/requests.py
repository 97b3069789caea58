"""Sends requests outside of transactions, for hooks.py: plain writes, trims, position commits, joins and leaves.

`tx` here is only the id under which the caller waits for its answer. The client's core keeps track of the
requests on their way (../../proxy/requests.py).

Next: ../core_client.py, which carries them.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from ...proto.kafka.coordinators import group_of
from ...proto.kafka.messages import Join, Leave, OffsetCommit, TrimTo
from ..deferred_signals import room_for_a_turn
from ..group_commit import Waiter
from ..outcome import Commit
from .errors import kafka_error
from .producers import check_identity
from .views import NO_PLACE

if TYPE_CHECKING:
    from .hooks import KafkaHooks


class Requests:
    """Sends requests, and retries each while that may help; each call ends with its answer."""

    def __init__(self, mode: "KafkaHooks") -> None:
        self._mode = mode
        self._runtime = mode.runtime
        self._client = mode.client
        self._core = mode.client.core
        self._members = 0

    def write(self, tx: bytes, batches: Any) -> None:
        self._core.plain(self._client.call(partial(self._ended_plain, tx)), batches, tx)

    def _ended_plain(self, tx: bytes, error: str, value: Any, detail: str) -> None:
        self._client.let_go(tx)
        done = Commit(tx, NO_PLACE, value, self._runtime.names.of_tablet)
        self._mode.kafka_transactions.answer_call(tx, kafka_error(error, detail) if error else done)

    def trim(self, tx: bytes, tablet: int, offset: int) -> None:
        call = self._client.call(partial(self._ended_ask, tx))
        self._core.ask(call, tablet, lambda client, request: TrimTo(client, request, offset))

    def _ended_ask(self, tx: bytes, error: str, value: Any, detail: str) -> None:
        if error:
            self._mode.kafka_transactions.answer_call(tx, kafka_error(error, detail))
        else:
            self._runtime.replies.answers[tx] = Commit(tx, NO_PLACE, {0: value})

    def request(self, target: int, make: Any) -> Any:
        """Sends a request of an administrator or group member, waits, and returns the answer's value."""
        self._runtime.turns.check_open()
        room_for_a_turn()
        tx = self._runtime.new_tx()
        with self._client.locked():
            waiter = self._runtime.replies.waiting[tx] = Waiter(tx, 0, None)
            self._core.ask(self._client.call(partial(self._ended_ask, tx)), target, make)
        self._mode.kafka_transactions.deliver_requests()
        self._runtime.threads.wait_for(waiter, None)
        return waiter.result().details[0]

    def commit_positions(self, consumer: str, offsets: dict[int, int | None]) -> None:
        """Moves or forgets positions outside of transactions, as an administrator does."""
        moved = tuple(offsets.items())

        def make(client: int, request: int) -> OffsetCommit:
            return OffsetCommit(client, request, consumer, -1, "", moved)

        self.request(group_of(consumer, self._runtime.hosts), make)
        for producer in list(self._mode.writing.producers.values()):
            for tablet in offsets:
                producer.positions.pop((consumer, tablet), None)

    def join(self, consumer: str, name: str) -> tuple[int, str]:
        """Makes a member join a group; returns (generation, member)."""
        check_identity(name)
        with self._client.locked():
            self._members += 1
            member = f"{name or 'reader'}-{self._runtime.generation}-{self._members}"
        return self.rejoin(consumer, member), member

    def rejoin(self, consumer: str, member: str) -> int:
        """Returns the generation that a member belongs to now."""
        group = group_of(consumer, self._runtime.hosts)
        joined = self.request(group, lambda client, req: Join(client, req, consumer, member))
        generation: int = joined[0]
        return generation

    def leave(self, consumer: str, member: str) -> None:
        """Takes a member out of its group; does not wait for it."""
        if self._runtime.turns.closed:
            return
        group = group_of(consumer, self._runtime.hosts)
        with self._client.locked():
            call = self._client.call(lambda *_: None)
            self._core.ask(call, group, lambda client, req: Leave(client, req, consumer, member))
        self._client.deliver()
