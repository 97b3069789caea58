"""Writes several DataFrames, and moves consumers, in ONE transaction of the store.

    with transaction(path) as tx:
        tx.read(topic, consumer)     a DataFrame of what comes next ─ the end moves the consumer behind it
        tx.write(df, …)              a Spark job stages it: <store>/spark/<transaction>/<n>
    the end of the with              commit.py: all of it, once; an error in the block: none of it

The store is open only to read the positions, and to commit; meanwhile others may own it. The positions that were
read, or the ids of the batch, make the transaction count once.

What it leaves out: individual consumers; reading rows for a commit that depends on them; Spark Connect, whose
driver's Python process may be on another machine.
Next: fence.py.
"""

import json
import os
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..api.arguments import brief, check_worker, whole
from ..api.engine import Engine
from ..api.transaction.snapshot_reader import check_partition
from ..errors import NotSupported, TransactionClosed
from .commit import Advance, commit, owned, positions_in
from .fence import FENCES, Mark
from .options import DEFAULT_WAIT, WAIT, check_visible, check_wait
from .staging import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..runtime.catalog import TopicInfo
    from ..runtime.outcome import Commit


class SparkTransaction:
    """One transaction of writes that Spark's tasks stage. Use it in a `with`, in one thread.

    Invariants: nothing of it is visible before the end of the `with`; then all is, or nothing.
    """

    def __init__(
        self,
        store: "str | os.PathLike[str] | Engine",
        query_id: str | None,
        batch_id: int | None,
        wait: float,
    ) -> None:
        self.path = os.path.abspath(store.path if isinstance(store, Engine) else store)
        if (query_id is None) != (batch_id is None):
            raise ValueError("give query_id and batch_id together: they fence a batch")
        check_worker(query_id, "query_id")
        if batch_id is not None:
            whole("batch_id", batch_id)
        try:
            self._wait = check_wait(wait)
        except (TypeError, ValueError) as error:
            raise ValueError(f"wait is {WAIT}, not {wait!r:.100}") from error
        check_visible(self.path, "driver")
        self._query, self._batch = query_id, batch_id
        self._job: Job | None = None
        self._writes = 0
        self._advances: dict[tuple[str, str], Advance] = {}
        self.committed: bool | None = None
        """After the end: whether it committed something; False for a repeated batch, None after a failure."""
        self.receipt: Commit | None = None
        """After the end: the engine's answer, where it committed something."""

    @property
    def records(self) -> int:
        """The number of offsets that it consumes."""
        advances = self._advances.values()
        return sum(end - begin for a in advances for begin, end in a.ranges.values())

    def consumed(self, topic: str, consumer: str) -> dict[int, tuple[int, int]]:
        """Returns the offsets [begin, end) that it consumes, by partition; none of what it has not read."""
        advance = self._advances.get((topic, consumer))
        return {} if advance is None else dict(advance.ranges)

    def __enter__(self) -> Self:
        if self._job is not None:
            raise TransactionClosed("a transaction is used once: make another")
        query = None if self._query is None or self._batch is None else (self._query, self._batch)
        self._job = Job.named(self.path, "transaction", query)
        try:
            self._lock = self._job.hold()
        except BaseException:
            self._job.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        job = self._open()
        try:
            if error is None:
                self._commit(job)
        finally:
            job.end()
            self._lock.close()

    def _commit(self, job: Job) -> None:
        writes = [job.kept(number) for number in range(self._writes)]
        if not writes and not self.records and self._query is None:
            self.committed = False
            return
        value = job.id if self._batch is None else self._batch
        mark = Mark((self._query or "", "transaction", ""), value)
        advances = [*self._advances.values()]
        self.receipt = commit(self.path, self._wait, mark, writes, advances)
        self.committed = self.receipt is not None
        job.tidy()

    def _open(self) -> Job:
        if self._job is None or self._lock.closed:
            raise TransactionClosed("a Spark transaction is open within its `with`")
        return self._job

    def write(
        self,
        df: "DataFrame",
        *,
        topic: str | None = None,
        table: str | None = None,
        add: bool = False,
    ) -> None:
        """Stages a DataFrame for a topic or a table, with the columns that `df.write.format("planstep")` takes.

        This runs the DataFrame's Spark job. `add`: the numbers in column value are added to those that are there
        under the same key: of a table of format msgpack, or of a topic where each key's last record counts.
        UnknownName; ValueError, TypeError for columns that do not fit.
        """
        job = self._open()
        name = {"topic": topic} if topic is not None else {"table": table}
        if (topic is None) == (table is None):
            raise ValueError("name one of both: topic=… or table=…")
        number, self._writes = self._writes, self._writes + 1
        folder = f"{os.path.basename(job.folder)}/{number}"
        write = df.write.format("planstep").mode("append").option("path", self.path)
        write.options(**name, add=str(add).lower(), transaction=folder).save()

    def read(
        self,
        topic: str,
        consumer: str,
        *,
        max_records: int | None = None,
        spark: Any = None,
        **options: Any,
    ) -> "DataFrame":
        """Returns the records that come next for a cumulative consumer, and moves it behind them at the end.

        max_records   at most about so many, in equal parts from the partitions; None: all that there are
        spark         the SparkSession; None: the active one
        options       further ones for reading, as of `spark.read.format("planstep")`: format, mode, columns …

        Each reads as of now, in modes with steps as of one step. The commit is a Conflict if the consumer was moved
        since. `records` tells how many offsets are consumed. ValueError if it was read here before.
        """
        self._open()
        if (topic, consumer) in self._advances:
            raise ValueError(f"this transaction has read topic {topic!r} for {consumer!r} before")
        if max_records is not None and max_records < 1:
            raise ValueError(f"max_records is 1 or more, not {max_records}")
        with owned(self.path, self._wait) as db:
            info = _moved_as_one(db, topic, consumer)
            ends = {part.partition: part.end for part in db.topic(topic).describe().partitions}
            with db.transaction(worker=FENCES) as tx:
                begins = positions_in(tx, topic, consumer)
                tx.rollback()
        share = None if max_records is None else -(-max_records // len(begins))
        ranges = {
            p: (begin, ends[p] if share is None else min(ends[p], begin + share))
            for p, begin in begins.items()
        }
        frame = self._load(spark, topic, ranges, options)
        self._advances[topic, consumer] = Advance(topic, info.id, consumer, ranges)
        return frame

    def _load(
        self, spark: Any, topic: str, ranges: dict[int, tuple[int, int]], options: dict[str, Any]
    ) -> "DataFrame":
        from pyspark.sql import SparkSession

        session = spark or SparkSession.active()
        reader = session.read.format("planstep").options(path=self.path, topic=topic, **options)
        for option, at in (("startingOffset", 0), ("endingOffset", 1)):
            reader.option(option, json.dumps({p: both[at] for p, both in ranges.items()}))
        frame: DataFrame = reader.load()
        return frame

    def advance(self, topic: str, consumer: str, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Consumes offsets [begin, end) by partition, for callers that read them elsewhere.

        The commit is a Conflict if `begin` is not the consumer's position then. ValueError if it was read or
        advanced here before, for a partition that is not there, and for begin > end; TypeError.
        """
        self._open()
        if (topic, consumer) in self._advances:
            raise ValueError(f"this transaction has read topic {topic!r} for {consumer!r} before")
        with owned(self.path, self._wait) as db:
            info = _moved_as_one(db, topic, consumer)
        self._advances[topic, consumer] = Advance(topic, info.id, consumer, _checked(info, ranges))


def _moved_as_one(db: Engine, topic: str, consumer: str) -> "TopicInfo":
    """Returns the topic, if the consumer has one position a partition. UnknownName, NotSupported."""
    info = db.context.topic(topic)
    described = db.topic(topic).consumers().get(consumer)
    if described is not None and described.kind != "cumulative":
        raise NotSupported(f"consumer {consumer!r} is individual: it has no one position to move")
    return info


def _checked(info: "TopicInfo", ranges: Any) -> dict[int, tuple[int, int]]:
    checked = {}
    try:
        pairs = [(partition, begin, end) for partition, (begin, end) in ranges.items()]
    except (AttributeError, TypeError, ValueError):
        text = f"ranges is like {{partition: (begin, end)}}, not {brief(ranges)}"
        raise TypeError(text) from None
    for partition, begin, end in pairs:
        check_partition(info, partition)
        if whole("begin", begin) > whole("end", end):
            raise ValueError(
                f"topic {info.name!r}, partition {partition}: [{begin}, {end}) ends before it begins"
            )
        checked[partition] = (begin, end)
    return checked


def transaction(
    store: "str | os.PathLike[str] | Engine",
    *,
    query_id: str | None = None,
    batch_id: int | None = None,
    wait: float = DEFAULT_WAIT,
) -> SparkTransaction:
    """Begins a transaction of writes by Spark; in a `with`, whose end commits all of them, or after an error none.

    `store`: its path; in the process that owns it, the engine.
    `query_id`, `batch_id`: a batch that Spark may repeat, in foreachBatch: it counts once. Both or neither.
    `wait`: seconds to wait for the store's owner, at most 3600: then StoreInUse.
    FileNotFoundError, ValueError, TypeError; at the end Conflict for a consumer that has moved, and
    TransactionTooLarge.
    """
    return SparkTransaction(store, query_id, batch_id, wait)
