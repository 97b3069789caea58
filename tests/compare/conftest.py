"""Opens a store of the system that the fixture `name` names."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.compare.systems import open_system
from planstep.bench.compare.systems.base import Options, System


@pytest.fixture
def opened(name: str, tmp_path: Path) -> Iterator[Callable[..., System]]:
    """Opens the same store at each call, and closes the one before."""
    systems: list[System] = []

    def make(**options: object) -> System:
        if systems:
            systems.pop().close()
        systems.append(open_system(name, tmp_path, Options(**options)))
        return systems[-1]

    yield make
    for system in systems:
        system.close()


@pytest.fixture
def system(opened: Callable[..., System]) -> System:
    system = opened()
    system.prepare({"in": 4, "out": 4}, ("state",))
    return system


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Returns the caller of comparing.py, which needs the command line's packages."""
    from comparing import caller

    return caller(monkeypatch)
