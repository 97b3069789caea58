"""Checks with Spark, for prove.py, that transactions fit the places that their commits claim in one order.

    place order     T1 ── T2 ── T3 │ T4 ── T5 ── T6 │ T7 …      buckets of steps
    real time       ◀── earliest reply of later places           within a bucket; the driver adds later buckets
    rows            last write before a read                     by row; of a hot row by bucket, with the last
                                                                 writer before the bucket
    positions       how far consumers had come                   by consumer and partition
    offsets         how far published offsets had come           by partition

A place is (step, n): the number of a group of transactions, and the position in it. It is the commit's
certificate. Since the order is known, each check is a SQL window over a part of it.

Every window frame ends before or at its row. A frame from the row to the end would be computed anew for each row.
For real time the order is reversed instead.

The meaning, and the counts, are bench/judges/python/certificate.py's.

Next: unordered.py, another of prove.py's checks.
"""

from typing import Any

from ..python import PLANNED
from ..python import findings as names
from ..trace import READ, WRITE
from .loading import (
    BEHIND_ALL,
    IS_ABORTED,
    IS_COMMITTED,
    IS_UNDETERMINED,
    TX,
    Traces,
    among,
    by_run,
)

BUCKETS = 32
"""The number of buckets that a run's steps are divided into."""
_BEFORE = "rows between unbounded preceding and 1 preceding"


class Certificates:
    """The certificate checks of runs of kind "planned". Each returns frames (run, name, n)."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self._placed = traces.sql(
            "select * from {transactions} where ranked and places", transactions=traces.transactions
        )
        steps = [layout.steps for layout in traces.layouts]
        self._step = f"(step - {by_run(low for low, _ in steps)})"
        width = by_run((high - low) // BUCKETS + 1 for low, high in steps)
        self._bucket = f"{self._step} div {width}"

    def places(self) -> list[Any]:
        """Checks that each committed transaction has one place, and no other transaction has any."""
        repeated = self._traces.sql(
            f"""select run, '{names.PLACE_REPEATED}' as name, count(*) - 1 as n from {{placed}}
            where n != {BEHIND_ALL} group by run, step, n having count(*) > 1""",
            placed=self._placed,
        )
        outcomes = self._traces.sql(
            f"""select run, if(state = {IS_COMMITTED}, '{names.PLACE_MISSING}', '{names.PLACE_OF_ABORTED}') as name,
              1 as n
            from {{transactions}} where places and ((state = {IS_COMMITTED} and not placed)
              or (state = {IS_ABORTED} and placed))""",
            transactions=self._traces.transactions,
        )
        return [repeated, outcomes]

    def real_time(self) -> list[Any]:
        """Checks that no transaction began after the reply to one with a later place."""
        traces = self._traces
        bucketed = traces.sql(
            f"""select run, {self._bucket} as bucket, {self._step} * {BEHIND_ALL + 1} + n as at,
              begin, reply from {{placed}}""",
            placed=self._placed,
        )
        replies = traces.sql(
            "select run, bucket, min(reply) as reply from {b} group by run, bucket", b=bucketed
        ).collect()
        earliest: dict[tuple[int, int], int | None] = {
            (row.run, row.bucket): row.reply for row in replies
        }
        behind = []
        for run in {row.run for row in replies}:
            least: int | None = None
            for bucket in range(BUCKETS, -1, -1):
                behind.append((run, bucket, least))
                known = [one for one in (least, earliest.get((run, bucket))) if one is not None]
                least = min(known, default=None)
        late = traces.sql(
            f"""select run, '{names.REAL_TIME}' as name, 1 as n from (
              select /*+ broadcast(behind) */ b.run, begin, least(behind.reply, min(b.reply) over
                (partition by b.run, b.bucket order by at desc
                 range between unbounded preceding and 1 preceding)) as earliest
              from {{bucketed}} b join {{behind}} behind
              on b.run = behind.run and b.bucket = behind.bucket)
            where begin > earliest""",
            bucketed=bucketed,
            behind=traces.values("run bigint, bucket bigint, reply bigint", behind),
        )
        return [late]

    # rows ----------------------------------------------------------------------------------------

    def reads(self) -> list[Any]:
        """Checks that each read saw the last write before it.

        A write of an undetermined transaction counts from the first read that saw it: in the order a write of that
        version follows that read (`late`).
        """
        traces = self._traces
        operations = traces.sql(
            f"""select run, l, tx, step, n, nth, op = '{WRITE}' as writes, version, ranked, state
            from {{operations}} where {among(traces.of_mode(PLANNED))}""",
            operations=traces.operations(READ, WRITE),
        )
        late = traces.values(
            "run bigint, l bigint, version bigint, step bigint, n bigint, tx bigint, nth bigint", []
        )
        if not all(traces.layouts[run].is_settled for run in traces.of_mode(PLANNED)):
            late = traces.keep(self._late(operations))
        events = traces.sql(
            """select run, l, tx, step, n, nth, writes, false as late, version, if(writes, tx, null) as w
            from {operations} where ranked
            union all
            select run, l, tx, step, n, nth, false, true, version, version from {late}""",
            operations=operations,
            late=late,
        )
        wrong = traces.keep_sql(
            f"""select m.run, m.l, m.tx, m.step, m.n, m.version, m.run * {TX} + m.version as t from (
              select *, coalesce(last(w, true) over
                (partition by l, bucket order by step, n, tx, writes, nth, late {_BEFORE}),
                carried, -1) as before
              from {{bucketed}}) m
            left anti join {{late}} late on m.l = late.l and m.nth = late.nth
            where not m.writes and not m.late and m.version != m.before""",
            bucketed=self._bucketed(events),
            late=late,
        )
        if wrong.isEmpty():
            return []
        return [self._named(wrong, operations)]

    def _late(self, operations: Any) -> Any:
        """Returns the first reads of versions without a known place."""
        return self._traces.sql(
            f"""select run, l, version, at.* from (
              select o.run, o.l, o.version, min(struct(o.step, o.n, o.tx, o.nth)) as at
              from {{operations}} o join (select distinct l, tx from {{operations}}
                where writes and not ranked and state != {IS_ABORTED}) d
              on o.l = d.l and o.version = d.tx
              where o.ranked and not o.writes group by o.run, o.l, o.version)""",
            operations=operations,
        )

    def _bucketed(self, events: Any) -> Any:
        """Returns events with their buckets, 0 except for hot rows; `carried`: the last writer before a bucket."""
        traces = self._traces
        if not traces.hot:
            return traces.sql(
                "select *, 0L as bucket, null as carried from {events}", events=events
            )
        hot = among(traces.hot, "l")
        bucketed = traces.sql(
            f"select *, if({hot}, {self._bucket}, 0) as bucket from {{events}}", events=events
        )
        carried = traces.sql(
            f"""select l, bucket, last(w, true) over (partition by l order by bucket {_BEFORE}) as w
            from (select l, bucket, max_by(w, struct(step, n, tx, writes, nth, late))
                filter (where w is not null) as w
              from {{bucketed}} where {hot} group by l, bucket)""",
            bucketed=bucketed,
        )
        return traces.sql(
            """select /*+ broadcast(c) */ b.*, c.w as carried
            from {bucketed} b left join {carried} c on b.l = c.l and b.bucket = c.bucket""",
            bucketed=bucketed,
            carried=carried,
        )

    def _named(self, wrong: Any, operations: Any) -> Any:
        """Names the anomalies of reads that are not of the last version."""
        facts = "state as state_then, ranked as ranked_then, step as step_then, n as n_then"
        owned = self._traces.with_owner(wrong, "t", facts)
        return self._traces.sql(
            f"""select k.run, case when k.version < 0 then '{names.STALE_READ}'
                when k.version >= size then '{names.FOREIGN_READ}'
                when state_then = {IS_ABORTED} then '{names.DIRTY_READ}'
                when w.tx is null then '{names.FOREIGN_READ}'
                when ranked_then and struct(step_then, n_then, k.version) >= struct(k.step, k.n, k.tx)
                  then '{names.FUTURE_READ}'
                else '{names.STALE_READ}' end as name, 1 as n
            from (select *, {self._traces.size} as size from {{owned}}) k
            left join (select distinct l, tx from {{operations}} where writes) w
            on k.l = w.l and k.version = w.tx""",
            owned=owned,
            operations=operations,
        )

    # positions and offsets -----------------------------------------------------------------------

    def positions(self) -> list[Any]:
        """Checks that consumed ranges tile, in the one order, from 0 on.

        Ranges of undetermined transactions may fill a gap: any of their attempts may count.
        """
        traces = self._traces
        ranges = traces.sql(
            f"select * from {{ranges}} where not produces and {among(traces.of_mode(PLANNED))}",
            ranges=traces.ranges,
        )
        wrong = traces.keep_sql(
            f"""select run, l, at, begin from (
              select *, greatest(0, coalesce(max(end) over (partition by l
                order by step, n, tx, nth {_BEFORE}), 0)) as at
              from {{ranges}} where ranked) where begin != at""",
            ranges=ranges,
        )
        if wrong.isEmpty():
            return []
        bridged = traces.values("l bigint, at bigint, begin bigint", self._bridged(wrong, ranges))
        anomalies = traces.sql(
            f"""select run, if(w.begin > w.at, '{names.POSITION_GAP}', '{names.POSITION_OVERLAP}') as name, 1 as n
            from {{wrong}} w left anti join {{bridged}} b
            on w.l = b.l and w.at = b.at and w.begin = b.begin""",
            wrong=wrong,
            bridged=bridged,
        )
        return [anomalies]

    def _bridged(self, wrong: Any, ranges: Any) -> list[tuple[int, int, int]]:
        """Returns the few gaps that ranges of undetermined ones fill: such a range begins where the gap does."""
        gaps = self._traces.sql(
            f"""select distinct w.l, w.at, w.begin, r.begin as from_, r.end as to
            from {{wrong}} w join {{ranges}} r on w.l = r.l
            where w.begin > w.at and r.state = {IS_UNDETERMINED} and r.begin >= w.at and r.end <= w.begin""",
            wrong=wrong,
            ranges=ranges,
        ).collect()
        steps: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
        for row in gaps:
            steps.setdefault((row.l, row.at, row.begin), []).append((row.from_, row.to))
        bridged = []
        for (lane, at, begin), spans in steps.items():
            reached = {at}
            for start, end in sorted(spans):  # ranges lead forward, so one pass by begin is enough
                if start in reached:
                    reached.add(end)
            if begin in reached:
                bridged.append((lane, at, begin))
        return bridged

    def offsets(self, log: Any) -> list[Any]:
        """Checks that offsets returned by commits tile, and that a log has no holes.

        Between them may be records without a transaction, or of one whose owner got no reply.
        """
        traces = self._traces
        runs = among(traces.of_mode(PLANNED))
        holes = traces.sql(
            f"""select run, '{names.OFFSET_GAP}' as name, 1 as n from (
              select run, offset, lag(offset) over (partition by l order by offset) as before
              from {{log}} where {runs}) where offset > before + 1""",
            log=log,
        )
        wrong = traces.keep_sql(
            f"""select run, l, begin, at from (
              select p.run, p.l, p.begin, greatest(coalesce(first, -1), coalesce(max(p.end) over
                (partition by p.l order by p.step, p.n, p.tx, p.nth {_BEFORE}), -1)) as at
              from {{ranges}} p left join
                (select l, min(offset) as first from {{log}} where {runs} group by l) f on p.l = f.l
              where p.produces and p.ranked and {among(traces.of_mode(PLANNED), "p.run")})
            where begin >= 0 and at >= 0 and begin != at""",
            ranges=traces.ranges,
            log=log,
        )
        if wrong.isEmpty():
            return [holes]
        unfilled = traces.sql(
            f"""select w.run, if(w.begin > w.at, '{names.OFFSET_GAP}', '{names.OFFSET_OVERLAP}') as name, 1 as n
            from {{wrong}} w left join {{owned}} a on w.l = a.l and w.at = a.offset
            left join {{owned}} b on w.l = b.l and w.begin - 1 = b.offset
            where w.begin < w.at
              or coalesce(b.others - a.others + a.other, 0) != w.begin - w.at""",
            wrong=wrong,
            owned=self._of_others(log, wrong),
        )
        return [holes, unfilled]

    def _of_others(self, log: Any, wrong: Any) -> Any:
        """Returns (l, offset) of partitions with gaps.

        `other`: the record has no transaction, or one whose owner got no reply; `others`: the running count of
        these.
        """
        traces = self._traces
        records = traces.sql(
            f"""select l, offset, if(owner >= 0, run * {TX} + owner, null) as t from {{log}}
            where l in (select distinct l from {{wrong}})""",
            log=log,
            wrong=wrong,
        )
        return traces.sql(
            f"""select l, offset, other, sum(other) over (partition by l order by offset) as others
            from (select l, offset,
              if(coalesce(state, 0) in ({IS_COMMITTED}, {IS_ABORTED}), 0, 1) as other from {{records}})""",
            records=traces.with_owner(records, "t", "state"),
        )
