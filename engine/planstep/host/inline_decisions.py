"""Decides a transaction whose participants all live on the coordinator's host: in its turn, without messages.

    request ─▶ all participants idle? ─ no ─▶ announced: plan, votes, effects and answer go as messages
                                      └ yes ─▶ votes ─▶ effects, or staged data goes ─▶ the proxy's answer

It makes the changes that the messages would make.

Next: host.py.
"""

from collections.abc import Callable

from ..coordinator.plan import Coordinator
from ..proto.ids import KIND_SHIFT
from ..proto.messages import Body, Detail, Part, PlanRequest
from ..proxy.deterministic import Proxy
from ..tablets.participant import Participant
from .delivery import Delivery
from .inputs import Decided


class InlineDecisions:
    """Invariant: the tablets in `idle` have no undecided transaction, as long as no message reaches them."""

    def __init__(
        self,
        delivery: Delivery,
        proxy: Proxy | None,
        tablet: Callable[[int], Participant[Part, Body]],
    ) -> None:
        self.idle: dict[int, Participant[Part, Body]] = {}
        self._delivery = delivery
        self._proxy = proxy
        self._tablet = tablet

    def decide(self, coordinator: Coordinator, n: int, request: PlanRequest) -> bool:
        """Decides a transaction. Returns False where something undecided stands in the way: messages about it wait
        for delivery then.
        """
        idle = self.idle
        if not all([number in idle or self._is_idle(number) for number in request.participants]):
            self._delivery.sender = coordinator.id
            coordinator.announce([(n, request)])
            return False
        tx, reason = request.tx, None
        bodies = dict(zip(request.participants, request.bodies, strict=True))
        for number in request.voters:
            reason = idle[number].vote(tx, bodies[number])
            if reason is not None:
                break
        details: dict[int, Detail] = {}
        step = coordinator.step
        if reason is None:
            steps = self._delivery.steps
            for number in request.receivers:
                details[number] = idle[number].publish(tx, bodies[number], step, n)
                steps[number >> KIND_SHIFT, "Plan"] += 1
            self._delivery.spent[tx].appends += len(details)
        else:
            for number in request.participants:
                idle[number].unstage(tx)
        coordinator.decided(n, request, reason is None)
        proxy = self._proxy
        if proxy is not None and request.proxy == proxy.id:
            if self._delivery.async_clients:
                self._delivery.sender = coordinator.id
                self._delivery.send(proxy.id, Decided(tx, step, n, reason, details))
            else:
                proxy.decided(tx, step, n, reason, details)
        return True

    def _is_idle(self, number: int) -> bool:
        """Returns whether a tablet has no undecided transaction, and remembers it if so."""
        tablet = self._tablet(number)
        if tablet.idle():
            self.idle[number] = tablet
        return number in self.idle
