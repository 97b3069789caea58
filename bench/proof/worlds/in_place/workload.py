"""Runs the applications of a simulated world of a mode with data in place, and records their history.

    feeders: transactions, plain writes ─▶ a0 a1 ─▶ workers, the mode's own ─▶ b0 b1
                                             └────────▶ readers ◀──────────────┘

Clients crash and restart under the same name. Some leave a zombie behind that does not know of its successor, and
may have been paused. Some also write to a scratch partition, which is dropped meanwhile.

Next: ../kafka/workload.py, ../pulsar/workload.py.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any

from .....proto.batch import encode_batch
from .....proto.ids import PARTITION, tablet_id
from .....proto.messages import Clean
from ...simulator.client_world import ClientWorld
from ...simulator.clients import Client, Process, Steps
from .anomalies import Tx
from .quiesce import Ends

PAUSE_MS_MAX = 1_500


class Workload(Ends):
    """Starts, replaces and stops the applications.

    Invariant: all sends, polls and answers are in `history`, except sends to scratch partitions.
    """

    def __init__(self, world: ClientWorld, settings: Any) -> None:
        super().__init__(world, settings)
        self.draw = world.random
        self.incarnations: dict[str, int] = {}
        self.errors: Counter[str] = Counter()
        self.scratch = [tablet_id(PARTITION, i % world.hosts, 30 + i) for i in range(2)]
        self._values = 0
        self.runs: dict[str, Callable[[str, Client, str], Steps]] = {
            "feed": self.feeder,
            "feed-2": self.feeder,
            "work": self.worker,
            "work-2": self.worker,
        }
        self.dropped: Any = None
        """The message that says that a partition's topic was dropped."""

    @abstractmethod
    def worker(self, name: str, client: Client, who: str) -> Steps:
        """Consumes inputs and sends an output for each."""

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

    def send(self, client: Client, handle: Any, tx: Tx, tablet: int, values: list[bytes]) -> None:
        tx.sends.append((tablet, tuple(values)))
        client.send(handle, self.key(tx), tablet, values)

    def key(self, tx: Tx) -> bytes:
        return b"%d" % tx.number

    def end(self, client: Client, handle: Any, tx: Tx, commit: bool, offsets: Any = None) -> Steps:
        """Commits or aborts, and repeats until the outcome is known; returns the error, or "dead"."""
        tx.asked_at, tx.commits = self.world.now, commit
        tx.end, error = yield from client.end(handle, self.key(tx), commit, offsets)
        self.errors[error] += 1
        return error if not client.dead(handle) else "dead"

    def feeder(self, name: str, client: Client, who: str) -> Steps:
        handle = yield from client.open(name, who)
        if handle is not None:
            yield from self._feed(name, client, who, handle)
            client.close(handle)

    def _feed(self, name: str, client: Client, who: str, handle: Any) -> Steps:
        while self.feeding and not self.is_old(name, client):
            tx = self.tx(who)
            if client.begin(handle, self.key(tx)):
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
        handle = yield from client.open(name, name)
        if handle is None:
            return
        tx = self.tx(name)
        if client.begin(handle, self.key(tx)):
            return
        self.send(client, handle, tx, self.draw.choice(self.inputs), [self.value()])
        yield self.draw.uniform(0, 30)
        self.world.faulted["client crash"] += 1
        client.crash()

    @abstractmethod
    def trim(self, tablet: int, offset: int) -> Callable[[Any, bytes], None]:
        """Makes a call that trims a partition."""

    def drop_scratch(self) -> Steps:
        """Drops scratch partitions and cleans them in pieces, while clients still write to them."""
        for tablet in self.scratch:
            yield self.draw.uniform(200, 3_000)
            self.world.faulted["topic dropped"] += 1
            for _ in range(6):  # repeated, because a host that is down misses messages
                self.world.tell(tablet, self.dropped)
                yield self.draw.uniform(1, 60)
                self.world.tell(tablet, Clean(self.draw.randrange(1, 9)))

    def trims(self) -> Steps:
        """Trims records that all readers and the group have passed."""
        while not self.stopping:
            yield self.draw.uniform(20, 200)
            tablet = self.draw.choice(self.tablets)
            offset = min(self._stands.get((name, tablet), 0) for name in ("rc", "ru"))
            if tablet in self.inputs:
                offset = min(offset, self.position(tablet))
            yield self.trim(tablet, offset)

    def plain(self, client: Client) -> Steps:
        while self.feeding:
            tx = self.tx("plain", transactional=False)
            batches: dict[int, Any] = {}
            for tablet in self.draw.sample(self.inputs, self.draw.randrange(1, 3)):
                values = [self.value() for _ in range(self.draw.randrange(1, 3))]
                tx.sends.append((tablet, tuple(values)))
                data = encode_batch(values, timestamp_ms=self.world.now_ms)
                batches[tablet] = [(data, len(values))]
            answer = yield client.plain(batches)
            if not answer.error:
                tx.end = "committed"
            yield self.draw.uniform(0, 80)

    # starting and replacing clients --------------------------------------------------------

    def begin_with(self, first: Steps, trims: bool) -> None:
        """Starts the applications, `first` among them."""
        for name in self.runs:
            self.start(name)
        others: list[Steps | Callable[[Client], Steps]] = [first, self.plain]
        if trims:
            others.append(self.trims())
        if self.settings.deserts:
            others.append(self.deserters())
        if self.settings.drops:
            others.append(self.drop_scratch())
        others += [self.reader("rc", committed=True), self.reader("ru", committed=False)]
        for steps in others:
            client = self.world.client()
            self.processes.append(Process(client, steps(client) if callable(steps) else steps))
        self.world.after(50, self._meddle)

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
