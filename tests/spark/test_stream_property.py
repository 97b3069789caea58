"""Tests streams against any interleaving of writes, trims, restarts and limits, in each mode."""

import itertools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stream_kit import Query

import planstep

PARTITIONS = 3
PARTS = st.lists(
    st.tuples(st.integers(0, PARTITIONS - 1), st.integers(1, 5)), min_size=1, max_size=3
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), PARTS),
        st.tuples(st.just("abort"), PARTS),
        st.tuples(st.just("begin"), PARTS),
        st.tuples(st.just("trim"), st.integers(0, PARTITIONS - 1), st.integers(0, 12)),
        st.tuples(st.sampled_from(["finish", "reopen", "restart", "plan", "trigger", "trigger"])),
        st.tuples(st.just("limit"), st.integers(1, 12)),
    ),
    max_size=20,
)


Row = tuple[int, int, str]


def rows_of(table: Any) -> list[Row]:
    columns = (table[name].to_pylist() for name in ("partition", "offset", "value"))
    return list(zip(*columns, strict=True))


class World:
    """A store, its owner, and a query; each record's value is (transaction, number)."""

    def __init__(self, elsewhere: Callable[..., Any], path: str, mode: Any) -> None:
        self.path, self.mode = path, mode
        self.db = planstep.open(path, mode=mode)
        self.db.create_topic("t", partitions=PARTITIONS, format="utf8")
        self.written: dict[int, list[str]] = {}
        """Transaction → its values."""
        self.open: tuple[planstep.Transaction, list[str]] | None = None
        self.transactions, self.numbers = itertools.count(), itertools.count()
        self.low = dict.fromkeys(range(PARTITIONS), 0)
        self.limit = 4
        options = {"path": path, "topic": "t", "failOnDataLoss": "false", "wait": "5"}
        self.query = Query(elsewhere, None, {**options, "maxOffsetsPerTrigger": self.limit})
        self.got: list[Row] = []
        self.planned: list[Row] | None = None

    def fill(self, parts: list[tuple[int, int]]) -> tuple[planstep.Transaction, list[str]]:
        number, mine = next(self.transactions), []
        tx = self.db.transaction()
        for partition, count in parts:
            values = [f"{number} {next(self.numbers)}" for _ in range(count)]
            mine += values
            tx.write_batch("t", values, partition=partition)
        tx.flush()  # also open and aborted records take offsets, in modes that send them ahead
        return tx, mine

    def commit(self, tx: planstep.Transaction, mine: list[str]) -> None:
        tx.commit()
        self.written[int(mine[0].split()[0])] = mine

    def write(self, parts: list[tuple[int, int]]) -> None:
        self.commit(*self.fill(parts))

    def abort(self, parts: list[tuple[int, int]]) -> None:
        tx, _ = self.fill(parts)
        tx.rollback()

    def begin(self, parts: list[tuple[int, int]]) -> None:
        if self.open is None:
            self.open = self.fill(parts)

    def finish(self) -> None:
        if self.open is not None:
            self.commit(*self.open)
            self.open = None

    def trim(self, partition: int, more: int) -> None:
        part = self.db.topic("t").describe().partitions[partition]
        self.low[partition] = min(part.end, part.start + more)
        self.db.topic("t").trim({partition: self.low[partition]})

    def reopen(self) -> None:
        self.finish()
        self.db.close()
        self.db = planstep.open(self.path)

    def restart(self) -> None:
        self.query.restart()

    def plan(self) -> None:
        """Has Spark stop between the plan of a batch and its end: the batch is repeated."""
        if self.query.plan():
            self.planned = rows_of(self.query.read())
        self.query.restart()

    def limit_(self, limit: int) -> None:
        self.query.options["maxOffsetsPerTrigger"] = self.limit = limit
        self.query.restart()

    def trigger(self) -> bool:
        table = self.query.trigger()
        if table is None:
            return False
        rows, repeated = rows_of(table), self.planned is not None
        if self.planned is not None:
            assert rows == [row for row in self.planned if row[1] >= self.low[row[0]]]
            self.planned = None
        self.got += rows
        self.check_batch([value for _, _, value in rows], repeated)
        return True

    def check_batch(self, values: list[str], repeated: bool) -> None:
        numbers = {int(value.split()[0]) for value in values}
        single = self.mode == "deterministic" and len(numbers) == 1
        assert repeated or single or len(values) <= self.limit  # a repeated one had another limit
        if self.mode != "deterministic":
            return
        for number in numbers:  # whole, but for what was trimmed
            missing = set(self.written[number]) - set(values)
            assert not missing & {value for _, _, value in self.got}

    def check(self) -> None:
        for partition in range(PARTITIONS):
            offsets = [o for p, o, _ in self.got if p == partition]
            assert offsets == sorted(set(offsets))  # once, and in order
        got = {value for _, _, value in self.got}
        assert (
            set(self.db.topic("t").read().values) <= got
        )  # nothing that is still there is missing
        assert got <= {value for values in self.written.values() for value in values}


@pytest.mark.parametrize("mode", ["deterministic", "kafka", "pulsar"])
def test_each_record_comes_once_and_in_order(elsewhere: Callable[..., Any], mode: str) -> None:
    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(STEPS)
    def run(steps: list[tuple[Any, ...]]) -> None:
        folder = tempfile.mkdtemp()
        world = World(elsewhere, str(Path(folder, "s")), mode)
        try:
            for name, *args in steps:
                getattr(world, "limit_" if name == "limit" else name)(*args)
            while world.trigger():
                pass
            world.check()
        finally:
            world.open = None
            world.db.close()
            shutil.rmtree(folder)

    run()
