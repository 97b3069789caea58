"""Runs consumers in a simulated world of mode "pulsar".

A worker reads what is visible and neither acknowledged nor pending, sends an output for each input, and
acknowledges in the same transaction. With individual acknowledgements workers share all inputs, and conflicts
decide. With cumulative ones a worker goes on behind what it has committed, and begins again at the position after
any other end. Some acknowledge outside of transactions, once the outputs are committed.

Next: coverage.py.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from .....proto.ids import PARTITION, tablet_id
from .....proto.pulsar.messages import (
    AddPartitionToTxn,
    DropPartition,
    DropSubscription,
    NewTxn,
    Seek,
    TrimTo,
)
from .....proxy.pulsar.client import Client as Core
from ...simulator.client_world import NONE, ClientWorld
from ...simulator.clients import Client, Process, Steps
from ..in_place.anomalies import TWO_HANDS, WAITS, Tx, place
from ..in_place.quiesce import GROUP
from ..in_place.reads import Broken
from ..in_place.workload import Workload as InPlaceWorkload
from .turn_checks import TurnChecks

SCRATCH = "scratch"
_WORKERS = "work", "work-2"
_UNLOGGABLE = 1 << 70
_NEW_WITHIN_MS = 2_000
Ranges = tuple[tuple[int, int], ...]


class Workload(InPlaceWorkload, TurnChecks):
    """Invariant: all sends, polls and answers are in `history`, except sends to scratch partitions.

    `individual_acks`: what transactions have acknowledged of the group, but for cumulative acknowledgements.
    """

    def __init__(self, world: ClientWorld, settings: Any) -> None:
        super().__init__(world, settings)
        self.dropped = DropPartition()
        self.individual = settings.kind == "individual"
        self.individual_acks: list[tuple[Tx, int, Ranges]] = []
        self._in_hand: Counter[tuple[int, int]] = Counter()
        partitions: Any = world
        partitions.partitions = tuple(self.tablets)

    def trim(self, tablet: int, offset: int) -> Callable[[Any, bytes], None]:
        return partial(Core.ask, target=tablet, make=partial(TrimTo, offset=offset))

    def begin(self) -> None:
        self._subscribe()
        self.begin_with(self._scratch(), self.settings.trims)
        if self.settings.raises:
            self.world.after(self.draw.uniform(300, 1_500), self._raise_coordinators)
        if self.settings.poison:
            self.processes.append(Process(self.world.client(), self._poison()))

    def _raise_coordinators(self) -> None:
        world: Any = self.world
        if not self.calm:
            world.raise_coordinators()

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

    def _poison(self) -> Steps:
        """Registers what no log can hold: it is refused, and others are logged."""
        world: Any = self.world
        while not self.calm:
            yield self.draw.uniform(100, 1_000)
            coordinator = self.draw.choice(world.coordinators)
            make: Any = partial(NewTxn, timeout_ms=world.settings.transaction_timeout_ms)
            opened = yield partial(Core.ask, target=coordinator, make=make)
            if not opened.error:
                most, least = opened.value
                make = partial(AddPartitionToTxn, most=most, least=least, partitions=(_UNLOGGABLE,))
                answer = yield partial(Core.ask, target=coordinator, make=make)
                if not answer.error:
                    raise Broken("B24: a coordinator has taken what no log can hold")

    def poll(
        self, reader: str, committed: bool, tablet: int, begin: int, most: int
    ) -> tuple[list[tuple[int, bytes]], int]:
        _, end, max_read = self.meta(tablet)
        self.allowed[WAITS] += bool(reader) and committed and begin >= max_read and max_read < end
        return super().poll(reader, committed, tablet, begin, most)

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
            if self.settings.plain and self.draw.random() < 0.15:
                yield from self._pass_on_plainly(client, who, tablet)
            elif self.individual or (self.settings.mixes and self.draw.random() < 0.4):
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
        yield from self._use(client, who, tablet, records, self._ranges(records), None)

    def _ranges(self, records: list[tuple[int, bytes]]) -> Ranges:
        """Returns ranges of records; of neighbours some are one range."""
        offsets = [offset for offset, _ in records]
        apart = [b > a + 1 or self.draw.random() < 0.4 for a, b in pairwise(offsets)]
        begins = [at for at, cut in zip(offsets, (True, *apart), strict=True) if cut]
        ends = [at + 1 for at, cut in zip(offsets, (*apart, True), strict=True) if cut]
        return tuple(zip(begins, ends, strict=True))

    def _pass_on_plainly(self, client: Client, who: str, tablet: int) -> Steps:
        """Uses the next inputs, whoever is about to, and acknowledges some outside of transactions (A10)."""
        begin = self.position(tablet)
        records, end = self.poll("", True, tablet, begin, self.draw.randrange(1, 6))
        if not records:
            self.history.polls.pop()
            return
        committed = yield from self._use(client, who, tablet, records, (), None)
        if committed:
            how: dict[str, Any] = {"position": end}
            if self.individual or self.draw.random() < 0.3:
                how = {"ranges": self._ranges(self.draw.choice((records, records[1:] or records)))}
            yield partial(Core.plain_acknowledge, tablet=tablet, subscription=GROUP, **how)

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
        ranges: Ranges,
        position: int | None,
    ) -> Steps:
        """Runs a transaction; returns whether it has committed. It acknowledges ranges, a position, or nothing."""
        tx = self.tx(who)
        places = [(tablet, offset) for offset, _ in records]
        self.allowed[TWO_HANDS] += sum(self._in_hand[at] > 0 for at in places)
        self._in_hand.update(places)
        tx.reads += [value for _, value in records]
        client.begin(who, self.key(tx))
        for offset, _ in records:
            value = self.value(place(tablet, offset))
            self.send(client, who, tx, self.draw.choice(self.outputs), [value])
            if self.draw.random() < 0.2:
                yield self.draw.uniform(0, 20)
        acks = self._acks(tablet, ranges, position) if ranges or position is not None else []
        if ranges:
            self.individual_acks.append((tx, tablet, ranges))
        commit = self.draw.random() < 0.85
        error = yield from self.end(client, who, tx, commit, acks)
        self._in_hand.subtract(places)
        if tx.end == "committed":
            self.check_acknowledged(tablet, ranges, position)
        return commit and not error

    def _acks(self, tablet: int, ranges: Ranges, position: int | None) -> list[Any]:
        """Returns the acknowledgements: some of them in two requests, and now and then one that may be refused."""
        acks: list[Any] = [(tablet, GROUP, ranges, position)]
        if len(ranges) > 1 and self.draw.random() < 0.3:
            acks = [(tablet, GROUP, ranges[:1], None), (tablet, GROUP, ranges[1:], None)]
        if self.settings.drops and self.draw.random() < 0.1:
            acks.append((tablet, SCRATCH, ranges, position))
        return acks

    # the end -----------------------------------------------------------------------------------

    def finish(self, transactions: int) -> None:
        """Ends as every world does; then each coordinator has to end something new."""
        super().finish(transactions)
        world: Any = self.world
        client, ends = world.client(), list[str]()
        Process(client, self._something_new(client, ends))
        world.pass_ms(_NEW_WITHIN_MS)
        if ends != [""] * len(world.coordinators):
            raise Broken(f"B37: new transactions ended with {ends}, and all hosts are up")

    def _something_new(self, client: Any, ends: list[str]) -> Steps:
        """Commits something in a partition of each host, once by each coordinator."""
        for number in range(len(client.world.coordinators)):
            tx = b"new %d" % number
            client.begin("new", tx)
            for host in range(self.world.hosts):
                client.send("new", tx, tablet_id(PARTITION, host, 40), [b"new"])
            _, error = yield from client.end("new", tx, True)
            ends.append(error)
