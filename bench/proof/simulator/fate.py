"""Draws what befalls machines that share a store, from one seed.

    killed, amid a call or not · folder lost · an old folder put back · frozen · cut off from the bucket
    taken over, by one machine or two · closed · a snapshot, a trim · a checkpoint · a local write that fails

A machine freezes mostly while it takes over: that is where it is dangerous.

Next: shared_world.py.
"""

import random
import shutil
from dataclasses import dataclass

from ....errors import IoError
from .acting import DOWN, OPENING, UP, Machine
from .bucket import NONE
from .engines import Engines

_IN_DANGER = 20.0
_WEATHER_MS = 10, 60


@dataclass(frozen=True)
class Fates:
    """Holds the odds of what befalls machines, at each look at them, every 10 to 60 ms. All zero heals them."""

    kill: float = 0.006
    empty: float = 0.003
    put_back: float = 0.006
    freeze: float = 0.01
    cut: float = 0.006
    take_over: float = 0.02
    close: float = 0.006
    snapshot: float = 0.08
    checkpoint: float = 0.05
    write_fails: float = 0.02


SPARED = Fates(*[0.0] * 10)
CLASSES = (
    "machine killed",
    "machine killed amid a call",
    "folder lost",
    "folder put back",
    "machine frozen",
    "machine cut off",
    "machine taken over",
    "engine closed",
    "local write fails",
)
"""The names under which faults are counted."""


class Fate(Engines):
    """Looks at the machines now and then. `fates`: the odds, SPARED at first."""

    def begin_fate(self, seed: int) -> None:
        self.fate = random.Random(f"{seed}/fate")
        self.fates = SPARED
        self.kept_up = False  # an engine is opened if none is up, also once all is healed
        self.of_world(1.0, self._look)

    def spare(self) -> None:
        """Ends all faults of machines and of the bucket."""
        self.fates, self.bucket.ways = SPARED, NONE
        for machine in self.machines:
            machine.frozen_until = machine.way.cut_until = 0.0
            machine.files.failing = None
            self.thaw(machine)

    def _strikes(self, odds: float) -> bool:
        return self.fate.random() < odds

    def _count(self, what: str) -> None:
        self.faulted[what] += 1

    def _look(self) -> None:
        self.of_world(self.fate.uniform(*_WEATHER_MS), self._look)
        if self.fates is SPARED:
            if self.kept_up and self._nobody_leads():
                machine = self.fate.choice(self.machines)
                self.end(machine)  # it may believe that it leads
                self.open(machine, takeover=True)
            return
        self._take_over()
        for machine in self.machines:
            self._strike_machine(machine)
            if machine.status == UP:
                with self.at(machine):
                    self._at_work(machine)

    def _nobody_leads(self) -> bool:
        """Returns whether nobody does, nor is about to."""
        return self.leading is None and all(one.status != OPENING for one in self.machines)

    def _take_over(self) -> None:
        down = [machine for machine in self.machines if machine.status == DOWN]
        nobody = self._nobody_leads()
        if down and (nobody or self._strikes(self.fates.take_over)):
            for machine in self.fate.sample(down, min(len(down), 2 if self._strikes(0.2) else 1)):
                if not nobody:
                    self._count("machine taken over")
                self.open(machine, takeover=self._strikes(0.9))

    def _strike_machine(self, machine: Machine) -> None:
        draw, fates = self.fate, self.fates
        if machine.status != DOWN and self._strikes(fates.kill):
            self._count("machine killed" + " amid a call" * machine.busy)
            self.end(machine)
        if self._strikes(fates.freeze * (_IN_DANGER if machine.status == OPENING else 1.0)):
            self._count("machine frozen")
            machine.frozen_until = self.now + draw.uniform(1, draw.choice((30, 300, 3_000)))
        if self._strikes(fates.cut):
            self._count("machine cut off")
            machine.way.cut_until = self.now + draw.uniform(1, draw.choice((30, 300, 5_000)))
        if self._strikes(fates.empty):
            self._count("folder lost")
            self.end(machine)
            shutil.rmtree(machine.path, ignore_errors=True)
        if self._strikes(fates.put_back):
            self._put_back(machine)

    def _put_back(self, machine: Machine) -> None:
        """Makes a backup of a folder, or puts it back."""
        if machine.backup is None or self._strikes(0.3):
            if not machine.busy and machine.path.exists():
                machine.backup = self.copy_folder(machine, f"backup-{machine.number}")
        else:
            self._count("folder put back")
            self.end(machine)
            shutil.rmtree(machine.path, ignore_errors=True)
            shutil.copytree(machine.backup, machine.path)

    def _at_work(self, machine: Machine) -> None:
        """Draws what befalls a machine that is up."""
        fates = self.fates
        if self._strikes(fates.close):
            self._count("engine closed")
            self.task(self.close, machine)
        elif self._strikes(fates.snapshot):
            if not machine.beside:
                self.spawn(self.snapshot)
        elif self._strikes(fates.checkpoint):
            self.task(self.stores[0].checkpoint)
        if self._strikes(fates.write_fails):
            self._count("local write fails")
            machine.files.failing = IoError("made to fail")
