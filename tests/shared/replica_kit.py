"""Shares helpers between tests of replicated stores: machines of one shared log, and ways to it that fail.

A machine is a folder. The log is the real one; a test strikes around it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import until

import planstep
from planstep.errors import IoError
from planstep.shared.entry import Entry
from planstep.shared.files_log import FileObjects
from planstep.shared.patient import LOG_TIMEOUT
from planstep.shared.registry import open_shared_log
from planstep.shared.shared_log import Position


class Machines:
    """Folders of one store, with the URL of their shared log."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.url = (home / "log").as_uri()

    def folder(self, name: str) -> Path:
        return self.home / name

    def open(self, name: str, **settings: Any) -> planstep.Engine:
        return planstep.open(self.folder(name), **{"replicate": self.url, **settings})

    def replicate(self, **settings: Any) -> planstep.Replicate:
        return planstep.Replicate(self.url, **settings)

    def open_local(self, name: str, **settings: Any) -> planstep.Engine:
        """Opens it for reads that do not ask the log."""
        return planstep.open(self.folder(name), replicate=self.replicate(reads="local"), **settings)

    def take_over(self, name: str, **settings: Any) -> planstep.Engine:
        return self.open(name, takeover=True, **settings)

    def entries(self) -> list[Entry]:
        """Returns all entries of the shared log."""
        log, _ = open_shared_log(self.url, None)
        try:
            log.open(Position())
            return list(_all(log))
        finally:
            log.close()


def _all(log: Any) -> Iterator[Entry]:
    while entries := log.read(1 << 20, 0):
        yield from entries


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


def nothing(_: Entry) -> None:
    pass


class Hooks:
    """Functions that are called before and after the appends of all shared logs that a test opens."""

    def __init__(self) -> None:
        self.before: Callable[[Entry], object] = nothing
        self.after: Callable[[Entry], object] = nothing
        self.barrier: Callable[[], object] = lambda: None
        self.timeout = LOG_TIMEOUT


class HookedLog:
    """A shared log whose appends call hooks."""

    def __init__(self, log: Any, hooks: Hooks) -> None:
        self._log = log
        self._hooks = hooks

    def append(self, entry: Entry) -> bytes:
        self._hooks.before(entry)
        mark: bytes = self._log.append(entry)
        self._hooks.after(entry)
        return mark

    def barrier(self) -> None:
        self._hooks.barrier()
        self._log.barrier()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Hooks:
    """Hooks of all shared logs, and their time-out."""
    hooks = Hooks()

    def opened(url: str, root: Any, _: float) -> Any:
        log, root = open_shared_log(url, root, hooks.timeout)
        return HookedLog(log, hooks), root

    monkeypatch.setattr("planstep.runtime.replication.open_shared_log", opened)
    return hooks


class Line:
    """The way to the files of a shared log. The next `failing` calls fail, done or not (`arrives`)."""

    def __init__(self) -> None:
        self.failing = 0.0
        self.arrives = False

    def pass_on(self, call: Callable[..., Any], *args: Any) -> Any:
        if self.failing:
            self.failing -= 1
            if self.arrives:
                call(*args)
            raise IoError("the line is cut")
        return call(*args)


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    """The way to all shared logs of the test."""
    line = Line()
    for name in ("create", "get", "names"):
        really = getattr(FileObjects, name)

        def passed(objects: FileObjects, *args: Any, call: Any = really) -> Any:
            return line.pass_on(call, objects, *args)

        monkeypatch.setattr(FileObjects, name, passed)
    return line


def rows(db: planstep.Engine, table: str = "t") -> dict[Any, Any]:
    return dict(db.table(table).scan())


def wait_queued(db: planstep.Engine) -> None:
    """Waits until an input is in the inbox behind the running turn."""

    until(lambda: db._runtime.nodes[0].inbox)


ZOMBIE = """
import os, sys
import planstep

db = planstep.open(sys.argv[1], replicate=sys.argv[2])
table = db.create_table("t")
errors = []
for i in range(1_000_000):
    try:
        table.put(i, "old")
    except planstep.PlanstepError as error:
        errors.append(type(error).__name__)
        if len(errors) == 3:
            break
    else:
        os.write(1, f"{i}\\n".encode())
print(*errors, flush=True)
db.close()
"""
