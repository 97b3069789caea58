"""Runs scripted scenarios of mode "kafka", with power losses of hosts as planned.

    clients (proxy/kafka/client.py) ── a line that loses nothing ── KafkaWorld's hosts, a turn an event
                                                                 ▲
                                     Cut(event, moment, host) ───┘ and the host is down for a while

Clients run outside the hosts and outlive them; the protocol's own retries and time-outs handle a host that is
down. At the end every answer to a client must be true, every transaction without an answer whole or absent, no
partition may hang, and no transaction be open.

Next: bench/proof/rows/reboots.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from .....proto.ids import PARTITION, tablet_id
from .....proxy.kafka.client import Client as Core
from .....tablets.kafka.rows import EMPTY
from ...simulator.client_world import NONE
from ...simulator.clients import Client, Process, Steps
from ...simulator.kafka_world import QUICK, KafkaWorld
from ..in_place.reads import records
from ..kafka.reads import views_of
from .power_cuts import Cut, PowerCuts

Script = Callable[["RebootedKafka", Client], Steps]
GROUP = "g"
_TRIES = 8
_MS_MAX = 60_000
_REST_MS = 1_500


@dataclass
class Sent:
    """A transaction: its values, by tablet, and the end that its client was told."""

    number: bytes
    position: int
    """The group's position in the first partition, which the transaction commits."""
    values: dict[int, list[bytes]]
    end: str = "unknown"


class RebootedKafka(PowerCuts, KafkaWorld):
    """Runs one scenario. Invariant: events depend only on script, hosts, placement and cuts."""

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
        super().__init__(7, hosts, separate, QUICK, NONE)
        self.p = [tablet_id(PARTITION, i % hosts, 10 + i) for i in range(3)]
        self.view = views_of(self, "read_committed")
        self._scripts = scripts

    # clients -------------------------------------------------------------------------------

    def begin(self, client: Client, name: str) -> Steps:
        """Initializes a new incarnation of a transactional id; returns its handle."""
        for _ in range(_TRIES):
            answer = yield partial(Core.init, name=name)
            if not answer.error:
                return answer.value
            yield 20.0
        raise AssertionError(f"{name} was not given a producer id")

    def send(
        self, client: Client, handle: int, values: dict[int, list[bytes]], position: int
    ) -> Sent:
        number = b"%d" % len(self.sent)
        error = client.begin(handle, number)
        assert not error, error
        own = {t: [b"%s:%s" % (number, value) for value in each] for t, each in values.items()}
        self.sent.append(Sent(number, position, own))
        for tablet, each in own.items():
            client.send(handle, number, tablet, each)
        return self.sent[-1]

    def end(self, client: Client, handle: int, sent: Sent, commit: bool = True) -> Steps:
        """Commits or aborts, and waits until the outcome is known; returns True if the handle is still usable."""
        offsets = {GROUP: (-1, "", ((self.p[0], sent.position),))}
        sent.end, _ = yield from client.end(handle, sent.number, commit, offsets)
        return not client.dead(handle)

    # the whole -----------------------------------------------------------------------------

    def go(self) -> "RebootedKafka":
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

    def position(self) -> int:
        position, pending = self.view.committed(self.p[0], GROUP)
        if pending:
            self.violations.append("a position waits for ever")
        return position or 0

    def _compare(self) -> Iterator[str]:
        for tablet in self.p:
            _, end, stable = self.read(tablet, b"m") or EMPTY
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


# scenarios -------------------------------------------------------------------------------------


def _transactions(run: RebootedKafka, client: Client) -> Steps:
    """Each transaction commits a position; after an unknown outcome the worker goes on as a new incarnation."""
    handle = yield from run.begin(client, "w")
    for number in range(3):
        values = {run.p[0]: [b"a"], run.p[1]: [b"b", b"c"]}
        sent = run.send(client, handle, values, number + 1)
        if not (yield from run.end(client, handle, sent)):
            handle = yield from run.begin(client, "w")


def _aborts(run: RebootedKafka, client: Client) -> Steps:
    handle = yield from run.begin(client, "w")
    for commit in (False, True, False):
        sent = run.send(client, handle, {run.p[1]: [b"a"], run.p[2]: [b"b"]}, 1)
        yield 5.0
        if not (yield from run.end(client, handle, sent, commit)):
            handle = yield from run.begin(client, "w")


def _fenced(run: RebootedKafka, client: Client) -> Steps:
    handle = yield from run.begin(client, "w")
    sent = run.send(client, handle, {run.p[0]: [b"a"], run.p[1]: [b"a"]}, 1)
    yield 20.0
    run.signals["the first has sent"] = True
    while "the second has begun" not in run.signals:
        yield 5.0
    yield from run.end(client, handle, sent)
    if sent.end == "committed":
        run.violations.append("one that was fenced has committed")


def _fencing(run: RebootedKafka, client: Client) -> Steps:
    """The second incarnation of a transactional id ends the first one's open transaction."""
    while "the first has sent" not in run.signals:
        yield 5.0
    handle = yield from run.begin(client, "w")
    run.signals["the second has begun"] = True
    sent = run.send(client, handle, {run.p[1]: [b"b"], run.p[2]: [b"b"]}, 2)
    yield from run.end(client, handle, sent)


KAFKA_SCENARIOS: dict[str, tuple[Script, ...]] = {
    "kafka: transactions": (_transactions,),
    "kafka: aborts": (_aborts,),
    "kafka: a producer is fenced": (_fenced, _fencing),
}
"""By name: what each client does."""
