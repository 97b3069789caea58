"""Carries out a plan: cell after cell, then the rate search; the results so far are always saved.

    plan.cells ─▶ runner(cell, folder) ─▶ results ─▶ save(): results.json is whole after each cell
        └─ of a system with a server: kept_servers.py starts it once, and keeps it for all its cells
    plan.search ─▶ one short run of each system in turn, until each has its rate
    Ctrl-C ─▶ INTERRUPTED; results so far are reported and kept

Next: summary.py.
"""

import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from .cell import FAILED, IMPOSSIBLE, INTERRUPTED, OK, Cell, Result
from .kept_servers import KeptServers, ServerFailed, keeper_words, server_of
from .plan import SEARCH_OVERHEAD_S, Block, LeftOut, Plan
from .rate_search import FIGURES, Search
from .time_plans import SPARK_S_PER_RUN, START_S, overhead_of
from .workloads import WORKLOADS

Runner = Callable[[Cell, Path], Result]
SLOW_SEARCH = LeftOut(
    "runs of the search for the highest rates",
    "the machine is slow: the promised time is over before; --find-rate runs them all",
)


@dataclass
class Outcome:
    """The results of a plan. `searches`: rate searches, with the cells that began them; `seconds`: in total.

    `servers` has a dict of facts for each server that was kept: KeptServers.facts.
    """

    plan: Plan
    results: list[Result] = field(default_factory=list)
    searches: list[tuple[Cell, Search]] = field(default_factory=list)
    servers: list[dict[str, Any]] = field(default_factory=list)
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def verified(self) -> bool:
        """Returns True if every run that ended is verified; impossible or interrupted ones do not count."""
        return all(
            result.status == OK and result.verified
            for result in self.results
            if result.status not in (IMPOSSIBLE, INTERRUPTED)
        ) and all(run["verified"] for _, search in self.searches for run in search.runs)


class Step(NamedTuple):
    """A step for the progress bar, about to run. `so_far` and `remaining_s` are in seconds."""

    number: int
    total: int
    label: str
    so_far: float
    remaining_s: float


def carry_out(
    plan: Plan,
    run: Runner,
    folder: Path,
    tell: Callable[[Step], None] = lambda step: None,
    save: Callable[[Outcome], None] = lambda outcome: None,
    keeper: Callable[[Path], list[str]] = keeper_words,
) -> Outcome:
    """Runs cells in `folder`/cells/<name>; after each run, removes all that need not be kept.

    Servers live in `folder`/servers until no cell needs them; `keeper` gives the words that start one.
    """
    outcome = Outcome(plan)
    clock = _Clock(plan, tell)
    servers = KeptServers(folder / "servers", clock.tell, keeper)
    try:
        with servers:
            carrier = _Carrier(outcome, run, folder, clock, servers)
            for block in plan.blocks:
                if not block.late:
                    carrier.run_block(block, save)
            _search(outcome, carrier.run_one, clock)
            carrier.done(plan.search)
            for block in plan.blocks:
                if block.late:
                    carrier.run_block(block, save)
    except KeyboardInterrupt:
        outcome.interrupted = True
    outcome.servers = servers.facts
    outcome.seconds = clock.so_far
    save(outcome)
    return outcome


class _Carrier:
    """Runs cells and blocks of a plan, one after the other."""

    def __init__(
        self,
        outcome: Outcome,
        run: Runner,
        folder: Path,
        clock: "_Clock",
        servers: KeptServers,
    ) -> None:
        self._outcome, self._run, self._folder = outcome, run, folder
        self._clock, self._servers = clock, servers
        cells = [cell for block in outcome.plan.blocks for cell in block.cells]
        self._awaited = Counter(map(server_of, [*cells, *outcome.plan.search]))

    def done(self, cells: list[Cell]) -> None:
        """Stops servers that these cells, which have run or will not, were the last to need."""
        for key in map(server_of, cells):
            self._awaited[key] -= 1
            if key is not None and not self._awaited[key]:
                self._servers.stop(key)

    def run_one(self, cell: Cell, label: str, overhead: float) -> Result:
        result = Result(cell, FAILED)
        self._clock.begin(label)
        try:
            with self._clock.apart(self._servers.seconds_until([cell])):
                placed = self._servers.placed(cell)
            result = self._run(placed, self._folder / "cells" / cell.name)
            lost = self._servers.why_lost(cell) if result.status == FAILED else ""
            if lost:
                result.reason = f"its server ended: {lost}; {result.reason}"
        except ServerFailed as error:
            result.reason = str(error)
        finally:
            trace = _tidy(self._folder, cell)
        self._clock.end(cell.shape.duration, overhead)
        result.cell, result.trace = cell, trace
        return result

    def run_block(self, block: Block, save: Callable[[Outcome], None]) -> None:
        """Runs a block's cells, and saves the results so far after each; leaves the block out for want of time."""
        outcome = self._outcome
        if not self._clock.takes(block, self._servers.seconds_until(block.cells)):
            if block.omission is not None and block.omission not in outcome.plan.left_out:
                outcome.plan.left_out.append(block.omission)
            self.done(block.cells)
            return
        for cell in block.cells:
            try:
                result = self.run_one(cell, label(cell), overhead_of(cell))
            except KeyboardInterrupt:
                outcome.results.append(Result(cell, INTERRUPTED, "interrupted"))
                raise
            outcome.results.append(result)
            self.done([cell])
            outcome.seconds, outcome.servers = self._clock.so_far, self._servers.facts
            save(outcome)


def label(cell: Cell) -> str:
    options = cell.options
    return f"{cell.workload}, {cell.system}, durability {options.durability}, {options.placement}"


def _search(
    outcome: Outcome, run_one: Callable[[Cell, str, float], Result], clock: "_Clock"
) -> None:
    unfinished: list[tuple[Cell, Search]] = []
    budget = outcome.plan.budget
    for cell in outcome.plan.search:
        alike = [
            result
            for result in outcome.results
            if (result.cell.system, result.cell.options) == (cell.system, cell.options)
            and result.status == OK
            and result.verified
        ]
        own = [r for r in alike if (r.cell.workload, r.cell.shape) == (cell.workload, cell.shape)]
        sustained = [result.sustained for result in own]
        if not sustained:  # no run of it verified, so no rate is worth trying
            clock.spare_search(budget.runs)
            continue
        most = 2 * sum(map(bool, sustained)) > len(sustained)  # as summary.py has it
        search = Search(cell.shape.rate or 1.0, most, budget)
        reached = [r.throughput_mb_s for r in alike if WORKLOADS[r.cell.workload].unpaced]
        search.know_reached(max((mb_s for mb_s in reached if mb_s), default=None))
        unfinished.append((cell, search))
    outcome.searches = list(unfinished)
    while unfinished:
        if not clock.fits(0.0, 0.0, len(unfinished)):
            outcome.plan.left_out.append(SLOW_SEARCH)
            for _, search in unfinished:
                clock.spare_search(search.left)
            break
        for cell, search in list(unfinished):
            rate = search.next()
            if rate is None:
                unfinished.remove((cell, search))
                clock.spare_search(search.left)
                continue
            number = 1000 + len(search.runs)  # above all repeats, for a folder of its own
            paced = None if math.isinf(rate) else rate
            shape = replace(cell.shape, rate=paced, duration=budget.seconds)
            short = replace(cell, shape=shape, repeat=number, keep_trace=False, keep_store=False)
            offered = "as fast as it goes" if math.isinf(rate) else f"{rate:.3g} MB/s"
            title = f"rates of {cell.system}: {offered}"
            result = run_one(short, title, SEARCH_OVERHEAD_S)
            search.tell(
                rate,
                result.status == OK and result.verified,
                result.sustained,
                result.throughput_mb_s,
                result.reason or next(iter(result.problems), None),
                **{name: getattr(result, name) for name in FIGURES},
            )


def _tidy(folder: Path, cell: Cell) -> str | None:
    """Moves kept traces and stores to traces/ and stores/, and removes the rest, which would fill the disk.

    Returns the trace's path below `folder`, or None.
    """
    place, trace = folder / "cells" / cell.name, Path("traces") / cell.name
    traced = cell.keep_trace and (place / "trace").is_dir()
    if traced:
        _move(place / "trace", folder / trace)
    if cell.keep_store and place.is_dir():
        _move(place, folder / "stores" / cell.name)
    shutil.rmtree(place, ignore_errors=True)
    return str(trace) if traced else None


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    source.rename(target)


class _Clock:
    """Estimates the remaining time: measured parts as planned, overhead (loading, verifying) as slow as so far.

    That includes the search, the servers that have not been started, and what follows the last run: Spark.
    """

    def __init__(self, plan: Plan, tell: Callable[[Step], None]) -> None:
        self._plan, self._tell, self._zero = plan, tell, time.monotonic()
        self._count, self._number = 0, 0
        self._measured, self._overhead = 0.0, 0.0
        self._apart, self._after = plan.server_seconds, plan.after_seconds
        self._begun, self._took, self._planned = 0.0, 0.0, 0.0
        self._add(plan.cells)
        self._searches = 0
        self.spare_search(-plan.budget.runs * len(plan.search))

    @property
    def so_far(self) -> float:
        return time.monotonic() - self._zero

    @property
    def slowness(self) -> float:
        """Returns the ratio of actual to planned overhead."""
        return self._took / self._planned if self._planned else 1.0

    def takes(self, block: Block, servers_s: float) -> bool:
        """Returns True if the block runs: always, or because it ends within the promise.

        `servers_s` is the time that servers take which it is the first to need.
        """
        measured, overhead = _seconds(block.cells)
        measured += servers_s * max(1.0, self.slowness)
        runs = 0 if block.late else self._searches
        fits = block.omission is None or self.fits(measured, overhead, runs)
        if block.spare and fits:
            self._add(block.cells)
            self._apart += servers_s
            self._after += self._plan.spark * SPARK_S_PER_RUN * len(block.cells)
        elif not block.spare and not fits:
            self._add(block.cells, -1)
        return fits

    def fits(self, measured: float, overhead: float, searches: int) -> bool:
        """Returns True if these seconds, so many runs of the search, and what follows end within the promise."""
        if self._plan.limit is None:
            return True
        measured += searches * self._plan.budget.seconds
        overhead += searches * SEARCH_OVERHEAD_S + self._after
        return START_S + self.so_far + measured + self.slowness * overhead <= self._plan.limit

    def begin(self, label: str) -> None:
        self._begun = self.so_far
        self._number += 1
        self.tell(label)

    def tell(self, label: str) -> None:
        """Says what takes time now, and how much is left."""
        slow = self._overhead + self._apart + self._after
        remaining_s = max(0.0, self._measured + slow * self.slowness)
        self._tell(Step(self._number, self._count, label, self.so_far, remaining_s))

    @contextmanager
    def apart(self, seconds: float) -> Iterator[None]:
        """Takes the time of the block, of which `seconds` were planned, for no run's."""
        began = self.so_far
        try:
            yield
        finally:
            self._begun += self.so_far - began
            self._apart -= seconds

    def end(self, seconds: float, overhead: float) -> None:
        """Ends a run of `seconds`, with the overhead that was planned for it."""
        self._took += max(0.0, self.so_far - self._begun - seconds)
        self._planned += overhead
        self._measured -= seconds
        self._overhead -= overhead

    def spare_search(self, runs: int) -> None:
        """Takes off runs of the search that are not needed any more."""
        self._count -= runs
        self._searches -= runs
        self._measured -= runs * self._plan.budget.seconds
        self._overhead -= runs * SEARCH_OVERHEAD_S

    def _add(self, cells: list[Cell], sign: int = 1) -> None:
        measured, overhead = _seconds(cells)
        self._measured += sign * measured
        self._overhead += sign * overhead
        self._count += sign * len(cells)


def _seconds(cells: list[Cell]) -> tuple[float, float]:
    """Returns the measured seconds of cells, and their overhead as planned."""
    return sum(cell.shape.duration for cell in cells), sum(map(overhead_of, cells))
