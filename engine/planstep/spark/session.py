"""Starts a Spark session that finds the data source and a Java, wherever this Python runs.

    session()                  local[*], with the machine's Java or pip's; Spark's files are where Spark puts them
    session(folder=…)          all of Spark's files are in the folder
    session(master="spark://…")   a cluster; its own settings hold (SPARK_CONF_DIR, spark-defaults)

It avoids PySpark's traps: processes of another Python than this one, which lacks planstep (DATA_SOURCE_NOT_FOUND);
no Java; a host name that does not resolve; loads with more tasks than run at once.

It imports Spark when it is called. Next: java.py.
"""

import os
import re
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import PlanstepError
from .java import NoJava, find_java
from .private import PrivateFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCAL = "local[*]"
PARALLELISM = "PLANSTEP_SPARK_PARALLELISM"
"""An environment variable that tells processes which plan a load how many tasks run at once; Spark does not."""
_SETTINGS = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_HERE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_QUIET = """# Spark says errors only.
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
"""


class NoSpark(PlanstepError):
    """Spark cannot start here: says why, and what to do."""


def is_local(master: str | None) -> bool:
    """Tells whether Spark runs in one process; without a master it does."""
    return master is None or re.match(r"local(\[|$)", master) is not None


def session(
    app: str = "planstep",
    master: str = LOCAL,
    config: Mapping[str, str] | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    quiet: bool = False,
) -> Any:
    """Returns a SparkSession; one that runs in this process already is returned as it is. NoSpark.

    config   further settings of Spark's, such as {"spark.driver.memory": "4g"}; they go before those set here
    folder   for all files of Spark's with a local master: scratch files, warehouse, Java's temporary files. It
             exists, and has no comma in its path, where Spark would split it; remove it after `stop()`
    quiet    Spark prints errors only, and no progress
    """
    if find_spec("pyspark") is None:
        raise NoSpark('PySpark is not installed: pip install "planstep[spark]"')
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    environment: dict[str, str] = {
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    settings = _SETTINGS | dict(config or {})
    tasks = settings.get("spark.default.parallelism") or _cores(master)
    if tasks is not None:
        environment[PARALLELISM] = os.environ.get(PARALLELISM, tasks)
    if is_local(master):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        if environment["PYSPARK_PYTHON"] == sys.executable:  # another one may lack planstep
            settings = {"spark.python.daemon.module": "planstep.spark.daemon"} | settings
        settings = _HERE | settings
        if folder is not None:
            settings = _within(Path(folder).resolve()) | settings
    if quiet:
        environment["SPARK_CONF_DIR"] = _quiet(folder)
        settings = {"spark.ui.showConsoleProgress": "false"} | settings
    try:
        environment["JAVA_HOME"], _ = find_java(lambda: _own(folder))
    except NoJava as error:
        raise NoSpark(str(error)) from None
    builder = SparkSession.builder.appName(app).master(master).config(map=settings)
    with _environment(environment):
        try:
            return builder.getOrCreate()
        except Exception as error:  # PySpark's, py4j's and the system's own
            first = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise NoSpark(f"Spark did not start: {first}") from error


def _cores(master: str) -> str | None:
    """Returns how many tasks a master that names a number runs at once."""
    local = re.fullmatch(r"local(?:\[\s*(\d+)\s*(?:,.*)?\])?", master)
    if local:
        return local[1] or "1"
    cluster = re.match(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)", master)
    return str(int(cluster[1]) * int(cluster[2])) if cluster else None


@contextmanager
def _environment(names: Mapping[str, str]) -> "Iterator[None]":
    """Sets variables while Spark's Java starts, which passes them on to the processes that it starts."""
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _within(folder: Path) -> dict[str, str]:
    return {
        "spark.sql.warehouse.dir": os.fspath(folder / "warehouse"),
        "spark.local.dir": os.fspath(folder / "scratch"),
        "spark.driver.extraJavaOptions": _java_option(
            f"-Djava.io.tmpdir={_create(folder / 'tmp')}"
        ),
    }


def _own(folder: str | os.PathLike[str] | None) -> Path:
    """Returns the folder for files of this module's: the caller's, or one that goes when this process ends."""
    return _private().path if folder is None else Path(folder).resolve()


@cache
def _private() -> PrivateFolder:
    return PrivateFolder("planstep-session-")


def _quiet(folder: str | os.PathLike[str] | None) -> str:
    conf = _create(_own(folder) / "conf")
    (conf / "log4j2.properties").write_text(_QUIET)
    return os.fspath(conf)


def _java_option(option: str) -> str:
    """Quotes an option: Spark's launcher splits options at spaces."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _create(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
