"""Groups a comparison's runs for drawings, and merges repeats.

    figures.runs ─▶ of("reshard", "full") ─▶ (system, placement, entry, runs): as in the summary, headline first
    curves of several repeats ─▶ at each share the median, the least, the most

Runs whose entry did not verify are left out. Durability full and os never come out of one call.

Next: drawing.py.
"""

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from ...compare.ranking import DURABILITIES, Entry, placed
from ..text.blocks import number
from .drawing import display_name, line, off_headline

Run = dict[str, Any]


class Series(NamedTuple):
    """One system in one placement; `runs`: its repeats that have figures."""

    system: str
    placement: str
    entry: Entry
    runs: list[Run]

    @property
    def name(self) -> str:
        return display_name(self.system, self.placement)

    @property
    def style(self) -> dict[str, Any]:
        """Returns the style of its line."""
        return line(self.system, self.placement)

    @property
    def off_headline(self) -> bool:
        """Returns True if its placement is not the headline."""
        return off_headline(self.system, self.placement)


class Comparison:
    """A summary and its figures."""

    def __init__(self, summary: dict[str, Any], figures: dict[str, Any]) -> None:
        self.systems = summary["systems"]
        self._runs: dict[tuple[str, str, str, str], list[Run]] = {}
        for run in figures.get("runs", {}).values():
            key = (run["workload"], run["system"], run["durability"], run["placement"])
            self._runs.setdefault(key, []).append(run)
        for runs in self._runs.values():
            runs.sort(key=lambda run: run["repeat"])

    def of(self, workload: str, durability: str) -> list[Series]:
        series = [
            Series(name, at, entry, self._runs.get((workload, name, durability, at), []))
            for name, at, entry in placed(self.systems, workload, durability)
            if entry["verified"]
        ]
        return sorted(series, key=lambda one: one.off_headline)

    def extras(self, workload: str, durability: str) -> list[Series]:
        """Returns those that have figures of this workload only."""
        return [one for one in self.of(workload, durability) if one.entry["extra"]]

    def durabilities(self, workload: str) -> list[str]:
        """Returns the durabilities at which a run of the workload ended and verified."""
        return [durability for durability in DURABILITIES if self.of(workload, durability)]


class Curve(NamedTuple):
    """Milliseconds at each of `shares`; `low` and `high` over repeats."""

    shares: list[float]
    middle: list[float]
    low: list[float]
    high: list[float]
    repeats: int

    def at(self, share: float) -> float:
        return next(ms for part, ms in zip(self.shares, self.middle, strict=True) if part >= share)


def curve(runs: Sequence[Run], name: str) -> Curve | None:
    """Returns the merged curve of a latency; None if no run has it."""
    curves = [run["latencies"][name]["curve"] for run in runs if run["latencies"].get(name)]
    if not curves:
        return None
    shares = [share for share, _ in curves[0]]
    alike = [points for points in curves if [share for share, _ in points] == shares]
    columns = [[points[n][1] for points in alike] for n in range(len(shares))]
    middle, low, high = ([reduce(column) for column in columns] for reduce in (median, min, max))
    return Curve(shares, middle, low, high, len(alike))


def ms(value: float | None) -> str:
    """Formats milliseconds: "4.2 ms", "1.3 s"."""
    if value is None:
        return "–"
    return f"{value / 1000:.2g} s" if value >= 1000 else f"{number(float(value))} ms"
