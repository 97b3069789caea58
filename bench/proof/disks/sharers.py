"""Says how processes open the store that they share, and what their lives tell whoever strikes them.

    open ─▶ Begun ─▶ Owns, once it does ── kill -9      s ─▶ Stopped ─▶ g ─▶ State ─▶ c ─▶ closed

Next: copying.py; ../histories/sharing.py; ../rows/struck_processes.py.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ....api import open_engine
from ....api.engine import Engine
from ....api.open_engine import Mode, Placement
from ....runtime import change_of_owner, open_runtime, replication
from ....runtime.processes import link, server
from ....shared.settings import Replicate
from .forked import Say
from .modes import settings_of

WARM = change_of_owner, open_runtime, link, server, replication
"""Modules that the first opening imports: before the first fork."""


class Begun(NamedTuple):
    """A process has the store open."""


class Owns(NamedTuple):
    """A process has become the store's owner."""

    generation: int


class Stopped(NamedTuple):
    """A process's clients have ended."""


class State(NamedTuple):
    """A process whose clients have ended still has this. `lanes`: those that it may read for the consumer."""

    generation: int
    owns: bool
    attached: int
    """Processes at this owner; 0 at an attached process."""
    waiting: int
    admitted: int
    under_way: int
    snapshots: int
    lag: int = 0
    lanes: tuple[int, ...] = ()

    @property
    def has_more(self) -> bool:
        """Returns whether the process has something that none may have in the end."""
        return any(self._replace(generation=0, owns=False, attached=0, lanes=()))


class SharedStore(NamedTuple):
    """A store that processes share, in a folder of `place`. `variant`: of its mode's settings."""

    place: Path
    mode: Mode = "deterministic"
    hosts: int = 1
    placement: Placement = "shared"
    variant: str = ""
    replicated: bool = False

    @property
    def folder(self) -> Path:
        return self.place / "store"

    @property
    def _shared(self) -> Replicate | None:
        return Replicate((self.place / "log").as_uri()) if self.replicated else None

    @property
    def to_read(self) -> tuple[Path, dict[str, Any]]:
        """The folder that shows a closed store's content, and how to open it.

        A replicated one's is another machine's, so it has all from the log.
        """
        if self.replicated:
            return self.place / "elsewhere", {"replicate": self._shared}
        return self.folder, {"read_only": True}

    def open(self) -> Engine:
        settings: Any = settings_of(self.mode, self.variant)
        return open_engine.open(
            self.folder,
            mode=self.mode,
            hosts=self.hosts,
            placement=self.placement,
            replicate=self._shared,
            **settings,
        )


def state_of(db: Engine, under_way: int, lag: int = 0, lanes: tuple[int, ...] = ()) -> State:
    """Returns what a process has of a store."""
    stats, runtime = db.stats(), db.context.runtime
    return State(
        runtime.generation,
        runtime.link is None,
        stats.get("processes", {}).get("attached", 0),
        stats["transactions"]["waiting"],
        stats["memory"]["admission_bytes"],
        under_way,
        stats["snapshots"]["open"],
        lag,
        lanes,
    )


class Owning:
    """Says so once a process owns its store."""

    def __init__(self, db: Engine, say: Say) -> None:
        self._runtime: Any = db.context.runtime
        self._say = say
        self._said = False

    def notice(self) -> None:
        if not self._said and self._runtime.link is None:
            self._said = True
            self._say(Owns(self._runtime.generation))


def obey(listen: int, stop: Callable[[], None], tell: Callable[[], None], say: Say) -> None:
    """Does what letters say: s stops the clients, g tells the state; returns at any other."""
    while (letter := os.read(listen, 1)) in (b"g", b"s"):
        if letter == b"s":
            stop()
            say(Stopped())
        else:
            tell()
