"""Stands at the owner for the client of an attached process, in modes whose clients are outside of turns.

    Deliver ─▶ is it of this client, for a tablet that clients ask? ─▶ the host's inbox ─▶ a turn ─▶ Answers

The client and its core run in the attached process: the owner is only its broker. So nothing of a client is kept
here but its address, which says where an answer goes. When the link ends, its answers are dropped.

Left out: asking again. The client does that, as requests are lost with an owner.

Next: ../core_client.py.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import starmap
from typing import TYPE_CHECKING

from ...host.inputs import AtomicDeliver, Deliver
from ...proto import frames
from ...proto.frame_checks import MalformedFrame
from ...proto.ids import host_of

if TYPE_CHECKING:
    from ..runtime import Runtime
    from ..turn_loop import ToClient

_INBOX_MAX = 10_000
"""A host with more inputs than this has no room for requests of others' clients."""
_ANSWERS_MAX = 1_000


class RemoteClient:
    """Invariant: the address is in the turns' `clients` from the first request to the end of the link."""

    def __init__(
        self, runtime: "Runtime", nudge: Callable[[], None], own_address: Callable[[], int]
    ) -> None:
        """`nudge`: called when there is something to send; `own_address`: the only one that its process may use."""
        self.address: int | None = None
        self._own_address = own_address
        self._runtime = runtime
        self._nudge = nudge
        self._answers: deque[ToClient] = deque()

    def deliver(self, frame: frames.Deliver) -> bool:
        """Takes a request, which may be for several tablets of a host; False when there is no room for it now."""
        requests = tuple(starmap(Deliver, frame.requests))
        node = self._runtime.nodes[host_of(requests[0].target)]
        if len(node.inbox) > _INBOX_MAX:
            return False
        for one in requests:
            self._check(one, node.host.number)
        item = requests[0] if len(requests) == 1 else AtomicDeliver(requests)
        client = self._runtime.turns.client
        assert client is not None, "else no request was accepted"
        if not all(map(self._runtime.hooks.takes, self._tablets(requests))):
            client.failed(item, dropped=True)  # perhaps under an owner before this one
        elif not node.down:
            node.inbox.append(item)
            if self._runtime.hosts > 1:
                node.wake.set()
        return True

    def _check(self, one: Deliver, host: int) -> None:
        address = getattr(one.message, "client", None)
        if self._runtime.turns.client is None or address is None or host_of(one.target) != host:
            raise MalformedFrame(f"{type(one.message).__name__} is no request here")
        rules = self._runtime.hooks.request_rules
        assert rules is not None, "its mode has clients"
        rules.check(one.target, one.message)
        if address != self.address:
            self._begin(address)

    def _tablets(self, requests: tuple[Deliver, ...]) -> Iterator[int]:
        """Yields the tablets that requests are for, and those that they name."""
        rules = self._runtime.hooks.request_rules
        assert rules is not None, "its mode has clients"
        for one in requests:
            yield one.target
            yield from rules.named(one.message)

    def _begin(self, address: int) -> None:
        """Notes where the client's answers go. A new link takes the place of an earlier one of its process."""
        if address != self._own_address():
            raise MalformedFrame("this is not the address of its client")
        clients = self._runtime.turns.clients
        before = clients.get(address)
        if isinstance(before, RemoteClient):
            before.address = None
        elif before is not None:
            raise MalformedFrame("another client has this address")
        self.address = address
        clients[address] = self

    def answered(self, answers: "list[ToClient]") -> None:
        """Takes answers to be sent; any thread calls this."""
        self._answers.extend(answers)
        self._nudge()

    @property
    def has_output(self) -> bool:
        return bool(self._answers)

    def output(self) -> Iterator[frames.Answers]:
        """Yields frames with all answers since the last call."""
        while self._answers:
            count = min(len(self._answers), _ANSWERS_MAX)
            yield frames.Answers(tuple(self._answers.popleft() for _ in range(count)))

    def end(self) -> None:
        if self.address is not None:
            del self._runtime.turns.clients[self.address]
            self.address = None
