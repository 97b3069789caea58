"""Runs scripted scenarios of mode "pulsar", with power losses of hosts as planned.

Logs are batched, and aborted ids are stored in parts, so that a cut finds records that wait and parts not written.

Next: bench/proof/rows/reboots.py.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from .....coordinator.pulsar import invariants
from .....proto.batch import encode_batch
from .....proto.ids import PARTITION, host_of, tablet_id
from .....proto.pulsar.messages import Seek
from .....proxy.pulsar.client import Client as Core
from .....runtime.in_place_views import DurableRows
from .....runtime.pulsar.views import PulsarViews
from .....tablets.pulsar.ack_log import replayed
from ...simulator.clients import Client, Steps
from ...simulator.pulsar_world import QUICK, PulsarWorld
from ..pulsar.reads import views_of
from .in_place_runner import GROUP, RebootedInPlace, Script, Sent

_INPUTS = [b"1", b"2", b"3"]


class RebootedPulsar(RebootedInPlace, PulsarWorld):
    """Runs one scenario of mode "pulsar". The group reads a partition of its own, of three records."""

    quick = replace(
        QUICK,
        log_batching=True,
        ack_log_batching=True,
        snapshots="parts",
        snapshot_transactions=2,
        snapshot_segment_bytes=64,
    )
    view: PulsarViews
    individual = False

    def views(self) -> PulsarViews:
        self.input = tablet_id(PARTITION, 0, 13)
        return views_of(self, "read_committed")

    def begin(self, client: Client, name: str, individual: bool = False) -> Steps:
        """Writes the inputs and makes the group, if that was not done; returns the name of a producer."""
        self.individual = individual
        if not self.signals:
            self.signals["begun"] = True
            batch = encode_batch(_INPUTS, timestamp_ms=self.now_ms)
            seek = partial(Seek, subscription=GROUP, position=0, individual=individual)
            for do in (
                client.plain({self.input: [(batch, len(_INPUTS))]}),
                partial(Core.ask, target=self.input, make=seek),
            ):
                while (yield do).error:
                    yield 20.0
            self.signals["there are inputs"] = True
        while "there are inputs" not in self.signals:
            yield 5.0
        return f"{name}.{len(self.sent)}"

    def end(self, client: Client, handle: str, sent: Sent, commit: bool = True) -> Steps:
        """Commits or aborts with an acknowledgement, and waits until the outcome is known or never will be."""
        ack: Any = (self.input, GROUP, (), sent.position)
        if self.individual:
            ack = (self.input, GROUP, ((sent.position - 1, sent.position),), None)
        sent.end, _ = yield from client.end(handle, sent.number, commit, [ack])

    def position(self) -> int:
        for tablet in self.coordinators:
            rows = DurableRows(self.stores[host_of(tablet)], tablet)
            self.violations += invariants.violations(rows)
            if invariants.live_rows(rows):
                self.violations.append(f"a transaction of {tablet:#x} is open for ever")
        cursor = self.view.cursor(self.input, GROUP)
        assert cursor is not None
        rows = DurableRows(self.stores[host_of(self.input)], self.input)
        if replayed(rows, GROUP, cursor) != ({}, None):
            self.violations.append("an acknowledgement is pending for ever")
        return cursor.ranges[-1][1] if cursor.ranges else cursor.position


# scenarios -------------------------------------------------------------------------------------


def _transactions(run: RebootedPulsar, client: Client) -> Steps:
    """Each transaction acknowledges one record more, cumulatively."""
    handle = yield from run.begin(client, "w")
    for number in range(3):
        values = {run.p[0]: [b"a"], run.p[1]: [b"b", b"c"]}
        sent = run.send(client, handle, values, number + 1)
        yield from run.end(client, handle, sent)


def _aborts(run: RebootedPulsar, client: Client) -> Steps:
    handle = yield from run.begin(client, "w")
    for commit in (False, True, False, False):
        sent = run.send(client, handle, {run.p[1]: [b"a"], run.p[2]: [b"b"]}, len(run.sent) + 1)
        yield 5.0
        yield from run.end(client, handle, sent, commit)


def _competing(run: RebootedPulsar, client: Client) -> Steps:
    """Both clients use the same input; one of them at most commits."""
    handle = yield from run.begin(client, "w", individual=True)
    sent = run.send(client, handle, {run.p[0]: [b"a"], run.p[1]: [b"a"]}, 1)
    yield 5.0
    yield from run.end(client, handle, sent)
    if [sent.end for sent in run.sent].count("committed") > 1:
        run.violations.append("an input is acknowledged twice")


def _left(run: RebootedPulsar, client: Client) -> Steps:
    """Sends, and dies: only the time-out ends the transaction."""
    handle = yield from run.begin(client, "dead")
    sent = run.send(client, handle, {run.p[0]: [b"x"], run.p[1]: [b"x"]}, 0)
    yield 20.0
    sent.end = "aborted"
    client.crash()


def _behind(run: RebootedPulsar, client: Client) -> Steps:
    """Commits behind what a dead client has left open."""
    while "there are inputs" not in run.signals:
        yield 5.0
    handle = yield from run.begin(client, "w")
    sent = run.send(client, handle, {run.p[1]: [b"b"], run.p[2]: [b"b"]}, 1)
    yield from run.end(client, handle, sent)


PULSAR_SCENARIOS: dict[str, tuple[Script, ...]] = {
    "pulsar: transactions": (_transactions,),
    "pulsar: aborts": (_aborts,),
    "pulsar: two use an input": (_competing, _competing),
    "pulsar: left open": (_left, _behind),
}
"""By name: what each client does."""
