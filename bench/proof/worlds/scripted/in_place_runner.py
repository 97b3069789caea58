"""Runs scripted scenarios of a mode with data in place, with power losses of hosts as planned.

    clients (the mode's client core) ── a line that loses nothing ── a ClientWorld's hosts, a turn an event
                                                                 ▲
                                     Cut(event, moment, host) ───┘ and the host is down for a while

Clients run outside the hosts and outlive them; the protocol's own retries and time-outs handle a host that is
down. At the end every answer to a client must be true, every transaction without an answer whole or absent, no
partition may hang, and no transaction be open.

Next: kafka_runner.py, pulsar_runner.py.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from .....proto.ids import PARTITION, tablet_id
from .....runtime.in_place_views import InPlaceBounds, InPlaceViews
from ...simulator.client_world import NONE, ClientWorld
from ...simulator.clients import Client, Process, Steps
from ..in_place.reads import records
from .power_cuts import Cut, PowerCuts

Script: TypeAlias = Callable[[Any, Any], Steps]
"""What a client does: (run, client) ─▶ its steps."""
GROUP = "g"
_MS_MAX = 60_000
_REST_MS = 1_500


@dataclass
class Sent:
    """A transaction: its values, by tablet, and the end that its client was told."""

    number: bytes
    position: int
    """The group's position in its input, which the transaction commits."""
    values: dict[int, list[bytes]]
    end: str = "unknown"


class RebootedInPlace(PowerCuts, ClientWorld):
    """Runs one scenario. Invariant: events depend only on script, hosts, placement and cuts."""

    quick: Any
    """The settings."""
    view: InPlaceViews

    def __init__(
        self,
        scripts: tuple[Script, ...],
        hosts: int,
        separate: bool,
        cuts: tuple[Cut, ...],
        again: tuple[int, int] | None,
    ) -> None:
        self._plan(cuts, again)
        self.sent: list[Sent] = []
        self.signals: dict[str, bool] = {}
        """Signals between clients."""
        super().__init__(7, hosts, separate, self.quick, NONE)
        self.p = [tablet_id(PARTITION, i % hosts, 10 + i) for i in range(3)]
        self.view = self.views()
        self._scripts = scripts

    @abstractmethod
    def views(self) -> InPlaceViews:
        """Returns the engine's own views over the world."""

    @abstractmethod
    def position(self) -> int:
        """Returns the group's position at the end; notes what is still pending."""

    def send(
        self, client: Client, handle: Any, values: dict[int, list[bytes]], position: int
    ) -> Sent:
        number = b"%d" % len(self.sent)
        error = client.begin(handle, number)
        assert not error, error
        own = {t: [b"%s:%s" % (number, value) for value in each] for t, each in values.items()}
        self.sent.append(Sent(number, position, own))
        for tablet, each in own.items():
            client.send(handle, number, tablet, each)
        return self.sent[-1]

    # the whole -----------------------------------------------------------------------------

    def go(self) -> "RebootedInPlace":
        processes = []
        for script in self._scripts:
            client = self.client()
            processes.append(Process(client, script(self, client)))
        try:
            until = self.now + _MS_MAX
            while not all(process.done for process in processes):
                self.step()
                if self.now > until:
                    self.violations.append("a client has not come to its end")
                    return self
            self.pass_ms(_REST_MS)
        except Exception as error:  # from a turn, or from a script with an impossible answer
            cause = error.__cause__ or error
            self.violations.append(f"a host or client stopped: {type(cause).__name__}: {cause}")
            return self
        self.violations += self._compare()
        return self

    def _compare(self) -> Iterator[str]:
        for tablet in self.p:
            _, end, stable = InPlaceBounds._make(self.read(tablet, b"m") or InPlaceBounds())
            if end != stable:
                yield f"partition {tablet:#x} hangs: it is stable up to {stable} of {end}"
        logs = {
            tablet: [value for _, value in records(self.view, tablet, 0, self.view.end(tablet))]
            for tablet in self.p
        }
        position = self.position()
        known = {value for sent in self.sent for each in sent.values.values() for value in each}
        for tablet, values in logs.items():
            if len(set(values)) != len(values) or not known.issuperset(values):
                yield f"partition {tablet:#x} has repeats, or what nobody wrote: {values}"
        moved = 0
        for sent in self.sent:
            there = {
                logs[tablet].count(value) for tablet, each in sent.values.items() for value in each
            }
            committed = there == {1}
            if len(there) > 1:
                yield f"transaction {sent.number.decode()} is torn"
            elif sent.end != "unknown" and committed != (sent.end == "committed"):
                yield f"transaction {sent.number.decode()} was said to be {sent.end}; shown: {there}"
            if committed:
                moved = sent.position
        if position != moved:
            yield f"the group's position is {position}, and not {moved}"
