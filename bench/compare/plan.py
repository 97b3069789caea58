"""Turns the options into blocks of cells: which runs, how long, in which order.

    round 0   reshard full: B A D C │ small full: C E B A D │ move: … │ faults: …     the order within a row is
    round 1   reshard full: C D A B │ small full: …                        drawn from the seed, in each round
    …
    search    the highest rate of each system, and its curve
    the rest  once, in the order of their ranks: reshard's other placements │ plain │ interval │ …

A row is a line of cells that are compared with each other, so they run in sequence; a round has each row once, so
that two figures of one round are minutes apart at most. The first rounds always run. Later ones and all other
blocks run only as long as the promise lasts (time_plans.py). Explicit options are followed, however long it takes.

Next: rate_search.py, which searches the highest rate; harness.py, which carries both out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

from . import time_plans
from .cell import Cell
from .kept_servers import seconds_of_servers
from .options import SPREAD, ComparisonOptions
from .ranking import REPEATS_MIN
from .rate_search import USUAL, Budget
from .systems import ENTRIES, MODES, PLACEMENTS, headline, label
from .systems.base import Options
from .time_plans import (
    BY_NAME,
    ONCE,
    REPORT_S,
    SPARK_S,
    SPARK_S_PER_RUN,
    START_S,
    TimeLeft,
    seconds_of,
)
from .workloads import NAMES, WORKLOADS
from .workloads.base import Shape

SEARCH_OVERHEAD_S = 4.0
"""Overhead of a run of the search, on average: half of the runs are near the highest rate."""
HOSTS_MAX = 255
FAULTS_TIME_OUT_MS = 1000
"""Time-out of open transactions in faults; the usual minute would hide all other times."""
ABORTS_SNAPSHOT_TRANSACTIONS = 100
"""Ends between snapshots in aborts: a tenth of the default, for a run of a few hundred ends."""
_SPECIAL: dict[str, dict[str, Any]] = {
    "faults": {"transaction_timeout_ms": FAULTS_TIME_OUT_MS},
    "aborts": {"snapshot_transactions": ABORTS_SNAPSHOT_TRANSACTIONS},
}
"""Options of a workload's runs that differ from the usual ones."""
_SPREAD_PARTITIONS = 4
_RECORD_SIZE = 1024
_SLOW = "the machine is slow: the promised time is over before"


class LeftOut(NamedTuple):
    what: str
    why: str


class Block(NamedTuple):
    """Cells that run one after the other, or not at all.

    `omission` is said if there is no time for them; None: they run whatever it takes. `late` ones run after the
    search. `spare` ones are more than the promise is expected to have room for: they run if time is left.
    """

    cells: list[Cell]
    omission: LeftOut | None = None
    late: bool = False
    spare: bool = False


@dataclass
class Plan:
    """Blocks of cells, in order.

    `search` has, for each system, the cell at whose rate the search for the highest rate begins; `budget` says how
    many runs it takes. `notes` says, in words, where the plan differs from the options. `limit` is the promise, in
    seconds: blocks with an omission begin only if they end within it; None: all of them run. `spark`: Spark judges
    the runs after the last one.
    """

    blocks: list[Block] = field(default_factory=list)
    search: list[Cell] = field(default_factory=list)
    budget: Budget = USUAL
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    limit: float | None = None
    spark: bool = False

    @property
    def cells(self) -> list[Cell]:
        """Returns the cells in order, without spare ones."""
        return [cell for block in self.blocks if not block.spare for cell in block.cells]

    @property
    def seconds(self) -> float:
        """Estimates the time of the whole plan, with the search, the servers' starts, Spark and the report."""
        runs = sum(seconds_of(cell) for cell in self.cells)
        return START_S + runs + self.search_seconds + self.server_seconds + self.after_seconds

    @property
    def search_seconds(self) -> float:
        each = self.budget.seconds + SEARCH_OVERHEAD_S
        return len(self.search) * self.budget.runs * each

    @property
    def server_seconds(self) -> float:
        """Estimates the time to start and warm the servers that are kept."""
        return seconds_of_servers(self.cells)

    @property
    def after_seconds(self) -> float:
        """Estimates the time after the runs: Spark, which judges them, and the report."""
        return SPARK_S + SPARK_S_PER_RUN * len(self.cells) + REPORT_S if self.spark else 0.0


class _Row(NamedTuple):
    """Cells that are compared with each other, how often they run, and their rank in time_plans.py."""

    cells: list[Cell]
    repeats: int
    rank: int

    def round(self, number: int, seed: int) -> list[Cell]:
        """Returns the cells of a round in a drawn order, so that no system is always the first of a row."""
        first = self.cells[0]
        drawn = Random(f"{seed} {number} {first.workload} {first.options.durability} {self.rank}")
        cells = [replace(cell, repeat=number) for cell in self.cells]
        drawn.shuffle(cells)
        return cells


def plan(options: ComparisonOptions) -> Plan:
    """Makes the plan. ValueError for impossible options, also when nothing is left to run."""
    options.check()
    times = time_plans.time_plan(options)
    draft = Plan(spark=options.spark)
    if times.search is not None and (options.planned or options.thorough):
        draft.budget = times.search
    options = _without_unavailable(options, draft)
    _say_what_differs(options, draft)
    rows = [row for row in _rows(options) if row.cells]
    if not rows:
        reasons = [*(omission.why for omission in draft.left_out), *draft.notes]
        raise ValueError("nothing is left to run: " + "; ".join(reasons))
    left = TimeLeft(options)
    answers = [row for row in rows if row.rank <= time_plans.ANSWER]
    taken = {id(row) for row in sorted(answers, key=lambda row: row.rank) if left.takes(*row)}
    main = [row for row in answers if id(row) in taken]
    draft.blocks = list(_rounds(main, options))
    if _searches(options):
        draft.search = list(_beginnings(options, draft.cells))
        if options.find_rate is None and options.planned and not left.covers(draft.search_seconds):
            draft.search = []
            draft.left_out.append(
                _too_long("the search for the highest rates", "--find-rate", options)
            )
    late = sorted((row for row in rows if id(row) not in taken), key=lambda row: row.rank)
    draft.blocks += _late(late, options, left, draft)
    if options.spark_reads:
        draft.blocks = [
            block._replace(
                cells=[replace(cell, keep_store=_for_spark(cell)) for cell in block.cells]
            )
            for block in draft.blocks
        ]
    if options.planned:
        draft.limit = times.promise(options)
    return draft


def _rounds(rows: list[_Row], options: ComparisonOptions) -> Iterator[Block]:
    """Yields blocks for each round: what must run, then the other answers, which may be left out.

    Rounds after the first REPEATS_MIN may be left out as a whole.
    """
    for number in range(max((row.repeats for row in rows), default=0)):
        for rank in (time_plans.REQUIRED, time_plans.ANSWER):
            now = [row for row in rows if row.rank == rank and number < row.repeats]
            cells = [cell for row in now for cell in row.round(number, options.seed)]
            names = " and ".join(dict.fromkeys(row.cells[0].workload for row in now))
            slow = LeftOut(f"repeats of {names} after {number}", _SLOW)
            needed = rank == time_plans.REQUIRED and number < REPEATS_MIN
            if cells:
                yield Block(cells, None if needed else slow)


def _late(
    rows: list[_Row], options: ComparisonOptions, left: TimeLeft, draft: Plan
) -> Iterator[Block]:
    """Yields blocks for the rows that are no answers, a block for each row and round."""
    for row in rows:
        omission = _left_out(row, options)
        spare = not left.takes(*row)
        if spare and not options.planned:
            draft.left_out.append(omission)
            continue
        for number in range(row.repeats):
            yield Block(row.round(number, options.seed), omission, late=True, spare=spare)


def _without_unavailable(options: ComparisonOptions, draft: Plan) -> ComparisonOptions:
    """Leaves out systems that this machine lacks something for, and says what."""
    able: list[str] = []
    unable: dict[str, list[str]] = {}  # by what they lack: it is said once
    for name in options.chosen_systems:
        lacking = ENTRIES[name].unavailable()
        if lacking:
            unable.setdefault(lacking, []).append(label(name))
        else:
            able.append(name)
    for lacking, names in unable.items():
        do = "does" if len(names) == 1 else "do"
        draft.notes.append(f"{', '.join(names)} {do} not run: {lacking}")
    return replace(options, systems=tuple(able), peers=False)


def _for_spark(cell: Cell) -> bool:
    """Keeps one store of each kind for Spark, since traces do not prove what was stored; stores are large."""
    ours = len(PLACEMENTS[cell.system]) > 1
    first = cell.workload == "reshard" and not cell.repeat and cell.options.durability == "full"
    return cell.keep_store or (ours and first)


def _beginnings(options: ComparisonOptions, cells: list[Cell]) -> Iterator[Cell]:
    """Yields for each system the cell of reshard that is closest to its headline."""
    durability = "os" if options.durability == "os" else "full"
    for name in options.systems:
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
    chosen = options.workloads is None or "reshard" in options.workloads
    paced = options.rate is not None and options.hosts != SPREAD
    return (
        chosen
        and paced
        and not options.quick
        and (options.planned or options.workloads is not None)
    )


def _say_what_differs(options: ComparisonOptions, draft: Plan) -> None:
    within = [label(name) for name in options.systems if len(PLACEMENTS[name]) == 1]
    if options.rtt and within:
        draft.notes.append(
            f"--rtt does not apply to {', '.join(within)}: it delays the messages of this engine only"
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


def _too_long(what: str, way: str, options: ComparisonOptions) -> LeftOut:
    promise = time_plans.in_words(time_plans.time_plan(options).promise(options))
    return LeftOut(what, f"it takes more than {promise}; {way} runs it")


def _left_out(row: _Row, options: ComparisonOptions) -> LeftOut:
    cell = row.cells[0]
    durability, corner = cell.options.durability, cell.options.placement != headline(cell.system)
    standing = " in the other placement" if corner else ""
    way = f"--workload {cell.workload}"
    asked = durability == "full" and not corner
    if not asked and (options.quick or not options.planned):
        way = "--placement both" if corner else f"--durability {durability}"
        way += " --durability os" if corner and durability == "os" else ""
    return _too_long(f"{cell.workload} at durability {durability}{standing}", way, options)


# rows ---------------------------------------------------------------------------------------------


def _rows(options: ComparisonOptions) -> Iterator[_Row]:
    """Yields the rows in the order in which they run."""
    for name in _workloads(options):
        for durability in _durabilities(options):
            asked = durability == "full" or options.durability is not None
            if asked or name not in ONCE:
                yield _row(options, name, durability)
                if name == "reshard" and options.placement is None and options.hosts != SPREAD:
                    yield _row(options, name, durability, corners=True)


def _row(options: ComparisonOptions, name: str, durability: str, corners: bool = False) -> _Row:
    """Makes a row; `corners`: the placements of the 2 × 2 outside of the headline."""
    how = options, name, durability, corners
    cells = _cells(options, name, durability, time_plans.duration(*how), corners)
    return _Row(cells, time_plans.repeats(*how), time_plans.rank(*how))


def _workloads(options: ComparisonOptions) -> tuple[str, ...]:
    """Returns the workloads, each once."""
    if options.workloads is not None:
        return tuple(dict.fromkeys(options.workloads))
    if options.hosts == SPREAD:
        return ("reshard",)
    return tuple(name for name in NAMES if name not in BY_NAME)


def _durabilities(options: ComparisonOptions) -> tuple[str, ...]:
    if options.durability in ("full", "os"):
        return (options.durability,)
    if options.durability is None and options.hosts != 1:
        return ("full",)
    return ("full", "os")


def _cells(
    options: ComparisonOptions, workload: str, durability: str, duration: float, corners: bool
) -> list[Cell]:
    """Returns a cell for each system and placement."""
    names = list(options.systems)
    for first, *others in ([system.name for system in mode.systems] for mode in MODES):
        joining = [o for o in others if workload in ENTRIES[o].joins and o not in names]
        if first in names:
            names[names.index(first) + 1 : names.index(first) + 1] = joining
    record_size = options.record_size or (None if options.demo else _RECORD_SIZE)
    shape = Shape(
        rate=None if WORKLOADS[workload].unpaced else options.rate,
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
