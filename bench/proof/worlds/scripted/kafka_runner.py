"""Runs scripted scenarios of mode "kafka", with power losses of hosts as planned.

Next: bench/proof/rows/reboots.py.
"""

from functools import partial

from .....proxy.kafka.client import Client as Core
from .....runtime.kafka.views import KafkaViews
from ...simulator.clients import Client, Steps
from ...simulator.kafka_world import QUICK, KafkaWorld
from ..kafka.reads import views_of
from .in_place_runner import GROUP, RebootedInPlace, Script, Sent

_TRIES = 8


class RebootedKafka(RebootedInPlace, KafkaWorld):
    """Runs one scenario of mode "kafka"."""

    quick = QUICK
    view: KafkaViews

    def views(self) -> KafkaViews:
        return views_of(self, "read_committed")

    def begin(self, client: Client, name: str) -> Steps:
        """Initializes a new incarnation of a transactional id; returns its handle."""
        for _ in range(_TRIES):
            answer = yield partial(Core.init, name=name)
            if not answer.error:
                return answer.value
            yield 20.0
        raise AssertionError(f"{name} was not given a producer id")

    def end(self, client: Client, handle: int, sent: Sent, commit: bool = True) -> Steps:
        """Commits or aborts, and waits until the outcome is known; returns True if the handle is still usable."""
        offsets = {GROUP: (-1, "", ((self.p[0], sent.position),))}
        sent.end, _ = yield from client.end(handle, sent.number, commit, offsets)
        return not client.dead(handle)

    def position(self) -> int:
        position, pending = self.view.committed(self.p[0], GROUP)
        if pending:
            self.violations.append("a position waits for ever")
        return position or 0


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
