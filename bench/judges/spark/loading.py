"""Loads all traces of a comparison as DataFrames: each table once, over all runs, with a column `run`.

    DIR/traces/<run>/records.parquet ─┐
    DIR/traces/<run>/records.parquet ─┼─▶ records   run │ l │ offset │ source │ ordinal │ tx
    …                                 ┘             a run's number: its index in `Traces.runs`

Numbers of transactions and lanes begin anew in each run, so joins and windows use one long for both:

    t   a transaction: run × TX + tx           l   a lane: run × LANE + lane
    o   a topic that is checked for delivery: its index in `Traces.topics`

Next: delivery.py.
"""

import shutil
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from ..python import PLANNED
from ..trace import ABORTED, COMMITTED, CONSUME, CONSUMER, PRODUCE, TOPIC
from .folders import COLUMNS, ORDERED, TracedRun, runs, scratch_of
from .layout import Layout

TX, LANE = 1 << 40, 1 << 32
BEHIND_ALL = (1 << 32) - 1
"""Value of `n` for a transaction that only reads: after all others of its step."""
ABSENT, IS_COMMITTED, IS_ABORTED, IS_UNDETERMINED = range(4)
_BROADCAST_MAX = 2_000_000
"""Rows of transactions to broadcast at most, some 60 bytes each; with more, both sides are shuffled."""
HOT = 200_000
"""Operations on one row of a table that one task sorts; more are sorted in pieces."""
_VIEWS = count()


class Lane(NamedTuple):
    """A lane of a partition or a consumer."""

    run: int
    l: int  # noqa: E741 the name of this column in all frames
    kind: str
    name: str
    partition: int
    key: str


class Fed(NamedTuple):
    """A partition of a consumer's input: the lane of its positions, and the input's, -1 if it has none."""

    lane: int
    o: int
    partition: int
    inputs: int


@dataclass
class Traces:
    """The DataFrames of all checks, made on first use. Checks in several threads may share them.

    scratch   gets links to the traces' files; `close` removes them. Its path has no comma
    """

    spark: Any
    runs: list[TracedRun]
    scratch: Path
    _tables: dict[str, Any] = field(default_factory=dict)
    _views: dict[int, tuple[Any, str]] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock)

    @classmethod
    def of(cls, spark: Any, folder: Path) -> "Traces":
        """Lists the traces of a folder. BadTrace where a file is missing or no Parquet of this schema."""
        listed = runs(folder)
        traces = cls(spark, listed, scratch_of(folder))
        weakref.finalize(traces, shutil.rmtree, traces.scratch, ignore_errors=True)
        return traces

    def close(self) -> None:
        """Drops the views and the scratch files. The frames are of no use afterwards."""
        for _, name in self._views.values():
            self.spark.catalog.dropTempView(name)
        shutil.rmtree(self.scratch, ignore_errors=True)

    # tables ------------------------------------------------------------------------------------

    def table(self, name: str) -> Any:
        """Returns a table as in the files, with `run`, and, if it is ORDERED, with `nth`, its row in the file."""
        with self._lock:
            if name not in self._tables:
                self._tables[name] = self._table(name)
            return self._tables[name]

    def _table(self, name: str) -> Any:
        """Reads the files as one table that is partitioned by run: a run is a folder of links, "run=3"."""
        schema = ", ".join(f"{column} {kind}" for column, kind in COLUMNS[name].items())
        having = [run for run in self.runs if run.rows.get(name)]
        if not having:
            more = ", nth bigint" if name in ORDERED else ""
            return self.spark.createDataFrame([], f"{schema}{more}, run bigint")
        home = self.scratch / "tables" / name
        for run in having:
            folder = home / f"run={run.number}"
            folder.mkdir(parents=True)
            (folder / "file.parquet").symlink_to(run.folder.resolve() / f"{name}.parquet")
        plain = self.spark.read.option("__globPaths__", "false")  # "[1]" is a name like any other
        frame = plain.schema(f"{schema}, run bigint").parquet(str(home))
        return frame.selectExpr("*", "_metadata.row_index as nth") if name in ORDERED else frame

    def rows(self, name: str, runs: Iterable[int] | None = None) -> int:
        """Returns the number of rows, from the footers; `runs`: only of these numbers."""
        selected = self.runs if runs is None else [self.runs[number] for number in runs]
        return sum(run.rows.get(name, 0) for run in selected)

    def counts(self) -> dict[tuple[str, int], int]:
        """Returns the rows that Spark reads, by table and run."""
        tables = {name: self.table(name) for name in COLUMNS if self.rows(name)}
        rows = " union all ".join(
            f"select '{name}' as name, run from {{{name}}}" for name in tables
        )
        query = f"select name, run, count(*) as rows from ({rows}) group by name, run"
        return {(row.name, row.run): row.rows for row in self.sql(query, **tables).collect()}

    def of_mode(self, *modes: str) -> list[int]:
        """Returns the numbers of the runs with these modes."""
        return [run.number for run in self.runs if run.mode in modes]

    def sql(self, query: str, **frames: Any) -> Any:
        """Returns the frame of a query, in which {name} stands for a frame; a frame gets one view."""
        if frames:
            query = query.format(**{name: self._view(frame) for name, frame in frames.items()})
        return self.spark.sql(query)

    def _view(self, frame: Any) -> str:
        with self._lock:  # another check may need it, too, and must not before the view is there
            known = self._views.get(id(frame))
            if known is None:
                known = frame, f"judged_{next(_VIEWS)}"
                self._views[id(frame)] = known
                frame.createOrReplaceTempView(known[1])
            return known[1]

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
        """Computes the frame once, now, into files in the scratch folder, which an executor does not take along.

        Later plans begin at these files. A cached frame would not do: each plan over it is made, and compared with
        it, from the traces on, which takes longer than the queries.
        """
        self.spark.sparkContext.setCheckpointDir(str(self.scratch / "kept"))
        return frame.checkpoint()

    # transactions and what they did --------------------------------------------------------------

    @cached_property
    def transactions(self) -> Any:
        """Returns transactions with `state`, `ranked` and their rank, (step, n, tx).

        `ranked`: with places, committed and with a place; without places, committed.
        """
        places = among(self.of_mode(PLANNED))
        return self.sql(
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
        return self.sql(
            f"""select * except (t, state, ranked), coalesce(state, {IS_UNDETERMINED}) as state,
              coalesce(ranked, false) as ranked from {{joined}}""",
            joined=self.with_owner(operations, "t", "state, ranked, step, n"),
        )

    @cached_property
    def ranges(self) -> Any:
        """Returns CONSUME operations, and PRODUCE, which have `produces`."""
        return self.keep_sql(
            f"select * except (op, version), op = '{PRODUCE}' as produces from {{operations}}",
            operations=self.operations(CONSUME, PRODUCE),
        )

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

    # what the checks' plans depend on --------------------------------------------------------

    @cached_property
    def layouts(self) -> list[Layout]:
        return [Layout(run) for run in self.runs]

    def check_numbers(self) -> None:
        """Checks that no run has a transaction twice. BadTrace."""
        for layout in self.layouts:
            layout.check_numbers()

    @cached_property
    def size(self) -> str:
        """SQL for the run's number of transactions: numbers below it are undetermined if they have no row."""
        return by_run(layout.size for layout in self.layouts)

    def _numbered(self, of_layout: Callable[[Layout], Iterable[int]]) -> set[int]:
        """Returns `l` of lanes."""
        return {
            run * LANE + lane
            for run, layout in enumerate(self.layouts)
            for lane in of_layout(layout)
        }

    @cached_property
    def hot(self) -> list[int]:
        """Returns lanes of rows with more operations than one task should sort."""
        return sorted(self._numbered(lambda layout: layout.hot(HOT)))

    @cached_property
    def with_records(self) -> set[int]:
        """Returns lanes of partitions that records are known of."""
        return self._numbered(lambda layout: layout.with_records)

    @cached_property
    def lanes(self) -> list[Lane]:
        """Returns lanes of partitions and consumers."""
        return [
            Lane(run, run * LANE + lane.number, *lane[1:])
            for run, layout in enumerate(self.layouts)
            for lane in layout.lanes
        ]

    @cached_property
    def topics(self) -> list[tuple[int, str]]:
        """Returns (run, name) of topics that a transaction produced to, or that are fed."""
        names = {lane.l: (lane.run, lane.name) for lane in self.lanes}
        written = {names[lane] for lane in self._numbered(lambda layout: layout.written)}
        fed = {(run.number, topic) for run in self.runs for topic in run.feeds}
        return sorted(written | fed)

    @cached_property
    def run_of_topic(self) -> str:
        """SQL for the run of the topic `o`."""
        return f"{_array(run for run, _ in self.topics)}[o]"

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

    def input_of(self, lane: Lane) -> int:
        """Returns the partition that a consumer's lane reads, -1 if the trace has no such partition."""
        topic = lane.name.rpartition("/")[0]
        return self.partitions.get((lane.run, topic, lane.partition), -1)


def among(numbers: Iterable[int], column: str = "run") -> str:
    """Returns SQL that tells if the column is one of the numbers."""
    listed = ", ".join(map(str, numbers))
    return f"({column} in ({listed}))" if listed else "false"


def by_run(values: Iterable[int]) -> str:
    """Returns SQL for the value of the run in the column `run`; values in the order of runs."""
    return f"{_array(values)}[run]"


def _array(values: Iterable[int]) -> str:
    return f"array({', '.join(f'{value}L' for value in values)})"


def literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "null" if value is None else str(value)
