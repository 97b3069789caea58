"""One Spark for each file of tests: it takes seconds to start, and another folder has settings of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.spark.session import end, start


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = start("tests", Path(tmp_path_factory.mktemp("spark")), "local[2]")
    yield session
    end(session)
