"""Makes results of an invented comparison, with traces: a summary and a folder, always the same.

`extras.json` is what workloads told in a real one.
"""

import json
from pathlib import Path
from typing import Any

from planstep.bench.compare.cell import Cell, Result
from planstep.bench.compare.harness import Outcome
from planstep.bench.compare.options import ComparisonOptions
from planstep.bench.compare.plan import Plan, plan
from planstep.bench.compare.rate_search import Search
from planstep.bench.compare.summary import summarize
from planstep.bench.compare.systems.base import Options
from planstep.bench.compare.workloads.base import Shape
from planstep.bench.judges.trace import (
    COMMITTED,
    TOPIC,
    Batch,
    Resources,
    Trace,
    Transaction,
    identity,
)

MACHINE: dict[str, Any] = {
    "cpus": 2,
    "cpu_model": "a processor",
    "memory_mb": 8000,
    "filesystem": "ext4",
    "busy_cores": 0.03,
    "disk_sync_ms": {"p50": 0.5, "p95": 0.7, "p99": 0.9, "p99_9": 1.2, "max": 1.5},
    "kernel": "Linux 6",
    "architecture": "x86_64",
    "python": "CPython 3.11",
    "planstep": "0.1.0",
}
_EXTRAS = json.loads(Path(__file__).with_name("extras.json").read_text())
_WRITE_MS = {"deterministic": 2.0, "kafka": 3.0, "kafka-v1": 3.5, "sqlite": 40.0, "sqlite-64": 30.0}
STEPS = {
    "deterministic": {"coordinator: PlanRequest": 1.0, "partition: Stage": 100.0},
    "kafka": {"partition: Produce": 100.0, "transaction coordinator: EndTxn": 1.0},
}
TRANSACTIONS, PIECES, RECORDS = 12, 3, 5
_MS = 1_000_000


def times(p50: float) -> dict[str, float]:
    return {"p50": p50, "p95": p50 * 2, "p99": p50 * 3, "p99_9": p50 * 4, "max": p50 * 5}


def result(cell: Cell) -> Result:
    paced = cell.workload in ("reshard", "plain")
    write = _WRITE_MS.get(cell.system, 3.2) * (1 + 0.1 * cell.repeat)
    result = Result(cell, verified=True, sustained=True if paced else None)
    result.records, result.transactions, result.seconds = 5000, 96, cell.shape.duration
    result.offered_mb_s = cell.shape.rate if paced else None
    result.throughput_mb_s = 5.0
    result.write_ms, result.commit_ms = times(write), times(write / 2)
    result.visible_ms, result.end_to_end_ms = times(write * 0.6), times(250 + write)
    result.cpu_cores, result.memory_peak_mb = 0.5, 60.0
    result.disk_mb_s, result.network_mb_s = 7.0, 6.0
    result.disk_bytes_per_payload_byte = 1.05
    result.hops_before_reply = {"deterministic": 1.0, "kafka": 4.0}.get(cell.system)
    result.steps = STEPS.get(cell.system)
    result.judged = {"transactions": 96, "records": 5000}
    result.extra = _EXTRAS.get(cell.workload, {}).get(cell.system, {})
    result.trace = f"traces/{cell.name}"
    return result


def searches(planned: Plan) -> list[tuple[Cell, Search]]:
    """Makes what the search of each highest rate has found: full speed, then one rate that was sustained."""
    searches = []
    for cell in planned.search:
        search = Search(20.0, True, low=80.0)
        search.tell(float("inf"), True, None, 101.5)
        search.tell(80.0, True, True, 80.0, write_ms=times(2.0), end_to_end_ms=times(250.0))
        searches.append((cell, search))
    return searches


def outcome(*workloads: str, **more: Any) -> tuple[ComparisonOptions, Outcome]:
    """Makes an outcome of these workloads, all by default; durability full and one repeat, unless given."""
    options = ComparisonOptions(
        **{
            "workloads": workloads or None,
            "systems": ("deterministic", "kafka", "sqlite"),
            "repeat": 1,
            "durability": "full",
            **more,
        }
    )
    planned = plan(options)
    results = [result(cell) for cell in planned.cells]
    return options, Outcome(planned, results, searches(planned), seconds=12.0)


def summary(options: ComparisonOptions, of: Outcome) -> dict[str, Any]:
    """Returns the summary as it is read from results.json."""
    summary: dict[str, Any] = json.loads(json.dumps(summarize(options, of, MACHINE, "traces")))
    return summary


def trace(cell: Cell) -> Trace:
    """Makes a trace of consecutive transactions of several pieces, whose records a reader sees a moment later."""
    trace = Trace()
    source, target = trace.lane(TOPIC, "in", 3), trace.lane(TOPIC, "out", 0)
    kafka = cell.system.startswith("kafka")
    for tx in range(TRANSACTIONS):
        begin = tx * 100 * _MS
        proposed = begin + (90 + tx) * _MS
        decided = proposed + (2 + tx % 3) * _MS
        visible = decided + (30 if kafka else 0) * _MS
        for n in range(PIECES):
            ordinal = (tx * PIECES + n) * RECORDS
            due = begin + (20 * n - 5) * _MS
            written = due + (n + 1) * _MS
            trace.batches.append(
                Batch(tx, "w", source, ordinal, RECORDS, 5000, due, written, visible, visible + _MS)
            )
            values = [identity(3, ordinal + k) for k in range(RECORDS)]
            trace.seen.add(target, range(ordinal, ordinal + RECORDS), values, tx, visible + _MS)
        planned = None if kafka else decided
        row = Transaction(tx, f"1-{tx}", "w", COMMITTED, begin=begin, staged=proposed - _MS)
        trace.transactions.append(
            row._replace(
                proposed=proposed,
                planned=planned,
                decided=decided,
                visible=visible,
                reply=decided + _MS,
                requests=4.0,
                participants=2,
            )
        )
    for n in range(8):
        at = 250 * _MS * (n + 1)
        trace.resources.append(Resources(at, 0.1 * n, 50_000_000 + n, 1_000_000 * n, n, n, 2 * n))
    trace.about = {"cell": cell.dump(), "seed": 1, "seconds": 1.2, "sustained": True}
    return trace


def save_traces(folder: Path, of: Outcome) -> None:
    for result in of.results:
        if result.trace is not None:
            trace(result.cell).save(folder / result.trace)


def cell(workload: str = "reshard", system: str = "deterministic") -> Cell:
    return Cell(workload, system, Options(), Shape())


# verdicts, promises --------------------------------------------------------------------------------

_OWN = ("deterministic", "shared")


def _ratio(
    system: str, placement: str, value: float | None, *ratio: float | None
) -> dict[str, Any]:
    """`ratio`: median, low, high; nothing for a system without one."""
    spread = dict(zip(("median", "low", "high"), ratio, strict=True)) if ratio else None
    row = {"system": system, "placement": placement, "value": value}
    return {**row, "ratio": spread, "repeats": 5 if ratio else 0}


def verdict(question: str, standing: str, *ratios: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "question": question,
        "words": f"Which is fastest for {question}?",
        "sentence": f"SQLite needs 0.47 ms for {question}, this engine 0.87 ms: 1.8 times (1.7 to 2.0) as long.",
        "workload": "reshard",
        "durability": "full",
        "figure": "commit_ms.p50",
        "better": "lower",
        "first": ["sqlite"],
        "standing": standing,
        "ratios": list(ratios),
        "why": "",
        **more,
    }


def verdicts() -> list[dict[str, Any]]:
    """Makes a verdict of each standing, at both durabilities, and one of a workload that did not run."""
    own = _ratio(*_OWN, 0.87, 1.0, 1.0, 1.0)
    kafka, sqlite = ("kafka", "separate"), ("sqlite", "shared")
    slower, faster = _ratio(*kafka, 2.4, 2.7, 2.5, 3.0), _ratio(*sqlite, 0.47, 0.55, 0.5, 0.6)
    level, endless = _ratio(*sqlite, 0.9, 1.03, 0.9, 1.2), _ratio(*kafka, None, 250.0, 4.0, None)
    ahead = verdict("small-one", "first", own, slower, first=["deterministic"])
    many = _ratio(*sqlite, 1500.0, 5.0, 4.0, 6.0)
    why = "workload faults did not run; --workload faults runs it"
    return [
        ahead,
        verdict("small-one", "behind", own, slower, faster, durability="os"),
        verdict(
            "small-many", "behind", own, many, better="higher", figure="transactions_per_second"
        ),
        verdict(
            "end-to-end",
            "level",
            own,
            level,
            endless,
            why="kafka-style v1 did not sustain the rate",
        ),
        verdict(
            "cost",
            "unknown",
            own,
            _ratio(*kafka, None),
            sentence="No verdict: too few rounds.",
            why="",
        ),
        verdict("fault", "unknown", workload="nothing", sentence=f"No verdict: {why}.", why=why),
    ]


def promises() -> list[dict[str, Any]]:
    """Makes what two systems promise."""
    first = {"full": "it is on the disk", "os": "the operating system has it"}
    rows = (
        (*_OWN, first, "yes", "for nobody", "none found", 60.0),
        (
            "kafka",
            "separate",
            {"full": "the decision is on the disk"},
            "no",
            "for others",
            "G0 3",
            71.5,
        ),
    )
    names = ("system", "placement", "durable", "tables", "readers", "anomalies", "memory_mb")
    return [dict(zip(names, row, strict=True)) for row in rows]


# curves --------------------------------------------------------------------------------------------


def curves() -> dict[str, list[dict[str, Any]]]:
    """Makes curves of three systems, at both durabilities; the last point of a rate was not sustained."""
    systems = (
        ("deterministic", "shared", 1.0),
        ("kafka", "separate", 3.0),
        ("sqlite", "shared", 0.5),
    )
    places = [
        ({"system": system, "placement": at, "durability": durability}, times)
        for durability in ("full", "os")
        for system, at, times in systems
    ]
    rates, threads = (2.0, 5.0, 20.0, 60.0, 150.0), (1, 4, 16, 64)
    return {
        "rate": [
            {**at, "highest_mb_s": 60.0, "points": [_at_rate(rate, times) for rate in rates]}
            for at, times in places
        ],
        "concurrency": [
            {**at, "points": [_with_threads(n, times) for n in threads]} for at, times in places
        ],
    }


def _at_rate(rate: float, slower: float) -> dict[str, Any]:
    sustained = rate < 100
    return {
        "rate_mb_s": rate,
        "sustained": sustained,
        "verified": True,
        "throughput_mb_s": min(rate, 60.0),
        "commit_ms": times(slower * (2 + rate / 10)) if sustained else None,
        "end_to_end_ms": times(250 + slower * rate) if sustained else None,
        "cpu_cores": 0.01 * rate * slower,
        "cpu_ms_per_transaction": slower * (1 + rate / 50),
        "disk_bytes_per_payload_byte": 1 + slower / 20,
        "syncs_per_transaction": slower,
    }


def _with_threads(threads: int, slower: float) -> dict[str, Any]:
    middle = 1000 * threads**0.5 / slower
    spread = {"median": middle, "low": 0.9 * middle, "high": 1.2 * middle}
    costs = {"cpu_ms": slower, "disk_bytes": 900.0, "syncs": slower / threads}
    return {
        "threads": threads,
        "transactions_per_second": spread,
        "commit_ms": {"p50": slower, "p99": 5 * slower * threads},
        "done_ms": {"p50": 2 * slower, "p99": 9 * slower * threads},
        **costs,
    }
