"""Row `history`: runs a million transactions on the real engine, with kills; three independent judges check them.

    ../histories/run.py ─▶ Trace ─┬─▶ judges/python          the certificate, in linear time
                                  ├─▶ ../histories/judge.py  other processes saw the state at their step
                                  └─▶ Spark, if installed    the same files, none of the checker's code
    judges/python/plant.py ─▶ ten histories with one anomaly each: every judge of traces must find every one

Negative controls: votes that do not check the rows that were read; outcomes told, and turns shown to other
processes, before they are released (../histories/planted.py).

Left out: modes "kafka" and "pulsar", which have rows of their own; phantoms (a range is judged by its rows'
versions).

Next: ../histories/run.py.
"""

import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...judges.python import PLANNED, judge
from ...judges.python.findings import REAL_TIME, STALE_READ, Findings
from ...judges.python.plant import KINDS, plant
from ...judges.spark_process import prove_apart
from ...judges.trace import ABORTED, COMMITTED, UNDETERMINED, Trace
from ..histories.judge import judge_looks
from ..histories.run import make
from ..histories.schema import FEEDS, World
from ..histories.tapes import History, Plan
from .registry import RowOptions, RowResult

FIGURE = 1_000_000
"""Transactions, of both placements together."""
_APART = 0.06
"""Share of these on three hosts, which take four times as long."""
_SMALL = 0.02
"""Share in the history that anomalies are planted in."""
_SHOWN = 20


def run(options: RowOptions) -> RowResult:
    total = options.of(FIGURE, 2_000)
    result = RowResult(seeds=(options.seed, options.seed))
    traces = options.folder / "proof" / "traces"
    spark = not options.quick and find_spec("pyspark") is not None
    writing_s = 0.0
    small = Trace()
    for plan in _plans(total, options.quick):
        history = make(options, plan)
        result.add(judge_history(history))
        writing_s, small = writing_s + history.writing_s, history.trace
        if spark:
            history.trace.save(traces / plan.name)
        del history  # millions of rows
    planted = {kind: plant(small, kind, options.seed) for kind in KINDS}
    missed = [kind for kind, trace in planted.items() if not _judge(trace).counts.get(kind)]
    result.figures["planted_found"] = len(KINDS) - len(missed)
    result.must(not missed, f"planted, and not found: {', '.join(missed)}")
    result.figures["spark_agrees"] = "not asked" if options.quick else "not there"
    if spark:
        for kind, trace in planted.items():
            trace.save(traces / _folder(kind))
        _by_spark(options, traces.parent, result)
    result.figures["writes_a_second"] = round(result.runs / writing_s)
    result.figures["checker_seconds"] = round(result.figures["checker_seconds"], 1)
    result.reaches([("transactions", result.runs, total)])
    return result


def control(options: RowOptions) -> RowResult:
    """Plants votes that ignore changed rows, and outcomes told before reads can see them."""
    hot = World(accounts=40, ring=30, lists=10)
    result = RowResult(seeds=(options.seed, options.seed))
    for bug, expected in (("blind", STALE_READ), ("ahead", REAL_TIME)):
        history = make(options, Plan(bug, 1, options.runs or 3_000, 1, hot, planted=bug))
        one = judge_history(history).planted(expected)
        if not one.violations:
            return one
        result.add(one)
    return result


def _plans(total: int, quick: bool) -> list[Plan]:
    """Plans the histories; the last one is the small one."""
    if quick:
        return [Plan("three", 3, total // 5, 1), Plan("one", 1, total - total // 5, 1)]
    apart, small = int(total * _APART), int(total * _SMALL)
    return [
        Plan("one", 1, total - apart - small, 15),
        Plan("three", 3, apart, 4),
        Plan("small", 1, small, 2),
    ]


def _judge(trace: Trace) -> Findings:
    return judge(trace, mode=PLANNED, feeds=FEEDS)


def judge_history(history: History, *, short: bool = False) -> RowResult:
    """Judges a history; returns its counts and violations. `short`: not everything needs to have come up in it."""
    trace, plan = history.trace, history.plan
    name = plan.name
    began = time.perf_counter()
    findings = _judge(trace)
    judging_s = time.perf_counter() - began
    outcomes = [row.outcome for row in trace.transactions]
    looked = sum(map(len, history.looks.values()))
    result = RowResult(
        sum(row.worker not in history.looks for row in trace.transactions),
        len(trace.operations) + len(trace.records),
        Counter(
            {
                "kill": history.kills,
                "freeze": history.frozen,
                "conflict": outcomes.count(ABORTED),
                "undecided at a kill": len(history.resolved) + outcomes.count(UNDETERMINED),
            }
        ),
        figures={
            "committed": outcomes.count(COMMITTED),
            "told_by_outcome": history.by_outcome,
            "looks": looked,
            "checker_seconds": judging_s,
        },
        most={"opened_s_max": round(max(history.opened_s, default=0.0), 3)},
    )
    wrong = [*history.wrong, *findings.problems(), *judge_looks(history)]
    result.violations += [f"{name}: {text}" for text in wrong[:_SHOWN]]
    if len(wrong) > _SHOWN:
        result.violations.append(f"{name}: and {len(wrong) - _SHOWN:,} more")
    struck = history.kills + history.frozen
    result.must(struck == plan.kills, f"{name}: {struck} kills, not {plan.kills}")
    if short:
        return result
    for what in ("reads", "ranges", "published", "records"):
        result.must(findings.looked_at.get(what, 0) > 0, f"{name}: no {what} were looked at")
    result.must(history.by_outcome > 0, f"{name}: nobody was told by an outcome")
    result.must(looked > 1, f"{name}: no other process has looked at anything")
    return result


def _folder(kind: str) -> str:
    return "planted-" + kind.replace(" ", "-")


# Spark ------------------------------------------------------------------------------------------


def _by_spark(options: RowOptions, folder: Path, result: RowResult) -> None:
    """Adds Spark's verdict, and whether it found each planted anomaly; Spark compares itself with the checker."""
    began = time.perf_counter()
    verdict: dict[str, Any] = prove_apart(folder, tell=options.tell)["spark"]
    result.figures["spark_seconds"] = round(time.perf_counter() - began, 1)
    if not verdict["ran"] and verdict["agrees_with_python"] is None:
        result.figures["spark_agrees"] = "not there"
        result.figures["spark_why_not"] = str(verdict["why_not"])[:200]
        return
    by_run: dict[str, dict[str, int]] = {}
    for check in verdict["checks"]:
        for name, counts in check["by_run"].items():
            by_run.setdefault(name, {}).update(counts)
    missed = [kind for kind in KINDS if not by_run.get(_folder(kind), {}).get(kind)]
    result.figures["spark_agrees"] = bool(verdict["agrees_with_python"])
    result.figures["planted_found_by_spark"] = len(KINDS) - len(missed)
    result.must(not missed, f"planted, and not found by Spark: {', '.join(missed)}")
    result.violations += [f"Spark: {text}" for text in verdict["disagreements"][:_SHOWN]]
    for name, counts in by_run.items():
        if not name.startswith("planted-") and counts:
            result.violations.append(f"Spark, {name}: {counts}")
