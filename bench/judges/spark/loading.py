"""Loads all traces of a comparison as DataFrames: each table once, over all runs, with a column `run`.

    DIR/traces/<run>/records.parquet ─┐
    DIR/traces/<run>/records.parquet ─┼─▶ records   run │ l │ offset │ source │ ordinal │ tx
    …                                 ┘             a run's number: its index in `Traces.runs`

Numbers of transactions and lanes begin anew in each run, so joins and windows use one long for both:

    t   a transaction: run × TX + tx           l   a lane: run × LANE + lane
    o   a topic that is checked for delivery: its index in `Traces.topics`

Next: delivery.py.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

from ..python import PLANNED
from ..trace import ABORTED, COMMITTED, CONSUME, CONSUMER, PRODUCE, READ, TOPIC, WRITE
from .folders import COLUMNS, ORDERED, BadTrace, TracedRun, runs

TX, LANE = 1 << 40, 1 << 32
BEHIND_ALL = (1 << 32) - 1
"""Value of `n` for a transaction that only reads: after all others of its step."""
ABSENT, IS_COMMITTED, IS_ABORTED, IS_UNDETERMINED = range(4)
_BROADCAST_MAX = 2_000_000
"""Rows of transactions to broadcast at most, some 60 bytes each; with more, both sides are shuffled."""
HOT = 200_000
"""Operations on one row of a table that one task sorts; more are sorted in pieces."""


class Fed(NamedTuple):
    """A partition of a consumer's input: the lane of its positions, and the input's, -1 if it has none."""

    lane: int
    o: int
    partition: int
    inputs: int


@dataclass
class Traces:
    """The DataFrames of all checks, made on first use."""

    spark: Any
    runs: list[TracedRun]
    _tables: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, spark: Any, folder: Path) -> "Traces":
        """Lists the traces of a folder. BadTrace where a file is missing or no Parquet of this schema."""
        return cls(spark, runs(folder))

    # tables ------------------------------------------------------------------------------------

    def table(self, name: str) -> Any:
        """Returns a table as in the files, with `run`, and, if it is ORDERED, with `nth`, its row in the file."""
        if name not in self._tables:
            self._tables[name] = self._table(name)
        return self._tables[name]

    def _table(self, name: str) -> Any:
        schema = ", ".join(f"{column} {kind}" for column, kind in COLUMNS[name].items())
        paths = [str(run.folder / f"{name}.parquet") for run in self.runs if run.rows.get(name)]
        if not paths:
            more = ", nth bigint" if name in ORDERED else ""
            return self.spark.createDataFrame([], f"{schema}{more}, run bigint")
        plain = self.spark.read.option("__globPaths__", "false")  # "[1]" is a name like any other
        frame = plain.schema(schema).parquet(*paths)
        numbers = {run.folder.resolve(): run.number for run in self.runs}
        files = []
        for uri in frame.inputFiles():
            run = numbers[Path(unquote(urlparse(uri).path)).parent.resolve()]
            # _metadata writes file:/ where inputFiles() writes file:///
            files.append((re.sub("^file:/+", "file:/", uri), run))
        nth = ["_metadata.row_index as nth"] if name in ORDERED else []
        return self.sql(
            """select /*+ broadcast(files) */ files.run, f.* except (uri)
            from {frame} f join {files} files on f.uri = files.uri""",
            frame=frame.selectExpr("*", "_metadata.file_path as uri", *nth),
            files=self.values("uri string, run bigint", files),
        )

    def rows(self, name: str, runs: Iterable[int] | None = None) -> int:
        """Returns the number of rows, from the footers; `runs`: only of these numbers."""
        selected = self.runs if runs is None else [self.runs[number] for number in runs]
        return sum(run.rows.get(name, 0) for run in selected)

    def counts(self) -> dict[tuple[str, int], int]:
        """Returns the rows that Spark reads, by table and run."""
        tables = {name: self.table(name).select("run") for name in COLUMNS}
        queries = " union all ".join(
            f"select '{name}' as name, run, count(*) as rows from {{{name}}} group by run"
            for name in tables
        )
        return {(row.name, row.run): row.rows for row in self.sql(queries, **tables).collect()}

    def of_mode(self, *modes: str) -> list[int]:
        """Returns the numbers of the runs with these modes."""
        return [run.number for run in self.runs if run.mode in modes]

    def sql(self, query: str, **frames: Any) -> Any:
        return self.spark.sql(query, **frames)

    def values(self, schema: str, rows: Iterable[Sequence[Any]]) -> Any:
        """Returns a small table, made without a job."""
        columns = [column.rsplit(" ", 1) for column in schema.split(", ")]
        names = ", ".join(name for name, _ in columns)
        lines = [f"({', '.join(map(literal, row))})" for row in rows]
        nothing = "" if lines else " where false"
        lines = lines or [f"({', '.join(['null'] * len(columns))})"]
        cast = ", ".join(f"cast({name} as {kind}) as {name}" for name, kind in columns)
        return self.sql(f"select {cast} from values {', '.join(lines)} as v({names}){nothing}")

    def keep_sql(self, query: str, **frames: Any) -> Any:
        """Computes the frame of a query once, now; see `keep`."""
        return self.keep(self.sql(query, **frames))

    def keep(self, frame: Any) -> Any:
        """Computes the frame once, now, and drops its lineage.

        A cached frame would not do: named in SQL it is computed anew, since Spark does not find it behind the view.
        """
        return frame.localCheckpoint()

    # transactions and what they did --------------------------------------------------------------

    @cached_property
    def transactions(self) -> Any:
        """Returns transactions with `state`, `ranked` and their rank, (step, n, tx).

        `ranked`: with places, committed and with a place; without places, committed.
        """
        places = among(self.of_mode(PLANNED))
        # Most checks use it, and opening hundreds of small files takes long.
        return self.keep_sql(
            f"""select *, state = {IS_COMMITTED} and (not places or placed) as ranked from (
              select run, tx, run * {TX} + tx as t, worker,
                case outcome when '{COMMITTED}' then {IS_COMMITTED}
                  when '{ABORTED}' then {IS_ABORTED} else {IS_UNDETERMINED} end as state,
                {places} as places, step is not null as placed,
                if({places}, step, 0) as step, if({places}, coalesce(n, {BEHIND_ALL}), 0) as n,
                begin, proposed, reply
              from {{transactions}})""",
            transactions=self.table("transactions"),
        )

    def with_owner(self, frame: Any, owner: str, columns: str) -> Any:
        """Joins columns of the transaction whose `t` is in the column `owner`; null where there is none."""
        from pyspark.sql import functions as f

        facts = self.sql(f"select t as {owner}, {columns} from {{facts}}", facts=self.transactions)
        if self.rows("transactions") <= _BROADCAST_MAX:
            facts = f.broadcast(facts)
        return frame.join(facts, owner, "left")

    def operations(self, *ops: str) -> Any:
        """Returns operations with their transaction's state and rank; undetermined if it has no row."""
        operations = self.sql(
            f"""select run, tx, run * {TX} + tx as t, run * {LANE} + lane as l, op, begin, end,
              records, version, nth from {{operations}}
            where op in ({", ".join(map(literal, ops))})""",
            operations=self.table("operations"),
        )
        joined = self.with_owner(operations, "t", "state, ranked, step, n")
        return self.sql(
            f"""select * except (state, ranked), coalesce(state, {IS_UNDETERMINED}) as state,
              coalesce(ranked, false) as ranked from {{joined}}""",
            joined=joined,
        )

    @cached_property
    def ranges(self) -> Any:
        """Returns CONSUME and PRODUCE operations."""
        return self.keep(self.operations(CONSUME, PRODUCE))

    def with_lanes(self, name: str) -> Any:
        """Returns a table with `l` in place of `lane`."""
        query = f"select *, run * {LANE} + lane as l from {{table}}"
        return self.sql(query, table=self.table(name)).drop("lane")

    @cached_property
    def records(self) -> Any:
        return self.with_lanes("records")

    @cached_property
    def inputs(self) -> Any:
        return self.with_lanes("inputs")

    @cached_property
    def seen(self) -> Any:
        return self.with_lanes("seen")

    # counts, on which the methods of the checks depend -----------------------------------------

    @cached_property
    def operation_counts(self) -> list[Any]:
        """Counts operations by run, op and lane; of rows of tables only lanes with many."""
        counts = self.sql(
            f"""select run, op, run * {LANE} + lane as l from {{operations}} group by run, op, lane
            having op in ('{CONSUME}', '{PRODUCE}') or count(*) > {HOT}""",
            operations=self.table("operations"),
        )
        return list(counts.collect())

    @cached_property
    def sizes(self) -> Any:
        """Returns `size` by run: numbers below it are transactions, undetermined if they have no row."""
        return self.keep_sql(
            """select run, max(tx) + 1 as size from
              (select run, tx from {transactions} union all select run, tx from {operations}) group by run""",
            transactions=self.transactions,
            operations=self.table("operations"),
        )

    def check_numbers(self) -> None:
        """Checks that no run has a transaction twice. BadTrace."""
        twice = self.sql(
            "select run, tx from {transactions} group by run, tx having count(*) > 1 limit 1",
            transactions=self.table("transactions"),
        ).collect()
        for row in twice:
            raise BadTrace(f"{self.runs[row.run].folder} has transaction {row.tx} twice")

    @cached_property
    def hot(self) -> list[int]:
        """Returns lanes of rows with more operations than one task should sort."""
        return sorted({row.l for row in self.operation_counts if row.op in (READ, WRITE)})

    @cached_property
    def lanes(self) -> list[Any]:
        """Returns lanes of partitions and consumers."""
        lanes = self.sql(
            f"""select run, run * {LANE} + nth as l, kind, name, partition, key from {{lanes}}
            where kind in ('{TOPIC}', '{CONSUMER}')""",
            lanes=self.table("lanes"),
        )
        return list(lanes.collect())

    @cached_property
    def topics(self) -> list[tuple[int, str]]:
        """Returns (run, name) of topics that a transaction produced to, or that are fed."""
        names = {lane.l: (lane.run, lane.name) for lane in self.lanes}
        written = {names[row.l] for row in self.operation_counts if row.op == PRODUCE}
        fed = {(run.number, topic) for run in self.runs for topic in run.feeds}
        return sorted(written | fed)

    @cached_property
    def partitions(self) -> dict[tuple[int, str, int], int]:
        """Returns (run, topic, partition) → l."""
        return {(x.run, x.name, x.partition): x.l for x in self.lanes if x.kind == TOPIC}

    @cached_property
    def looked_at(self) -> dict[int, int]:
        """Returns l → o, of the topics' partitions."""
        numbers = {topic: o for o, topic in enumerate(self.topics)}
        return {
            lane: numbers[run, name]
            for (run, name, _), lane in self.partitions.items()
            if (run, name) in numbers
        }

    @cached_property
    def fed(self) -> list[Fed]:
        """Returns the inputs of topics that are fed."""
        return [
            Fed(lane.l, o, lane.partition, self.input_of(lane))
            for o, (run, topic) in enumerate(self.topics)
            for lane in self.lanes
            if (lane.run, lane.kind, lane.name) == (run, CONSUMER, self.runs[run].feeds.get(topic))
        ]

    def input_of(self, lane: Any) -> int:
        """Returns the partition that a consumer's lane reads, -1 if the trace has no such partition."""
        topic = lane.name.rpartition("/")[0]
        return self.partitions.get((lane.run, topic, lane.partition), -1)


def among(numbers: Iterable[int], column: str = "run") -> str:
    """Returns SQL that tells if the column is one of the numbers."""
    listed = ", ".join(map(str, numbers))
    return f"({column} in ({listed}))" if listed else "false"


def literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "null" if value is None else str(value)
