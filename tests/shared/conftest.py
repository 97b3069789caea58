"""Gives these tests each kind of shared log."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from shared_kit import Backing, InFolder, InMemory


@pytest.fixture(params=["memory", "folder"])
def backing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backing]:
    """An empty log in memory, and one in a folder."""
    if request.param == "memory":
        yield InMemory()
        return
    folder = InFolder(tmp_path / "shop")
    yield folder
    folder.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[InFolder]:
    """An empty log in a folder."""
    folder = InFolder(tmp_path / "shop")
    yield folder
    folder.close()
