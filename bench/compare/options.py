"""Holds the options of a comparison, and checks them.

    planstep compare …  ─▶ ComparisonOptions ─▶ plan.py: which cells run        time_plans.py: how long, how often

Next: time_plans.py.
"""

from dataclasses import dataclass

from .systems import DEFAULT, ENTRIES, mode_of
from .workloads import NAMES

SPREAD = 0
"""Value of `hosts` for one host for each tablet, to count the durable writes of each."""


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """Options of a comparison. None leaves the choice to the plan, but `rate` None: as fast as it goes.

    rate        MB/s offered             record_size  bytes; None: 1,024, or as real events are
    rtt         round-trip time, seconds hosts        SPREAD: a host for each tablet
    peers       adds the systems with a server of their own
    quick, thorough  a shorter or longer plan than the usual one
    find_rate   None: as long as time lasts, and when `workloads` names reshard; never with quick
    spark       True if Spark will judge the traces
    spark_reads True if Spark will read stores; the first run of each kind of reshard keeps its store for that
    """

    workloads: tuple[str, ...] | None = None
    systems: tuple[str, ...] = DEFAULT
    rate: float | None = 5.0
    record_size: int | None = None
    partitions: int = 100
    commit_interval: float = 0.5
    duration: float | None = None
    hosts: int = 1
    placement: str | None = None
    durability: str | None = None
    rtt: float = 0.0
    workers: int = 4
    repeat: int | None = None
    peers: bool = False
    quick: bool = False
    thorough: bool = False
    demo: bool = False
    seed: int = 1
    keep_stores: bool = False
    keep_traces: bool = False
    spark: bool = False
    spark_reads: bool = False
    find_rate: bool | None = None

    def check(self) -> None:
        """Checks the options. ValueError, with the option's name, for impossible values."""
        for name in self.systems:
            _one_of("--systems", name, tuple(ENTRIES))
        for name in self.workloads or ():
            _one_of("--workload", name, NAMES)
        _one_of("--placement", self.placement, (None, "shared", "separate", "both"))
        _one_of("--durability", self.durability, (None, "full", "os", "both"))
        if not self.systems:
            raise ValueError(f"--systems names none; there are {', '.join(ENTRIES)}")
        self._check_numbers()
        if self.quick and self.thorough:
            raise ValueError("--quick and --thorough exclude each other: leave one out")
        if self.find_rate and self.rate is None:
            raise ValueError("--find-rate begins at a rate, so --rate must be a number, not max")
        if self.find_rate and "reshard" not in (self.workloads or ("reshard",)):
            raise ValueError("--find-rate needs the workload reshard, which is not chosen")
        if self.hosts == SPREAD and self.placement in ("shared", "both"):
            raise ValueError("--hosts spread needs --placement separate")

    def _check_numbers(self) -> None:
        for option, value, least, most in (
            ("--rate", self.rate, 0.001, 100_000.0),
            ("--commit-interval", self.commit_interval, 0.001, 3600.0),
            ("--duration", self.duration, 0.1, 86_400.0),
            ("--rtt", self.rtt, 0.0, 60.0),
        ):
            if value is not None and not value >= least:
                raise ValueError(f"{option} is at least {least:g}, not {value:g}")
            if value is not None and value > most:
                raise ValueError(f"{option} is at most {most:g}, not {value:g}")

    @property
    def planned(self) -> bool:
        """Returns True if the plan decides what runs, how often and how long; then it also keeps its time."""
        return self.workloads is None and self.duration is None and self.repeat is None

    @property
    def chosen_systems(self) -> tuple[str, ...]:
        """Returns the systems, each once, with those that `peers` adds: the first of each product.

        The other clients and versions of a product run where they join the first, or where they are named.
        """
        peers: list[str] = []
        for entry in ENTRIES.values() if self.peers else ():
            first = not any(mode_of(name) is mode_of(entry.name) for name in peers)
            if entry.peer and first:
                peers.append(entry.name)
        return tuple(dict.fromkeys((*self.systems, *peers)))


def _one_of(option: str, value: str | None, choice: tuple[str | None, ...]) -> None:
    if value not in choice:
        raise ValueError(f"{option}: no {value!r}; there are {', '.join(x for x in choice if x)}")
