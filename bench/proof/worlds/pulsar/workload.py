"""Runs consumers in a simulated world of mode "pulsar".

A worker reads what is visible and neither acknowledged nor pending, sends an output for each input, and
acknowledges in the same transaction. With individual acknowledgements workers share all inputs, and conflicts
decide. With cumulative ones a worker goes on behind what it has committed, and begins again at the position after
any other end.

Next: coverage.py.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from .....proto.pulsar.messages import DropPartition, DropSubscription, Seek, TrimTo
from .....proxy.pulsar.client import Client as Core
from ...simulator.client_world import NONE, ClientWorld
from ...simulator.clients import Client, Steps
from ..in_place.anomalies import Tx, place
from ..in_place.quiesce import GROUP
from ..in_place.workload import Workload as InPlaceWorkload
from .reads import PulsarReads

SCRATCH = "scratch"
_WORKERS = "work", "work-2"


class Workload(InPlaceWorkload, PulsarReads):
    """Invariant: all sends, polls and answers are in `history`, except sends to scratch partitions."""

    def __init__(self, world: ClientWorld, settings: Any) -> None:
        super().__init__(world, settings)
        self.dropped = DropPartition()
        self.individual = settings.kind == "individual"

    def trim(self, tablet: int, offset: int) -> Callable[[Any, bytes], None]:
        return partial(Core.ask, target=tablet, make=partial(TrimTo, offset=offset))

    def begin(self) -> None:
        self._subscribe()
        self.begin_with(self._scratch(), self.settings.trims)

    def _subscribe(self) -> None:
        """Makes the group's subscriptions before any fault: a Seek that came twice would move them back."""
        world = self.world
        lines, faults = world.lines, world.faults
        odds = lines.lose, lines.repeat, lines.slow
        world.faults, lines.lose, lines.repeat, lines.slow = NONE, 0.0, 0.0, 0.0
        client = world.client()
        for tablet in self.inputs:
            client.call(self._seek(tablet, GROUP, 0), lambda end: None)
        while any(self.cursor(tablet) is None for tablet in self.inputs) or client.waiting:
            world.pass_ms(5)
        world.faults, (lines.lose, lines.repeat, lines.slow) = faults, odds

    def _scratch(self) -> Steps:
        """Makes, moves and drops a subscription of another name."""
        while self.settings.drops and not self.calm:
            yield self.draw.uniform(20, 200)
            tablet = self.draw.choice(self.inputs)
            if self.draw.random() < 0.3:
                make = partial(DropSubscription, subscription=SCRATCH)
                yield partial(Core.ask, target=tablet, make=make)
            else:
                yield self._seek(tablet, SCRATCH, self.draw.randrange(self.meta(tablet).end + 1))

    def _seek(self, tablet: int, name: str, position: int) -> Callable[[Any, bytes], None]:
        make = partial(Seek, subscription=name, position=position, individual=self.individual)
        return partial(Core.ask, target=tablet, make=make)

    # consume, transform, produce ---------------------------------------------------------------

    def worker(self, name: str, client: Client, who: str) -> Steps:
        positions: dict[int, int] = {}
        while not self.stopping and not (self.calm and self.is_old(name, client)):
            yield self.draw.uniform(1, 15)
            tablet = self.draw.choice(self.inputs)
            if self.settings.kind == "lanes":
                tablet = self.inputs[_WORKERS.index(name)]
            if self.cursor(tablet) is None:
                continue
            if self.individual:
                yield from self._pass_some_on(client, who, tablet)
            elif tablet in positions or self._may_read(tablet):
                begin = max(positions.pop(tablet, 0), self.position(tablet))
                yield self.draw.uniform(0, 10)
                end = yield from self._pass_on(client, who, tablet, begin)
                if end is not None:
                    positions[tablet] = end

    def _may_read(self, tablet: int) -> bool:
        """Returns whether a worker may begin at the position; one that waits does not while it is about to move."""
        return not (self.settings.waits and self.rows(tablet, b"k"))

    def _pass_some_on(self, client: Client, who: str, tablet: int) -> Steps:
        """Uses some inputs that are free, each acknowledged for itself."""
        begin, _, taken, _ = self.views[True].consumer(None, tablet, GROUP)
        begin = self.draw.choice((begin, begin, *(end for _, end in taken)))
        records, _ = self.poll("", True, tablet, begin, self.draw.randrange(1, 8))
        records = [
            record
            for record in records
            if not any(low <= record[0] < high for low, high in taken) and self.draw.random() < 0.8
        ]
        if not records:
            self.history.polls.pop()
            return
        ranges = tuple((offset, offset + 1) for offset, _ in records)
        yield from self._use(client, who, tablet, records, ranges, None)

    def _pass_on(self, client: Client, who: str, tablet: int, begin: int) -> Steps:
        """Uses the next inputs; returns the position behind them if that is committed, else None."""
        records, end = self.poll("", True, tablet, begin, self.draw.randrange(1, 6))
        if not records:
            self.history.polls.pop()
            return begin if self.draw.random() < 0.5 else None
        committed = yield from self._use(client, who, tablet, records, (), end)
        return end if committed else None

    def _use(
        self,
        client: Client,
        who: str,
        tablet: int,
        records: list[tuple[int, bytes]],
        ranges: tuple[tuple[int, int], ...],
        position: int | None,
    ) -> Steps:
        """Runs a transaction; returns whether it has committed."""
        tx = self.tx(who)
        tx.reads += [value for _, value in records]
        client.begin(who, self.key(tx))
        for offset, _ in records:
            value = self.value(place(tablet, offset))
            self.send(client, who, tx, self.draw.choice(self.outputs), [value])
            if self.draw.random() < 0.2:
                yield self.draw.uniform(0, 20)
        acks = self._acks(tx, tablet, ranges, position)
        commit = self.draw.random() < 0.85
        error = yield from self.end(client, who, tx, commit, acks)
        return commit and not error

    def _acks(
        self, tx: Tx, tablet: int, ranges: tuple[tuple[int, int], ...], position: int | None
    ) -> list[Any]:
        """Returns the acknowledgements: some of them in two requests, and now and then one that may be refused."""
        acks: list[Any] = [(tablet, GROUP, ranges, position)]
        if len(ranges) > 1 and self.draw.random() < 0.3:
            acks = [(tablet, GROUP, ranges[:1], None), (tablet, GROUP, ranges[1:], None)]
        if self.settings.drops and self.draw.random() < 0.1:
            acks.append((tablet, SCRATCH, ranges, position))
        return acks
