"""Checks with Spark, for prove.py, that transactions neither interleave in logs nor depend in a cycle.

    a log    A A B B A C      stretches of one owner: A again after B is the anomaly "internal send skip"
    edges    A→B B→A A→C      ww: the next one in a partition      wr: consumed the other one's records
    inputs   [0,3) [2,4)      of one consumer: offset 2 was used twice

It serves runs whose commits do not say their place in one order: those with data in place and of other systems
without places.

Transactions are numbered. A cycle needs a back edge, from a later number to an earlier one. Each back edge
spans the numbers between its ends; overlapping spans are merged, and a cycle lies within one of them:

    0 ─▶ 1 ─▶ 2 ─▶ 3 ─▶ 4 ─▶ 5 ─▶ 6 ─▶ 7          4 ─▶ 2: only edges within [2, 4] are kept, and so a graph
              ╰◀───────╯                           of millions is a few small ones

One task searches each span's edges, by forward and backward reach. The meaning, and the counts, are those of
bench/judges/python/logs.py's check_logs, which runs Tarjan's algorithm over all edges.

Next: percentiles.py, which prove.py runs after the checks.
"""

from collections.abc import Iterator
from typing import Any

from ..python import IN_PLACE, NONE
from ..python import findings as names
from ..trace import CONSUMER, INDIVIDUAL
from .loading import TX, Traces, among

WW, WR = 1, 2
_NEEDED = ((names.G0, WW, WW), (names.G1C, WR, WR), (names.G1C_WW, WW | WR, WR))
"""Name, edges that a cycle may have, edges of which it must have one."""


def check_logs(traces: Traces, log: Any) -> list[Any]:
    """Checks logs of runs without places; returns frames (run, name, n). `log`: see Delivery."""
    runs = traces.of_mode(IN_PLACE, NONE)
    stretches = traces.keep(_stretches(traces, log, runs))
    cycles = _cycles(traces, log, stretches, runs)
    return [_order(traces, stretches), _inputs(traces, runs), cycles]


def _stretches(traces: Traces, log: Any, runs: list[int]) -> Any:
    """Returns changes of owners: (run, l, offset, tx), and `before`, the owner of the record before."""
    return traces.sql(
        f"""select * from (
          select run, l, offset, owner as tx, lag(owner) over (partition by l order by offset) as before
          from {{log}} where {among(runs)} and owner >= 0 and owner < {traces.size})
        where before is null or before != tx""",
        log=log,
    )


def _inputs(traces: Traces, runs: list[int]) -> Any:
    """Checks that committed ranges of a consumer do not overlap."""
    individual = among([lane.l for lane in traces.lanes if lane.key == INDIVIDUAL], "l")
    return traces.sql(
        f"""select run, if({individual}, '{names.ACKNOWLEDGED_TWICE}', '{names.USED_TWICE}') as name, 1 as n
        from (select run, l, begin, max(end) over (partition by l order by begin, end, tx, nth
            rows between unbounded preceding and 1 preceding) as reached
          from {{ranges}} where not produces and ranked and {among(runs)})
        where begin < reached""",
        ranges=traces.ranges,
    )


def _order(traces: Traces, stretches: Any) -> Any:
    owned = traces.with_owner(
        traces.sql(f"select *, run * {TX} + tx as t from {{s}}", s=stretches), "t", "worker, reply"
    )
    later = traces.sql(
        f"""select run, tx, reply, again, run * {TX} + later as t, later from (
          select *, row_number() over (partition by l, tx order by offset) > 1 as again,
            max(tx) over (partition by l, coalesce(worker, '') order by offset
              rows between unbounded preceding and 1 preceding) as later
          from {{owned}})
        where again or later > tx""",
        owned=owned,
    )
    return traces.sql(
        f"""select run, if(again, '{names.INTERNAL_SEND_SKIP}', '{names.NON_MONOTONIC_SEND}') as name,
          count(*) as n from {{later}} where again or reply <= begin group by run, again""",
        later=traces.with_owner(later, "t", "begin"),
    )


# cycles ------------------------------------------------------------------------------------------


def _cycles(traces: Traces, log: Any, stretches: Any, runs: list[int]) -> Any:
    edges = traces.keep_sql(
        f"""select run, a, b, bit_or(kind) as kind from (
          select run, before as a, tx as b, {WW} as kind from {{stretches}} where before is not null
          union all
          select run, a, b, {WR} from {{consumed}}) group by run, a, b""",
        stretches=stretches,
        consumed=_consumed(traces, log, runs),
    )
    spans = traces.sql(
        """select run, span, min(low) as low, max(high) as high from (
          select run, low, high, sum(if(reached is null or low > reached, 1, 0)) over
            (partition by run order by low, high) as span
          from (
            select run, b as low, a as high, max(a) over (partition by run order by b, a
              rows between unbounded preceding and 1 preceding) as reached
            from {edges} where a > b))
        group by run, span""",
        edges=edges,
    )
    inside = traces.sql(
        """select e.run, s.span, e.a, e.b, e.kind from {edges} e join {spans} s
        on e.run = s.run and e.a >= s.low and e.a <= s.high and e.b >= s.low and e.b <= s.high""",
        edges=edges,
        spans=spans,
    )
    counts = inside.groupBy("run", "span").applyInArrow(_count, "run bigint, name string, n bigint")
    return traces.sql("select * from {counts} where n > 0", counts=counts)


def _consumed(traces: Traces, log: Any, runs: list[int]) -> Any:
    """Returns edges from writers (a) to consumers (b), by each range's highest record, if inputs are outputs."""
    consumers = [lane for lane in traces.lanes if lane.kind == CONSUMER]
    pairs = [(lane.l, traces.input_of(lane)) for lane in consumers if traces.input_of(lane) >= 0]
    return traces.sql(
        f"""select run, owner as a, taken as b from (
          select run, is_end, begin, taken, last(if(is_end, null, offset), true) over w as highest,
            last(if(is_end, null, owner), true) over w as owner
          from (
            select run, l, offset, owner, false as is_end, null as begin, null as taken from {{log}}
            where l in (select source from {{pairs}}) and {among(runs)}
            union all
            select /*+ broadcast(pairs) */ r.run, pairs.source, r.end - 1, null, true, r.begin, r.tx
            from {{ranges}} r join {{pairs}} pairs on r.l = pairs.l
            where not r.produces and r.ranked and {among(runs, "r.run")})
          window w as (partition by l order by offset, is_end
            rows between unbounded preceding and current row))
        where is_end and highest >= begin and owner >= 0 and owner != taken""",
        log=log,
        ranges=traces.ranges,
        pairs=traces.values("l bigint, source bigint", pairs),
    )


def _count(table: Any) -> Any:
    """Counts cycles of one span."""
    import pyarrow as pa

    edges = list(zip(*(table.column(name).to_pylist() for name in ("a", "b", "kind")), strict=True))
    counts = []
    for _, may, must in _NEEDED:
        allowed = [(a, b) for a, b, kind in edges if kind & may]
        home = {tx: n for n, part in enumerate(components(allowed)) for tx in part}
        needed = [(a, b) for a, b, kind in edges if kind & must]
        counts.append(len({home[a] for a, b in needed if home.get(a, -1) == home.get(b, -2)}))
    run = table.column("run")[0].as_py()
    return pa.table(
        {
            "run": pa.array([run] * len(counts), pa.int64()),
            "name": [name for name, _, _ in _NEEDED],
            "n": pa.array(counts, pa.int64()),
        }
    )


def components(edges: list[tuple[int, int]]) -> Iterator[set[int]]:
    """Yields sets of more than one node that all reach one another.

    This is Kosaraju's algorithm: find the order in which searches end, then, latest first, the nodes that reach
    each.
    """
    forward: dict[int, list[int]] = {}
    backward: dict[int, list[int]] = {}
    for a, b in edges:
        if a != b:
            forward.setdefault(a, []).append(b)
            backward.setdefault(b, []).append(a)
    assigned: set[int] = set()
    for root in reversed(_by_end(forward)):
        if root in assigned:
            continue
        component, todo = {root}, [root]
        while todo:
            new = {to for to in backward.get(todo.pop(), ()) if to not in assigned} - component
            component |= new
            todo += new
        assigned |= component
        if len(component) > 1:
            yield component


def _by_end(forward: dict[int, list[int]]) -> list[int]:
    """Returns nodes in the order in which a depth-first search from each ends."""
    ended: list[int] = []
    visited: set[int] = set()
    for root in forward:
        if root in visited:
            continue
        visited.add(root)
        path = [(root, iter(forward[root]))]
        while path:
            tx, following = path[-1]
            node = next((node for node in following if node not in visited), None)
            if node is None:
                ended.append(tx)
                path.pop()
            else:
                visited.add(node)
                path.append((node, iter(forward.get(node, ()))))
    return ended
