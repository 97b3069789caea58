"""Turns all results into one object: the JSON that `planstep compare --json` prints. Fields: docs/compare.md.

    results of one cell's repeats ─▶ median, range ─┐
    system ▸ workload ▸ durability ▸ placement ◀────┘ ─▶ ranking.py: who wins where, shared fate

An entry's figures are medians over its repeats, `range` has the lowest and highest. They are None unless every
repeat verified. A repeat that did not sustain the rate counts as infinitely slow in the median of latencies; if the
median is infinite, no latency is reported. Errors (missing, duplicated …) are added up, since a median would hide
them.

Next: ranking.py, ../report/text/text_report.py.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from ..judges.spark_process import without
from .cell import FAILED, IMPOSSIBLE, INTERRUPTED, LATENCIES, OK, Cell, Result
from .harness import Outcome
from .measure import untimed
from .plan import SPREAD, Asked
from .ranking import shared_fate, who_wins
from .systems import label
from .systems.base import SETTING_KEYS

SCHEMA_VERSION = 1
KIND = "planstep compare"
TIMES = (*LATENCIES, "generator_lag_ms")
FIGURES = (
    "offered_mb_s",
    "throughput_mb_s",
    "requests_per_transaction",
    "messages_per_transaction",
    "appends_per_transaction",
    "hops_before_reply",
    "syncs_per_transaction",
    "disk_bytes_per_payload_byte",
    "network_bytes_per_payload_byte",
    "cpu_cores",
    "other_cores",
    "memory_peak_mb",
    "disk_mb_s",
    "network_mb_s",
    "seconds",
)
_ADDED = ("missing", "duplicated", "out_of_order", "violations")
_COUNTS = ("records", "transactions", "cancelled")


def summarize(
    asked: Asked, outcome: Outcome, machine: dict[str, Any], traces: str | None = None
) -> dict[str, Any]:
    """Returns the summary; `traces` is the folder that holds them, or None."""
    by_cell: dict[tuple[str, str, str, str], list[Result]] = {}
    for result in outcome.results:
        by_cell.setdefault(_key(result.cell), []).append(result)
    planned: dict[tuple[str, str, str, str], int] = {}
    for cell in outcome.plan.cells:
        planned[_key(cell)] = planned.get(_key(cell), 0) + 1
    systems: dict[str, Any] = {}
    for (system, workload, durability, placement), count in planned.items():
        results = by_cell.get((system, workload, durability, placement))
        if results:
            by_workload = systems.setdefault(system, {}).setdefault(workload, {})
            by_workload.setdefault(durability, {})[placement] = entry(results, count)
    for cell, search in outcome.searches:
        options = cell.options
        found = systems[cell.system]["reshard"][options.durability][options.placement]
        found["highest_sustained_mb_s"] = search.low
        found["rate_search"] = search.runs
    plan = outcome.plan
    return {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "verified": outcome.verified,
        "interrupted": outcome.interrupted,
        "seconds": round(outcome.seconds, 1),
        "settings": settings(asked),
        "machine": machine,
        "systems": systems,
        "who_wins": who_wins(systems),
        "shared_fate": shared_fate(systems),
        "spark": without("it reads what --out DIR keeps"),
        "plan": {
            "cells": len(plan.cells),
            "done": sum(result.status != INTERRUPTED for result in outcome.results),
            "seconds": round(plan.seconds),
            "order": [f"{cell.name}" for cell in plan.cells],
            "left_out": [{"what": left.what, "why": left.why} for left in plan.left_out],
            "notes": list(plan.notes),
        },
        "report": {"html": None, "png": [], "traces": traces},
    }


def settings(asked: Asked) -> dict[str, Any]:
    """Returns the options of the comparison; None where the plan decided."""
    return {
        "workloads": None if asked.workloads is None else list(asked.chosen),
        "systems": list(asked.systems),
        "rate_mb_s": asked.rate,
        "record_size": asked.record_size,
        "partitions": asked.partitions,
        "commit_interval_s": asked.commit_interval,
        "duration_s": asked.duration,
        "hosts": "spread" if asked.hosts == SPREAD else asked.hosts,
        "placement": asked.placement,
        "durability": asked.durability,
        "rtt_ms": round(asked.rtt * 1000, 6),
        "workers": asked.workers,
        "repeat": asked.repeat,
        "quick": asked.quick,
        "demo": asked.demo,
        "seed": asked.seed,
        "find_rate": asked.find_rate,
    }


def entry(results: list[Result], planned: int) -> dict[str, Any]:
    """Returns the entry of one cell from its repeats, of which `planned` were planned."""
    ran = [result for result in results if result.status == OK]
    status = _status(results)
    verified = status == OK and all(result.verified for result in ran)
    sustained = _sustained(ran) if verified else None
    shape = results[0].cell.shape
    made: dict[str, Any] = {
        "status": status,
        "reason": next((r.reason for r in results if r.status == status and r.reason), None),
        "verified": verified,
        "sustained": sustained,
        "sustained_repeats": None if sustained is None else len(ran) - _late(ran),
        "repeats": len(ran),
        "repeats_planned": planned,
        "label": label(results[0].cell.system),
        "duration_s": shape.duration,
        "partitions": shape.partitions,
        "hosts": results[0].cell.options.hosts,
    }
    made |= {name: _middle(getattr(r, name) for r in ran) for name in _COUNTS}
    made |= {name: sum(getattr(r, name) for r in ran) for name in _ADDED}
    for name in ("violations_by", "judged", "allowed_by"):
        made[name] = _added(getattr(r, name) for r in ran)
    made["problems"] = [problem for r in ran for problem in r.problems]
    told = ran if verified else []
    ranges: dict[str, list[float | None]] = {}
    for name in FIGURES:
        made[name] = _figure(name, [getattr(r, name) for r in told], ranges)
    per_second = [r.transactions / r.seconds for r in told if r.seconds and r.transactions]
    made["transactions_per_second"] = _figure("transactions_per_second", per_second, ranges)
    for name in TIMES:
        late = _late(told) if name in LATENCIES else 0
        made[name] = _times(name, [getattr(r, name) for r in told], late, ranges)
    made["highest_sustained_mb_s"] = None
    made["rate_search"] = None
    made["range"] = ranges
    made["steps"] = _merged([r.steps for r in told if r.steps])
    extra = _merged([r.extra for r in told if r.extra]) or {}
    made["extra"] = untimed(extra) if sustained is False else extra
    made["settings"] = [
        dict(zip(SETTING_KEYS, row, strict=True)) for row in (ran[0].settings if ran else [])
    ]
    made["traces"] = [r.trace for r in ran if r.trace]
    return made


def _key(cell: Cell) -> tuple[str, str, str, str]:
    return cell.system, cell.workload, cell.options.durability, cell.options.placement


def _status(results: list[Result]) -> str:
    """Returns the worst status; INTERRUPTED only where there is no other."""
    found = {result.status for result in results}
    return next(status for status in (FAILED, IMPOSSIBLE, OK, INTERRUPTED) if status in found)


def _late(ran: list[Result]) -> int:
    return sum(result.sustained is False for result in ran)


def _sustained(ran: list[Result]) -> bool | None:
    """Returns True if most repeats were sustained; None where no rate was offered."""
    if all(result.sustained is None for result in ran):
        return None
    return 2 * _late(ran) < len(ran)


def _figure(
    name: str, values: Sequence[float | None], ranges: dict[str, list[float | None]]
) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    ranges[name] = [_rounded(min(known)), _rounded(max(known))]
    middle: float = _rounded(median(known))
    return middle


def _times(
    name: str,
    values: list[dict[str, float] | None],
    late: int,
    ranges: dict[str, list[float | None]],
) -> dict[str, float] | None:
    """Returns medians of latencies; `late` counts further repeats, taken as infinitely slow."""
    known = [value for value in values if value is not None]
    if len(known) <= late:
        return None
    made = {}
    for percentile in known[0]:
        all_ = [*(value[percentile] for value in known), *[math.inf] * late]
        made[percentile] = _rounded(median(all_))
        ranges[f"{name}.{percentile}"] = [
            _rounded(min(all_)),
            None if late else _rounded(max(all_)),
        ]
    return made


def _middle(values: Iterable[int]) -> int:
    known = list(values)
    return round(median(known)) if known else 0


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    made: dict[str, int] = {}
    for count in counts:
        for name, n in count.items():
            made[name] = made.get(name, 0) + n
    return made


def _merged(trees: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Merges trees of the same kind: numbers by their median, other values from the first tree."""
    if not trees:
        return None
    made: dict[str, Any] = {}
    for name in dict.fromkeys(name for tree in trees for name in tree):
        values = [tree[name] for tree in trees if name in tree]
        if all(isinstance(value, dict) for value in values):
            made[name] = _merged(values)
        elif all(_is_number(value) for value in values):
            made[name] = _rounded(median(values))
        else:
            made[name] = values[0]
    return made


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
