"""Checks the follower's records against those of the store at the end: Kafka's list of anomalies.

    seen ∪ stored, by partition in order of offsets    each seen record meets the stored one at its offset
    seen, in order of arrival                          each follows the one before, poll by poll

The number of records between two seen ones is a difference of two counts (`upto`), without a look-up. The meaning,
and the counts, are those of bench/judges/python/logs.py's check_reader.

Next: logs.py.
"""

from typing import Any

from ..python import findings as names
from .loading import ABSENT, IS_ABORTED, IS_COMMITTED, IS_UNDETERMINED, TX, Traces


def check_reader(traces: Traces, log: Any) -> list[Any]:
    """Returns frames (run, name, n). `log`: see Delivery."""
    pairs = traces.keep(_pairs(traces, log))
    unseen = traces.sql(
        f"""select run, '{names.UNSEEN}' as name, max(stored) - max(upto) as n from {{pairs}}
        group by run, l having max(stored) > max(upto)""",
        pairs=pairs,
    )
    polls = traces.sql(
        f"""select run, case when offset <= last and poll = before then '{names.INTERNAL_NON_MONOTONIC_POLL}'
            when offset <= last then '{names.NON_MONOTONIC_POLL}'
            when poll = before then '{names.INTERNAL_POLL_SKIP}' else '{names.POLL_SKIP}' end as name, 1 as n
        from (
          select run, offset, poll, upto, there, lag(offset) over w as last, lag(poll) over w as before,
            lag(upto) over w as reached
          from {{pairs}} window w as (partition by l order by nth))
        where last >= 0 and (offset <= last
          or (offset > last + 1 and upto - if(there, 1, 0) > reached))""",
        pairs=pairs,
    )
    return [unseen, polls, _whose(traces, pairs)]


def _pairs(traces: Traces, log: Any) -> Any:
    """Returns seen records with the stored ones at their offsets.

    `there`: a record lies at its offset, `same`: with its identity; `owner`: its transaction; `upto`: stored
    records up to it, of `stored` in all.
    """
    return traces.sql(
        """select run, l, nth, poll, at, offset, tx, upto, stored, upto > 0 and final.offset = offset as there,
          upto > 0 and final.offset = offset and final.source = source and final.ordinal = ordinal
            and final.tx = tx as same,
          case when tx >= 0 then tx when final.offset = offset then final.owner else -1 end as owner
        from (
          select *, count(if(nth is null, 1, null)) over w as upto,
            last(if(nth is null, struct(offset, source, ordinal, tx, owner), null), true) over w as final,
            count(if(nth is null, 1, null)) over (partition by l) as stored
          from (
            select run, l, offset, source, ordinal, tx, owner, null as nth, null as poll, null as at from {log}
            where l in (select distinct l from {seen})
            union all
            select run, l, offset, source, ordinal, tx, null, nth, poll, at from {seen})
          window w as (partition by l order by offset, nth nulls first
            rows between unbounded preceding and current row))
        where nth is not null""",
        log=log,
        seen=traces.seen,
    )


def _whose(traces: Traces, pairs: Any) -> Any:
    """Notes records of transactions that had not asked to commit, or aborted; and records missing at the end."""
    firsts = traces.sql(
        f"""select run, l, at, there, same, tx, owner, if(owner >= 0, run * {TX} + owner, null) as t,
          coalesce(owner != lag(owner) over w or poll != lag(poll) over w, true) as first
        from {{pairs}} window w as (partition by l order by nth)""",
        pairs=pairs,
    )
    owned = traces.sql(
        f"""select /*+ broadcast(sizes) */ k.*,
          coalesce(state, if(owner >= 0 and owner < size, {IS_UNDETERMINED}, {ABSENT})) as outcome
        from {{owned}} k left join {{sizes}} sizes on k.run = sizes.run""",
        owned=traces.with_owner(firsts, "t", "state, proposed"),
        sizes=traces.sizes,
    )
    return traces.sql(
        f"""select run, stack(3,
            if(first and at >= 0 and at < proposed, '{names.PRECOMMITTED_READ}', null),
            if(outcome = {IS_ABORTED}, '{names.ABORTED_READ}', null),
            case when same or (outcome = {IS_ABORTED} and tx >= 0) then null
              when there then '{names.INCONSISTENT_OFFSET}'
              when outcome = {IS_COMMITTED} or tx < 0 then '{names.LOST}' else '{names.ABORTED_READ}' end) as name,
          1 as n
        from {{owned}} where not same or outcome = {IS_ABORTED} or (first and at < proposed)""",
        owned=owned,
    )
