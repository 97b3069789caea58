"""Lists the rows: what each runs, the figure it has to reach, and the planted bug that it must detect.

    RowOptions ─▶ Row.run ─▶ RowResult: runs, events, faults by class, violations, each with its command to repeat
    negative ones ─▶ the control ─▶ violations, the planted one among them, or the row proves nothing

Row modules are imported when they are run: `planstep --help` must not pay for them.

Next: the module of a row, then ../command.py.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

SHARE, LONGER = 20, 10
"""A quick run is a twentieth of the figure, a long one ten times as much."""
AGAIN = "  again:"
_SHOWN = 3


@dataclass(frozen=True)
class RowOptions:
    """The caller's options. `folder` is scratch on a disk, `memory` scratch in memory if there is some.

    `runs` replaces the row's own number of runs; `seed` is the first one. `row` and `negative` name the row and
    whether it is the control, for `again`. Both folders lie in `scratch`, unless it is None.
    """

    folder: Path = Path()
    memory: Path = Path()
    quick: bool = False
    long: bool = False
    seed: int = 1
    runs: int | None = None
    workers: int = 2
    tell: Callable[[str], None] = lambda line: None
    row: str = "ROW"
    negative: bool = False
    scratch: Path | None = None

    def of(self, figure: int, least: int = 1) -> int:
        """Returns the number of runs: as asked, else `figure`, a twentieth of it when quick, ten times when
        long.
        """
        if self.runs is not None:
            return self.runs
        if self.long:
            return LONGER * figure
        return max(least, figure // SHARE) if self.quick else figure

    def seeds(self, figure: int, least: int = 1) -> range:
        return range(self.seed, self.seed + self.of(figure, least))

    def again(self, seed: int | None = None, runs: int = 1) -> str:
        """Returns a line to print below a violation: the command that repeats it, by one seed if one is enough.

        A control plants its bug by itself, so it is always repeated as a whole.
        """
        whole = seed is None or self.negative
        words = self.words() if whole else [f"--seed {seed} --runs {runs}"]
        return " ".join([AGAIN, "planstep check", self.row, *words])

    def words(self) -> list[str]:
        """Returns the command's options that repeat the whole row."""
        words = ["--quick"] * self.quick + ["--long"] * self.long + ["--negative"] * self.negative
        words += ["--seed", str(self.seed)]
        return words if self.runs is None else [*words, "--runs", str(self.runs)]


@dataclass
class RowResult:
    """The result of a run of a row.

    `runs` counts the row's own unit (seeds, kills, images); `faults`: how often each class struck; `violations`: a
    text each; one without a line of `RowOptions.again` is repeated by the whole row. `skipped`: why the row, or a
    part of it, did not run; `figures`: further numbers, by name; `most`: those of which the largest counts.
    """

    runs: int = 0
    events: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    skipped: str | None = None
    seeds: tuple[int, int] | None = None
    figures: dict[str, Any] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)

    def add(self, other: "RowResult") -> None:
        """Adds another result; figures of the same name are added up, too."""
        self.runs += other.runs
        self.events += other.events
        self.faults.update(other.faults)
        self.violations += other.violations
        self.skipped = self.skipped or other.skipped
        for name, figure in other.figures.items():
            self.figures[name] = self.figures[name] + figure if name in self.figures else figure
        for name, largest in other.most.items():
            self.most[name] = max(largest, self.most.get(name, largest))

    def must(self, holds: bool, violation: str) -> None:
        if not holds:
            self.violations.append(violation)

    def reaches(self, figures: Iterable[tuple[str, int, int]]) -> None:
        """Checks (name, counted, least): a row that did less than it claims is wrong too."""
        for what, counted, least in figures:
            self.must(counted >= least, f"only {counted:,} {what}: {least:,} are to be reached")

    def planted(self, *words: str) -> "RowResult":
        """Returns a control's result: this one, if some violation has some of these words.

        Otherwise the planted bug was not detected, and the result has no violations: any other violation was not
        planted.
        """
        if any(one in text for one in words for text in self.violations):
            return self
        figures = {"not_noticed": [*words], "said_instead": self.violations[:_SHOWN]}
        return replace(self, violations=[], figures={**self.figures, **figures})


@dataclass(frozen=True)
class Row:
    """A row. `reach` is the figure to reach. `skippable`: it needs something that not every Linux has; on other
    systems any row may be skipped. `waits`: it takes minutes, but little work; when all rows run, it runs in
    parallel with the others.
    """

    name: str
    title: str
    reach: str
    skippable: bool = False
    waits: bool = False

    def run(self, options: RowOptions) -> RowResult:
        """Runs the row, or its control if `options` are negative."""
        module: Any = self.module()
        result: RowResult = (module.control if options.negative else module.run)(options)
        return result

    def module(self) -> ModuleType:
        return import_module(f"{__package__}.{self.name.replace('-', '_')}")


ROWS = (
    Row("sim", "seeds of the simulated world, all modes and placements", "10,000 seeds"),
    Row("determinism", "the same seed in another process gives the same bytes", "200 seeds"),
    Row("mutants", "planted bugs are caught", "every one, within 500 seeds; 12 published ones"),
    Row("reboots", "a power loss before, at and after every event", "2,000 points"),
    Row("model", "interleavings of a small world, breadth first", "100,000 states"),
    Row(
        "shared-model",
        "machines that share a log, over a simulated store",
        "4,000 walks, 250,000 states",
    ),
    Row("shared", "seeds of simulated machines that share a log, real stores", "10,000 seeds"),
    Row("liveness", "a host is dead for ever: what does not need it ends", "1,000 seeds"),
    Row("kill9", "kill -9 of the real engine, readers alive", "1,000 kills, 20,000 acknowledged"),
    Row("shared-kill9", "owners of one shared log, killed and frozen", "1,000 strikes"),
    Row(
        "processes",
        "processes that share one store, its owner and others killed",
        "1,000 strikes, 250 of owners",
    ),
    Row("killpoints", "a kill before each file operation", "300 points"),
    Row(
        "shared-restore",
        "snapshots of a replicated store, restored, and killed on the way",
        "500 turns, each operation",
    ),
    Row("powerloss", "power loss: any subset of unsynced sectors", "20,000 images"),
    Row("ioerr", "the n-th operation fails, once and for ever", "400 runs"),
    Row("full", "full disks, full maps, limits", "200 runs, every refusal definite"),
    Row(
        "bitflip",
        "flips, stale and swapped pages and files, truncations",
        "3,000 flips, 500 pages and files, 200 truncations",
    ),
    Row("shared-flip", "damaged objects of shared logs", "1,000 damages"),
    Row(
        "shared-servers",
        "processes race for slots on real S3 servers",
        "1,000 slots of each server that is here",
        True,
    ),
    Row("oom", "the n-th allocation fails", "2,000 positions", True),
    Row("interrupts", "handlers raise at any bytecode, stacks end", "2,000 commits, every depth"),
    Row("history", "the real engine, with kills, judged whole", "1,000,000 transactions"),
    Row(
        "shared-history",
        "a replicated store over takeovers, judged whole",
        "100,000 transactions, 50 takeovers",
    ),
    Row("kafka", "mode kafka under kills, pauses, zombies", "200,000 sends"),
    Row("pulsar", "mode pulsar under kills and rivals", "200,000 sends and acknowledgements"),
    Row("spark", "Spark's writes, its processes killed at each phase", "54 kills, all modes", True),
    Row("badinput", "mutated records, keys, names, messages, stores", "100,000 inputs"),
    Row("leak", "a soak with retention: nothing grows", "10 minutes", waits=True),
    Row("cover", "lines and branches that the tests take", "cores 98 %, package 90 %"),
    Row("format", "stores of every version open, verify, digest alike", "every version"),
)
BY_NAME = {row.name: row for row in ROWS}
