"""Runs one seed of a world of machines that share a log, lets it settle, and judges it.

    seed ─▶ swarm.py ─▶ SharedWorld, workloads: faults on ─▶ healed: one machine takes over ─▶ all ends ─▶ Played
                            └ history.py: J1, J2, J3 on the way       serial model, J2, J3, J8 ┘

    J4   a transaction that is told to have no effect has none: the serial model's B12
    J7   a confirmed read shows all that was acknowledged when it began: real time, B15
    J8   once faults end, a machine takes the store over within two tries, and commits

Next: ../../rows/shared.py.
"""

import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from .....proto.messages import PUT, ShardPart
from .....shared.settings import Replicate
from ...simulator.acting import DOWN, OPENING, UP, Machine
from ...simulator.fate import Fate
from ...simulator.shared_world import SharedWorld
from ..final_invariants import check_at_end
from ..phases import settle
from ..readers import Readers, Reading
from ..result import Played
from ..workloads import NamedWorkloads
from .history import History
from .swarm import Settings, draw_settings

_TRIES = 2
_WAIT_MS = 60_000.0
_LAST = ShardPart(writes=((b"last", PUT, b""),))
_RUN_MS = 30_000.0
"""The longest run, however bad its faults."""


class ConfirmedReaders(Readers):
    """Reads on a machine, once the shared log has confirmed that what its snapshot shows was the newest."""

    world: SharedWorld

    def begin(self, reading: Reading) -> None:
        then, otherwise = partial(self.go_on, reading), reading.snapshot.close
        self.world.spawn(self.world.confirmed, then, otherwise)


class SharedWorkloads(NamedWorkloads):
    """The workloads, whose clients use the machine that led last, mostly."""

    world: SharedWorld

    def __init__(self, world: SharedWorld, settings: Settings) -> None:
        super().__init__(world, settings.weights)
        self.readers = ConfirmedReaders(world)
        self._rare = settings.rare

    def go_somewhere(self) -> None:
        world = self.world
        up = [machine for machine in world.machines if machine.status == UP]
        machine = world.leading
        if up and (machine is None or self.random.random() < self._rare):
            machine = self.random.choice(up)
        if machine is not None:
            with world.at(machine):
                self.go()

    def _clean(self, tablet: int, tx: bytes, went: int) -> None:
        with self.world.at(self.world.leading):
            if self.world.acting is None:
                self.world.of_world(30.0, self._clean, tablet, tx, went)
            else:
                super()._clean(tablet, tx, went)


def play(
    seed: int, folder: Path, transactions: int = 100, settings: Settings | None = None
) -> Played:
    """Runs a seed in a folder of its own; the same seed and arguments give the same Played."""
    settings = settings or draw_settings(seed, transactions)
    home = Path(mkdtemp(dir=folder))
    world = SharedWorld(
        seed,
        home,
        settings.machines,
        Replicate("file:///bucket", log_timeout=settings.timeout_s, keep=settings.keep),
        separate=settings.separate,
        merge=settings.merge,
        at_once=settings.at_once,
        turn_inputs=settings.turn_inputs,
    )
    history = History(world.bucket)
    world.answered = history.answered
    violations: list[str] = []
    try:
        with world.real_calls():
            _play(world, settings, history, violations)
    except AssertionError as error:
        violations.append(f"B37: {error}")
    except Exception as error:
        violations.append(f"B33: the world ended with {error!r}, by {error.__cause__!r}")
    finally:
        shutil.rmtree(home)
    history.count(world.reached)
    return Played(
        seed,
        world.mode,
        settings.describe(),
        history.wrong + violations,
        world.events,
        +world.faulted,
        +world.reached,
        world.digest(),
        world.latest() if violations or history.wrong else [],
    )


def _play(world: SharedWorld, settings: Settings, history: History, violations: list[str]) -> None:
    draw = random.Random(f"{settings.seed}/play")
    world.act(None)
    world.open(world.machines[0], takeover=False)
    until_up(world)
    with world.at(world.leading):
        work = SharedWorkloads(world, settings)
    world.strike(settings.faults, settings.ways, settings.fates)
    _drive(world, work, settings)
    world.heal()
    leader = _take_over(world, draw)
    for machine in world.machines:  # whoever still believes to be the owner
        if machine.status == UP and machine is not leader:
            with world.at(machine):
                work.go()
    world.leading = leader
    with world.at(leader):
        last = work.ask({work.at.shards[0]: _LAST}, "the last one")
        settle(world, work)
        assert world.results[last].reason is None, "J8: the taker does not commit"
        violations += check_at_end(world, work)
        violations += history.folder(world.stores[0], "the last owner's folder")
    violations += fresh(world, history)


def until_up(world: Any) -> None:
    until = world.now + _WAIT_MS
    while world.leading is None and world.now < until:
        world.pass_ms(10.0)
    assert world.leading is not None, "J8: no machine could open the store"


def _drive(world: SharedWorld, work: SharedWorkloads, settings: Settings) -> None:
    until = world.now + _RUN_MS
    while len(work.requests) < settings.transactions and world.now < until:
        work.go_somewhere()
        if world.leading is None or work.random.random() < 0.3:
            world.pass_ms(work.random.expovariate(1 / (3 * settings.pace_ms)))


def _take_over(world: SharedWorld, draw: random.Random) -> Machine:
    """J8: lets a machine take over that has nothing under way."""
    machine = draw.choice(world.machines)
    world.pass_ms(100.0)
    for other in world.machines:
        if other.status == OPENING or other is machine:
            world.end(other)
    for _ in range(_TRIES):
        world.open(machine, takeover=True)
        until = world.now + _WAIT_MS
        while machine.status not in (UP, DOWN) and world.now < until:
            world.pass_ms(10.0)
        if machine.status == UP:
            return machine
    raise AssertionError(f"J8: a machine that is left alone does not get in: {machine.status}")


def fresh(world: Fate, history: History) -> Iterator[str]:
    """J2: opens the store on a machine that has nothing."""
    machine = world.machine(world.machines[0].path.parent, -1)
    with world.at(machine):
        store = world.opened_store(machine, takeover=True)
        yield from history.folder(store, "a fresh machine")
        store.crash()
