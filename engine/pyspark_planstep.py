"""Offers the data source "planstep" to Spark, which looks for a module of this name; see planstep/spark/source.py.

spark.read.format("planstep").option("path", "shop.planstep").option("topic", "clicks").load()
spark = pyspark_planstep.session()
with pyspark_planstep.snapshot("shop.planstep", tables=["totals"]) as snap: ...
with pyspark_planstep.transaction("shop.planstep") as tx: tx.write(df, topic="clicks")
"""

from planstep.spark.session import NoSpark, session
from planstep.spark.snapshots import Snapshot, snapshot
from planstep.spark.source import Source as DefaultSource
from planstep.spark.source import as_of_step, release
from planstep.spark.transaction import SparkTransaction, transaction

__all__ = [
    "DefaultSource",
    "NoSpark",
    "Snapshot",
    "SparkTransaction",
    "as_of_step",
    "release",
    "session",
    "snapshot",
    "transaction",
]
