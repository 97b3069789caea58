"""Reshards a topic by user with Spark, and counts by user: each event once, whatever is killed. An example to copy.

    events ─ Spark: repartition by user ─┬▶ events-by-user ──┐
                                         └▶ totals += counts ┴─ one transaction for each batch

    python -m planstep.spark.reshard STORE batch     takes what is there, at most 100,000 events a transaction
    python -m planstep.spark.reshard STORE stream    the same as a stream, with a checkpoint beside the store

Run it again after any end: a batch job goes on at its consumer's position, a stream at its checkpoint. Where there
is no table totals (modes "kafka" and "pulsar"), the topic totals keeps each user's sum in the user's last record.

Next: transaction.py.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import planstep

from .transaction import SparkTransaction, transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS, BY_USER, TOTALS, CONSUMER = "events", "events-by-user", "totals", "resharder"
USER = "split(CAST(value AS STRING), ' ')[2]"
"""The user of an event, in Spark's SQL: an event is a line "number writer user request"."""
SIZE = 100_000


def parts(events: "DataFrame") -> "tuple[DataFrame, DataFrame]":
    """Returns the events by user, in their order, and the users' counts."""
    users = events.selectExpr("*", f"{USER} AS user").repartition("user")
    ordered = users.sortWithinPartitions("partition", "offset")
    counts = users.groupBy("user").count()
    return (
        ordered.selectExpr("user AS key", "value", "headers"),
        counts.selectExpr("user AS key", "count AS value"),
    )


def reshard(tx: SparkTransaction, events: "DataFrame", table: bool) -> None:
    """Writes the events by user, and adds to the users' totals."""
    by_user, counts = parts(events)
    tx.write(by_user, topic=BY_USER)
    if table:
        tx.write(counts, table=TOTALS, add=True)
    else:
        tx.write(counts, topic=TOTALS, add=True)


def has_table(path: str) -> bool:
    with planstep.open(path, create=False, read_only=True) as db:
        return TOTALS in db.tables()


def run_batches(path: str, size: int = SIZE) -> int:
    """Reshards until no event is left; returns the number of transactions."""
    table, number = has_table(path), 0
    while True:
        with transaction(path) as tx:
            events = tx.read(EVENTS, CONSUMER, max_records=size)
            if tx.records:
                reshard(tx, events, table)
        if not tx.records:
            return number
        number += 1


def run_stream(spark: "SparkSession", path: str, size: int = SIZE) -> None:
    """Reshards what is there as a stream. A new checkpoint needs a new `query_id`."""
    table = has_table(path)

    def save(events: "DataFrame", number: int) -> None:
        with transaction(path, query_id="reshard", batch_id=number) as tx:
            reshard(tx, events, table)

    run_foreach(spark, path, size, save)


def run_foreach(
    spark: "SparkSession", path: str, size: int, save: Callable[["DataFrame", int], None]
) -> None:
    """Runs the stream of events over what is there."""
    stream = spark.readStream.format("planstep").options(path=path, topic=EVENTS)
    query = (
        stream.option("maxOffsetsPerTrigger", size)
        .load()
        .writeStream.foreachBatch(save)
        .option("checkpointLocation", f"{path}.checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    from .session import session

    _, store, how = sys.argv
    spark = session("reshard")
    run_stream(spark, store) if how == "stream" else run_batches(store)
