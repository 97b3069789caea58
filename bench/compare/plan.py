"""Turns the options into a list of cells: which runs, how long, in which order.

    round 0   reshard full:  A B C │ the other corners: … │ reshard os: … │ plain: B C A │ small: …
    round 1   reshard full:  B C A      each round another system is first: effects of the machine on the first
    round 2   reshard full:  C A B      of a row (caches, turbo, the disk) meet all systems alike

A group is a row of cells that are compared with each other, so they run in sequence. Without options the plan
takes six minutes at most, with --quick a minute and a half; optional groups are taken while that lasts. Explicit
options are followed, however long it takes.

Next: rate_search.py, which searches the highest rate; harness.py, which carries both out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from .cell import Cell
from .kept_servers import server_of
from .rate_search import USUAL, Budget
from .systems import DEFAULT, ENTRIES, MODES, PLACEMENTS, headline, label
from .systems.base import Options
from .workloads import NAMES
from .workloads.base import Shape

SPREAD = 0
"""Value of `hosts` for one host for each tablet, to count the durable writes of each."""
BUDGET_S, QUICK_BUDGET_S = 345.0, 80.0
LIMIT_S, QUICK_LIMIT_S = 357.0, 88.0
OVERHEAD_S, OVERHEAD_S_PER_MB = 1.2, 0.014
"""Overhead of a cell, on one of two cores: its process, loading its input, and reading its output."""
MOST_MB = 400.0
"""Input at maximum rate."""
SEARCH_OVERHEAD_S = OVERHEAD_S + OVERHEAD_S_PER_MB * MOST_MB / 2
SECONDS = {
    "reshard": 7.0,
    "plain": 2.0,
    "interval": 3.5,
    "chain": 2.5,
    "small": 3.2,
    "contention": 2.0,
    "held-open": 6.5,
    "plain-beside": 2.0,
    "faults": 2.0,
    "log-batching": 3.0,
    "aborts": 2.5,
    "reshard-spark": 10.0,
}
BY_NAME = ("reshard-spark",)
"""Workloads that run only where they are named: they need seconds before the first record."""
OPTIONAL = ("log-batching", "aborts")
"""Workloads that the default plan takes while time lasts, before others at durability os."""
ONCE = ("faults", *OPTIONAL)
"""Workloads that run at durability os only where that was asked for."""
QUICK_SECONDS = {"reshard": 5.0, "small": 2.0}
CORNER_S, QUICK_CORNER_S = 2.5, 2.0
"""Duration of a cell of reshard other than the headline: another placement, durability os."""
HEADLINE_REPEATS = 3
FAULTS_TIME_OUT_MS = 1000
"""Time-out of open transactions in faults; the usual minute would hide all other times."""
ABORTS_SNAPSHOT_TRANSACTIONS = 100
"""Ends between snapshots in aborts: a tenth of the default, for a run of a few hundred ends."""
_SPECIAL: dict[str, dict[str, Any]] = {
    "faults": {"transaction_timeout_ms": FAULTS_TIME_OUT_MS},
    "aborts": {"snapshot_transactions": ABORTS_SNAPSHOT_TRANSACTIONS},
}
"""Options of a workload's runs that differ from the usual ones."""
HOSTS_MAX = 255
SPARK_S, SPARK_S_PER_RUN = 25.0, 0.8
"""Seconds that Spark takes to start, and for each run; on a busy machine it took 82 s for 69 runs."""
_SPREAD_PARTITIONS = 4
_RECORD_SIZE = 1024


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """Options of a comparison. None leaves the choice to the plan, but `rate` None: as fast as it goes.

    rate        MB/s offered             record_size  bytes; None: 1,024, or as real events are
    rtt         round-trip time, seconds hosts        SPREAD: a host for each tablet
    find_rate   None: when `workloads` names reshard, at a rate, and not quick
    spark       True if Spark will judge the traces
    spark_reads True if Spark will read stores; the first run of each kind of reshard keeps its store for that
    """

    workloads: tuple[str, ...] | None = None
    systems: tuple[str, ...] = DEFAULT
    rate: float | None = 5.0
    record_size: int | None = None
    partitions: int = 100
    commit_interval: float = 0.5
    duration: float | None = None
    hosts: int = 1
    placement: str | None = None
    durability: str | None = None
    rtt: float = 0.0
    workers: int = 4
    repeat: int | None = None
    quick: bool = False
    demo: bool = False
    seed: int = 1
    keep_stores: bool = False
    keep_traces: bool = False
    spark: bool = False
    spark_reads: bool = False
    find_rate: bool | None = None

    def check(self) -> None:
        """Checks the options. ValueError, with the option's name, for impossible values."""
        for name in self.systems:
            _one_of("--systems", name, tuple(ENTRIES))
        for name in self.workloads or ():
            _one_of("--workload", name, NAMES)
        _one_of("--placement", self.placement, (None, "shared", "separate", "both"))
        _one_of("--durability", self.durability, (None, "full", "os", "both"))
        if not self.systems:
            raise ValueError(f"--systems names none; there are {', '.join(ENTRIES)}")
        for option, value, least, most in (
            ("--rate", self.rate, 0.001, 100_000.0),
            ("--commit-interval", self.commit_interval, 0.001, 3600.0),
            ("--duration", self.duration, 0.1, 86_400.0),
            ("--rtt", self.rtt, 0.0, 60.0),
        ):
            if value is not None and not value >= least:
                raise ValueError(f"{option} is at least {least:g}, not {value:g}")
            if value is not None and value > most:
                raise ValueError(f"{option} is at most {most:g}, not {value:g}")
        if self.find_rate and self.rate is None:
            raise ValueError("--find-rate begins at a rate, so --rate must be a number, not max")
        if self.find_rate and "reshard" not in self.chosen_workloads:
            raise ValueError("--find-rate needs the workload reshard, which is not chosen")
        if self.hosts == SPREAD and self.placement in ("shared", "both"):
            raise ValueError("--hosts spread needs --placement separate")

    @property
    def chosen_workloads(self) -> tuple[str, ...]:
        """Returns the workloads, each once."""
        if self.workloads is not None:
            return tuple(dict.fromkeys(self.workloads))
        if self.hosts == SPREAD:
            return ("reshard",)
        names = tuple(name for name in NAMES if name not in BY_NAME)
        return tuple(QUICK_SECONDS) if self.quick else names


class LeftOut(NamedTuple):
    what: str
    why: str


@dataclass
class Plan:
    """A list of cells, in order.

    `search` has, for each system, the cell at whose rate the search for the highest rate begins; `budget` says how
    many runs it takes. `notes` says, in words, where the plan differs from the options. After `limit` seconds no
    further repeats begin; None: explicit options are followed, however long it takes. `spark`: Spark judges the
    runs after the last one.
    """

    cells: list[Cell] = field(default_factory=list)
    search: list[Cell] = field(default_factory=list)
    budget: Budget = USUAL
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    limit: float | None = None
    spark: bool = False

    @property
    def seconds(self) -> float:
        """Estimates the time of the whole plan, with the search, the servers' starts, and Spark."""
        each = self.budget.seconds + SEARCH_OVERHEAD_S
        searching = len(self.search) * self.budget.runs * each
        runs = sum(seconds_of(cell) for cell in self.cells)
        return searching + runs + self.server_seconds + self.spark_seconds

    @property
    def server_seconds(self) -> float:
        """Estimates the time to start and warm the servers that are kept."""
        servers = {server_of(cell): ENTRIES[cell.system].server_s for cell in self.cells}
        return sum(seconds for key, seconds in servers.items() if key is not None)

    @property
    def spark_seconds(self) -> float:
        """Estimates the time that Spark takes after the runs to judge them, and the report's."""
        return SPARK_S + SPARK_S_PER_RUN * len(self.cells) if self.spark else 0.0


def overhead_of(cell: Cell) -> float:
    """Estimates the time of a cell outside of the measured part."""
    if cell.workload == "faults":
        return OVERHEAD_S + 2 * cell.options.transaction_timeout_ms / 1000
    if cell.workload not in ("reshard", "plain"):
        return OVERHEAD_S
    rate, duration = cell.shape.rate, cell.shape.duration
    return OVERHEAD_S + OVERHEAD_S_PER_MB * (MOST_MB if rate is None else rate * duration)


def seconds_of(cell: Cell) -> float:
    """Estimates the time of a cell, overhead included."""
    return cell.shape.duration + overhead_of(cell)


class _Group(NamedTuple):
    """Cells that are compared with each other. `rank` 0 is required; others run, lowest first, if time allows."""

    cells: list[Cell]
    repeats: int = 1
    rank: int = 0

    @property
    def seconds(self) -> float:
        return self.repeats * sum(map(seconds_of, self.cells))


def plan(options: ComparisonOptions) -> Plan:
    """Makes the plan. ValueError for impossible options, also when nothing is left to run."""
    options.check()
    draft = Plan(spark=options.spark)
    _say_what_differs(options, draft)
    groups = [group for group in _groups(options) if group.cells]
    if not groups:
        raise ValueError("nothing is left to run: " + "; ".join(x.why for x in draft.left_out))
    groups = _within_budget(groups, options, draft)
    for round_ in range(max(group.repeats for group in groups)):
        for n, (cells, repeats, _) in enumerate(groups):
            if round_ < repeats:
                first = (round_ + n) % len(cells)
                rotated = cells[first:] + cells[:first]
                draft.cells += [replace(cell, repeat=round_) for cell in rotated]
    if options.spark_reads:
        draft.cells = [replace(cell, keep_store=_for_spark(cell)) for cell in draft.cells]
    if options.workloads is None and options.duration is None and options.repeat is None:
        draft.limit = QUICK_LIMIT_S if options.quick else LIMIT_S
    if _searches(options):
        draft.search = list(_beginnings(options, draft.cells))
    return draft


def _for_spark(cell: Cell) -> bool:
    """Keeps one store of each kind for Spark, since traces do not prove what was stored; stores are large."""
    ours = len(PLACEMENTS[cell.system]) > 1
    first = cell.workload == "reshard" and not cell.repeat and cell.options.durability == "full"
    return cell.keep_store or (ours and first)


def _within_budget(groups: list[_Group], options: ComparisonOptions, draft: Plan) -> list[_Group]:
    remaining_s = QUICK_BUDGET_S if options.quick else BUDGET_S
    numbers = []
    for n, group in sorted(enumerate(groups), key=lambda item: (item[1].rank, item[0])):
        if group.rank and group.seconds > remaining_s:
            draft.left_out.append(_too_long(group, options))
        else:
            remaining_s -= group.seconds
            numbers.append(n)
    return [groups[n] for n in sorted(numbers)]


def _beginnings(options: ComparisonOptions, cells: list[Cell]) -> Iterator[Cell]:
    """Yields for each system the cell of reshard that is closest to its headline."""
    durability = "os" if options.durability == "os" else "full"
    for name in dict.fromkeys(options.systems):
        wanted = "reshard", name, 0, durability
        own = [
            cell
            for cell in cells
            if (cell.workload, cell.system, cell.repeat, cell.options.durability) == wanted
        ]
        yield from sorted(own, key=lambda cell: cell.options.placement != headline(name))[:1]


def _searches(options: ComparisonOptions) -> bool:
    if options.find_rate is not None:
        return options.find_rate
    by_name = options.workloads is not None and "reshard" in options.workloads
    return by_name and not options.quick and options.rate is not None and options.hosts != SPREAD


def _say_what_differs(options: ComparisonOptions, draft: Plan) -> None:
    within = [label(name) for name in dict.fromkeys(options.systems) if len(PLACEMENTS[name]) == 1]
    if options.rtt and within:
        draft.notes.append(
            f"--rtt does not apply to {', '.join(within)}, which runs inside the client's process; it delays "
            "the messages of the other systems"
        )
    if options.hosts == SPREAD:
        partitions = _partitions(options)
        if partitions < options.partitions:
            draft.notes.append(
                f"--hosts spread uses {partitions} partitions instead of {options.partitions}: each host "
                "has a log and files of its own, and the counts do not depend on the number"
            )
        draft.notes.append(
            f"--hosts spread puts {_spread_hosts(options)} hosts on one disk, each with syncs of its own: it "
            "counts durable writes, and its times say little"
        )
    alone = not any(_hosts(options, name) > 1 for name in options.systems)
    if options.hosts != 1 and options.durability != "full" and not (options.durability and alone):
        why = "this engine's durability os needs one host: several would lose different tails"
        draft.left_out.append(LeftOut("durability os with several hosts", why))


def _too_long(group: _Group, options: ComparisonOptions) -> LeftOut:
    cell = group.cells[0]
    durability, corner = cell.options.durability, cell.options.placement != headline(cell.system)
    standing = " in the other placement" if corner else ""
    way = f"--workload {cell.workload}"
    if options.quick or options.workloads is not None or options.duration or options.repeat:
        way = "--placement both" if corner else f"--durability {durability}"
        way += " --durability os" if corner and durability == "os" else ""
    return LeftOut(
        f"{cell.workload} at durability {durability}{standing}",
        f"it takes more than {'90 seconds' if options.quick else 'six minutes'}; {way} runs it",
    )


# groups -------------------------------------------------------------------------------------------


def _groups(options: ComparisonOptions) -> Iterator[_Group]:
    """Yields the groups in the order in which they run."""
    for name in options.chosen_workloads:
        for durability in _durabilities(options):
            wanted = durability == "full" or options.durability is not None
            if name == "reshard":
                yield from _reshard(options, durability, wanted)
            elif wanted or name not in ONCE:
                cells = _row(options, name, durability, _seconds(options, name))
                optional = options.workloads is None and name in OPTIONAL
                yield _Group(cells, options.repeat or 1, 2 if not wanted else int(optional))


def _reshard(options: ComparisonOptions, durability: str, wanted: bool) -> Iterator[_Group]:
    """Yields the headline, long and repeated, and shorter extras: durability os and the other corners."""
    corner = options.duration or (QUICK_CORNER_S if options.quick else CORNER_S)
    seconds = _seconds(options, "reshard") if wanted else corner
    repeats = options.repeat or (HEADLINE_REPEATS if wanted and not options.quick else 1)
    row = _row(options, "reshard", durability, seconds)
    yield _Group(row, repeats, 1 if options.quick and not wanted else 0)
    if options.placement is None and options.hosts != SPREAD:
        rank = 0 if not options.quick else 1 if wanted else 2
        others = _row(options, "reshard", durability, corner, corners=True)
        yield _Group(others, options.repeat or 1, rank)


def _seconds(options: ComparisonOptions, workload: str) -> float:
    short = QUICK_SECONDS if options.quick else {}
    return options.duration or short.get(workload, SECONDS[workload])


def _durabilities(options: ComparisonOptions) -> tuple[str, ...]:
    if options.durability in ("full", "os"):
        return (options.durability,)
    if options.durability is None and options.hosts != 1:
        return ("full",)
    return ("full", "os")


def _row(
    options: ComparisonOptions,
    workload: str,
    durability: str,
    duration: float,
    corners: bool = False,
) -> list[Cell]:
    """Returns a cell for each system and placement; `corners`: those of the 2 × 2 outside of the headline."""
    names = list(dict.fromkeys(options.systems))
    for first, *others in ([system.name for system in mode.systems] for mode in MODES):
        joining = [o for o in others if workload in ENTRIES[o].joins and o not in names]
        if first in names:
            names[names.index(first) + 1 : names.index(first) + 1] = joining
    record_size = options.record_size or (None if options.demo else _RECORD_SIZE)
    shape = Shape(
        rate=options.rate,
        record_size=record_size,
        partitions=_partitions(options),
        commit_interval=options.commit_interval,
        duration=duration,
        workers=options.workers,
        seed=options.seed,
        demo=options.demo,
    )
    keep = options.keep_stores, options.keep_traces
    special = _SPECIAL.get(workload, {})
    cells = []
    for name in names:
        hosts = _hosts(options, name)
        others = [placement for placement in PLACEMENTS[name] if placement != headline(name)]
        for placement in others if corners else _placements(options, name):
            if durability == "full" or hosts == 1:
                own = Options(durability, placement, hosts, options.rtt, **special)
                cells.append(Cell(workload, name, own, shape, 0, *keep))
    return cells


def _placements(options: ComparisonOptions, system: str) -> tuple[str, ...]:
    able = PLACEMENTS[system]
    if len(able) == 1 or (options.placement == "both" and options.hosts != SPREAD):
        return able
    return ("separate" if options.hosts == SPREAD else options.placement or headline(system),)


def _partitions(options: ComparisonOptions) -> int:
    if options.hosts != SPREAD:
        return options.partitions
    return min(options.partitions, _SPREAD_PARTITIONS)


def _spread_hosts(options: ComparisonOptions) -> int:
    """Returns the hosts with SPREAD: the coordinator's, and one for each partition, in and out."""
    return min(HOSTS_MAX, 1 + 2 * _partitions(options))


def _hosts(options: ComparisonOptions, system: str) -> int:
    if len(PLACEMENTS[system]) == 1:
        return 1
    return _spread_hosts(options) if options.hosts == SPREAD else options.hosts


def _one_of(option: str, value: str | None, choice: tuple[str | None, ...]) -> None:
    if value not in choice:
        raise ValueError(f"{option}: no {value!r}; there are {', '.join(x for x in choice if x)}")
