"""Reads with Arrow what the plans of the checks depend on, before Spark reads a row: lanes, numbers, steps.

    transactions.parquet   tx, step, outcome   their number, the steps' range; that none is there twice
    operations.parquet     tx, op, lane        which partitions were written; which rows of tables are hot
    lanes.parquet          all but rows        partitions and consumers
    inputs, records        lane                which partitions have records

Spark would need a query for each of these, of which it plans and compiles most of a second, and scans of a table
that it reads later anyway. Nothing is judged here.

Next: loading.py.
"""

from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ..trace import ABORTED, COMMITTED, CONSUMER, PRODUCE, READ, TOPIC, WRITE
from .folders import BadTrace, TracedRun


class TracedLane(NamedTuple):
    """A lane of a partition or a consumer, with its number in the run."""

    number: int
    kind: str
    name: str
    partition: int
    key: str


class Layout:
    """The lanes and numbers of a run. Each file is read on first use."""

    def __init__(self, run: TracedRun) -> None:
        self._run = run

    def _columns(self, table: str, *columns: str, **more: Any) -> Any:
        import pyarrow.parquet as pq

        read = pq.read_table(self._path(table), columns=[*columns], memory_map=True, **more)
        return read.unify_dictionaries()  # a file of several row groups has one for each

    def _path(self, table: str) -> Path:
        return self._run.folder / f"{table}.parquet"

    @cached_property
    def lanes(self) -> list[TracedLane]:
        """The lanes of partitions and consumers."""
        table = self._columns("lanes", "kind", "name", "partition", "key")
        return [
            TracedLane(number, *lane)
            for number, lane in enumerate(zip(*table.to_pydict().values(), strict=True))
            if lane[0] in (TOPIC, CONSUMER)
        ]

    @cached_property
    def _transactions(self) -> Any:
        return self._columns("transactions", "tx", "step", "outcome", read_dictionary=["outcome"])

    def check_numbers(self) -> None:
        """Checks that no transaction is there twice. BadTrace."""
        from pyarrow import compute

        numbers = self._transactions["tx"]
        if len(compute.unique(numbers)) == len(numbers):
            return
        counts = compute.value_counts(numbers).to_pylist()
        twice = min(one["values"] for one in counts if one["counts"] > 1)
        raise BadTrace(f"{self._run.folder} has transaction {twice} twice")

    @cached_property
    def size(self) -> int:
        """The highest number of a transaction, plus 1: with the lower ones, all numbers that the run gave."""
        return 1 + max(_highest(self._transactions["tx"]), self._operations[0])

    @cached_property
    def is_settled(self) -> bool:
        """All numbers have an outcome, and all that committed have a place."""
        from pyarrow import compute

        outcomes, placed = self._transactions["outcome"], self._transactions["step"].is_valid()
        committed = compute.and_(compute.equal(outcomes, COMMITTED), placed)
        settled = compute.or_(committed, compute.equal(outcomes, ABORTED))
        return len(outcomes) == self.size and bool(compute.all(settled).as_py() is not False)

    @cached_property
    def steps(self) -> tuple[int, int]:
        """The lowest and the highest step of a place; 0, 0 without places."""
        from pyarrow import compute

        found = compute.min_max(self._transactions["step"]).as_py()
        return (0, 0) if found["min"] is None else (found["min"], found["max"])

    @cached_property
    def _operations(self) -> tuple[int, list[tuple[str, int, int]]]:
        """The highest number of a transaction; by op and lane, the number of operations."""
        table = self._columns("operations", "tx", "op", "lane", read_dictionary=["op"])
        counts = table.group_by(["op", "lane"]).aggregate([([], "count_all")]).to_pydict()
        rows = zip(counts["op"], counts["lane"], counts["count_all"], strict=True)
        return _highest(table["tx"]), list(rows)

    @cached_property
    def written(self) -> set[int]:
        """The lanes of partitions that a transaction wrote to."""
        return {lane for op, lane, _ in self._operations[1] if op == PRODUCE}

    @cached_property
    def has_reads(self) -> bool:
        """A transaction read a row of a table."""
        return any(op == READ for op, _, _ in self._operations[1])

    def hot(self, most: int) -> set[int]:
        """Returns the lanes of rows with more reads, or more writes, than that."""
        counts = self._operations[1]
        return {lane for op, lane, count in counts if op in (READ, WRITE) and count > most}

    @cached_property
    def with_records(self) -> set[int]:
        """The lanes of partitions that records are known of."""
        tables = [name for name in ("records", "inputs") if self._run.rows.get(name)]
        return {
            lane
            for name in tables
            for lane in self._columns(name, "lane")["lane"].unique().to_pylist()
        }


def _highest(numbers: Any) -> int:
    from pyarrow import compute

    found = compute.max(numbers).as_py()
    return -1 if found is None else int(found)
