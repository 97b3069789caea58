"""Runs the applications of a simulated world of mode "kafka", and records their history.

    feeders: transactions, plain writes ─▶ a0 a1 ─▶ workers of one group ─▶ b0 b1
                                             └────────▶ readers ◀──────────┘

A worker reads committed data from its group's position on, sends its outputs, and commits both.
`fenced`: it is a member of its group, and commits with its generation (KIP-447); otherwise all workers share all
partitions, and nothing keeps one from repeating another's work.
Clients crash and restart with the same transactional id. Some leave a zombie behind that does not know of its
successor, and may have been paused. Some also write to a scratch partition, which is dropped meanwhile.

Next: coverage.py.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .....coordinator.kafka.transactions import EXPIRE
from .....proto.batch import encode_batch
from .....proto.ids import GROUPS, PARTITION, TRANSACTIONS, tablet_id
from .....proto.kafka.coordinators import group_of
from .....proto.kafka.messages import DropPartition, ExpireProducers, Join, Leave, TrimTo
from .....proto.messages import Clean
from .....proto.shell import Wake
from .....proxy.kafka.client import Client as Core
from ...simulator.kafka_clients import Client, Process, Steps
from ...simulator.kafka_world import KafkaWorld
from .anomalies import Tx
from .quiesce import GROUP, Ends
from .swarm import Settings

PAUSE_MS_MAX = 1_500


@dataclass
class _Worker:
    """A consuming and producing worker: its producer's `handle`, its group membership, its positions."""

    who: str
    client: Client
    handle: int
    member: str = ""
    generation: int = -1
    members: tuple[str, ...] = ()
    joined: bool = False
    positions: dict[int, int] = field(default_factory=dict)

    def begin_anew(self) -> None:
        """Forgets its positions, and joins the group again."""
        self.positions.clear()
        self.joined = False


class Workload(Ends):
    """Starts, replaces and stops the applications.

    Invariant: all sends, polls and answers are in `history`, except sends to scratch partitions.
    """

    def __init__(self, world: KafkaWorld, settings: Settings) -> None:
        super().__init__(world, settings)
        self.draw = world.random
        self.incarnations: dict[str, int] = {}
        self.errors: Counter[str] = Counter()
        self.scratch = [tablet_id(PARTITION, i % world.hosts, 30 + i) for i in range(2)]
        self._values = 0

    # names ---------------------------------------------------------------------------------

    def value(self, of: bytes | None = None) -> bytes:
        self._values += 1
        return b"%d" % self._values if of is None else b"o%s/%d" % (of, self._values)

    def tx(self, who: str, transactional: bool = True) -> Tx:
        tx = Tx(who, transactional, len(self.history.txs))
        self.history.txs.append(tx)
        return tx

    def reader(self, name: str, committed: bool) -> Steps:
        while not self.stopping:
            yield self.draw.uniform(5, 60)
            self.read_on(name, committed, self.draw.choice(self.tablets), self.draw.randrange(1, 9))

    # writing -------------------------------------------------------------------------------

    def send(self, client: Client, handle: int, tx: Tx, tablet: int, values: list[bytes]) -> None:
        tx.sends.append((tablet, tuple(values)))
        client.send(handle, self.key(tx), tablet, values)

    def key(self, tx: Tx) -> bytes:
        return b"%d" % tx.number

    def end(self, client: Client, handle: int, tx: Tx, commit: bool, offsets: Any = None) -> Steps:
        """Commits or aborts, and repeats until the outcome is known; returns the error, or "dead"."""
        tx.asked_at, tx.commits = self.world.now, commit
        tx.end, error = yield from client.end(handle, self.key(tx), commit, offsets)
        self.errors[error] += 1
        return error if client.core.dead(handle) is None else "dead"

    def feeder(self, name: str, client: Client, who: str) -> Steps:
        answer = yield partial(Core.init, name=name)
        if answer.error:
            return
        yield from self._feed(name, client, who, answer.value)
        client.core.drop(answer.value)

    def _feed(self, name: str, client: Client, who: str, handle: int) -> Steps:
        while self.feeding and not self.is_old(name, client):
            tx = self.tx(who)
            if client.core.begin(handle, self.key(tx)):
                return
            for _ in range(self.draw.randrange(1, 4)):
                values = [self.value() for _ in range(self.draw.randrange(1, 4))]
                self.send(client, handle, tx, self.draw.choice(self.inputs), values)
                if self.draw.random() < 0.5:
                    yield self.draw.uniform(0, 30)
            if self.settings.drops and self.draw.random() < 0.1:
                client.send(handle, self.key(tx), self.draw.choice(self.scratch), [b"scratch"])
            if self.draw.random() < 0.03:
                yield self.world.settings.transaction_timeout_ms * 1.2
            if (yield from self.end(client, handle, tx, self.draw.random() < 0.75)) == "dead":
                return
            yield self.draw.uniform(0, 40)

    def deserters(self) -> Steps:
        """Starts producers whose names are never reused: only the time-out ends their open transactions."""
        number = 0
        while not self.calm:
            yield self.draw.uniform(50, 1_500)
            number += 1
            client = self.world.client()
            self.processes.append(Process(client, self.deserter(f"once-{number}", client)))

    def deserter(self, name: str, client: Client) -> Steps:
        answer = yield partial(Core.init, name=name)
        if answer.error:
            return
        tx = self.tx(name)
        if client.core.begin(answer.value, self.key(tx)):
            return
        self.send(client, answer.value, tx, self.draw.choice(self.inputs), [self.value()])
        yield self.draw.uniform(0, 30)
        self.world.faulted["client crash"] += 1
        client.crash()

    def drop_scratch(self) -> Steps:
        """Drops scratch partitions and cleans them in pieces, while clients still write to them."""
        for tablet in self.scratch:
            yield self.draw.uniform(200, 3_000)
            self.world.faulted["topic dropped"] += 1
            for _ in range(6):  # repeated, because a host that is down misses messages
                self.world.tell(tablet, DropPartition())
                yield self.draw.uniform(1, 60)
                self.world.tell(tablet, Clean(self.draw.randrange(1, 9)))

    def trims(self) -> Steps:
        """Trims records that all readers and the group have passed."""
        while not self.stopping:
            yield self.draw.uniform(20, 200)
            tablet = self.draw.choice(self.tablets)
            offset = min(self._stands.get((name, tablet), 0) for name in ("rc", "ru"))
            if tablet in self.inputs:
                position, _ = self.views[True].committed(tablet, GROUP)
                offset = min(offset, position or 0)
            yield partial(Core.ask, target=tablet, make=partial(TrimTo, offset=offset))

    def plain(self) -> Steps:
        while self.feeding:
            tx = self.tx("plain", transactional=False)
            batches: dict[int, Any] = {}
            for tablet in self.draw.sample(self.inputs, self.draw.randrange(1, 3)):
                values = [self.value() for _ in range(self.draw.randrange(1, 3))]
                tx.sends.append((tablet, tuple(values)))
                data = encode_batch(values, timestamp_ms=self.world.now_ms)
                batches[tablet] = [(data, len(values))]
            answer = yield partial(Core.plain, batches=batches)
            if not answer.error:
                tx.end = "committed"
            yield self.draw.uniform(0, 80)

    # consume, transform, produce -----------------------------------------------------------

    def ask(self, kind: Any, *fields: Any) -> Any:
        target = group_of(GROUP, self.world.hosts)
        return partial(Core.ask, target=target, make=lambda a, n: kind(a, n, GROUP, *fields))

    def worker(self, name: str, client: Client, who: str) -> Steps:
        answer = yield partial(Core.init, name=name)
        if answer.error:
            return
        worker = _Worker(who, client, answer.value)
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
        if client.core.begin(handle, self.key(tx)):
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

    # starting and replacing clients --------------------------------------------------------

    def begin(self) -> None:
        self.runs = {
            "feed": self.feeder,
            "feed-2": self.feeder,
            "work": self.worker,
            "work-2": self.worker,
        }
        for name in self.runs:
            self.start(name)
        others = [self.sessions(), self.plain()]
        if self.fenced:
            others.append(self.trims())
        if self.settings.deserts:
            others.append(self.deserters())
        if self.settings.drops:
            others.append(self.drop_scratch())
        others += [self.reader("rc", committed=True), self.reader("ru", committed=False)]
        self.processes += [Process(self.world.client(), steps) for steps in others]
        self.world.after(50, self._meddle)
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

    def start(self, name: str) -> None:
        """Starts the next incarnation of an application in a new process."""
        number = self.incarnations[name] = self.incarnations.get(name, 0) + 1
        client = self.world.client()
        self.current[name] = Process(client, self.runs[name](name, client, f"{name}.{number}"))
        self.processes.append(self.current[name])

    def is_old(self, name: str, client: Client) -> bool:
        return self.current[name].client is not client

    def _meddle(self) -> None:
        """Crashes or replaces clients at random, and starts ended ones again."""
        self.world.after(self.draw.uniform(10, 120), self._meddle)
        for name, process in self.current.items():
            ended = process.done and not self.stopping
            if ended and (self.feeding or not name.startswith("feed")):
                self.start(name)
            elif not self.calm and not process.done and self.draw.random() < self.settings.meddles:
                self._replace(name, process.client)

    def _replace(self, name: str, client: Client) -> None:
        """Starts a client's successor; the old client crashes, goes on, or pauses and goes on later."""
        kind = self.draw.random()
        if kind < 0.6:
            client.crash()
            self.world.faulted["client crash"] += 1
        elif kind < 0.8:
            self.world.faulted["client taken for dead"] += 1
        else:
            client.pause(self.draw.uniform(50, PAUSE_MS_MAX))
            self.world.faulted["client paused, then a zombie"] += 1
        self.start(name)
