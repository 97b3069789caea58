"""Runs one seed of a world of processes that share a store, lets it settle, and judges it.

    seed ─▶ swarm.py ─▶ AttachedWorld, workloads in any of the processes: faults on ─▶ healed: all ends ─▶ Played
                            └ after each turn: ../online_invariants.py     serial model, real time, what is left ┘

    B12   a commit is answered once, and as its record says; handed in again it has no second effect (B2, B7)
    B15   what any process was answered is in each later look of any process
    B37   each commit of a process that goes on is answered, whatever owners end meanwhile
    B38   when all is answered, no process and no link holds anything
    B41   of the processes that share a consumer one has a lane at a time

Next: ../../rows/sim.py.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from .....errors import EngineClosed, PlanstepError
from ...simulator.attached_world import SPARED, AttachedWorld
from ...simulator.process import UP, Process, real_processes
from ..final_invariants import check_at_end
from ..online_invariants import Watch
from ..phases import SETTLED_MS, settle
from ..readers import Key, Readers, Reading, SnapshotRead
from ..result import Played
from ..workloads import NamedWorkloads
from .groups import Group, Lanes
from .swarm import Settings, draw_settings

_RUN_MS = 20_000.0
"""The longest run, however bad its faults."""
_SPELLS = 4
_GROUP = 0.4


class AttachedReaders(Readers):
    """Reads through the views of a process, the calling one or any."""

    world: Any

    def __init__(self, world: AttachedWorld, work: "AttachedWorkloads") -> None:
        self.world = world
        self.reads = []
        self.waiting = {}
        self._work = work

    def read(self, workload: str, keys: tuple[Key, ...], apart_ms: float, then: Any = None) -> None:
        process = self.world.here() or self._work.any_process()
        if process is None:
            return
        invoked = self.world.now
        try:
            snapshot = process.runtime.views.snapshot()
        except EngineClosed:
            return
        record = SnapshotRead(workload, snapshot.step, invoked, keys)
        self.begin(Reading(record, snapshot, process.number, apart_ms, then))

    def is_over(self, reading: Reading) -> bool:
        process = self.world.processes[reading.life]
        self.views = process.runtime.views
        return bool(process.status != UP)

    def unserved(self, dead: int | None = None) -> list[str]:
        return [f"a snapshot at step {one.record.step} has no end" for one in self.waiting]


class AttachedWorkloads(NamedWorkloads):
    """The workloads; their clients use any of the processes."""

    world: Any

    def __init__(self, world: AttachedWorld, settings: Settings, lanes: Lanes) -> None:
        super().__init__(world, settings.weights)
        self.group = Group(world, lanes, self)

    def make_readers(self) -> Readers:
        return AttachedReaders(self.world, self)

    def any_process(self) -> Process | None:
        alive = self.world.alive()
        return self.random.choice(alive) if alive else None

    def go_somewhere(self) -> None:
        process = self.any_process()
        if process is not None:
            group = self.group.lanes.tablets and self.random.random() < _GROUP
            self.world.client(process, self._go, process, bool(group))

    def _go(self, process: Process, group: bool) -> None:
        with suppress(PlanstepError):  # the process closes
            if group:
                self.group.go(process)
            else:
                self.go()


def play(seed: int, transactions: int, settings: Settings | None = None) -> tuple[Played]:
    """Runs a seed; the same seed and arguments give the same Played, in any process."""
    settings = settings or draw_settings(seed, transactions)
    lanes = Lanes(settings.lanes)
    world: Any = AttachedWorld(seed, settings.processes, lanes)
    violations: list[str] = []
    work = AttachedWorkloads(world, settings, lanes)
    watch = Watch(world, work.requests)
    try:
        with real_processes(world):
            _drive(world, work, settings)
            settle(world, work)
            violations += check_at_end(world, work)
            violations += work.group.used_once()
            violations += _left(world)
    except AssertionError as error:
        violations.append(f"B37: {error}")
    except Exception as error:
        violations.append(f"B33: the world ended with {error!r}, by {error.__cause__!r}")
    violations = world.violations + watch.violations + violations
    played = Played(
        seed,
        "attached",
        settings.describe(),
        violations,
        world.events,
        +world.faulted,
        watch.reached,
        world.digest(),
        world.latest() if violations else [],
    )
    return (played,)


def _drive(world: AttachedWorld, work: AttachedWorkloads, settings: Settings) -> None:
    """Runs transactions at the drawn pace, with faults. Now and then these stop, and all that was sent must end."""
    until = world.now + _RUN_MS
    for spell in range(1, _SPELLS + 1):
        world.settle(SETTLED_MS)
        world.strike(settings.lines, settings.fates)
        enough = settings.transactions * spell // _SPELLS
        while len(work.requests) < enough and world.now < until:
            work.go_somewhere()
            world.pass_ms(work.random.expovariate(1 / settings.pace_ms))
        if settings.fates != SPARED:
            world.last_strike()


def _left(world: AttachedWorld) -> Iterator[str]:
    """B38: lists what processes and links still hold though all is answered."""
    for process in world.alive():
        runtime = process.runtime
        kept = (runtime.replies.waiting, runtime.replies.due, runtime.admission.bytes)
        if any(kept):
            yield f"B38: process {process.number} still holds {kept}"
        if runtime.turns.stopped is not None:
            yield f"B33: process {process.number} has stopped: {runtime.turns.stopped!r}"
        if runtime.server is not None and len(runtime.server.peers) != len(world.alive()) - 1:
            yield f"B38: the owner has {len(runtime.server.peers)} links of {len(world.alive())}"
        if runtime.server is not None and runtime.server.shares.stats()["parties"] > world.count:
            yield f"B38: more processes have lanes than there are: {runtime.server.shares.stats()}"
