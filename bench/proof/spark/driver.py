"""Runs the model task as a Spark job until it is done: `python -m planstep.bench.proof.spark.driver PLAN`.

    batch     transactions that read from a consumer's position
    stream    a transaction in each foreachBatch
    sink      two writes in each foreachBatch, each committed by a process of Spark's

PLAN is a file of JSON. The driver tries again after an error of Spark's, as a killed task or sink gives one; its
caller starts it again when it was killed itself.

Next: ../rows/spark.py.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

from ....spark import reshard
from ....spark.session import session
from . import points as points  # the driver commits transactions: its import installs the phases
from .kills import DRIVER, JAVA, VARIABLE

_TRIES = 20


def run(plan: dict[str, Any]) -> None:
    spark = session(
        "proof",
        plan["master"],
        {
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false",
            "spark.ui.enabled": "false",
        },
        folder=plan["folder"],
        quiet=True,
    )
    for name, pid in ((JAVA, _java()), (DRIVER, os.getpid())):
        Path(os.environ[VARIABLE], name).write_text(str(pid))
    jobs: dict[str, Callable[[], object]] = {
        "batch": lambda: reshard.run_batches(plan["store"], plan["size"]),
        "stream": lambda: reshard.run_stream(spark, plan["store"], plan["size"]),
        "sink": lambda: run_writes(spark, plan["store"], plan["size"]),
    }
    for number in range(_TRIES):
        try:
            jobs[plan["job"]]()
            return
        except PySparkException as error:
            if number + 1 == _TRIES:
                raise
            print(f"again after {str(error)[:200]!r}", file=sys.stderr)


def _java() -> int:
    """Returns the process of this Spark's Java, a child of this one."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return next(int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "java\n")


def run_writes(spark: Any, path: str, size: int) -> None:
    """Runs the stream with a write for each target, without a transaction around them."""
    table = reshard.has_table(path)

    def save(events: Any, number: int) -> None:
        by_user, counts = reshard.parts(events)
        totals = {"table" if table else "topic": reshard.TOTALS}
        for frame, options in ((by_user, {"topic": reshard.BY_USER}), (counts, totals)):
            write = frame.write.format("planstep").mode("append").options(path=path, **options)
            write.options(queryId="sink", batchId=number, add=frame is counts).save()

    reshard.run_foreach(spark, path, size, save)


if __name__ == "__main__":
    run(json.loads(Path(sys.argv[1]).read_text()))
