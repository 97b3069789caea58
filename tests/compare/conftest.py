"""Opens a store of the system that the fixture `name` names."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.compare.systems import ENTRIES, open_system
from planstep.bench.compare.systems.base import Options, System
from planstep.bench.compare.systems.servers import Server


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Starts a server at the first use of a system that has one, and keeps it for all tests; returns its address.

    It syncs at each commit. Systems that share a server's kind share it.
    """
    running: dict[object, Server] = {}

    def address_of(name: str) -> str:
        start = ENTRIES[name].server
        if start is None:
            return ""
        if start not in running:
            running[start] = start(tmp_path_factory.mktemp("server"), Options())
        return running[start].address

    yield address_of
    for server in running.values():
        server.close()


@pytest.fixture
def opened(
    name: str, tmp_path: Path, address: Callable[[str], str]
) -> Iterator[Callable[..., System]]:
    """Opens the same store at each call, and closes the one before."""
    systems: list[System] = []

    def make(**options: object) -> System:
        if systems:
            systems.pop().close()
        server = address(name)
        systems.append(open_system(name, tmp_path, Options(**options, server=server)))
        return systems[-1]

    yield make
    for system in systems:
        system.drop()
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
