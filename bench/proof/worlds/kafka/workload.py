"""Runs consumer groups in a simulated world of mode "kafka".

A worker reads committed data from its group's position on, sends its outputs, and commits both.
`fenced`: it is a member of its group, and commits with its generation (KIP-447); otherwise all workers share all
partitions, and nothing keeps one from repeating another's work.

Next: coverage.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .....coordinator.kafka.states import ONGOING, PREPARED, Transaction
from .....coordinator.kafka.transactions import EXPIRE
from .....proto.ids import GROUPS, TRANSACTIONS, tablet_id
from .....proto.kafka.coordinators import group_of
from .....proto.kafka.messages import DropPartition, ExpireProducers, Join, Leave, TrimTo
from .....proto.shell import Wake
from .....proxy.kafka.client import Client as Core
from ...simulator.client_world import ClientWorld
from ...simulator.clients import Client, Steps
from ..in_place.quiesce import GROUP, SLACK_MS
from ..in_place.reads import NOW
from ..in_place.workload import PAUSE_MS_MAX
from ..in_place.workload import Workload as InPlaceWorkload
from .reads import KafkaReads

_LEFT = (ONGOING, *PREPARED)


@dataclass
class _Worker:
    """A consuming and producing worker: its producer's `handle`, its group membership, its positions."""

    who: str
    client: Client
    handle: Any
    member: str = ""
    generation: int = -1
    members: tuple[str, ...] = ()
    joined: bool = False
    positions: dict[int, int] = field(default_factory=dict)

    def begin_anew(self) -> None:
        """Forgets its positions, and joins the group again."""
        self.positions.clear()
        self.joined = False


class Workload(InPlaceWorkload, KafkaReads):
    """Adds the workers of a group.

    Invariant: all sends, polls and answers are in `history`, except sends to scratch partitions.
    """

    def __init__(self, world: ClientWorld, settings: Any) -> None:
        super().__init__(world, settings)
        self.fenced = settings.fenced
        self.dropped = DropPartition()

    def position(self, tablet: int) -> int:
        return self.views[True].committed(tablet, GROUP)[0] or 0

    def trim(self, tablet: int, offset: int) -> Callable[[Any, bytes], None]:
        return partial(Core.ask, target=tablet, make=partial(TrimTo, offset=offset))

    # consume, transform, produce -----------------------------------------------------------

    def ask(self, kind: Any, *fields: Any) -> Any:
        target = group_of(GROUP, self.world.hosts)
        return partial(Core.ask, target=target, make=lambda a, n: kind(a, n, GROUP, *fields))

    def worker(self, name: str, client: Client, who: str) -> Steps:
        handle = yield from client.open(name, who)
        if handle is None:
            return
        worker = _Worker(who, client, handle)
        while not self.stopping and not (self.calm and self.is_old(name, client)):
            if self.fenced and not worker.joined and not (yield from self._join(worker)):
                continue
            yield self.draw.uniform(1, 15)
            tablet = self._choose(worker)
            if tablet is None or not (yield from self._is_at(worker, tablet)):
                continue
            if (yield from self._pass_on(worker, tablet)) == "dead":
                break
        if worker.member:
            yield self.ask(Leave, worker.member)

    def _join(self, worker: _Worker) -> Steps:
        """Joins the group; returns whether it is a member now."""
        worker.member = worker.who
        answer = yield self.ask(Join, worker.member)
        if answer.error:
            return False
        (worker.generation, worker.members), worker.joined = answer.value, True
        worker.positions.clear()
        return True

    def _choose(self, worker: _Worker) -> int | None:
        """Returns one of the worker's partitions; None if it has none, or must join again."""
        members = worker.members
        mine = [
            tablet
            for i, tablet in enumerate(self.inputs)
            if not self.fenced or members[i % len(members)] == worker.member
        ]
        if not mine or (self.fenced and self.draw.random() < 0.05):
            worker.joined = False  # a member may have left
            return None
        return self.draw.choice(mine)

    def _is_at(self, worker: _Worker, tablet: int) -> Steps:
        """Looks up the worker's position; returns False while a commit of the group is pending."""
        if tablet not in worker.positions:
            position, pending = self.views[True].committed(tablet, GROUP)
            if pending:
                return False
            worker.positions[tablet] = position or 0
            yield self.draw.uniform(0, 10)
        return True

    def _pass_on(self, worker: _Worker, tablet: int) -> Steps:
        """Runs a transaction if there are records to read; returns its error, or "dead"."""
        begin = worker.positions[tablet]
        if begin < self.meta(tablet).start:  # trimmed: another worker has processed these records
            worker.begin_anew()
            return ""
        records, end = self.poll("", True, tablet, begin, self.draw.randrange(1, 6))
        if not records:
            self.history.polls.pop()
            return ""
        tx = self.tx(worker.who)
        tx.reads += [value for _, value in records]
        client, handle = worker.client, worker.handle
        if client.begin(handle, self.key(tx)):
            return "dead"
        for _, value in records:
            target = self.draw.choice(self.outputs)
            self.send(client, handle, tx, target, [self.value(value)])
            if self.draw.random() < 0.2:
                yield self.draw.uniform(0, 20)
        offsets = {GROUP: (worker.generation, worker.member, ((tablet, end),))}
        commit = self.draw.random() < 0.85
        error = yield from self.end(client, handle, tx, commit, offsets)
        if error:
            worker.begin_anew()
        elif commit:
            worker.positions[tablet] = end
        return error

    def sessions(self) -> Steps:
        """Removes members that have ended or were replaced, in place of a session time-out."""
        group = group_of(GROUP, self.world.hosts)
        while not self.stopping:
            yield 60
            _, members = self.rows(group, b"g").get(b"g" + GROUP.encode(), (0, ()))
            there = [
                f"{name}.{self.incarnations[name]}"
                for name, process in self.current.items()
                if self.runs_on(process)
            ]
            for member in members:
                if member not in there:
                    yield self.ask(Leave, member)

    # starting ------------------------------------------------------------------------------

    def begin(self) -> None:
        self.begin_with(self.sessions(), self.fenced)
        if self.settings.expires:
            self.world.after(100, self._expire)

    def _expire(self) -> None:
        """Expires idle producers and transactional ids, which takes days in reality.

        A producer's state must outlive retries, late requests and pauses of its client: without it a repeat is not
        recognized.
        """
        world, kafka = self.world, self.world.settings
        late_ms = 2 * kafka.delivery_timeout_ms + 5 * kafka.request_timeout_ms
        late_ms += PAUSE_MS_MAX
        oldest = ExpireProducers(world.now_ms - late_ms)
        groups = [tablet_id(GROUPS, number, 0) for number in range(world.hosts)]
        for tablet in (*self.tablets, *groups):
            world.tell(tablet, oldest)
        if not self.calm:
            for number in range(world.hosts):
                world.tell(tablet_id(TRANSACTIONS, number, 0), Wake(EXPIRE))
        world.after(100, self._expire)

    # the end -------------------------------------------------------------------------------

    def open_too_long(self) -> Iterator[str]:
        world = self.world
        most_ms = world.settings.abort_scan_ms + SLACK_MS
        for number in range(world.hosts):
            now = world.clock(number)
            for key, fields in self.rows(tablet_id(TRANSACTIONS, number, 0), b"t").items():
                row = Transaction(*fields)
                late = now > row.start_ms + row.timeout_ms + most_ms
                if row.state == ONGOING and late:
                    yield f"{key[1:]!r} is open since {row.start_ms}, now is {now}"

    def used(self, tablet: int) -> bool:
        position, pending = self.views[True].committed(tablet, GROUP)
        _, end, stable = self.meta(tablet)
        if pending or stable < end:
            return False
        return not self.views[True].read_segments(NOW, tablet, 0, position or 0, 1, 1)

    def left(self, tablet: int) -> Iterator[str]:
        return iter(())

    def left_at_host(self, number: int) -> Iterator[str]:
        for key, row in self.rows(tablet_id(TRANSACTIONS, number, 0), b"t").items():
            state = Transaction(*row).state
            if state in _LEFT:
                yield f"{key!r} is in state {state}"
        groups = tablet_id(GROUPS, number, 0)
        for key in (*self.rows(groups, b"n"), *self.rows(groups, b"q")):
            yield f"{key!r} is pending"
