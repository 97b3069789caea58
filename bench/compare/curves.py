"""Makes curves of runs: offered rate against latency and cost, number of threads against throughput.

    rate_search.py: runs at some rates ──┐
    the cell at whose rate it began ─────┴─▶ "rate": a point for each rate, also those that were not sustained
    repeats of a workload whose `extra` has "concurrency" ─▶ "concurrency": points by threads, medians of repeats

Only verified runs have figures. A point whose rate was not sustained has no latency.

Next: summary.py.
"""

from collections.abc import Iterable
from statistics import median
from typing import Any

from .cell import OK, Cell, Result
from .rate_search import COSTS, Search

PARTS = "concurrency"
"""The key of a workload's parts, by their number of threads."""
_LATENCIES = ("commit_ms", "end_to_end_ms")
_POINT = ("verified", "sustained", "throughput_mb_s", *_LATENCIES, *COSTS)


def curves(
    systems: dict[str, Any], searches: Iterable[tuple[Cell, Search]], results: Iterable[Result]
) -> dict[str, list[dict[str, Any]]]:
    """Returns the curves of a comparison; `systems` has the summary's entries."""
    return {
        "rate": [_of_rate(entry_of(systems, cell), cell, search) for cell, search in searches],
        "concurrency": list(_of_threads(results)),
    }


def entry_of(systems: dict[str, Any], cell: Cell) -> dict[str, Any]:
    options = cell.options
    entry: dict[str, Any] = systems[cell.system][cell.workload][options.durability][
        options.placement
    ]
    return entry


def _of_rate(entry: dict[str, Any], cell: Cell, search: Search) -> dict[str, Any]:
    runs = [{**entry, "rate_mb_s": cell.shape.rate}, *search.runs]
    by_rate: dict[float, dict[str, Any]] = {}
    for run in runs:
        rate = run["rate_mb_s"]
        if rate is not None and (rate not in by_rate or run["sustained"]):
            by_rate[rate] = {name: run[name] for name in ("rate_mb_s", *_POINT)}
    points = [by_rate[rate] for rate in sorted(by_rate)]
    return {**_place(cell), "highest_mb_s": search.low, "points": points}


def _of_threads(results: Iterable[Result]) -> Iterable[dict[str, Any]]:
    by_place: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        if result.status == OK and (PARTS in result.extra or not result.verified):
            key = (result.cell.workload, *_place(result.cell).values())
            by_place.setdefault(key, []).append(result)
    for repeats in by_place.values():
        if all(result.verified for result in repeats):
            parts = [result.extra[PARTS] for result in repeats]
            points = [_point([part[threads] for part in parts]) for threads in parts[0]]
            yield {**_place(repeats[0].cell), "points": points}


def _point(repeats: list[dict[str, Any]]) -> dict[str, Any]:
    per_second = [part["transactions_per_second"] or 0.0 for part in repeats]
    middle, low, high = median(per_second), min(per_second), max(per_second)
    return {
        "threads": repeats[0]["threads"],
        "transactions_per_second": {"median": round(middle, 1), "low": low, "high": high},
        **{
            name: _percentiles([part[name] for part in repeats if part[name]])
            for name in ("commit_ms", "done_ms")
        },
        **{
            name: _middle([part[name] for part in repeats])
            for name in ("cpu_ms", "disk_bytes", "syncs")
        },
    }


def _percentiles(times: list[dict[str, float]]) -> dict[str, float] | None:
    if not times:
        return None
    return {p: round(median(one[p] for one in times), 4) for p in ("p50", "p99")}


def _middle(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(median(known), 4) if known else None


def _place(cell: Cell) -> dict[str, str]:
    options = cell.options
    return {
        "system": cell.system,
        "placement": options.placement,
        "durability": options.durability,
    }
