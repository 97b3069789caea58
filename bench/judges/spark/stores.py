"""Checks with Spark that each trace has exactly the records that were stored: only then its verdict counts.

    DIR/stores/<run>/store      ─ the data source "planstep" ─▶ partition, offset, identity ─┐
    DIR/traces/<run>/records, inputs ──────────────────────────▶ partition, offset, identity ─┴▶ records of only one

Only here Spark reads the stores themselves, by the data source alone, without harness, Parquet or checker. A
cluster cannot see this machine's files, so it skips this check.

Next: prove.py.
"""

from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from .loading import Traces, among

NOT_AS_STORED = "not as stored"
_INTEGERS = ("source", "ordinal", "tx")
"""The integers of an identity: 8 bytes each, little endian."""
_INPUTS, _RECORDS = "inputs", "records"


class _Topic(NamedTuple):
    """A topic of a run. `table`: the table of the trace that has its records."""

    run: int
    name: str
    table: str


def stores(traces: Traces, folder: Path) -> dict[int, Path]:
    """Returns the kept stores, by their runs' numbers."""
    paths = {run.number: folder / "stores" / run.name / "store" for run in traces.runs}
    return {number: path.resolve() for number, path in paths.items() if path.is_dir()}


class Stored:
    """The topics that the traces of some runs have records of; of inputs only consumed partitions.

    rows   records that Spark has read
    """

    def __init__(self, traces: Traces, paths: dict[int, Path]) -> None:
        self._traces = traces
        runs = among(paths)
        self._traced = traces.sql(
            f"""select run, l, '{_RECORDS}' as kind, offset, source, ordinal, tx from {{records}}
            where {runs}
            union all select run, l, '{_INPUTS}', offset, source, ordinal, null from {{inputs}}
            where {runs}""",
            records=traces.records,
            inputs=traces.inputs,
        )
        read = [
            self._read(paths[topic.run], topic, partitions)
            for topic, partitions in self._topics().items()
        ]
        self._frame = self._numbered(read, paths) if read else None
        self.rows = 0 if self._frame is None else int(self._frame.count())

    def _topics(self) -> dict[_Topic, list[int]]:
        """Returns the topics, with the partitions that the trace has records of."""
        lanes_read = self._traces.sql(
            "select distinct kind, l from {traced}", traced=self._traced
        ).collect()
        lanes = {lane.l: lane for lane in self._traces.lanes}
        topics: dict[_Topic, list[int]] = {}
        for table, number in sorted((row.kind, row.l) for row in lanes_read):
            lane = lanes[number]
            topics.setdefault(_Topic(lane.run, lane.name, table), []).append(lane.partition)
        return topics

    def _read(self, path: Path, topic: _Topic, partitions: list[int]) -> Any:
        source = self._traces.spark.read.format("planstep").options(
            path=str(path), topic=topic.name, columns="partition,offset,value", format="bytes"
        )
        if topic.table == _INPUTS:
            source = source.option("partitions", ",".join(map(str, partitions)))
        identity = [f"{_integer(n)} as {name}" for n, name in enumerate(_INTEGERS)]
        where = [f"cast({topic.run} as bigint) as run", f"'{topic.name}' as name"]
        where += [f"'{topic.table}' as kind", "partition", "offset"]
        heads = source.load().selectExpr(
            "partition", "offset", "hex(substring(value, 1, 24)) as head"
        )
        return heads.selectExpr(*where, *identity)

    def _numbered(self, read: list[Any], paths: dict[int, Path]) -> Any:
        """Adds lane numbers, null where the trace has no such partition."""
        lanes = [(*key, lane) for key, lane in self._traces.partitions.items() if key[0] in paths]
        numbers = self._traces.values("run bigint, name string, partition int, l bigint", lanes)
        return self._traces.keep_sql(
            """select /*+ broadcast(n) */ f.run, n.l, f.kind, f.offset, f.source, f.ordinal, f.tx
            from {frame} f left join {numbers} n
            on f.run = n.run and f.name = n.name and f.partition = n.partition""",
            frame=reduce(lambda a, b: a.unionAll(b), read),
            numbers=numbers,
        )

    def anomalies(self) -> list[Any]:
        """Returns records that only one of both has, or that differ."""
        if self._frame is None:
            return []
        differing = self._traces.sql(
            f"""select coalesce(a.run, b.run) as run, '{NOT_AS_STORED}' as name, 1 as n
            from {{stored}} a full join {{traced}} b
            on a.l = b.l and a.kind = b.kind and a.offset = b.offset and a.source = b.source
              and a.ordinal = b.ordinal and (b.tx is null or a.tx = b.tx)
            where a.run is null or b.run is null""",
            stored=self._frame,
            traced=self._traced,
        )
        return [differing]


def _integer(n: int) -> str:
    """Returns SQL for the n-th integer of the identity, from the hexadecimal digits `head`."""
    digits = ", ".join(f"substring(head, {16 * n + 2 * byte + 1}, 2)" for byte in range(7, -1, -1))
    return f"cast(conv(concat({digits}), 16, -10) as bigint)"
