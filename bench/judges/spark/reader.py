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
    found = traces.sql(
        f"""select f.*, stored from (
          select run, l, max(upto) as upto,
            count_if({_AGAIN} and poll = before) as internal_again,
            count_if({_AGAIN} and poll != before) as again,
            count_if({_SKIP} and poll = before) as internal_skip,
            count_if({_SKIP} and poll != before) as skip,
            count_if(first and at >= 0 and at < proposed) as early,
            count_if(outcome = {IS_ABORTED}) + count_if({_DIFFERS} and not there
              and outcome != {IS_COMMITTED} and tx >= 0) as aborted,
            count_if({_DIFFERS} and there) as moved,
            count_if({_DIFFERS} and not there and (outcome = {IS_COMMITTED} or tx < 0)) as lost
          from {{owned}} group by run, l) f
        left join (select l, count(*) as stored from {{log}} group by l) s on f.l = s.l""",
        owned=_owned(traces, _pairs(traces, log)),
        log=log,
    )
    counts = {
        names.INTERNAL_NON_MONOTONIC_POLL: "internal_again",
        names.NON_MONOTONIC_POLL: "again",
        names.INTERNAL_POLL_SKIP: "internal_skip",
        names.POLL_SKIP: "skip",
        names.PRECOMMITTED_READ: "early",
        names.ABORTED_READ: "aborted",
        names.INCONSISTENT_OFFSET: "moved",
        names.LOST: "lost",
        names.UNSEEN: "coalesce(stored, 0) - upto",
    }
    pairs = ", ".join(f"'{name}', {count}" for name, count in counts.items())
    anomalies = f"select run, stack({len(counts)}, {pairs}) as (name, n) from {{found}}"
    return [traces.sql("select * from {all} where n > 0", all=traces.sql(anomalies, found=found))]


_AGAIN = "last >= 0 and offset <= last"
_SKIP = "last >= 0 and offset > last + 1 and upto - if(there, 1, 0) > reached"
_DIFFERS = f"not (same or (outcome = {IS_ABORTED} and tx >= 0))"


def _pairs(traces: Traces, log: Any) -> Any:
    """Returns seen records with the stored ones at their offsets.

    `there`: a record lies at its offset, `same`: with its identity; `owner`: its transaction; `upto`: stored
    records up to it.
    """
    return traces.sql(
        """select run, l, nth, poll, at, offset, tx, upto, upto > 0 and final.offset = offset as there,
          upto > 0 and final.offset = offset and final.source = source and final.ordinal = ordinal
            and final.tx = tx as same,
          case when tx >= 0 then tx when final.offset = offset then final.owner else -1 end as owner
        from (
          select *, count(if(nth is null, 1, null)) over w as upto,
            last(if(nth is null, struct(offset, source, ordinal, tx, owner), null), true) over w as final
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


def _owned(traces: Traces, pairs: Any) -> Any:
    """Adds what was seen before: offset `last`, poll `before`, `reached`; and the owner's `outcome`, `proposed`.

    `first`: of its owner in its poll.
    """
    following = traces.sql(
        f"""select *, if(owner >= 0, run * {TX} + owner, null) as t, lag(offset) over w as last,
          lag(poll) over w as before, lag(upto) over w as reached,
          coalesce(owner != lag(owner) over w or poll != lag(poll) over w, true) as first
        from {{pairs}} window w as (partition by l order by nth)""",
        pairs=pairs,
    )
    return traces.sql(
        f"""select *, coalesce(state, if(owner >= 0 and owner < {traces.size}, {IS_UNDETERMINED}, {ABSENT}))
            as outcome from {{owned}}""",
        owned=traces.with_owner(following, "t", "state, proposed"),
    )
