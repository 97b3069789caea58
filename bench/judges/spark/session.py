"""Starts the judge's Spark session, which is silent and writes into one folder only.

    start("compare", folder)          local[*], the machine's Java or pip's
    start("compare", folder, master)  any cluster; its own settings hold (SPARK_CONF_DIR, spark-defaults)

Next: loading.py.
"""

import os
from pathlib import Path
from typing import Any

from planstep.spark.session import LOCAL, NoSpark, is_local, session

__all__ = ["LOCAL", "NoSpark", "end", "is_local", "java_of", "java_pid", "start"]

_FOR_MINUTES = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m"
"""Java's options: its second compiler would take half of the time of a judge, who ends before that pays."""
_JAVA_VERSION = "java_method('java.lang.System', 'getProperty', 'java.version')"


def start(app: str, folder: Path, master: str | None = None, memory: str = "2g") -> Any:
    """Returns a SparkSession; one that runs in this process already is returned as it is. NoSpark.

    folder   exists; scratch files go there, and the caller removes them once the session has stopped; no comma in
             its path, where Spark would split it
    master   None: local[*]
    memory   of the driver's Java; with a local master all of Spark's
    """
    master = master or LOCAL
    settings = {
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": os.fspath(folder.resolve() / "warehouse"),
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    }
    if is_local(master):
        settings["spark.driver.defaultJavaOptions"] = _FOR_MINUTES
    return session(app, master, settings, folder=folder, quiet=is_local(master))


def end(spark: Any) -> None:
    """Stops the session and its Java, so that the next `start` has settings of its own. Once is enough."""
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        running = SparkSession.active()
    except PySparkRuntimeError:  # no session is active
        return
    if running.sparkContext is not spark.sparkContext:
        return
    spark.stop()
    # PySpark keeps its connection and its Java until Python ends, and has no public name for them. Without them its
    # next session starts a Java of its own.
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # PySpark's Java ends then
        gateway.proc.wait(60)


def java_pid(spark: Any) -> int:
    """Returns the process id of the Java that Spark's driver runs on."""
    return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())


def java_of(spark: Any) -> str:
    """Returns the version of the Java that a session's tasks run on, as "17.0.15"."""
    return str(spark.sql(f"SELECT {_JAVA_VERSION}").first()[0])
