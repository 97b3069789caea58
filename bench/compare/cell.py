"""Describes a cell, one run of one workload on one system, and its result, as plain data between processes.

    Cell ─▶ python -m planstep.bench.compare.run_cell SPEC ─▶ folder/result.json, folder/trace/
                                                       │
    a plan of cells (plan.py) ─ one after the other ─▶ all results ─▶ summary.py, ../report/text/text_report.py

Next: run_cell.py, which runs one; plan.py.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from .systems.base import Options
from .workloads.base import Shape

OK, IMPOSSIBLE, FAILED, INTERRUPTED = "ok", "impossible", "failed", "interrupted"
LATENCIES = ("write_ms", "commit_ms", "visible_ms", "end_to_end_ms")


@dataclass(frozen=True, slots=True)
class Cell:
    workload: str
    system: str
    options: Options = field(default_factory=Options)
    shape: Shape = field(default_factory=Shape)
    repeat: int = 0
    keep_store: bool = False
    keep_trace: bool = True

    @property
    def name(self) -> str:
        """Returns the name of its folder, as in "reshard-sqlite-full-shared-0"."""
        options = self.options
        return (
            f"{self.workload}-{self.system}-{options.durability}-{options.placement}-{self.repeat}"
        )

    def dump(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def load(cls, data: dict[str, Any]) -> "Cell":
        fields = {**data, "options": Options(**data["options"]), "shape": Shape(**data["shape"])}
        return cls(**fields)


@dataclass
class Result:
    """The result of a cell. A figure is None if the run did not verify, or the system does not count it.

    Latencies are also None if the run was not sustained; they are {"p50", "p95", "p99", "p99_9", "max"} in ms.

    status      OK: it ran to its end; IMPOSSIBLE: `reason` names the missing feature; FAILED: `reason`;
                INTERRUPTED: Ctrl-C
    violations  total; `violations_by`: by name
    judged      how much of the history was checked; `allowed_by`: anomalies that the system's model allows, by name
    extra       figures of this workload only: {name: number | text | {…}}
    other_cores cores that other processes used meanwhile, on average; None where the platform does not report it
    load_before, steal_cores, pressure_cpu, …   the machine's load: see pressure.py
    cpu_cores   of this process and of the system's servers together, as memory_peak_mb is; server_… : of these
                servers alone, None for a system without a server
    steps       durable changes of a transaction by their cause, where the system counts them
    """

    cell: Cell
    status: str = OK
    reason: str | None = None
    verified: bool = False
    problems: list[str] = field(default_factory=list)
    sustained: bool | None = None
    records: int = 0
    missing: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    violations: int = 0
    violations_by: dict[str, int] = field(default_factory=dict)
    judged: dict[str, int] = field(default_factory=dict)
    allowed_by: dict[str, int] = field(default_factory=dict)
    transactions: int = 0
    cancelled: int = 0
    offered_mb_s: float | None = None
    throughput_mb_s: float | None = None
    write_ms: dict[str, float] | None = None
    commit_ms: dict[str, float] | None = None
    visible_ms: dict[str, float] | None = None
    end_to_end_ms: dict[str, float] | None = None
    generator_lag_ms: dict[str, float] | None = None
    requests_per_transaction: float | None = None
    messages_per_transaction: float | None = None
    appends_per_transaction: float | None = None
    hops_before_reply: float | None = None
    syncs_per_transaction: float | None = None
    disk_bytes_per_payload_byte: float | None = None
    network_bytes_per_payload_byte: float | None = None
    cpu_cores: float | None = None
    cpu_ms_per_transaction: float | None = None
    other_cores: float | None = None
    load_before: float | None = None
    steal_cores: float | None = None
    pressure_cpu: float | None = None
    pressure_io: float | None = None
    pressure_memory: float | None = None
    memory_peak_mb: float | None = None
    server_cpu_cores: float | None = None
    server_memory_mb: float | None = None
    disk_mb_s: float | None = None
    network_mb_s: float | None = None
    seconds: float = 0.0
    steps: dict[str, float] | None = None
    settings: list[tuple[str, Any, str, Any]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    trace: str | None = None
    """The folder of the trace."""

    def dump(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def load(cls, data: dict[str, Any]) -> "Result":
        return cls(**{**data, "cell": Cell.load(data["cell"])})
