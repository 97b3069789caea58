"""Gives these tests a folder in memory if the system has one."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """Replaces tmp_path for tests that open thousands of stores and do not need a disk."""
    yield from _in_memory(tmp_path)


@pytest.fixture(scope="module")
def module_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Is quick_path for files that a module's tests share."""
    yield from _in_memory(tmp_path_factory.mktemp("module"))


def _in_memory(disk: Path) -> Iterator[Path]:
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield disk
        return
    folder = Path(tempfile.mkdtemp(prefix="planstep-", dir=memory))
    yield folder
    shutil.rmtree(folder)
