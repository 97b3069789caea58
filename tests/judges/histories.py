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

Identity = tuple[int, int, int]  # source, ordinal, transaction


def put(
    trace: Trace, partition: int, records: list[Identity], topic: str = "out", at: int = 0
) -> None:
    """Adds records to the store."""
    lane = trace.lane(TOPIC, topic, partition)
    trace.records.add(lane, range(at, at + len(records)), [identity(*record) for record in records])


def show(trace: Trace, poll: int, records: dict[int, Identity], at: int = 100) -> None:
    """Shows records of partition 0 to the reader."""
    values = [identity(*record) for record in records.values()]
    trace.seen.add(trace.lane(TOPIC, "out", 0), list(records), values, poll, at)


def add_transaction(
    trace: Trace, tx: int, outcome: str = COMMITTED, worker: str = "", **more: int
) -> None:
    trace.transactions.append(Transaction(tx, str(tx), worker or f"w{tx}", outcome, **more))


def add_produce(trace: Trace, tx: int, records: int, partition: int = 0) -> None:
    lane = trace.lane(TOPIC, "out", partition)
    trace.operations.append(Operation(tx, PRODUCE, lane, records=records))


def add_consume(
    trace: Trace, tx: int, begin: int, end: int, name: str = "in/c", partition: int = 0
) -> None:
    lane = trace.lane(CONSUMER, name, partition)
    trace.operations.append(Operation(tx, CONSUME, lane, begin, end))


def of_an_aborted_one(stored: int) -> Trace:
    """Builds a history whose records name no transaction: an aborted one consumed [1, 3), a committed one follows.

    `stored`: the number of the aborted transaction's records in the store.
    """
    trace = Trace()
    for tx, (outcome, begin, end) in enumerate(
        ((COMMITTED, 0, 1), (ABORTED, 1, 3), (COMMITTED, 3, 4))
    ):
        add_transaction(trace, tx, outcome)
        add_consume(trace, tx, begin, end)
    put(trace, 0, [(0, n, -1) for n in (0, *range(1, 1 + stored), 3)])
    return trace
