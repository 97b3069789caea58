"""Fixtures of the benchmarks: an engine on disk, and a file to append to."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import planstep
from planstep.store.files import Files


@pytest.fixture
def db(tmp_path: Path) -> Iterator[planstep.Engine]:
    with planstep.open(tmp_path / "bench.planstep") as engine:
        yield engine


@pytest.fixture
def append(tmp_path: Path) -> Iterator[Callable[[bytes], None]]:
    """Yields a bare durable append to a preallocated file, which no engine can beat."""
    files = Files()
    path = tmp_path / "bare"
    size = 1 << 30
    files.allocate(path, size)
    fd = os.open(path, os.O_RDWR)
    at = 0

    def write(data: bytes) -> None:
        nonlocal at
        if at + len(data) > size:
            at = 0
        files.write(fd, [data], at, True)
        at += len(data)

    yield write
    os.close(fd)
