"""Ranks systems by rule: who wins where, and which part of a difference is protocol, which shared fate.

    who wins     same workload, same durability; verified, repeated, and sustained where a rate was offered. Needed:
                 ├─ best's range ─┤   ├─ other's range ─┤ do not overlap, and medians differ by 5 %
                 write latencies are not compared: a write is then staged, pending or committed, by mode

    shared fate            shared        separate
      deterministic          a ───────────── b         fate      = ((b − a) + (d − c)) / 2
      another mode           c ───────────── d         protocol  = ((c − a) + (d − b)) / 2
                                                       fate + protocol = d − a, the difference of the headlines

Left out: tests of significance; verdicts.py has intervals, and compares round by round.

Next: verdicts.py.
"""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from .cell import LATENCIES
from .systems import MODES, headline, label, where
from .systems.entry import SEPARATE, SHARED, Mode, SystemEntry

DURABILITIES = {
    "full": "acknowledged when it is on the disk",
    "os": "acknowledged when the operating system has it: a power loss loses it",
}
LOWER, HIGHER = "lower", "higher"
MARGIN = 0.05
"""The least difference of medians, as a share of the larger: ranges of three runs are disjoint by chance in one
of ten pairs."""
REPEATS_MIN = 3
"""The least rounds of a verdict. A single run has no range, and ranges of two runs are disjoint by chance in one of
three pairs. So a highest rate, which is found in single runs, cannot win or lose."""
COMPARED = tuple(name for name in LATENCIES if name != "write_ms")
"""Write latencies are left out: a write ends with something else durable in each mode (Mode.durable)."""
_TIMES = [(f"{name}.{percentile}", LOWER) for name in COMPARED for percentile in ("p50", "p99")]
_OFFERED = (
    *_TIMES,
    ("cpu_cores", LOWER),
    ("memory_peak_mb", LOWER),
    ("disk_bytes_per_payload_byte", LOWER),
)
"""Figures compared when all systems had the same offered rate."""
_UNLIMITED = (
    *_TIMES,
    ("throughput_mb_s", HIGHER),
    ("transactions_per_second", HIGHER),
    ("disk_bytes_per_payload_byte", LOWER),
)
_FATE = (
    *("write_ms.p50", "write_ms.p99", "commit_ms.p50", "commit_ms.p99"),
    *("visible_ms.p50", "end_to_end_ms.p50", "end_to_end_ms.p99"),
    *("cpu_cores", "hops_before_reply", "syncs_per_transaction", "messages_per_transaction"),
)
Entry = dict[str, Any]


def figure(entry: Entry | None, name: str) -> float | None:
    """Returns a figure by name, as "cpu_cores" or "write_ms.p99"."""
    value: Any = entry
    for part in name.split("."):
        if value is None:
            return None
        value = value.get(part)
    return value if value is None else float(value)


def at_headline(
    systems: dict[str, Any], workload: str, durability: str
) -> Iterator[tuple[str, str, Entry]]:
    """Yields (system, placement, entry) for each system at its headline placement, else at any."""
    for name, by_workload in systems.items():
        by_placement = by_workload.get(workload, {}).get(durability, {})
        if by_placement:
            own = headline(name)
            placement = own if own in by_placement else next(iter(by_placement))
            yield name, placement, by_placement[placement]


def entries(systems: dict[str, Any]) -> Iterator[tuple[str, str, str, str, Entry]]:
    """Yields (system, workload, durability, placement, entry)."""
    for name, by_workload in systems.items():
        for workload, by_durability in by_workload.items():
            for durability, by_placement in by_durability.items():
                for placement, entry in by_placement.items():
                    yield name, workload, durability, placement, entry


def placed(
    systems: dict[str, Any], workload: str, durability: str
) -> Iterator[tuple[str, str, Entry]]:
    """Yields (system, placement, entry) of all cells that ran to their end."""
    for name, *cell, placement, entry in entries(systems):
        if cell == [workload, durability] and entry["status"] == "ok":
            yield name, placement, entry


def workloads_of(systems: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for by_workload in systems.values() for name in by_workload))


def who_wins(systems: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each figure with a clear winner.

    A row has workload, durability, figure, `best` {system: value} (several, if not clearly different), `behind`
    {system: value}, `placements` {system: placement}, runs, and a sentence that says it all.
    """
    rows: list[dict[str, Any]] = []
    for workload, durability in product(workloads_of(systems), DURABILITIES):
        if workload == "faults":
            continue  # it waits for what it counts: how many it did says nothing
        able = [
            (name, placement, entry)
            for name, placement, entry in at_headline(systems, workload, durability)
            if entry["verified"]
            and entry["sustained"] is not False
            and entry["repeats"] >= REPEATS_MIN
        ]
        offered = any(entry["offered_mb_s"] is not None for *_, entry in able)
        placements = {name: placement for name, placement, _ in able}
        for name, better in _OFFERED if offered else _UNLIMITED:
            won = _winners([(system, entry) for system, _, entry in able], name, better)
            if won is not None:
                best, behind, runs = won
                row: dict[str, Any] = {"workload": workload, "durability": durability}
                row |= {"figure": name, "better": better}
                row |= {"best": best, "behind": behind, "runs": runs}
                row["placements"] = {x: placements[x] for x in (*best, *behind)}
                row["sentence"] = _sentence(name, best, behind, placements)
                rows.append(row)
    return rows


def _winners(
    able: list[tuple[str, Entry]], name: str, better: str
) -> tuple[dict[str, float], dict[str, float], int] | None:
    """Returns (best, behind, runs); None where no difference is clear."""
    spans = []
    for system, entry in able:
        value = figure(entry, name)
        if value is not None:
            low, high = entry["range"].get(name, (value, value))
            high = math.inf if high is None else high  # at least one repeat was not sustained
            ends = (low, high) if better == LOWER else (-high, -low)
            spans.append((*ends, system, value, entry["repeats"]))
    if len(spans) < 2:
        return None
    values = [value for *_, value, _ in spans]
    first = min(values) if better == LOWER else max(values)
    _, worst, *_ = spans[values.index(first)]
    behind = {
        system: value
        for best, _, system, value, _ in spans
        if best > worst and abs(value - first) >= MARGIN * max(abs(value), abs(first))
    }
    if not behind:
        return None
    ahead = {system: value for _, _, system, value, _ in spans if system not in behind}
    return ahead, behind, min(runs for *_, runs in spans)


def _sentence(
    name: str, best: dict[str, float], behind: dict[str, float], placements: dict[str, str]
) -> str:
    ahead, after = (
        "; ".join(
            f"{label(system)}{where(system, placements[system])} {value:,.4g}"
            for system, value in values.items()
        )
        for values in (best, behind)
    )
    return f"{in_words(name)}: {ahead}; behind: {after}"


_WORDS = {
    "write_ms": "write latency",
    "commit_ms": "commit latency",
    "visible_ms": "time to visible",
    "end_to_end_ms": "end to end",
    "generator_lag_ms": "generator lag",
    "cpu_cores": "CPU cores at the same rate",
    "memory_peak_mb": "memory, MB",
    "throughput_mb_s": "throughput, MB/s",
    "transactions_per_second": "transactions a second",
    "highest_sustained_mb_s": "highest sustained rate, MB/s",
    "disk_bytes_per_payload_byte": "bytes to disk per byte of payload",
    "hops_before_reply": "durable steps before the reply",
    "syncs_per_transaction": "syncs a transaction",
    "messages_per_transaction": "messages a transaction",
}


def in_words(name: str) -> str:
    """Names a figure in words: "write_ms.p99" ─▶ "write latency p99, ms"."""
    base, _, percentile = name.partition(".")
    threads, _, counted = percentile.partition(".")
    if threads.isdecimal():  # as in "concurrency.16.transactions_per_second"
        return f"{in_words(counted)}, {threads} thread{'s' * (threads != '1')}"
    words = _WORDS.get(base, base.replace("_", " "))
    return f"{words} {percentile.replace('_', '.')}, ms" if percentile else words


class Side(NamedTuple):
    """One of the two systems in the 2 × 2 of mode and placement."""

    mode: Mode
    system: SystemEntry

    def corners(self) -> tuple[str, str]:
        """Returns the names of its corners in the figures: shared, separate."""
        return f"{self.mode.name}_{SHARED}", f"{self.mode.name}_{SEPARATE}"

    def as_meant(self) -> str:
        return f"{self.mode.style} {self.system.headline}"


_HOME = Side(MODES[0], MODES[0].systems[0])
_OTHERS = [
    Side(mode, system)
    for mode in MODES[1:]
    for system in mode.systems
    if {SHARED, SEPARATE} <= set(system.placements)
]


def sides(effects: dict[str, Any] | None) -> tuple[Side, Side]:
    """Returns this engine's own mode, and the mode that is set against it in `effects`, or would be first."""
    names = effects or {}
    for side in _OTHERS:
        if names.get(side.mode.name) == side.system.name:
            return _HOME, side
    return _HOME, _OTHERS[0]


def shared_fate(systems: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the first of `shared_fates`, or None."""
    return next(iter(shared_fates(systems)), None)


def shared_fates(systems: dict[str, Any]) -> list[dict[str, Any]]:
    """Splits differences of reshard between this engine's own mode and each other one (its first system that ran).

    By durability: {figure: {the four corners, difference, protocol, fate}}. A mode without all corners is left out.
    If one was not sustained, latencies and CPU are not compared.
    """
    if _HOME.system.name not in systems:
        return []
    first: dict[str, Side] = {}
    for side in _OTHERS:
        if side.system.name in systems:
            first.setdefault(side.mode.name, side)
    return [effects for side in first.values() if (effects := _fate(systems, side)) is not None]


def _fate(systems: dict[str, Any], other: Side) -> dict[str, Any] | None:
    effects: dict[str, Any] = {}
    for durability in DURABILITIES:
        rows: dict[str, Any] = {}
        corners = {
            corner: systems[side.system.name].get("reshard", {}).get(durability, {}).get(placement)
            for side in (_HOME, other)
            for corner, placement in zip(side.corners(), (SHARED, SEPARATE), strict=True)
        }
        if not all(corner and corner["verified"] for corner in corners.values()):
            continue
        keeping_up = all(entry.get("sustained") is not False for entry in corners.values())
        for name in _FATE:
            if name == "cpu_cores" and not keeping_up:
                continue  # CPU compares only at the same work
            values = {corner: figure(entry, name) for corner, entry in corners.items()}
            known = [value for value in values.values() if value is not None]
            if len(known) < len(values):
                continue
            a, b, c, d = known
            rows[name] = {
                **values,
                "difference": round(d - a, 4),
                "protocol": round(((c - a) + (d - b)) / 2, 4),
                "fate": round(((b - a) + (d - c)) / 2, 4),
            }
        if rows:
            effects[durability] = rows
    return {other.mode.name: other.system.name, **effects} if effects else None
