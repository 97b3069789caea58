"""Compares Spark's verdict with that of Python's checker; the two meet only here.

    Spark's counts of a run ─┬─ results.json: the entry of its cell, over its repeats
                             └─ no such file: ../python judges the trace, here and now
    Spark's percentiles ────── the entry's latencies: a run's own, the median of several

An entry's `missing`, `duplicated`, `out_of_order` and "foreign" are the greater of the checker's count and the
workload's own, so these are compared by presence. Spark does not check an entry's other counts of the workload
(balances, scattered keys).

Next: __main__.py.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from ...compare.cell import LATENCIES
from ...compare.ranking import entries
from ...report.html.figures import entry_of as of_cell
from ..python import findings as names
from ..python import judge
from ..trace import Trace
from .folders import TracedRun
from .percentiles import PERCENTILES
from .wins import of_repeats

_ADDED = {"missing": names.LOST, "duplicated": names.REPEATED, "out_of_order": names.REORDERED}
_BY_PRESENCE = (*_ADDED.values(), names.FOREIGN)
_KNOWN = frozenset(
    value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)
)
"""The checker's names of anomalies."""
_TOLERANCE_MS = 0.0015
"""The tolerance of latencies: both sides round to a microsecond."""
Counts = Mapping[str, Mapping[str, int]]


def entry_of(summary: Mapping[str, Any] | None, run: TracedRun) -> dict[str, Any]:
    """Returns the summary's entry of the run's cell, or {} if that does not name the run."""
    entry = of_cell(summary, run.cell) if run.cell else {}
    return entry if run.name in _traces(entry) else {}


def disagreements(
    summary: Mapping[str, Any] | None, runs: Sequence[TracedRun], counts: Counts
) -> Iterator[tuple[str, str]]:
    """Yields (anomaly, in words) where counts differ. `counts`: by run, anomaly → count."""
    cells: dict[tuple[str, ...], list[TracedRun]] = {}
    for run in runs:
        if entry := entry_of(summary, run):
            cells.setdefault(_traces(entry), []).append(run)
        else:
            trace = Trace.load(run.folder)
            theirs = judge(trace, mode=run.mode, feeds=run.feeds, allowed=run.allowed).counts
            yield from _differences(run.name, theirs, counts.get(run.name, {}), ())
    for repeats in cells.values():
        entry = entry_of(summary, repeats[0])
        theirs = {
            name: count
            for kind in ("violations_by", "allowed_by")
            for name, count in entry[kind].items()
            if name in _KNOWN and (kind, name) != ("violations_by", names.LOST)
        }
        theirs |= {name: entry[added] for added, name in _ADDED.items() if entry[added]}
        mine = Counter[str]()
        for run in repeats:
            mine.update(counts.get(run.name, {}))
        yield from _differences(", ".join(run.name for run in repeats), theirs, mine, _BY_PRESENCE)


def not_there(summary: Mapping[str, Any] | None, runs: Sequence[TracedRun]) -> Iterator[str]:
    """Yields, in words, traces that the comparison kept and Spark did not find."""
    run_names = {run.name for run in runs}
    for *_, entry in entries((summary or {}).get("systems", {})):
        for name in _traces(entry):
            if name not in run_names:
                yield f"{name}: the results name its trace, which is missing"


def differing_percentiles(
    summary: Mapping[str, Any] | None, runs: Sequence[TracedRun], by_run: Mapping[str, Any]
) -> Iterator[str]:
    """Yields, in words, differing percentiles of cells whose repeats are all here. `by_run`: percentiles."""
    known = {run.name for run in runs}
    cells = {_traces(entry): entry for run in runs if (entry := entry_of(summary, run))}
    for repeats, entry in cells.items():
        if not {*repeats} <= known:
            continue
        mine = [by_run[name] for name in repeats]
        for latency in LATENCIES:
            theirs = entry[latency]
            for percentile in PERCENTILES:
                values = of_repeats(mine, latency, percentile)
                if not values or not theirs:
                    continue
                middle = median(values)
                if math.isinf(middle) or abs(middle - theirs[percentile]) > _TOLERANCE_MS:
                    yield (
                        f"{', '.join(repeats)}: {latency} {percentile} is {middle:g} by Spark, "
                        f"{theirs[percentile]:g} in the results"
                    )


def differing_wins(
    summary: Mapping[str, Any] | None, by_run: Mapping[str, Any], mine: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Yields, in words, differing winners, for latencies that Spark computed."""
    if not summary:
        return
    ours = {_place(one): (set(one["best"]), set(one["behind"])) for one in mine}
    theirs = {_place(one): (set(one["best"]), set(one["behind"])) for one in summary["who_wins"]}
    computed = {
        (run["workload"], run["durability"], latency)
        for run in by_run.values()
        for latency in LATENCIES
        if run["latencies"][latency]
    }
    for place in sorted(ours.keys() | theirs.keys()):
        workload, durability, figure = place
        if (workload, durability, figure.partition(".")[0]) in computed:
            if ours.get(place) != theirs.get(place):
                yield f"{figure} of {workload} ({durability}): Spark finds another winner than the results"


def _place(one: Mapping[str, Any]) -> tuple[str, str, str]:
    return one["workload"], one["durability"], one["figure"]


def _traces(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(path.rpartition("/")[2] for path in entry.get("traces", ()))


def _differences(
    where: str, theirs: Mapping[str, int], mine: Mapping[str, int], by_presence: Sequence[str]
) -> Iterator[tuple[str, str]]:
    for name in sorted(theirs.keys() | mine.keys()):
        a, b = theirs.get(name, 0), mine.get(name, 0)
        if (bool(a) != bool(b)) if name in by_presence else a != b:
            yield name, f"{where}: {name}: {b} by Spark, {a} by Python"
