"""A row: what is run, what it has to reach, and the planted bug that shows it would have noticed.

    Asked ─▶ Row.run ─▶ Found: runs, events, faults by class, violations
    Asked ─▶ Row.control ─▶ Found with violations, or the row proves nothing

Row modules are imported when they are run: `planstep --help` must not pay for them.

Next: the module of a row, then command.py.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

SHARE = 20
"""A quick run is a twentieth of the figure."""


@dataclass(frozen=True)
class Asked:
    """What the caller wants. `folder` is scratch on a disk, `memory` scratch in memory where there is some.

    `runs` in place of the row's own number of them; `seed` is the first one.
    """

    folder: Path
    memory: Path
    quick: bool = False
    seed: int = 1
    runs: int | None = None
    workers: int = 2
    tell: Callable[[str], None] = lambda line: None

    def of(self, figure: int, least: int = 1) -> int:
        """How many runs: as asked, else the figure to reach or, when quick, a twentieth of it."""
        if self.runs is not None:
            return self.runs
        return max(least, figure // SHARE) if self.quick else figure

    def seeds(self, figure: int, least: int = 1) -> range:
        return range(self.seed, self.seed + self.of(figure, least))


@dataclass
class Found:
    """What a run of a row did and saw.

    `runs`: of whatever the row counts (seeds, kills, images); `faults`: how often each class struck;
    `violations`: a text each, with what it takes to see it again; `skipped`: why the row, or a part of
    it, did not run; `figures`: further numbers, by name.
    """

    runs: int = 0
    events: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    skipped: str | None = None
    seeds: tuple[int, int] | None = None
    figures: dict[str, Any] = field(default_factory=dict)

    def add(self, other: "Found") -> None:
        """Sums what was counted; figures are the caller's."""
        self.runs += other.runs
        self.events += other.events
        self.faults.update(other.faults)
        self.violations += other.violations
        self.skipped = self.skipped or other.skipped

    def must(self, holds: bool, violation: str) -> None:
        if not holds:
            self.violations.append(violation)

    def reaches(self, figures: Iterable[tuple[str, int, int]]) -> None:
        """(what, counted, least): a row that did less than it says is wrong too."""
        for what, counted, least in figures:
            self.must(counted >= least, f"only {counted:,} {what}: {least:,} are to be reached")


@dataclass(frozen=True)
class Row:
    """`reach` says the figure to reach; `skippable`: it takes what not every Linux has. Elsewhere any may be."""

    name: str
    title: str
    reach: str
    skippable: bool = False

    def run(self, asked: Asked) -> Found:
        found: Found = import_module(f"{__package__}.{self.name}").run(asked)
        return found

    def control(self, asked: Asked) -> Found:
        found: Found = import_module(f"{__package__}.{self.name}").control(asked)
        return found


ROWS = (
    Row("sim", "seeds of the simulated world, all modes and placements", "10,000 seeds"),
    Row("determinism", "the same seed in another process gives the same bytes", "200 seeds"),
    Row("mutants", "planted bugs are caught", "20 of 20, within 500 seeds each"),
    Row("reboots", "a reboot before, at and after every event", "2,000 points"),
    Row("model", "every interleaving of a small world", "100,000 states"),
    Row("liveness", "when faults stop, everything ends", "1,000 seeds with a host dead for ever"),
    Row("kill9", "kill -9 of the real engine, readers alive", "1,000 kills, 20,000 acknowledged"),
    Row("killpoints", "a kill before each file operation", "300 points"),
    Row("powerloss", "power loss: any subset of unsynced sectors", "20,000 images"),
    Row("ioerr", "the n-th operation fails, once and for ever", "400 runs", True),
    Row("full", "full disks, full maps, limits", "every refusal definite", True),
    Row("bitflip", "flips, truncations, stale and swapped pages", "3,000 + 500 + 200"),
    Row("oom", "the n-th allocation fails", "2,000 positions", True),
    Row("history", "a million transactions of the real engine, with kills", "1,000,000"),
    Row("kafka", "mode kafka under kills, pauses, zombies", "200,000 sends"),
    Row("badinput", "mutated records, keys, names, messages, stores", "100,000 inputs"),
    Row("leak", "a soak with retention: nothing grows", "10 minutes"),
    Row("cover", "branch coverage", "cores 98 %, package 90 %"),
    Row("format", "stores of every version open, verify, digest alike", "every version"),
)
BY_NAME = {row.name: row for row in ROWS}
