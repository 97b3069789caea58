"""Starts a Spark session that is silent, writes into one folder only, and runs wherever Python does.

    start("compare", folder)          local[*], the machine's Java or pip's
    start("compare", folder, master)  any cluster; its own settings hold (SPARK_CONF_DIR, spark-defaults)

It avoids PySpark's traps: workers of another Python than this one; a host name that does not resolve; a progress
bar in the output; `spark-warehouse` and scratch files in the working directory.

Next: loading.py.
"""

import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .java import NoJava, find_java

LOCAL = "local[*]"
_JAVA_VERSION = "java_method('java.lang.System', 'getProperty', 'java.version')"


class NoSpark(Exception):
    """Spark cannot start here: says why, and what to do."""


def is_local(master: str | None) -> bool:
    return master is None or re.match(r"local(\[|$)", master) is not None


def start(app: str, folder: Path, master: str | None = None, memory: str = "2g") -> Any:
    """Returns a SparkSession; one that runs in this process already is returned as it is. NoSpark.

    folder   exists; scratch files go there, and the caller removes them once the session has stopped; no comma in
             its path, where Spark would split it
    master   None: local[*]
    memory   of the driver's Java; with a local master all of Spark's
    """
    if find_spec("pyspark") is None:
        raise NoSpark('PySpark is not installed: pip install "planstep[spark]"')
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    folder = folder.resolve()
    try:
        home, _ = find_java(folder)
    except NoJava as error:
        raise NoSpark(str(error)) from None
    environment = {
        "JAVA_HOME": home,
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }
    settings = {
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": os.fspath(folder / "warehouse"),
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if is_local(master):
        environment |= {"SPARK_CONF_DIR": _quiet(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": os.fspath(folder / "scratch"),
            "spark.driver.extraJavaOptions": _java_option(
                f"-Djava.io.tmpdir={_create(folder / 'tmp')}"
            ),
        }
    builder = SparkSession.builder.appName(app).master(master or LOCAL).config(map=settings)
    before = {name: os.environ[name] for name in environment if name in os.environ}
    os.environ.update(environment)
    try:
        return builder.getOrCreate()
    except Exception as error:  # PySpark's, py4j's and the system's own
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise NoSpark(f"Spark did not start: {first}") from error
    finally:
        for name in environment:
            del os.environ[name]
        os.environ.update(before)


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


def java_of(spark: Any) -> str:
    """Returns the version of the Java that a session's tasks run on, as "17.0.15"."""
    return str(spark.sql(f"SELECT {_JAVA_VERSION}").first()[0])


def _java_option(option: str) -> str:
    """Quotes an option: Spark's launcher splits options at spaces."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _quiet(folder: Path) -> str:
    conf = _create(folder / "conf")
    shutil.copyfile(Path(__file__).with_name("log4j2.properties"), conf / "log4j2.properties")
    return os.fspath(conf)


def _create(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
