"""Computes Spark's own median and 99th percentile of each run's latencies, to compare with the results.

    write        batch: written − intended
    commit       transaction: reply − proposed
    visible      transaction: visible − proposed
    end to end   record: seen − intended of its batch

`timed` tells which run has which of them (../../report/html/figures.py, which draws). Percentiles are exact, by
nearest rank, in microseconds.

Next: wins.py.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ...compare.cell import LATENCIES
from ..trace import COMMITTED
from .folders import TracedRun
from .loading import Traces, among

PERCENTILES = {"p50": 0.5, "p99": 0.99}


def percentiles(
    traces: Traces, runs: Iterable[TracedRun], timed: Mapping[int, Iterable[str]]
) -> dict[str, Any]:
    """Returns by run's name its cell, and its `latencies`, each {"p50": ms, "p99": ms} or None.

    timed   by number of run, the latencies that it has
    """
    columns = ", ".join(
        f"percentile_disc({share}) within group (order by us) as {name}"
        for name, share in PERCENTILES.items()
    )
    latencies = {
        (row.run, row.name): {name: row[name] / 1000 for name in PERCENTILES}
        for row in traces.sql(
            f"""select run, name, {columns} from (
              select run, name, round(ns / 1000) as us from {{latencies}} where ns is not null)
            group by run, name""",
            latencies=_latencies(traces, timed),
        ).collect()
    }
    by_run = {}
    for run in runs:
        cell = run.cell or {"options": {}}
        by_run[run.name] = {
            **{name: cell.get(name) for name in ("workload", "system")},
            **{name: cell["options"].get(name) for name in ("durability", "placement")},
            "latencies": {name: latencies.get((run.number, name)) for name in LATENCIES},
        }
    return by_run


def _latencies(traces: Traces, timed: Mapping[int, Iterable[str]]) -> Any:
    """Returns (run, name, ns) of all latencies."""
    having = {
        name: among(run for run, names in timed.items() if name in names) for name in LATENCIES
    }
    batches = traces.with_lanes("batches")
    return traces.sql(
        f"""select run, 'write_ms' as name, written - intended as ns from {{batches}}
          where {having["write_ms"]}
        union all select run, 'commit_ms', reply - proposed from {{transactions}}
          where outcome = '{COMMITTED}' and {having["commit_ms"]}
        union all select run, 'visible_ms', visible - proposed from {{transactions}}
          where outcome = '{COMMITTED}' and {having["visible_ms"]}
        union all select run, 'end_to_end_ms', ns from {{end_to_end}}""",
        batches=batches,
        transactions=traces.table("transactions"),
        end_to_end=_end_to_end(traces, batches, having["end_to_end_ms"]),
    )


def _end_to_end(traces: Traces, batches: Any, having: str) -> Any:
    """Joins each record that the follower got with its batch.

    The join is by blocks of ordinals as long as a run's average batch, so one side is small enough to broadcast.
    """
    partitions = traces.values(
        "l bigint, source bigint", [(lane.l, lane.partition) for lane in traces.lanes]
    )
    runs = traces.sql(
        f"""select run, cast(greatest(1, avg(records)) as bigint) as block from {{batches}}
        where {having} group by run""",
        batches=batches,
    )
    blocks = traces.sql(
        """select b.run, source, begin, begin + records as end, intended,
          explode(sequence(begin div r.block, (begin + records - 1) div r.block)) as block
        from {batches} b join {partitions} p on b.l = p.l join {runs} r on b.run = r.run
        where records > 0""",
        batches=batches,
        partitions=partitions,
        runs=runs,
    )
    return traces.sql(
        """select /*+ broadcast(runs), broadcast(blocks) */ s.run, s.at - b.intended as ns
        from (select s.*, s.ordinal div runs.block as block from {seen} s
          join {runs} runs on s.run = runs.run) s
        join {blocks} b on s.run = b.run and s.source = b.source and s.block = b.block
        where s.ordinal >= b.begin and s.ordinal < b.end""",
        seen=traces.seen,
        runs=runs,
        blocks=blocks,
    )
