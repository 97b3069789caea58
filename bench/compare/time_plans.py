"""Holds the time plans: what a comparison promises to take, how often it repeats what, and for how long.

                 promise   with --peers   reshard, small   other answers   all else
    --quick      2 min     10 min         3 times          3               1      Spark: a minute more
    (default)    8 min     30 min         5                3               1
    --thorough   60 min    60 min         9                5               3

A row of cells answers a question if a verdict (verdicts.py) is made of it. Rows are taken by rank while the promise
lasts: RANKS. What was left out is said, with the option that runs it.

Next: plan.py, which makes the cells.
"""

from collections.abc import Mapping
from typing import NamedTuple

from .cell import Cell
from .kept_servers import seconds_of_servers
from .options import ComparisonOptions
from .rate_search import THOROUGH as LONG_SEARCH
from .rate_search import Budget
from .systems import ENTRIES
from .workloads import WORKLOADS
from .workloads.faults_killed import KILLS_MIN
from .workloads.reshard import INPUT_BYTES_MAX, RECORDS_PER_SECOND_MAX

HEADLINES = ("reshard", "small")
"""Workloads that are repeated most, at durability full. They run whatever they take."""
ANSWERS = (*HEADLINES, "move", "faults")
"""Workloads that answer a question."""
BY_NAME = ("reshard-spark",)
"""Workloads that run only where they are named: they need seconds before the first record."""
OPTIONAL = ("log-batching", "aborts")
"""Workloads that compare variants of one mode."""
ONCE = ("faults", *OPTIONAL)
"""Workloads that run at durability os only where that was asked for."""
REQUIRED, ANSWER, PEERS_OS, CORNERS, OTHER, ANSWER_OS, VARIANTS, OTHER_OS = range(8)
"""Ranks of rows: the first are always taken, the others in this order while time lasts. Durability os comes earlier
with peers, since some are run so by default."""

OVERHEAD_S, OVERHEAD_S_PER_MB = 1.2, 0.014
"""Overhead of a cell, on one of two cores: its process, loading its input, and reading its output."""
SPARK_S, SPARK_S_PER_RUN = 25.0, 0.8
"""Seconds that Spark takes to start and end, and for each run; on a busy machine it took 82 s for 69 runs."""
QUICK_SPARK_S = 60.0
"""Seconds that the quick plan promises for Spark on top; the other plans have room for it."""
START_S, REPORT_S = 4.0, 8.0
"""Seconds before the first run, which describe the machine, and those that the report takes."""
SLACK = 0.05
"""Share of a promise that no row is planned for, since estimates are off by that much."""
STARTS_WITH_KILLS = 4 + KILLS_MIN
"""Starts of a server in a run that kills it: to prepare, the first owner, one by time-out, each kill, to verify."""
_DEMO_BYTES = 100


class TimePlan(NamedTuple):
    """A promise in seconds, and what is done to keep it.

    repeats   of reshard and small at durability full      answers  of other rows that answer a question
    others    of all else                                  corner_s duration of reshard in its other placement
    seconds   duration by workload; in `search` each system's search for its highest rate, None: none
    """

    promise_s: float
    peers_promise_s: float
    repeats: int
    answers: int
    others: int
    seconds: Mapping[str, float]
    corner_s: float
    search: Budget | None

    def promise(self, options: ComparisonOptions) -> float:
        """Returns the seconds that the whole comparison shall take at most, Spark included."""
        peers = any(ENTRIES[name].peer for name in options.chosen_systems)
        spark_s = QUICK_SPARK_S if options.quick and options.spark else 0.0
        return (self.peers_promise_s if peers else self.promise_s) + spark_s


_SECONDS = {
    "reshard": 2.0,
    "move": 1.0,
    "plain": 1.5,
    "interval": 2.5,
    "chain": 1.5,
    "small": 1.8,
    "contention": 1.5,
    "held-open": 5.0,
    "plain-beside": 1.5,
    "faults": 1.0,
    "log-batching": 3.0,
    "aborts": 2.5,
    "reshard-spark": 10.0,
}
_LONG_SECONDS = {
    **_SECONDS,
    **{"reshard": 7.0, "move": 3.0, "plain": 4.0, "interval": 5.0, "chain": 4.0, "small": 6.0},
    **{
        "contention": 4.0,
        "held-open": 6.5,
        "plain-beside": 4.0,
        "faults": 2.0,
        "log-batching": 5.0,
    },
}
_SHORT_SEARCH = Budget(4, 3, 2.0)
QUICK = TimePlan(120, 600, 3, 3, 1, _SECONDS, 1.5, None)
USUAL_PLAN = TimePlan(480, 1800, 5, 3, 1, _SECONDS, 1.5, _SHORT_SEARCH)
THOROUGH = TimePlan(3600, 3600, 9, 5, 3, _LONG_SECONDS, 4.0, LONG_SEARCH)


def time_plan(options: ComparisonOptions) -> TimePlan:
    return QUICK if options.quick else THOROUGH if options.thorough else USUAL_PLAN


class TimeLeft:
    """The seconds of a promise that are still free. What nobody asked for may not exceed them."""

    def __init__(self, options: ComparisonOptions) -> None:
        self._per_run = SPARK_S_PER_RUN if options.spark else 0.0
        self._left = (1 - SLACK) * time_plan(options).promise(options) - START_S
        self._left -= SPARK_S + REPORT_S if options.spark else 0.0
        self._served: list[Cell] = []

    def covers(self, seconds: float) -> bool:
        """Takes the seconds if they are free."""
        free = seconds <= self._left
        self._left -= seconds if free else 0.0
        return free

    def takes(self, cells: list[Cell], repeats: int, rank: int) -> bool:
        """Takes the time of a row if it is free, or if the row is required."""
        each = sum(seconds_of(cell) + self._per_run for cell in cells)
        served = [*self._served, *cells]
        seconds = repeats * each + seconds_of_servers(served) - seconds_of_servers(self._served)
        if not self.covers(seconds):
            if rank != REQUIRED:
                return False
            self._left -= seconds
        self._served = served
        return True


def duration(options: ComparisonOptions, workload: str, durability: str, corners: bool) -> float:
    """Returns the measured seconds of a row's cells; a workload that was named runs as long as with --thorough."""
    if options.duration is not None:
        return options.duration
    times = time_plan(options) if options.planned or options.quick else THOROUGH
    asked = durability == "full" or options.durability is not None
    short = workload == "reshard" and (corners or not asked)
    return times.corner_s if short else times.seconds[workload]


def repeats(options: ComparisonOptions, workload: str, durability: str, corners: bool) -> int:
    """Returns how often a row runs."""
    times = time_plan(options)
    if options.repeat is not None:
        return options.repeat
    if corners:
        return times.others
    asked = durability == "full" or options.durability is not None
    if asked and workload in HEADLINES:
        return times.repeats
    return times.answers if workload in ANSWERS else times.others


def rank(options: ComparisonOptions, workload: str, durability: str, corners: bool) -> int:
    """Returns the rank of a row. What explicit options ask for is required."""
    asked = durability == "full" or options.durability is not None
    explicit = not options.planned and (options.workloads is not None or workload not in OPTIONAL)
    if asked and explicit and not (corners and options.quick):
        return REQUIRED
    if corners:
        return CORNERS if asked else OTHER_OS
    if asked and workload in HEADLINES:
        return REQUIRED
    if workload in ANSWERS:
        peers = any(ENTRIES[name].peer for name in options.chosen_systems)
        return ANSWER if asked else PEERS_OS if peers else ANSWER_OS
    if workload in OPTIONAL:
        return VARIANTS
    return OTHER if asked else OTHER_OS


def seconds_of(cell: Cell) -> float:
    """Estimates the time of a cell, overhead included."""
    return cell.shape.duration + overhead_of(cell)


def overhead_of(cell: Cell) -> float:
    """Estimates the time of a cell outside of the measured part."""
    entry = ENTRIES[cell.system]
    seconds = OVERHEAD_S + entry.overhead_s
    if WORKLOADS[cell.workload].kills:
        starts = 0.0 if entry.server is None else STARTS_WITH_KILLS * entry.start_s
        return seconds + starts + 2 * cell.options.transaction_timeout_ms / 1000
    return seconds + OVERHEAD_S_PER_MB * offered_mb(cell)


def offered_mb(cell: Cell) -> float:
    """Returns the MB of a cell's input; 0 for a workload with a low rate of its own."""
    shape = cell.shape
    if WORKLOADS[cell.workload].room is None:
        return 0.0
    if shape.rate is not None:
        return shape.rate * shape.duration
    size = shape.record_size or _DEMO_BYTES
    return min(INPUT_BYTES_MAX, shape.duration * RECORDS_PER_SECOND_MAX * size) / 1e6


def in_words(seconds: float) -> str:
    """Says a promise, as in "8 minutes"."""
    return f"{seconds / 60:g} minutes"
