"""Runs turns of one tablet over a real store, without an engine: for parts of a core that a benchmark drives alone.

Next: bench_logs.py, bench_snapshots.py.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from planstep.host.tablet_space import HostSpace
from planstep.proto.ids import PARTITION, tablet_id
from planstep.store import DiskStore


class OneTablet:
    """Opens a store in `folder`. It is the host of its tablet's `space`, and the shell of a log in it."""

    now_ms = 0
    cause = None

    def __init__(self, folder: Path) -> None:
        self.store = DiskStore.open(folder, mode="pulsar")
        host: Any = self  # a space only asks for the running turn
        self.space = HostSpace(host, tablet_id(PARTITION, 0, 1))
        self.turn: Any = None
        self.appends = 0.0
        self.timers: list[Any] = []

    def run(self, work: Callable[[], object]) -> None:
        """Does the work in one durable turn."""
        self.turn = self.store.begin()
        work()
        self.store.commit(self.turn)

    def appended(self, share: float = 1.0, visible: bool = False) -> None:
        self.appends += share

    def later(self, delay_ms: float, message: Any) -> None:
        self.timers.append((delay_ms, message))

    @property
    def log_bytes(self) -> int:
        return self.store.counters.log_bytes

    @property
    def syncs(self) -> int:
        return self.store.counters.syncs
