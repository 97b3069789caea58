"""Runs the main workload as a Spark job: the same input as reshard, each transaction one Spark job.

    "in", loaded before ─▶ Spark: from a consumer's position ─▶ repartition by user ─▶ "out" ─ commit
                           a transaction takes a share of the input, until it is used up

There is no schedule: a share is due when the one before is committed. So the throughput counts, and the commit's
latency: it has the writing of what Spark's tasks have staged. Spark starts before the clock, and runs in this
process's Java; the store is this process's.

Left out: systems that are not this engine, and what Spark does as a stream.

Next: plain.py, another workload.
"""

import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from ...judges.spark.session import end
from ...judges.trace import CONSUME, CONSUMER, TOPIC, Batch, Operation
from ..systems.base import Certificate, System
from ..systems.engine import EngineSystem
from .base import Run
from .driving import Attempt, Follower, WorkerRun, settle
from .inputs import DEMO_BYTES
from .reshard import CONSUMER as RESHARDER
from .reshard import IN, OUT, Reshard

if TYPE_CHECKING:
    from ....spark.transaction import SparkTransaction

SHARES = 8
"""The number of transactions that the input is taken in, about."""


class ReshardSpark(Reshard):
    name = "reshard-spark"
    about = "the model task as a Spark job: reshard, with a transaction for each job"
    feeds: ClassVar = {OUT: f"{IN}/{RESHARDER}"}
    shares_rate: ClassVar = False
    room: ClassVar = None

    def impossible(self, system: System) -> str | None:
        if not isinstance(system, EngineSystem):
            return "Spark's connector reads and writes stores of this engine"
        if system.individual:
            return "a Spark transaction moves cumulative consumers"
        return None if find_spec("pyspark") else "PySpark is not installed"

    def prepare(self, run: Run) -> None:
        from ....spark.session import session  # imports Arrow, which other workloads do without

        super().prepare(run)
        folder = run.folder / "spark"
        folder.mkdir()
        settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
        run.state["spark"] = session("compare", config=settings, folder=folder, quiet=True)
        run.state["spark"].range(1).count()  # the first job of a Java takes seconds

    def run(self, run: Run) -> None:
        try:
            self._run(run)
        finally:
            end(run.state.pop("spark"))
            shutil.rmtree(run.folder / "spark", ignore_errors=True)

    def _run(self, run: Run) -> None:
        total = sum(run.state["counts"])
        begin, worker = run.now(), _Sparker(run)
        with Follower(run, OUT, None) as follower:
            while worker.taken < total and worker.transact(worker.take) is not None:
                pass
            follower.expected = worker.taken
        settle(run, [worker])
        run.payload = sum(batch.bytes for batch in run.trace.batches)
        run.seconds = (run.trace.transactions[-1].reply or begin) - begin
        run.seconds /= 1e9


class _Sparker(WorkerRun):
    """Takes share after share. `taken`: the records of those that are committed or under way."""

    def __init__(self, run: Run) -> None:
        super().__init__(run, "spark", RESHARDER)
        system: Any = run.system
        self._path = system.db.path
        self._size = run.shape.record_size or DEMO_BYTES
        self._share = -(-sum(run.state["counts"]) // SHARES)
        self.taken = 0

    def begin(self) -> Attempt:
        from ....spark.transaction import transaction

        tx, start = self.run.trace.next_tx(), self.run.now()
        work: Any = _SparkWork(transaction(self._path).__enter__())
        return Attempt(tx, work, start)

    def take(self, attempt: Attempt) -> None:
        work: Any = attempt.work
        tx: SparkTransaction = work.tx
        due = self.run.now()
        records = tx.read(IN, RESHARDER, max_records=self._share)
        by_user = records.repartition("key").sortWithinPartitions("partition", "offset")
        tx.write(by_user.select("key", "value"), topic=OUT)
        trace = self.run.trace
        for partition, (first, last) in tx.consumed(IN, RESHARDER).items():
            if first < last:
                lane = trace.lane(CONSUMER, f"{IN}/{RESHARDER}", partition)
                attempt.operations.append(Operation(attempt.tx, CONSUME, lane, first, last))
                lane, size = trace.lane(TOPIC, IN, partition), (last - first) * self._size
                row = Batch(attempt.tx, self.name, lane, first, last - first, size, due, None)
                attempt.batches.append(row)
        self.taken += tx.records

    def commit(self, attempt: Attempt) -> None:
        work: Any = attempt.work
        work.counted = attempt.record_counts
        super().commit(attempt)


class _SparkWork:
    """A transaction, as a WorkerRun uses it. `counted` gets its records by topic and partition: no other writes."""

    counted: Any

    def __init__(self, tx: "SparkTransaction") -> None:
        self.id, self.tx = "", tx

    def commit(self) -> Certificate:
        self.tx.__exit__(None, None, None)
        receipt = self.tx.receipt
        assert receipt is not None, "a consumer's position fences it"
        self.id = receipt.id
        spans = {where: span for where, span in receipt.published.items() if span is not None}
        if receipt.place.n is None:
            for where, (begin, end_) in spans.items():
                if where[0] == OUT:
                    self.counted[where] += end_ - begin
            return Certificate(epoch=receipt.epoch, published=spans)
        return Certificate(receipt.place.step, receipt.place.n, receipt.epoch, spans)

    def rollback(self) -> None:
        error = RuntimeError("rolled back")
        self.tx.__exit__(type(error), error, None)
