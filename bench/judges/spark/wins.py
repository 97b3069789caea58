"""Ranks systems by Spark's percentiles, with the rule of bench/compare/ranking.py, implemented again.

    same workload, same durability, each system at its headline placement; verified, sustained, three repeats.
    Needed: ranges over repeats do not overlap, and medians differ by 5 %; write latencies are not compared

Latencies only: traces do not have the comparison's other figures (CPU, bytes to disk).

Next: agreeing.py.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from ...compare.cell import LATENCIES
from ...compare.systems import headline
from .percentiles import PERCENTILES

MARGIN, REPEATS_MIN = 0.05, 3
Runs = Sequence[Mapping[str, Any]]


def who_wins(by_run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each latency with a clear winner. `by_run`: percentiles.

    A row has workload, durability, figure, best {system: ms}, behind {system: ms}, and the least runs of a system.
    """
    wins = []
    for (workload, durability), systems in _standing(by_run).items():
        for latency in (name for name in LATENCIES if name != "write_ms"):
            for percentile in PERCENTILES:
                spans = {}
                for system, runs in systems.items():
                    values = of_repeats(runs, latency, percentile)
                    if len(values) >= REPEATS_MIN and not math.isinf(median(values)):
                        spans[system] = (median(values), min(values), max(values), len(values))
                if behind := _behind(spans):
                    best = {name: span[0] for name, span in spans.items() if name not in behind}
                    row = {"workload": workload, "durability": durability, "best": best}
                    row |= {"figure": f"{latency}.{percentile}", "behind": behind}
                    wins.append(row | {"runs": min(span[3] for span in spans.values())})
    return wins


def of_repeats(runs: Runs, latency: str, percentile: str) -> list[float]:
    """Returns values of repeats; infinite for one that was not sustained. Empty where no repeat has a value."""
    latencies = [run["latencies"][latency] for run in runs]
    if not any(latencies):
        return []
    return [one[percentile] if one else math.inf for one in latencies]


def _standing(by_run: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, list[Any]]]:
    """Groups runs by workload and durability, by system, at the headline placement, else at the first."""
    placed: dict[tuple[str, str, str], dict[str, list[Any]]] = {}
    for run in by_run.values():
        if run["system"]:
            key = run["workload"], run["durability"], run["system"]
            placed.setdefault(key, {}).setdefault(run["placement"], []).append(run)
    standing: dict[tuple[str, str], dict[str, list[Any]]] = {}
    for (workload, durability, system), placements in placed.items():
        runs = placements.get(headline(system)) or next(iter(placements.values()))
        standing.setdefault((workload, durability), {})[system] = runs
    return standing


def _behind(spans: Mapping[str, tuple[float, float, float, int]]) -> dict[str, float]:
    """Returns the medians of the systems that clearly lose. `spans`: (median, least, most, runs) by system."""
    first = min(spans.values(), key=lambda span: span[0], default=(0.0, 0.0, 0.0, 0))
    return {
        system: middle
        for system, (middle, least, _, _) in spans.items()
        if least > first[2] and middle - first[0] >= MARGIN * middle
    }
