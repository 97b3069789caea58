"""Aborts transactions, and then measures what their ids cost: Pulsar's issue #16042.

    "aborted-1000"   write 1 ─ rollback   1,000 times │ write 1 ─ commit or rollback, in turn   ENDS times
                     ids that readers must skip       │ bytes, time and snapshots with that many ids
    afterwards       open ─ first read of each topic: time, memory

Where data lies in the log before its transaction ends, somebody must remember which transactions were aborted, as
long as their records are there. Each size has a topic of its own with one partition. Where a mode takes
snapshots of aborted ids, `plan.py` has it take them often, so that a short run sees several.

Verified: readers are shown what was committed, and nothing else.

A size needs some of the run's time, so a short run leaves out the large ones.

Next: ../systems/__init__.py.
"""

import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from ..measure import own_bytes
from ..systems import open_system
from .base import Run, Verdict, Workload
from .driving import Attempt, WorkerRun, threads
from .inputs import Maker
from .verifying import verify_whole

SIZES = (10, 100, 1_000, 10_000)
SECONDLY = 400
"""Aborts that a run may take for each second of its duration."""
ENDS = 200
_RECORD_BYTES = 100


def sizes_of(duration: float) -> tuple[int, ...]:
    return tuple(size for size in SIZES if size <= max(SIZES[0], duration * SECONDLY))


def topic_of(size: int) -> str:
    return f"aborted-{size}"


class Aborts(Workload):
    name = "aborts"
    about = "many aborted transactions: what remembering them costs writers and readers"

    def prepare(self, run: Run) -> None:
        run.system.prepare(dict.fromkeys(map(topic_of, sizes_of(run.shape.duration)), 1))

    def run(self, run: Run) -> None:
        sizes, began = sizes_of(run.shape.duration), run.now()
        makers = run.state["makers"] = {
            size: [Maker(run, source, _RECORD_BYTES, f"aborter-{n}") for n, source in enumerate(at)]
            for size, at in zip(sizes, _sources(run), strict=False)
        }
        for size in sizes:
            run.extra[str(size)] = _size(run, size, makers[size])
        run.seconds = (run.now() - began) / 1e9
        run.payload = run.transactions * _RECORD_BYTES

    def verify(self, run: Run) -> Verdict:
        verdict, makers = Verdict(), run.state["makers"]
        sources = 1 + max(maker.source for mine in makers.values() for maker in mine)
        _open_again(run)
        for size, mine in makers.items():
            counts = [0] * sources
            for maker in mine:
                counts[maker.source] = maker.count
            verdict.add(verify_whole(run, topic_of(size), counts, 1, source="maker"))
        return verdict


def _sources(run: Run) -> list[range]:
    """Returns the workers' numbers as sources, different for each size."""
    workers = run.shape.workers
    return [range(n * workers, (n + 1) * workers) for n in range(len(SIZES))]


def _size(run: Run, size: int, makers: list[Maker]) -> dict[str, Any]:
    """Makes so many aborted transactions, then measures ENDS more, of which every second one is aborted."""
    topic, before = topic_of(size), run.system.counters()
    _part(run, topic, makers, f"fill_{size}_", size, 1)
    filled = run.system.counters()
    began, prefix = run.now(), f"at_{size}_"
    workers = _part(run, topic, makers, prefix, ENDS, 2)
    took, counters = (run.now() - began) / 1e9, run.system.counters().since(filled)
    appends, end_bytes = counters.per("appends", ENDS), counters.per("disk_bytes", ENDS)
    abort_bytes = filled.since(before).per("disk_bytes", size)
    return {
        "bytes_an_abort": None if abort_bytes is None else round(abort_bytes, 1),
        "bytes_an_end": None if end_bytes is None else round(end_bytes, 1),
        "appends_an_end": None if appends is None else round(appends, 3),
        "ends_per_second": round(ENDS / took, 1),
        "committed": sum(worker.committed for worker in workers),
        "commit_ms": run.latency(prefix + "commit_ms").summary(),
        "snapshot_bytes": run.system.snapshot_bytes(topic),
    }


def _part(
    run: Run, topic: str, makers: list[Maker], prefix: str, ends: int, abort_one_in: int
) -> list[WorkerRun]:
    """Ends transactions in all workers, `ends` together; each worker aborts every so many."""
    workers = [WorkerRun(run, f"aborter-{n}", number=n, prefix=prefix) for n in range(len(makers))]

    def work(worker: WorkerRun, maker: Maker, count: int) -> None:
        for n in range(count):
            if run.stop.is_set():
                return
            attempt: Attempt = worker.begin()
            due = run.now()
            worker.write(attempt, topic, maker.make(1, attempt.tx), 0)
            if n % abort_one_in == 0:
                worker.flush(attempt)  # its record is in the log, where a mode has it there
                worker.rollback(attempt)
            else:
                attempt.batches.append(maker.batch(1, due, None, attempt.tx))
                worker.commit(attempt)

    shares = [ends // len(makers) + (n < ends % len(makers)) for n in range(len(makers))]
    threads(run, [partial(work, *each) for each in zip(workers, makers, shares, strict=True)])
    for worker in workers:
        worker.settle()
        run.transactions += worker.committed
    return workers


def _open_again(run: Run) -> None:
    """Opens the store read-only once more; notes the time, that of each topic's first read, and the memory."""
    began, memory = time.perf_counter(), own_bytes()
    options = replace(run.options, rtt=0.0, read_only=True)
    with closing(open_system(run.system.name, run.folder, options)) as system:
        run.extra["open_ms"] = round(1000 * (time.perf_counter() - began), 2)
        for size in run.state["makers"]:
            began = time.perf_counter()
            next(system.records(topic_of(size), 0), None)
            run.extra[str(size)]["first_read_ms"] = round(1000 * (time.perf_counter() - began), 2)
        run.extra["memory_mb"] = round((own_bytes() - memory) / 1e6, 2)
