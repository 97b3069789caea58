"""Gives tests the owner of a store, in another process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from process_kit import Other


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Other]:
    """Has a table `n` and a topic `t`."""
    other = Other(tmp_path / "s")
    other.run("db.create_table('n'); db.create_topic('t')")
    yield other
    other.kill()
