"""Writes the same bytes as reshard without transactions, as when nothing has to be atomic.

    writer w, each piece when it is due ─▶ written by key to all partitions ─▶ acknowledged

The system decides how it does a plain write: as a transaction of its own with a place, or as an idempotent
produce. Next: interval.py.
"""

from functools import partial
from typing import ClassVar

from ...judges.trace import TOPIC, Batch
from .base import Room, Run, Verdict, Workload
from .driving import LEAD_NS, Arrivals, Follower, add_latencies, threads
from .inputs import Input
from .reshard import OUT, Plan
from .verifying import verify_whole


class Plain(Workload):
    name = "plain"
    about = "the same bytes as reshard, written without transactions"
    shares_rate: ClassVar = True
    room: ClassVar[Room | None] = Room(1.5, 1.2)

    def prepare(self, run: Run) -> None:
        run.system.prepare({OUT: run.shape.partitions})
        plan, generator = Plan(run), Input(run.shape)
        if run.shape.rate is None:  # generated before the clock runs: the writers only write
            plan.pieces = min(plan.pieces, 100)
        run.state["pieces"] = [
            [generator.records(w, n * plan.records, plan.records) for n in range(plan.pieces)]
            for w in range(plan.workers)
        ]

    def run(self, run: Run) -> None:
        plan = Plan(run)
        pieces = run.state.pop("pieces")
        counts = [len(mine) * plan.records for mine in pieces]
        paced = run.shape.rate is not None
        arrivals = Arrivals(counts) if paced else None
        writers = [run.system.writer(OUT) for _ in pieces]
        follower = Follower(run, OUT, arrivals, sum(counts) if paced else None)
        begin = run.now() + (LEAD_NS if paced else 0)

        def write(number: int, mine: list[tuple[list[bytes], list[bytes]]]) -> None:
            name, lane = f"writer-{number}", run.trace.lane(TOPIC, "made", number)
            for n, due in plan.due_times(run, begin, number, len(mine)):
                values, keys = mine[n]
                first = n * plan.records
                if arrivals is not None:
                    arrivals.is_due(number, first, len(values), due)
                writers[number](values, keys, None)
                size = sum(map(len, values))
                run.trace.batches.append(
                    Batch(-1, name, lane, first, len(values), size, due, run.now())
                )

        with follower:
            threads(run, [partial(write, number, mine) for number, mine in enumerate(pieces)])
        batches = run.trace.batches
        run.state["written"] = written = [0] * len(pieces)
        for batch in batches:
            written[run.trace.lanes[batch.lane].partition] += batch.records
        run.payload = sum(batch.bytes for batch in batches)
        run.seconds = (max(batch.written or 0 for batch in batches) - begin) / 1e9
        if arrivals is not None:
            size = sum(len(value) for mine in pieces for values, _ in mine for value in values)
            run.offered = plan.offered(size)
            add_latencies(run, arrivals, batches)

    def verify(self, run: Run) -> Verdict:
        return verify_whole(run, OUT, run.state["written"], run.shape.partitions, by_key=True)
