"""Checks delivery, exactly once and in order: consumed ranges are joined with the input, and with the store.

    consumed ranges × inputs ─▶ points   each record that a topic that is fed must hold, with its transaction
    points ∪ records, in one sort by (topic, source, ordinal)
        a record without a point   foreign, or of an aborted one        a second record   repeated
        a point without a record   lost
    records by (lane, owner) ∪ PRODUCE operations ─▶ parts: numbers of expected and of stored records
        fewer   lost, or torn where another part is whole               more              foreign
    records by (lane, source), in order of offsets                      a step back       reordered

The meaning is that of ../python/delivery.py; the method is a sort and a window in place of its dictionaries. An
input's records are those of inputs.parquet, or of the store if the input is an output, too. Without either an
input record's identity is its partition and offset.

Counts differ if one input was consumed twice: an output record that names no transaction then belongs to the one
with the higher number here, for the checker to the one that consumed at the higher offset.

Next: certificate.py.
"""

from typing import Any

from ..python import findings as names
from .loading import (
    ABSENT,
    IS_ABORTED,
    IS_COMMITTED,
    IS_UNDETERMINED,
    LANE,
    TX,
    Traces,
    among,
)

EXPECTED, DOUBTFUL, GIVEN_UP = range(3)
"""Kinds of points: of committed ranges, and of gaps between these; of undetermined and of aborted ones."""
EXPLAINED, OF_NOBODY, OF_GIVEN_UP = range(3)
BLOCK = 16
"""Offsets in a block: ranges and records are joined by block, then compared."""
NOT_COUNTED = -2
"""Takes the place of the owner of a record that is already noted."""


class Delivery:
    """The delivery checks; `log` has all records with owners, by lane, for later checks."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self._looked_at = traces.values("l bigint, o bigint", traces.looked_at.items())
        claims = self._claims()
        self._records = self._by_lane(self._placed())
        self._by_owner = self._parts(self._records, claims)
        self._wrong = None
        self._flags = self._flagged()
        if self._flags.uncounted:
            wrong = traces.keep(self._uncounted(self._by_owner))
            if not wrong.isEmpty():
                self._wrong = wrong
                self._records = self._by_lane(self._counted(self._records, wrong))
                self._by_owner = self._parts(self._records, claims)
                self._flags = self._flagged()
        if any(self._flags):
            self._by_owner = traces.keep(self._by_owner)
        self.log = traces.sql(
            f"""select l div {LANE} as run, l, offset, source, ordinal, tx, owner, nth
            from {{records}} where l is not null""",
            records=self._records,
        )

    def _flagged(self) -> Any:
        """Returns a row of flags: which of the checks of parts and records can find anything.

        One pass over both, and where nothing is wrong the plans of these checks need not be made.
        """
        return self._traces.sql(
            """select max(short) as short, max(more) as more, max(shifted) as shifted,
              max(uncounted) as uncounted, max(missing) as missing, max(doubtful) as doubtful from (
              select max(got < claims) as short, max(got > claims) as more,
                max(offset != first) as shifted, max((claims is null and owner >= 0 and named > 0)
                  or of_nobody > 0 or of_given_up > 0) as uncounted,
                false as missing, false as doubtful from {parts}
              union all
              select false, false, false, false, max(l is null and expected is not null),
                max(doubtful is not null and expected is null) from {placed})""",
            parts=self._by_owner,
            placed=self._records,
        ).first()

    # expected records --------------------------------------------------------------------------

    def _points(self) -> Any:
        """Returns (o, source, ordinal, kind, tx) of each input record that was consumed."""
        traces = self._traces
        fed = traces.values(
            "l bigint, o bigint, partition bigint, inputs bigint",
            traces.fed,
        )
        consumed = traces.sql(
            f"""select /*+ broadcast(fed) */ fed.o, fed.partition, fed.inputs, c.l, c.begin, c.end,
              case when c.ranked then {EXPECTED} when c.state = {IS_UNDETERMINED} then {DOUBTFUL}
                when c.state = {IS_ABORTED} then {GIVEN_UP} end as kind, c.tx
            from {{ranges}} c join {{fed}} fed on c.l = fed.l where not c.produces""",
            ranges=traces.ranges,
            fed=fed,
        )
        between = traces.sql(
            f"""select o, partition, inputs, l, at as begin, begin as end, kind, -1L as tx from (
              select *, coalesce(max(end) over (partition by o, l order by begin, end
                rows between unbounded preceding and 1 preceding), 0) as at
              from {{consumed}} where kind = {EXPECTED}) where begin > at""",
            consumed=consumed,
        )
        spans = traces.sql(
            "select * from {consumed} where kind is not null and end > begin union all select * from {between}",
            consumed=consumed,
            between=between,
        )
        known = sorted({one.inputs for one in traces.fed} & traces.with_records)
        inputs = self._inputs(known)
        mine = among(known, "inputs")
        return traces.sql(
            f"""select o, partition as source, explode(sequence(begin, end - 1)) as ordinal, kind, tx
            from {{spans}} where not {mine}
            union all
            select s.o, i.source, i.ordinal, s.kind, s.tx from (
              select *, explode(sequence(begin div {BLOCK}, (end - 1) div {BLOCK})) as block
              from {{spans}} where {mine}) s
            join {{inputs}} i on s.inputs = i.l and s.block = i.block
            where i.offset >= s.begin and i.offset < s.end""",
            spans=spans,
            inputs=inputs,
        )

    def _inputs(self, lanes: list[int]) -> Any:
        """Returns the records of inputs, of those whose records are known."""
        return self._traces.sql(
            f"""select *, offset div {BLOCK} as block from (
              select l, offset, source, ordinal from {{inputs}}
              union all select l, offset, source, ordinal from {{records}})
            where {among(lanes, "l")}""",
            inputs=self._traces.inputs,
            records=self._traces.records,
        )

    # stored records ----------------------------------------------------------------------------

    def _placed(self) -> Any:
        """Returns records of the checked topics, with their owners; `nth` numbers equal ones.

        It also has a row without a lane (l) for each input record that has no output. `why`: EXPLAINED by
        consumption, or not.
        """
        traces = self._traces
        fed = among(sorted({one.o for one in traces.fed}), "o")
        return traces.sql(
            f"""select o, l, offset, source, ordinal, tx, nth, expected, doubtful,
              case when tx < 0 and expected < 0 and doubtful is null and given_up is not null
                  then {OF_GIVEN_UP}
                when not fed or expected is not null or doubtful is not null then {EXPLAINED}
                when given_up is null then {OF_NOBODY} else {OF_GIVEN_UP} end as why,
              if(fed and tx < 0, coalesce(expected, doubtful, tx), tx) as owner
            from (
              select o, l, offset, source, ordinal, tx, {fed} as fed,
                max(if(kind = {EXPECTED}, owner, null)) over w as expected,
                max(if(kind = {DOUBTFUL}, owner, null)) over w as doubtful,
                max(if(kind = {GIVEN_UP}, owner, null)) over w as given_up,
                count(l) over w as nth,
                lead(o) over (partition by o, source, ordinal order by l nulls first, offset)
                  is null as ends
              from (
                select o, source, ordinal, null as l, null as offset, null as tx, kind, tx as owner
                from {{points}}
                union all
                select /*+ broadcast(looked_at) */ looked_at.o, r.source, r.ordinal, r.l, r.offset,
                  r.tx, null, null
                from {{records}} r join {{looked_at}} looked_at on r.l = looked_at.l)
              window w as (partition by o, source, ordinal order by l nulls first, offset
                rows between unbounded preceding and current row))
            where l is not null or ends""",
            points=self._points(),
            records=traces.records,
            looked_at=self._looked_at,
        )

    def _claims(self) -> Any:
        """Returns by (l, owner): `records` that the owner wrote there, from offset `first` on."""
        return self._traces.sql(
            f"""select /*+ broadcast(looked_at) */ p.l, p.tx as owner, max(p.state) as state,
              sum(if(p.records != 0 or p.begin < 0 or not p.ranked, p.records, p.end - p.begin))
                as records, min(if(p.ranked and p.begin >= 0, p.begin, null)) as first
            from {{ranges}} p join {{looked_at}} looked_at on p.l = looked_at.l
            where p.produces and (p.ranked or p.state = {IS_UNDETERMINED})
            group by p.l, p.tx""",
            ranges=self._traces.ranges,
            looked_at=self._looked_at,
        )

    def _parts(self, placed: Any, claims: Any) -> Any:
        """Returns by (l, owner) expected and stored counts, in one aggregation of both."""
        return self._traces.sql(
            f"""select l, owner, l div {LANE} as run,
              max(state) as state, max(claims) as claims, max(first) as first,
              sum(got) as got, sum(named) as named, sum(unnamed) as unnamed,
              sum(of_nobody) as of_nobody, sum(of_given_up) as of_given_up, min(offset) as offset
            from (
              select l, owner, state, records as claims, first, 0 as got, 0 as named, 0 as unnamed,
                0 as of_nobody, 0 as of_given_up, null as offset from {{claims}}
              union all
              select l, owner, null, null, null, if(nth = 1 and why = {EXPLAINED}, 1, 0),
                if(why = {EXPLAINED} and tx >= 0, 1, 0), if(why = {EXPLAINED} and tx < 0, 1, 0),
                if(why = {OF_NOBODY}, 1, 0), if(why = {OF_GIVEN_UP}, 1, 0),
                if(why = {EXPLAINED}, offset, null)
              from {{placed}} where l is not null and o is not null)
            group by l, owner""",
            claims=claims,
            placed=placed,
        )

    def _uncounted(self, parts: Any) -> Any:
        """Returns parts with records that do not count.

        `all`: none of them counts; `named`: those that name the transaction do not. Unexplained ones never count.
        """
        traces = self._traces
        doubtful = traces.sql(
            f"""select *, if(owner >= 0, run * {TX} + owner, null) as t from {{parts}}
            where (claims is null and owner >= 0 and named > 0) or of_nobody > 0 or of_given_up > 0""",
            parts=parts,
        )
        producers = traces.sql(
            f"select distinct run * {TX} + tx as t, true as producer from {{ranges}} where produces and ranked",
            ranges=traces.ranges,
        )
        owned = traces.with_owner(doubtful, "t", "state as known").join(producers, "t", "left")
        return traces.sql(
            f"""select run, l, owner, claims is null and owner >= 0 and state in ({ABSENT}, {IS_ABORTED}) as all,
              claims is null and state in ({IS_COMMITTED}, {IS_UNDETERMINED}) and producer as named,
              if(state = {IS_ABORTED}, named + unnamed + of_nobody, 0) + of_given_up as aborted,
              if(state = {IS_ABORTED}, 0, of_nobody) + case when claims is not null then 0
                when state = {ABSENT} then if(owner >= 0, named + unnamed, 0)
                when state != {IS_ABORTED} and producer then named else 0 end as foreign
            from (
              select run, l, owner, claims, named, unnamed, of_nobody,
                of_given_up, coalesce(producer, false) as producer,
                coalesce(known, if(owner >= 0 and owner < {traces.size}, {IS_UNDETERMINED}, {ABSENT})) as state
              from {{owned}})
            where of_nobody > 0 or of_given_up > 0 or (claims is null and owner >= 0 and
              (state in ({ABSENT}, {IS_ABORTED}) or (producer and named > 0)))""",
            owned=owned,
        )

    def _counted(self, placed: Any, wrong: Any) -> Any:
        """Returns the same as `_placed`, with `nth` 0 for records that do not count."""
        marked = self._traces.sql(
            f"""select p.* except (nth, owner),
              if(p.why = {EXPLAINED} or w.all, p.owner, {NOT_COUNTED}) as owner,
              p.l is not null and p.why = {EXPLAINED}
                and not coalesce(w.all or (w.named and p.tx >= 0), false) as counts
            from {{placed}} p left join {{wrong}} w on p.l = w.l and p.owner = w.owner
            where p.o is not null""",
            placed=placed,
            wrong=wrong,
        )
        numbered = self._traces.sql(
            """select *, if(counts, count(if(counts, 1, null)) over w, 0) as nth,
              row_number() over w as row,
              count(if(counts, 1, null)) over (partition by o, source, ordinal) as there
            from {marked}
            window w as (partition by o, source, ordinal order by l nulls first, offset
              rows between unbounded preceding and current row)""",
            marked=marked,
        )
        columns = "source, ordinal, tx, nth, expected, doubtful, why, owner"
        return self._traces.sql(
            f"""select o, if(real, l, null) as l, if(real, offset, null) as offset, {columns}
            from (select *, explode(filter(if(l is null, array(false), array(true, false)), real -> real
              or (there = 0 and row = 1 and why != {OF_GIVEN_UP}))) as real from {{numbered}})""",
            numbered=numbered,
        )

    def _by_lane(self, placed: Any) -> Any:
        """Returns all records, those of topics that are not checked without `o`, and keeps them.

        Each lane's are together, in order of offsets: windows and groups by lane need neither shuffle nor sort.
        """
        others = f"not {among(self._traces.looked_at, 'l')}"
        records = self._traces.sql(
            f"""select * from {{placed}} where o is not null
            union all
            select null, l, offset, source, ordinal, tx, null, null, null, null, tx from {{records}}
            where {others}""",
            placed=placed,
            records=self._traces.records,
        )
        return self._traces.keep(records.repartition("l").sortWithinPartitions("l", "offset"))

    # anomalies ---------------------------------------------------------------------------------

    def anomalies(self) -> list[Any]:
        """Returns the anomalies as frames (run, name, n)."""
        flags = self._flags
        found = [self._order()]
        if flags.short or flags.missing:
            found += self._lacking()
        if flags.doubtful:
            found.append(self._torn())
        if flags.more:
            more = f"select run, '{names.FOREIGN}' as name, got - claims as n from {{parts}} where got > claims"
            found.append(self._traces.sql(more, parts=self._by_owner))
        if flags.shifted:
            found.append(self._shifted())
        if self._wrong is not None:
            uncounted = f"""select run, '{names.FOREIGN}' as name, foreign as n from {{wrong}}
              union all select run, '{names.ABORTED_VISIBLE}', aborted from {{wrong}}"""
            found.append(self._traces.sql(uncounted, wrong=self._wrong))
        return found

    def _lacking(self) -> list[Any]:
        """Returns parts with too few records, and missing records that no such part accounts for."""
        traces = self._traces
        short = traces.sql(
            """select run, l, owner, state, claims, got from {parts} where got < claims""",
            parts=self._by_owner,
        )
        lost = traces.sql(
            f"""select s.run, case when s.state = {IS_UNDETERMINED} then if(whole, '{names.TORN}', null)
                when whole and got = 0 then '{names.TORN}' else '{names.LOST}' end as name,
              if(s.state = {IS_UNDETERMINED} or (whole and got = 0), 1, claims - got) as n
            from {{short}} s left join (
              select run, owner, sum(got) > 0 as whole from {{parts}} where (run, owner) in
                (select run, owner from {{short}}) group by run, owner) w
            on s.run = w.run and s.owner = w.owner""",
            parts=self._by_owner,
            short=short,
        )
        missing = traces.sql(
            f"""select r.run, '{names.LOST}' as name, 1 as n
            from (select {traces.run_of_topic} as run, expected from {{records}}
              where l is null and expected is not null) r
            left anti join {{short}} s on r.run = s.run and r.expected = s.owner""",
            records=self._records,
            short=short,
        )
        return [lost, missing]

    def _torn(self) -> Any:
        """Returns undetermined transactions that are known only by what they consumed, and are there in part."""
        return self._traces.sql(
            f"""select {self._traces.run_of_topic} as run, '{names.TORN}' as name, 1 as n from (
              select o, doubtful, count(if(nth = 1, 1, null)) as there, count(if(l is null, 1, null)) as gone
              from {{records}} where doubtful is not null and expected is null group by o, doubtful)
            where there > 0 and gone > 0""",
            records=self._records,
        )

    def _shifted(self) -> Any:
        return self._traces.sql(
            f"""select run, '{names.INCONSISTENT_OFFSET}' as name, 1 as n from (
              select run, offset - first as shift, coalesce(lag(offset - first) over
                (partition by l order by offset), 0) as before
              from {{parts}} where first is not null and offset is not null)
            where shift != 0 and shift != before""",
            parts=self._by_owner,
        )

    def _order(self) -> Any:
        return self._traces.sql(
            f"""select run, '{names.REORDERED}' as name, 1 as n from (
              select run, ordinal, lag(ordinal) over (partition by l, source order by offset) as before
              from {{log}} where nth = 1) where ordinal < before
            union all select run, '{names.REPEATED}', 1 from {{log}} where nth > 1""",
            log=self.log,
        )
