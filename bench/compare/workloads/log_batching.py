"""Offers small transactions at several rates, to show what batched logs of coordinators save (PIP-160).

    100 tx/s ─ 300 tx/s ─ 1,000 tx/s ─ …              one part after the other, open loop, IN_FLIGHT workers
    "in" p ─ read 1 ─▶ write 1 to "out" p ─ commit    each worker has a partition of its own

A batched log waits a moment for further records, and writes them as one entry. A turn of the engine that serves
several inputs has one sync anyway: systems without group commit show what batching saves where it has not.

Each part reports the counts of one transaction: records that logs took, entries of these (appends), different logs
of each turn (entries), and syncs. It also reports bytes and CPU. Where the rate was sustained it reports latencies,
from when a transaction was due. A part takes PART_S at least, so a short run leaves out the highest rates.

Next: aborts.py.
"""

from functools import partial
from typing import Any, ClassVar

from ..measure import SUSTAINED_SHARE, Latencies
from .base import Run, Verdict, Workload
from .driving import Attempt, due_times, threads
from .inputs import filler_records, load
from .meter import Meter
from .retrying import Retrier
from .verifying import verify_passed_on

IN, OUT, CONSUMER = "in", "out", "batcher"
RATES = (100, 300, 1_000, 3_000, 10_000)
PART_S = 1.0
IN_FLIGHT = 16
_GRACE_SHARE = 0.05
"""Share of a part's time for what was due near its end."""
_RECORD_BYTES = 100
_LOADED = 5_000


def rates_of(duration: float) -> tuple[int, ...]:
    return RATES[: max(1, int(duration / PART_S))]


def _each(rate: int, seconds: float) -> int:
    """Returns a worker's number of transactions in one part."""
    return max(1, int(rate * seconds / IN_FLIGHT))


class LogBatching(Workload):
    name = "log-batching"
    about = "consume one record, write one, at rising rates: what batched logs save"
    feeds: ClassVar = {OUT: f"{IN}/{CONSUMER}"}

    def prepare(self, run: Run) -> None:
        run.system.prepare({IN: IN_FLIGHT, OUT: IN_FLIGHT})
        rates = rates_of(run.shape.duration)
        seconds = run.shape.duration / len(rates)
        counts = [sum(_each(rate, seconds) for rate in rates)] * IN_FLIGHT
        run.state["counts"] = counts
        load(run, IN, counts, filler_records(b"b" * (_RECORD_BYTES - 24)), _LOADED)

    def run(self, run: Run) -> None:
        rates, began = rates_of(run.shape.duration), run.now()
        for rate in rates:
            run.extra[str(rate)] = _part(run, rate, run.shape.duration / len(rates))
        run.seconds = (run.now() - began) / 1e9
        run.payload = run.transactions * _RECORD_BYTES

    def verify(self, run: Run) -> Verdict:
        return verify_passed_on(run, IN, OUT, CONSUMER, run.state["counts"])


def _part(run: Run, rate: int, seconds: float) -> dict[str, Any]:
    """Offers one rate; returns its figures, each count for one transaction."""
    prefix, count, done = f"at_{rate}_", _each(rate, seconds), Latencies()
    workers = [Retrier(run, f"batcher-{n}", CONSUMER, n, prefix) for n in range(IN_FLIGHT)]
    meter, begin = Meter(run), run.now()
    until = begin + int((1 + _GRACE_SHARE) * seconds * 1e9)

    def body(worker: Retrier, attempt: Attempt) -> None:
        chunk = worker.read(attempt, IN, worker.number, 1)
        if chunk.values:
            worker.write(attempt, OUT, chunk.values, worker.number)

    def work(worker: Retrier) -> None:
        first = begin + worker.number * 1_000_000_000 // rate
        for _, due in due_times(run, first, IN_FLIGHT / rate, count):
            if run.now() > until or not worker.repeat(partial(body, worker), until):
                return
            done.add(run.now() - due)

    threads(run, [partial(work, worker) for worker in workers])
    meter.stop()
    for worker in workers:
        worker.settle()
    committed = sum(worker.committed for worker in workers)
    run.transactions += committed
    run.cancelled += sum(worker.causes.total() for worker in workers)
    sustained = committed >= SUSTAINED_SHARE * count * IN_FLIGHT
    steps, appends = meter.counters.steps, meter.counters.appends
    records = sum(steps.values()) if steps else None
    costs = meter.of_one(committed, "appends", "entries", "syncs", "disk_bytes", "cpu_ms")
    commit = run.latency(prefix + "commit_ms")
    latencies = {"commit_ms": commit.summary(), "done_ms": done.summary()} if sustained else {}
    return {
        "sustained": sustained,
        "per_second": round(committed / meter.seconds, 1),
        "records": None if records is None else round(records / max(1, committed), 3),
        "records_per_append": round(records / appends, 3) if records and appends else None,
        "bytes": costs.pop("disk_bytes"),
        **costs,
        **latencies,
    }
