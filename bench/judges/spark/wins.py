"""Ranks systems by Spark's percentiles, with the rule of bench/compare/ranking.py, implemented again.

    same workload, same durability, each system at its headline placement; verified, sustained, repeated. Needed:
    ranges over repeats do not overlap, and medians differ by 5 %; write latencies are not compared

Latencies only: traces do not have the comparison's other figures (CPU, bytes to disk).

Next: agreeing.py.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from ...compare.systems import headline
from ...report.html.figures import LATENCIES
from .percentiles import PERCENTILES

MARGIN = 0.05
Runs = Sequence[Mapping[str, Any]]


def who_wins(by_run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each latency with a clear winner. `by_run`: percentiles.

    A row has workload, durability, figure, best {system: ms}, behind {system: ms}, and the least runs of a system.
    """
    made = []
    for (workload, durability), systems in _standing(by_run).items():
        for latency in (name for name in LATENCIES if name != "write_ms"):
            for percentile in PERCENTILES:
                spans = {}
                for system, runs in systems.items():
                    values = of_repeats(runs, latency, percentile)
                    if len(values) > 1 and not math.isinf(median(values)):
                        spans[system] = (median(values), min(values), max(values), len(values))
                won = _apart(spans)
                if won is not None:
                    best, behind = won
                    made.append(
                        {
                            "workload": workload,
                            "durability": durability,
                            "figure": f"{latency}.{percentile}",
                            "best": best,
                            "behind": behind,
                            "runs": min(span[3] for span in spans.values()),
                        }
                    )
    return made


def of_repeats(runs: Runs, latency: str, percentile: str) -> list[float]:
    """Returns values of repeats; infinite for one that was not sustained. Empty where no repeat has a value."""
    told = [run["latencies"][latency] for run in runs]
    if not any(told):
        return []
    return [one[percentile] if one else math.inf for one in told]


def _standing(by_run: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, list[Any]]]:
    """Groups runs by workload and durability, by system, at the headline placement, else at the first."""
    made: dict[tuple[str, str], dict[str, list[Any]]] = {}
    for (workload, durability, system), placements in _placed(by_run):
        runs = placements.get(headline(system)) or next(iter(placements.values()))
        made.setdefault((workload, durability), {})[system] = runs
    return made


def _placed(
    by_run: Mapping[str, Any],
) -> Iterator[tuple[tuple[str, str, str], dict[str, list[Any]]]]:
    found: dict[tuple[str, str, str], dict[str, list[Any]]] = {}
    for run in by_run.values():
        if run["system"]:
            key = run["workload"], run["durability"], run["system"]
            found.setdefault(key, {}).setdefault(run["placement"], []).append(run)
    yield from found.items()


def _apart(
    spans: Mapping[str, tuple[float, float, float, int]],
) -> tuple[dict[str, float], dict[str, float]] | None:
    """Returns (best, behind) of (median, least, most, runs) by system; None where no difference is clear."""
    if len(spans) < 2:
        return None
    first = min(spans.values(), key=lambda span: span[0])
    behind = {
        system: middle
        for system, (middle, least, _, _) in spans.items()
        if least > first[2] and middle - first[0] >= MARGIN * middle
    }
    if not behind:
        return None
    return {system: span[0] for system, span in spans.items() if system not in behind}, behind
