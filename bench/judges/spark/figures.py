"""What a report is drawn from: latencies, throughput, phases, costs, resources; of all runs at once.

    write        batch: written − intended             reshard, plain, at a rate
    commit       transaction: reply − proposed         reshard, chain, plain-beside
    visible      transaction: visible − proposed       the same
    end to end   record: seen − intended of its batch  reshard, plain, at a rate
        latencies ─▶ (run, what, µs, how many) ─▶ a running count ─▶ the smallest that so many do not exceed

Only where a trace holds all that the workload counted, and nothing else; elsewhere a latency is None, as that of a
rate that was not sustained. Percentiles are exact: microseconds are what they are told in.

Next: wins.py.
"""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

from ...compare.measure import PERCENTILES
from ..trace import ABORTED, COMMITTED, UNDETERMINED
from .folders import TracedRun
from .loading import IS_ABORTED, IS_COMMITTED, IS_UNDETERMINED, LANE, TX, Traces, among

SCHEMA_VERSION = 1
CURVE = (
    *(0.001, 0.002, 0.005, 0.01),
    *(n / 50 for n in range(1, 50)),
    *(0.99, 0.995, 0.998, 0.999, 1.0),
)
"""Shares at which a distribution is told."""
BUCKET_S = 0.5
MOMENTS = ("begin", "staged", "proposed", "planned", "decided", "visible", "reply")
LATENCIES = ("write_ms", "commit_ms", "visible_ms", "end_to_end_ms")
_AT_A_RATE = ("reshard", "plain")
_OF_ALL = ("reshard", "chain", "plain-beside")
_COSTS = (
    *("requests", "messages", "appends", "syncs", "hops", "hops_visible"),
    *("client_bytes", "tablet_bytes", "participants"),
)
_BATCH = ("intended", "written", "published", "read")


def told(run: TracedRun, entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Latencies that the run has; `entry`: what the comparison says of its cell, {} where there is none."""
    cell = run.cell
    if not cell or run.about.get("sustained") is False:
        return ()
    if entry.get("verified") is False or entry.get("sustained") is False:
        return ()
    paced = cell["workload"] in _AT_A_RATE and cell["shape"]["rate"] is not None
    of_all = cell["workload"] in _OF_ALL
    return (
        *(("write_ms", "end_to_end_ms") if paced else ()),
        *(("commit_ms", "visible_ms") if of_all else ()),
    )


class Figures:
    """`told`: by run, the names of the latencies that it has."""

    def __init__(self, traces: Traces, told: Mapping[int, Iterable[str]]) -> None:
        self._traces, self._told = traces, told
        self._batches = traces.keep(
            traces.sql(
                f"""select *, run * {TX} + tx as t, run * {LANE} + lane as l from {{told}}""",
                told=traces.table("batches"),
            )
        )
        self._done = traces.sql(
            f"""select run, run * {TX} + tx as t, {", ".join(("tx", *MOMENTS, *_COSTS))}
            from {{told}} where outcome = '{COMMITTED}'""",
            told=traces.table("transactions"),
        )

    def of(self, runs: Iterable[TracedRun]) -> dict[str, Any]:
        """By name of run, as docs/compare.md has it."""
        latencies, phases, costs = self._latencies(), self._phases(), self._costs()
        examples, throughput = self._examples(), self._throughput()
        resources, outcomes = self._resources(), self._outcomes()
        made = {}
        for run in runs:
            cell = run.cell or {"options": {}}
            options = cell["options"]
            made[run.name] = {
                "workload": cell.get("workload"),
                "system": cell.get("system"),
                "durability": options.get("durability"),
                "placement": options.get("placement"),
                "repeat": cell.get("repeat"),
                "outcomes": outcomes.get(run.number, dict.fromkeys(_OUTCOMES.values(), 0)),
                "latencies": {name: latencies.get((run.number, name)) for name in LATENCIES},
                "throughput": {"bucket_s": BUCKET_S, "points": throughput.get(run.number, [])},
                "phases": {
                    "moments": list(MOMENTS),
                    "medians_ms": {
                        name: (phases.get((run.number, name)) or {}).get("p50")
                        for name in MOMENTS[1:]
                    },
                    "example": examples.get(run.number),
                },
                "costs": costs.get(run.number, dict.fromkeys(_COSTS)),
                "resources": {"points": resources.get(run.number, [])},
            }
        return {"schema_version": SCHEMA_VERSION, "source": "spark", "runs": made, "left_out": {}}

    # distributions -------------------------------------------------------------------------------

    def _having(self, name: str, column: str = "run") -> str:
        return among([run for run, names in self._told.items() if name in names], column)

    def _latencies(self) -> dict[tuple[int, str], dict[str, Any]]:
        taken = self._traces.sql(
            f"""select run, 'write_ms' as name, written - intended as ns from {{batches}}
              where {self._having("write_ms")}
            union all select run, 'commit_ms', reply - proposed from {{done}}
              where {self._having("commit_ms")}
            union all select run, 'visible_ms', visible - proposed from {{done}}
              where {self._having("visible_ms")}
            union all select run, 'end_to_end_ms', ns from {{end_to_end}}""",
            batches=self._batches,
            done=self._done,
            end_to_end=self._end_to_end(),
        )
        return self._distributions(taken)

    def _end_to_end(self) -> Any:
        """Each record that was shown to the batch that it came in: they meet in blocks of ordinals as long as a
        run's batches are, so one side is small enough to be sent everywhere."""
        traces = self._traces
        partitions = traces.values(
            "l bigint, source bigint", [(lane.l, lane.partition) for lane in traces.lanes]
        )
        runs = traces.sql(
            f"""select run, cast(greatest(1, avg(records)) as bigint) as block from {{batches}}
            where {self._having("end_to_end_ms")} group by run""",
            batches=self._batches,
        )
        blocks = traces.sql(
            """select b.run, source, begin, begin + records as end, intended, r.block as size,
              explode(sequence(begin div r.block, (begin + records - 1) div r.block)) as block
            from {batches} b join {partitions} p on b.l = p.l join {runs} r on b.run = r.run
            where records > 0""",
            batches=self._batches,
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

    def _distributions(self, taken: Any) -> dict[tuple[int, str], dict[str, Any]]:
        """Of (run, name, ns): count, percentiles by nearest rank, max, curve; milliseconds."""
        traces = self._traces
        counts = traces.keep(
            traces.sql(
                """select run, name, us, n, sum(n) over (partition by run, name order by us) as upto
                from (select run, name, round(ns / 1000) as us, count(*) as n
                  from {taken} where ns is not null group by run, name, us)""",
                taken=taken,
            )
        )
        totals = {
            (row.run, row.name): row.total
            for row in traces.sql(
                "select run, name, sum(n) as total from {counts} group by run, name", counts=counts
            ).collect()
        }
        shares = sorted({*CURVE, *(share for _, share in PERCENTILES)})
        ranks = {
            (run, name, min(total, max(1, ceil(share * total))))
            for (run, name), total in totals.items()
            for share in shares
        }
        found = {
            (row.run, row.name, row.rank): round(row.us / 1000, 3)
            for row in traces.sql(
                """select run, name, rank, us from (
                  select run, name, rank, last(known, true) over (partition by run, name
                    order by upto desc, rank nulls first
                    rows between unbounded preceding and current row) as us
                  from (select run, name, upto, null as rank, us as known from {counts}
                    union all select run, name, rank, rank, null from {ranks}))
                where rank is not null""",
                counts=counts,
                ranks=traces.values("run bigint, name string, rank bigint", sorted(ranks)),
            ).collect()
        }
        made = {}
        for (run, name), total in totals.items():

            def at(share: float, run: int = run, name: str = name, total: int = total) -> float:
                return float(found[run, name, min(total, max(1, ceil(share * total)))])

            made[run, name] = {
                "count": total,
                **{percentile: at(share) for percentile, share in PERCENTILES},
                "max": at(1.0),
                "curve": [[share, at(share)] for share in CURVE],
            }
        return made

    # transactions --------------------------------------------------------------------------------

    def _outcomes(self) -> dict[int, dict[str, int]]:
        made: dict[int, dict[str, int]] = {}
        for row in self._traces.sql(
            "select run, state, count(*) as n from {told} group by run, state",
            told=self._traces.transactions,
        ).collect():
            made.setdefault(row.run, dict.fromkeys(_OUTCOMES.values(), 0))[_OUTCOMES[row.state]] = (
                row.n
            )
        return made

    def _phases(self) -> dict[tuple[int, str], dict[str, Any]]:
        later = ", ".join(f"'{name}', {name} - begin" for name in MOMENTS[1:])
        return self._distributions(
            self._traces.sql(
                f"""select run, stack({len(MOMENTS) - 1}, {later}) as (name, ns) from {{done}}""",
                done=self._done,
            )
        )

    def _examples(self) -> dict[int, dict[str, Any]]:
        """The committed transaction of the median length, and its pieces."""
        traces = self._traces
        chosen = traces.keep(
            traces.sql(
                """select * from (
                  select *, row_number() over (partition by run order by reply - begin, tx) as row,
                    count(*) over (partition by run) as of
                  from {done} where reply is not null and begin is not null)
                where row = ceil(0.5 * of)""",
                done=self._done,
            )
        )
        made: dict[int, dict[str, Any]] = {}
        for row in chosen.collect():
            moments = {name: _since(row[name], row.begin) for name in MOMENTS}
            made[row.run] = {"tx": row.tx, "moments": moments, "batches": []}
        for row in traces.sql(
            f"""select /*+ broadcast(chosen) */ b.run, chosen.begin as since,
              {", ".join(f"b.{name}" for name in _BATCH)}
            from {{batches}} b join {{chosen}} chosen on b.t = chosen.t and b.tx >= 0""",
            batches=self._batches,
            chosen=chosen,
        ).collect():
            pieces = made[row.run]["batches"]
            pieces.append({name: _since(row[name], row.since) for name in _BATCH})
        for example in made.values():
            example["batches"].sort(key=lambda piece: piece["intended"] or 0.0)
        return made

    def _costs(self) -> dict[int, dict[str, float | None]]:
        means = ", ".join(f"avg({name}) as {name}" for name in _COSTS)
        rows = self._traces.sql(f"select run, {means} from {{done}} group by run", done=self._done)
        return {
            row.run: {name: None if row[name] is None else round(row[name], 4) for name in _COSTS}
            for row in rows.collect()
        }

    # over time -----------------------------------------------------------------------------------

    def _throughput(self) -> dict[int, list[list[float]]]:
        """Payload in the bucket of its commit's reply, plain writes' in that of their own."""
        width = int(BUCKET_S * 1e9)
        rows = self._traces.sql(
            f"""select run, at div {width} as bucket, sum(bytes) as bytes, sum(times) as times from (
              select run, reply as at, 0 as bytes, 1 as times from {{done}}
              union all select b.run, if(b.tx < 0, b.written, d.reply), b.bytes, 0
              from {{batches}} b left join {{done}} d on b.t = d.t and b.tx >= 0)
            where at is not null group by run, bucket""",
            done=self._done,
            batches=self._batches,
        ).collect()
        there = {(row.run, row.bucket): row for row in rows}
        made = {}
        for run in {row.run for row in rows}:
            last = max(row.bucket for row in rows if row.run == run)
            made[run] = [
                [
                    n * BUCKET_S,
                    round(found.bytes / 1e6 / BUCKET_S, 4) if found else 0.0,
                    found.times / BUCKET_S if found else 0.0,
                ]
                for n in range(last + 1)
                for found in [there.get((run, n))]
            ]
        return made

    def _resources(self) -> dict[int, list[list[float]]]:
        """What each moment had since the one before; memory as it was then."""
        then = "lag({0}) over w"

        def rate(column: str, unit: str = "1") -> str:
            return f"({column} - {then.format(column)}) / seconds / {unit}"

        rows = self._traces.sql(
            f"""select run, at / 1e9 as t, {rate("cpu_seconds")} as cpu, rss_bytes / 1e6 as rss,
              {rate("disk_bytes", "1e6")} as disk, {rate("syncs")} as syncs,
              {rate("(client_bytes + tablet_bytes)", "1e6")} as network, seconds
            from (select *, nullif((at - lag(at) over (partition by run order by at)) / 1e9, 0) as seconds
              from {{told}}) window w as (partition by run order by at)""",
            told=self._traces.table("resources"),
        ).collect()
        made: dict[int, list[list[float]]] = {}
        for row in sorted(rows, key=lambda row: row.t):
            if row.seconds:
                point = (row.t, row.cpu, row.rss, row.disk, row.syncs, row.network)
                made.setdefault(row.run, []).append([round(float(value), 4) for value in point])
        return made


_OUTCOMES = {IS_COMMITTED: COMMITTED, IS_ABORTED: ABORTED, IS_UNDETERMINED: UNDETERMINED}


def _since(moment: int | None, begin: int) -> float | None:
    return None if moment is None else round((moment - begin) / 1e6, 3)
