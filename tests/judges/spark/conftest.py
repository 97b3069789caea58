"""Starts one Spark for all files of tests here: it takes seconds to start, and longer to be warm."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.judges.spark.session import end, start

FOR_LITTLE_DATA = {
    "spark.sql.adaptive.enabled": "false",  # saves a second a query
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",  # avoids compiling Java for each query over a thousand rows
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings for these tests only: a Spark that a comparison starts for itself has Spark's defaults for them."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    other = SparkSession.getActiveSession()
    if other is not None:  # another folder's session, with settings of its own
        end(other)
    session = start("tests", Path(tmp_path_factory.mktemp("spark")), "local[2]")
    for name, value in FOR_LITTLE_DATA.items():
        session.conf.set(name, value)
    yield session
    end(session)
