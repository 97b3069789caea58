"""Turns all results into one object: the JSON that `planstep compare --json` prints. Fields: docs/compare.md.

    results of one cell's repeats ─▶ median, range ─┐
    system ▸ workload ▸ durability ▸ placement ◀────┘ ─▶ ranking.py: who wins where, shared fate

A cell is one such combination. Shared fate: the part of a difference that comes from tablets sharing a host.

An entry's figures are medians over its repeats, `range` has the lowest and highest. They are None unless every
repeat verified. A repeat that did not sustain the rate counts as infinitely slow in the median of latencies; if the
median is infinite, no latency is reported. Errors (missing, duplicated …) are added up, since a median would hide
them.

Next: ranking.py, ../report/text/text_report.py.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import fields
from statistics import median
from typing import Any

from ..judges.spark_process import without
from .cell import FAILED, IMPOSSIBLE, INTERRUPTED, LATENCIES, OK, Cell, Result
from .curves import curves, entry_of
from .harness import Outcome
from .measure import without_percentiles
from .options import SPREAD, ComparisonOptions
from .pressure import load
from .promises import promises
from .ranking import DURABILITIES, shared_fate, who_wins
from .systems import ENTRIES, headline, label
from .systems.base import SETTING_KEYS
from .verdicts import verdicts
from .workloads import NAMES

SCHEMA_VERSION = 2
KIND = "planstep compare"
TIMES = (*LATENCIES, "generator_lag_ms")
FIGURES = (*(field.name for field in fields(Result) if field.type == float | None), "seconds")
_ADDED = ("missing", "duplicated", "out_of_order", "violations")
_COUNTS = ("records", "transactions", "cancelled")


def summarize(
    options: ComparisonOptions, outcome: Outcome, machine: dict[str, Any], traces: str | None = None
) -> dict[str, Any]:
    """Returns the summary; `traces` is the folder that holds them, or None."""
    by_cell = defaultdict[tuple[str, ...], list[Result]](list)
    for result in outcome.results:
        by_cell[_key(result.cell)].append(result)
    systems: dict[str, Any] = {}
    every = (cell for block in outcome.plan.blocks for cell in block.cells)
    for key, count in sorted(Counter(map(_key, every)).items(), key=_rank):
        if key in by_cell:
            system, workload, durability, placement = key
            by_workload = systems.setdefault(system, {}).setdefault(workload, {})
            by_workload.setdefault(durability, {})[placement] = entry(by_cell[key], count)
    for cell, search in outcome.searches:
        own = entry_of(systems, cell)
        own["highest_sustained_mb_s"] = search.low
        own["rate_search"] = search.runs
    plan, planned = outcome.plan, outcome.plan.cells
    planned += [result.cell for result in outcome.results if result.cell not in planned]
    return {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "verified": outcome.verified,
        "interrupted": outcome.interrupted,
        "seconds": round(outcome.seconds, 1),
        "settings": settings(options),
        "machine": machine | {"load": load(machine, systems)},
        "systems": systems,
        "verdicts": verdicts(outcome.results),
        "promises": promises(systems),
        "curves": curves(systems, outcome.searches, outcome.results),
        "who_wins": who_wins(systems),
        "shared_fate": shared_fate(systems),
        "since": None,
        "servers": outcome.servers,
        "spark": without("it reads what --out DIR keeps"),
        "plan": {
            "cells": len(planned),
            "done": sum(result.status != INTERRUPTED for result in outcome.results),
            "seconds": round(plan.seconds),
            "order": [cell.name for cell in planned],
            "left_out": [omission._asdict() for omission in plan.left_out],
            "notes": list(plan.notes),
        },
        "report": {"html": None, "png": [], "traces": traces},
    }


def settings(options: ComparisonOptions) -> dict[str, Any]:
    """Returns the options of the comparison; None where the plan decided."""
    return {
        "workloads": None if options.workloads is None else list(dict.fromkeys(options.workloads)),
        "systems": list(options.systems),
        "rate_mb_s": options.rate,
        "record_size": options.record_size,
        "partitions": options.partitions,
        "commit_interval_s": options.commit_interval,
        "duration_s": options.duration,
        "hosts": "spread" if options.hosts == SPREAD else options.hosts,
        "placement": options.placement,
        "durability": options.durability,
        "rtt_ms": round(options.rtt * 1000, 6),
        "workers": options.workers,
        "repeat": options.repeat,
        "peers": options.peers,
        "quick": options.quick,
        "thorough": options.thorough,
        "demo": options.demo,
        "seed": options.seed,
        "find_rate": options.find_rate,
    }


def entry(results: list[Result], planned: int) -> dict[str, Any]:
    """Returns the entry of one cell from its repeats, of which `planned` were planned."""
    complete = [result for result in results if result.status == OK]
    statuses = {result.status for result in results}
    # The worst one; INTERRUPTED only where there is no other.
    status = next(one for one in (FAILED, IMPOSSIBLE, OK, INTERRUPTED) if one in statuses)
    verified = status == OK and all(result.verified for result in complete)
    offered = any(result.sustained is not None for result in complete)
    late = sum(result.sustained is False for result in complete)
    sustained = 2 * late < len(complete) if verified and offered else None
    shape = results[0].cell.shape
    figures: dict[str, Any] = {
        "status": status,
        "reason": next((r.reason for r in results if r.status == status and r.reason), None),
        "verified": verified,
        "sustained": sustained,
        "sustained_repeats": None if sustained is None else len(complete) - late,
        "repeats": len(complete),
        "repeats_planned": planned,
        "label": label(results[0].cell.system),
        "duration_s": shape.duration,
        "partitions": shape.partitions,
        "hosts": results[0].cell.options.hosts,
    }
    for name in _COUNTS:
        figures[name] = round(median(getattr(r, name) for r in complete)) if complete else 0
    figures |= {name: sum(getattr(r, name) for r in complete) for name in _ADDED}
    for name in ("violations_by", "judged", "allowed_by"):
        total = Counter[str]()
        for r in complete:
            total.update(getattr(r, name))
        figures[name] = dict(total)
    figures["problems"] = [problem for r in complete for problem in r.problems]
    valid = complete if verified else []
    ranges: dict[str, list[float | None]] = {}
    for name in FIGURES:
        figures[name] = _median(name, (getattr(r, name) for r in valid), ranges)
    per_second = [r.transactions / r.seconds for r in valid if r.seconds and r.transactions]
    figures["transactions_per_second"] = _median("transactions_per_second", per_second, ranges)
    for name in TIMES:
        known = [times for r in valid if (times := getattr(r, name)) is not None]
        infinite = late if name in LATENCIES else 0
        figures[name] = None
        if len(known) > infinite:
            figures[name] = {
                p: _median(f"{name}.{p}", (times[p] for times in known), ranges, infinite)
                for p in known[0]
            }
    figures |= {"highest_sustained_mb_s": None, "rate_search": None, "range": ranges}
    figures["steps"] = _merge([r.steps for r in valid if r.steps])
    extra = _merge([r.extra for r in valid if r.extra]) or {}
    figures["extra"] = without_percentiles(extra) if sustained is False else extra
    settings = complete[0].settings if complete else []
    figures["settings"] = [dict(zip(SETTING_KEYS, row, strict=True)) for row in settings]
    figures["traces"] = [r.trace for r in complete if r.trace]
    return figures


def _key(cell: Cell) -> tuple[str, str, str, str]:
    return cell.system, cell.workload, cell.options.durability, cell.options.placement


def _rank(item: tuple[tuple[str, str, str, str], int]) -> tuple[int | bool, ...]:
    """Orders entries as systems, workloads and durabilities are listed, the headline's placement first."""
    (system, workload, durability, placement), _ = item
    listed = [*ENTRIES].index(system), NAMES.index(workload), [*DURABILITIES].index(durability)
    return *listed, placement != headline(system)


def _median(
    name: str,
    values: Iterable[float | None],
    ranges: dict[str, list[float | None]],
    infinite: int = 0,
) -> Any:
    """Returns the median of the known values, and of `infinite` more; notes their range. None if none is known."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    ranges[name] = [_round(min(known)), None if infinite else _round(max(known))]
    return _round(median([*known, *[math.inf] * infinite]))


def _merge(trees: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Merges trees of the same kind: numbers by their median, other values from the first tree."""
    if not trees:
        return None
    merged: dict[str, Any] = {}
    for name in dict.fromkeys(name for tree in trees for name in tree):
        values = [tree[name] for tree in trees if name in tree]
        if all(isinstance(value, dict) for value in values):
            merged[name] = _merge(values)
        elif all(type(value) in (int, float) for value in values):
            merged[name] = _round(median(values))
        else:
            merged[name] = values[0]
    return merged


def _round(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
