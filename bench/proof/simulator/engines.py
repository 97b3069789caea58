"""Opens, runs and ends the engines of machines that share a store: real folders, real openings, real snapshots.

    open ─▶ runtime/open_runtime.py, up to the runtime ─▶ Host ─▶ inbox ─▶ turn ─▶ DiskStore ─▶ … ─▶ Way ─▶ Bucket
    read ─▶ DiskStore.confirm            snapshot ─▶ Snapshotter.make_now: snapshot, trim, collect

Simulated are threads and time: what runs turns is the world's, and what waits is a fiber (fiber.py).

Next: fate.py.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from ....errors import EngineClosed, Fenced, IoError, LogUnreachable, OwnedElsewhere, StoreClosed
from ....host.inputs import Deliver, Input, Tick
from ....proto.messages import Withdraw
from ....runtime import open_stores, replication, snapshotting
from ....runtime.open_runtime import open_runtime
from ....runtime.open_stores import OpenOptions
from ....runtime.snapshotting import snapshots_of
from ....shared import ahead, objects_log, patient, runs
from ....shared.objects_log import ObjectsLog, open_root
from ....shared.settings import Replicate
from ....shared.shared_log import Root
from ....store import DiskStore, snapshot_making
from .acting import DOWN, ENDING, OPENING, UP, Acting, Machine, NoHost
from .bucket import Bucket, Way
from .fiber import Fiber, FiberLock
from .inline import InlineExecutor

SEGMENT_BYTES = 1 << 16
_RUN_TURNS, _FAR = 5, 4
"""Small enough that runs are made and read; so is a segment."""
_REFUSED = OwnedElsewhere, Fenced, LogUnreachable, IoError
"""What an opening may end with."""


class Engines(Acting):
    """The engines of the machines. `reached` counts notable events; `leading` is of the latest term."""

    mode: str
    faulted: Counter[str]
    away: list[bool]
    lives: list[int]
    stores: list[Any]
    nodes: list[Any]
    inboxes: Any
    _due: list[bool]

    def begin_engines(self, seed: int, folder: Path, count: int, settings: Replicate) -> None:
        """Makes the machines; called before the world begins."""
        self.bucket = Bucket(self, random.Random(f"{seed}/bucket"))
        self.settings_of_log = settings
        self.leading: Machine | None = None
        self.reached: Counter[str] = Counter()
        self._nonces = random.Random(f"{seed}/nonces")
        self._ends = random.Random(f"{seed}/ends")
        self._lives = self._term = 0
        self.prepare([self.machine(folder, number) for number in range(count)])

    def machine(self, folder: Path, number: int) -> Machine:
        return Machine(number, folder / f"machine-{number}", Way(self.bucket))

    def _open(self, hosts: int) -> None:
        """Takes the place of the world's: no machine is up yet."""
        self.hosts = hosts
        self.recorded: list[Any] = []
        self._changes = b""
        self.counter = 0
        self._leave()

    def _leave(self) -> None:
        """Takes the acting machine's engine out of the world."""
        self._live(True)
        self.stores, self.nodes, self._due = [], [NoHost()], [False]

    def _live(self, away: bool) -> None:
        """Begins another life of the acting machine: what is on its way to the one before does not reach it."""
        self._lives += 1
        self.lives, self.away = [self._lives], [away]

    # the real code's surroundings --------------------------------------------------------------

    @contextmanager
    def real_calls(self) -> Iterator[None]:
        """Leads what the real code asks for into this world: shared logs, time, nonces, the runtime."""
        clock = SimpleNamespace(
            monotonic=lambda: self.now / 1000,
            time=lambda: self.now / 1000,
            time_ns=lambda: int(self.now * 1_000_000),
            strftime=lambda form, at: str(at),
            localtime=lambda at: at,
        )
        replaced: tuple[tuple[Any, str, Any], ...] = (
            (open_stores, "make_runtime", _Opened),
            (replication, "open_shared_log", self._open_log),
            (replication, "time", clock),
            (snapshotting, "open_shared_log", self._open_log),
            (snapshotting, "time", clock),
            (snapshotting, "snapshot_made", partial(self._reach, "snapshot made")),
            (snapshotting, "snapshot_restored", partial(self._reach, "restored")),
            (snapshot_making, "time", clock),
            (snapshot_making, "os", SimpleNamespace(urandom=self._nonces.randbytes)),
            (objects_log, "monotonic", clock.monotonic),
            (objects_log, "sleep", lambda seconds: self.wait(seconds * 1000)),
            (objects_log, "ThreadPoolExecutor", InlineExecutor),
            (objects_log, "RUN_TURNS", _RUN_TURNS),
            (objects_log, "FAR", _FAR),
            (ahead, "ThreadPoolExecutor", InlineExecutor),
            (runs, "threading", SimpleNamespace(Thread=partial(SideThread, self))),
            (runs, "RUN_TURNS", _RUN_TURNS),
            (patient, "monotonic", clock.monotonic),
            (patient, "sleep", lambda seconds: self.wait(seconds * 1000)),
        )
        with ExitStack() as stack:
            for module, name, value in replaced:
                stack.enter_context(patch.object(module, name, value))
            try:
                yield
            finally:
                for machine in self.machines:
                    self.end(machine)

    def _open_log(self, url: str, root: Root | None, timeout: float) -> tuple[ObjectsLog, Root]:
        assert self.acting is not None
        way = self.acting.way
        return ObjectsLog(way, "the bucket", timeout), open_root(way, "the bucket", root)

    def _reach(self, what: str, *_: object) -> None:
        self.reached[what] += 1

    # opening -----------------------------------------------------------------------------------

    def open(self, machine: Machine, takeover: bool) -> None:
        """Starts an engine on a machine that is down."""
        assert machine.status == DOWN
        machine.status = OPENING
        with self.at(machine):
            self.task(self._opening, machine, takeover)

    def _opening(self, machine: Machine, takeover: bool) -> None:
        try:
            store = self.opened_store(machine, takeover)
        except _REFUSED as error:
            self.check_alive()
            self.reached[f"opening: {type(error).__name__}"] += 1
            machine.status = DOWN
            return
        # Other fibers run while these are held: the first one while a turn is put.
        store._log.appending = FiberLock(self.wait)  # type: ignore[assignment] # noqa: SLF001
        store._checkpointer._running = FiberLock(self.wait)  # type: ignore[assignment] # noqa: SLF001
        machine.status = UP
        self._live(False)
        self.stores, self.counter, self._due = [store], 0, [False]
        node = self._host(0, store)  # type: ignore[attr-defined]
        self.nodes, self.inboxes[0] = [node], []
        if not store.clean:
            for tablet, tx in node.staged_before(store.generation):
                self.give(Deliver(tablet, Withdraw(tx)))
        self.give(Tick())
        if store.generation > self._term:  # else another one began a later term meanwhile
            self._term, self.leading = store.generation, machine
        self.reached["opened"] += 1

    def opened_store(self, machine: Machine, takeover: bool) -> DiskStore:
        """Opens the acting machine's store as the engine does; it has a term of its own then."""
        options = OpenOptions(
            mode=self.mode,
            replicate=self.settings_of_log,
            takeover=takeover,
            files=machine.files,
            segment_bytes=SEGMENT_BYTES,
        )
        runtime: Any = open_runtime(machine.path, options, switch_interval=None)
        machine.snapshotter = runtime.snapshotter
        store: DiskStore = runtime.store
        return store

    def give(self, item: Input) -> None:
        """Puts an input into the acting machine's inbox."""
        raise NotImplementedError

    # at work -----------------------------------------------------------------------------------

    def snapshot(self) -> None:
        """Makes a snapshot of the acting machine's store, and trims the log, as its thread for that does."""
        machine = self.acting
        assert machine is not None
        settings = self.settings_of_log
        try:
            log, root = self._open_log(settings.url, None, settings.log_timeout)
            with closing(log), snapshots_of(settings, log, root) as snapshots:
                assert snapshots is not None
                machine.snapshotter.make_now(log, snapshots)
        except (LogUnreachable, IoError, EngineClosed) as error:
            self.check_alive()
            self.reached[f"snapshot: {type(error).__name__}"] += 1

    def confirmed(self, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Calls `then` once what the acting machine shows is known to be the newest, in a fiber."""
        try:
            self.stores[0].confirm()
        except (StoreClosed, EngineClosed) as error:
            self.check_alive()
            self.reached[f"read: {type(error).__name__}"] += 1
            otherwise()
            return
        self.reached["read confirmed"] += 1
        then()

    # ending ------------------------------------------------------------------------------------

    def ended_with(self, inputs: list[Input], error: StoreClosed) -> None:
        """Tells callers what the runtime would tell them (turn_loop.py), and ends the engine."""
        self.check_alive()
        machine = self.acting
        assert machine is not None
        self.reached[f"engine: {type(error).__name__}{', in doubt' * error.in_doubt}"] += 1
        if not error.in_doubt:
            self.refuse(inputs)
        if isinstance(error, (Fenced, LogUnreachable)):
            self.refuse(self.inboxes[0])
        self._stop(machine)

    def refuse(self, inputs: list[Any]) -> None:
        """Tells the callers of these inputs that nothing of them was done."""

    def _stop(self, machine: Machine) -> None:
        """Stops an engine now; its process ends soon."""
        machine.status = ENDING
        machine.tasks = []
        self.inboxes[0] = []
        self._live(True)
        if self.leading is machine:
            self.leading = None
        self.of_world(self._ends.uniform(0, 50), self._end_life, machine, self._lives)

    def _end_life(self, machine: Machine, life: int) -> None:
        with self.at(machine):
            still = self.lives[0] == life
        if still:
            self.end(machine)

    def lose_engine(self) -> None:
        """Ends the acting machine's engine, as the loss of its process would."""
        assert self.acting is not None
        self._stop(self.acting)

    def end(self, machine: Machine) -> None:
        """Ends a machine's process, wherever it is; its files stay as they are."""
        with self.at(machine):
            self.stop_calls(machine)
            self.ended(machine)
            for store in self.stores:
                store.crash()
            self._leave()
            self.inboxes[0] = []
        machine.status = DOWN
        machine.snapshotter = None
        if self.leading is machine:
            self.leading = None

    def ended(self, machine: Machine) -> None:
        """Forgets the clients of a machine whose process has ended."""

    def close(self, machine: Machine) -> None:
        """Closes the acting machine's engine properly, in a task."""
        self.away = [True]
        self.finish_inbox()
        if machine.status == UP:
            self._stop(machine)
            with suppress(IoError):  # of the write that is made to fail
                self.stores[0].close()

    def finish_inbox(self) -> None:
        """Runs what waits in the acting machine's inbox, and withdraws what clients left open."""

    def copy_folder(self, machine: Machine, name: str) -> Path:
        """Copies a machine's folder, at a moment at which nobody writes to it."""
        path = machine.path.with_name(name)
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(machine.path, path)
        return path


class SideThread:
    """Runs a call beside the others of the machine that starts it (threading.Thread)."""

    def __init__(
        self, world: Acting, *, target: Callable[..., object], args: Any, daemon: bool
    ) -> None:
        self._world, self._target, self._args = world, target, args
        self._fiber: Fiber | None = None

    def start(self) -> None:
        self._fiber = self._world.spawn(self._target, *self._args)

    def is_alive(self) -> bool:
        return self._fiber is not None and not self._fiber.done

    def join(self) -> None:
        while self.is_alive():
            self._world.wait(1.0)


class _Opened:
    """Stands for the runtime of an opened store."""

    def __init__(self, stores: list[Any], *_: Any) -> None:
        (self.store,) = stores
        self.nodes = [SimpleNamespace(host=SimpleNamespace(store=self.store))]
        self.turns = SimpleNamespace(put=lambda *_: None)  # this world's turns need no poke
        self.shutdown = SimpleNamespace()
        self.snapshotter: Any = None
        self.fresh: Any = None

    def begin_snapshots(self, snapshotter: Any) -> None:
        self.snapshotter = snapshotter
