"""Runs a driver that writes one batch and is killed meanwhile: `python job.py PATH before|after`"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import pyspark_planstep


def write(spark: SparkSession, path: str, kill: str) -> None:
    """Writes a batch; `kill` is before, after or no."""
    source = "planstep" if kill == "no" else "killing"
    frame = spark.range(0, 1000, numPartitions=4).selectExpr("CAST(id AS string) AS value")
    write = frame.write.format(source).mode("append").option("path", path).option("topic", "t")
    write = write.option("queryId", "numbers").option("batchId", 0)
    if kill != "no":
        jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
        write = write.option("kill", kill).option("jvm", jvm).option("driver", os.getpid())
    write.save()


def main(path: str, kill: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", path + ".local")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    totals = spark.read.format("planstep").options(path=path, table="totals").load()
    snapshot = pyspark_planstep.snapshot(path, tables=["totals"])
    copy = totals.schema["key"].metadata["planstep"]["copy"]
    Path(path + ".left").write_text("\n".join([copy, snapshot.options["snapshot"]]))
    write(spark, path, kill)
    raise AssertionError("it lives")


if __name__ == "__main__":
    main(*sys.argv[1:])
