"""Checks reads without a place in an order: each must have seen something that was.

    a transaction aborted, or nobody knows how it ended    its reads
    a run without places                                   all reads
    seen: a value that an aborted one wrote      dirty      a value that no transaction wrote      foreign

The meaning, and the counts, are those of bench/judges/python/certificate.py's check_unordered_reads.

Next: reader.py, another of prove.py's checks.
"""

from typing import Any

from ..python import PLANNED
from ..python import findings as names
from ..trace import READ, WRITE
from .loading import IS_ABORTED, IS_COMMITTED, LANE, TX, Traces, among


def check_unordered_reads(traces: Traces) -> list[Any]:
    """Returns frames (run, name, n)."""
    placed = among(traces.of_mode(PLANNED))
    reads = traces.keep_sql(
        f"""select run, l, tx, version, state, run * {TX} + version as t from {{operations}}
        where version >= 0 and version != tx and not (ranked and {placed})""",
        operations=traces.operations(READ),
    )
    if reads.isEmpty():
        return []
    written = traces.sql(
        f"""select distinct w.l, w.tx from (select run, run * {LANE} + lane as l, tx from {{operations}}
          where op = '{WRITE}') w
        join (select distinct l, version from {{reads}}) r on w.l = r.l and w.tx = r.version""",
        operations=traces.table("operations"),
        reads=reads,
    )
    named = traces.sql(
        f"""select run, case when state_then = {IS_ABORTED}
            then if(state = {IS_COMMITTED}, '{names.DIRTY_READ}', '{names.UNCOMMITTED_DIRTY_READ}')
          when w.tx is null
            then if(state = {IS_COMMITTED}, '{names.FOREIGN_READ}', '{names.UNCOMMITTED_FOREIGN_READ}')
          end as name, 1 as n
        from {{owned}} r left join {{written}} w on r.l = w.l and r.version = w.tx""",
        owned=traces.with_owner(reads, "t", "state as state_then"),
        written=written,
    )
    return [named]
