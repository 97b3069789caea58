"""Builds small histories by hand: transactions, operations, stored records, and a reader's polls."""

from planstep.bench.judges.trace import (
    ABORTED,
    COMMITTED,
    CONSUME,
    CONSUMER,
    PRODUCE,
    TOPIC,
    Operation,
    Trace,
    Transaction,
    identity,
)

Made = tuple[int, int, int]  # source, ordinal, transaction


def put(trace: Trace, partition: int, records: list[Made], topic: str = "out", at: int = 0) -> None:
    """Adds records to the store."""
    lane = trace.lane(TOPIC, topic, partition)
    trace.records.add(lane, range(at, at + len(records)), [identity(*made) for made in records])


def show(trace: Trace, poll: int, records: dict[int, Made], at: int = 100) -> None:
    """Shows records of partition 0 to the reader."""
    values = [identity(*made) for made in records.values()]
    trace.seen.add(trace.lane(TOPIC, "out", 0), list(records), values, poll, at)


def ended(trace: Trace, tx: int, outcome: str = COMMITTED, worker: str = "", **more: int) -> None:
    trace.transactions.append(Transaction(tx, str(tx), worker or f"w{tx}", outcome, **more))


def wrote(trace: Trace, tx: int, records: int, partition: int = 0) -> None:
    lane = trace.lane(TOPIC, "out", partition)
    trace.operations.append(Operation(tx, PRODUCE, lane, records=records))


def took(
    trace: Trace, tx: int, begin: int, end: int, name: str = "in/c", partition: int = 0
) -> None:
    lane = trace.lane(CONSUMER, name, partition)
    trace.operations.append(Operation(tx, CONSUME, lane, begin, end))


def of_an_aborted_one(there: int) -> Trace:
    """Builds a history whose records name no transaction: an aborted one consumed [1, 3), a committed one follows.

    `there`: the number of the aborted transaction's records in the store.
    """
    trace = Trace()
    for tx, (outcome, begin, end) in enumerate(
        ((COMMITTED, 0, 1), (ABORTED, 1, 3), (COMMITTED, 3, 4))
    ):
        ended(trace, tx, outcome)
        took(trace, tx, begin, end)
    put(trace, 0, [(0, n, -1) for n in (0, *range(1, 1 + there), 3)])
    return trace
