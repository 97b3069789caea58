"""Groups a comparison's runs for drawings, and merges repeats.

    figures.runs ─▶ of("reshard", "full") ─▶ (system, placement, entry, runs): as in the summary, headline first
    curves of several repeats ─▶ at each share the median, the least, the most

Runs whose entry did not verify are left out. Durability full and os never come out of one call.

Next: drawing.py.
"""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

from ...compare.ranking import DURABILITIES, Entry, placed
from ...compare.systems import PLACEMENTS, headline
from ..text.blocks import number
from .drawing import called, line

Run = dict[str, Any]


class Series(NamedTuple):
    """One system in one placement; `runs`: its repeats that have figures."""

    system: str
    placement: str
    entry: Entry
    runs: list[Run]

    @property
    def name(self) -> str:
        return called(self.system, self.placement)

    @property
    def style(self) -> dict[str, Any]:
        """Returns the style of its line."""
        return line(self.system, self.placement)

    @property
    def aside(self) -> bool:
        """Returns True if its placement is not the headline."""
        return self.system in PLACEMENTS and self.placement != headline(self.system)


class Comparison:
    """A summary and its figures."""

    def __init__(self, summary: dict[str, Any], figures: dict[str, Any]) -> None:
        self.summary, self.systems = summary, summary["systems"]
        self._runs: dict[tuple[str, str, str, str], list[Run]] = {}
        for run in figures.get("runs", {}).values():
            key = (run["workload"], run["system"], run["durability"], run["placement"])
            self._runs.setdefault(key, []).append(run)
        for runs in self._runs.values():
            runs.sort(key=lambda run: run["repeat"])

    def of(self, workload: str, durability: str) -> list[Series]:
        found = [
            Series(
                system,
                placement,
                entry,
                self._runs.get((workload, system, durability, placement), []),
            )
            for system, placement, entry in placed(self.systems, workload, durability)
            if entry["verified"]
        ]
        return sorted(found, key=lambda series: series.aside)

    def ran(self, workload: str) -> bool:
        """Returns True if the workload ran to its end and verified, at some durability."""
        return any(self.of(workload, durability) for durability in DURABILITIES)

    def durabilities(self, workload: str) -> Iterator[str]:
        return (durability for durability in DURABILITIES if self.of(workload, durability))


class Curve(NamedTuple):
    """Milliseconds at each of `shares`; `low` and `high` over repeats."""

    shares: list[float]
    middle: list[float]
    low: list[float]
    high: list[float]
    repeats: int

    def at(self, share: float) -> float:
        return next(ms for of, ms in zip(self.shares, self.middle, strict=True) if of >= share)


def curve(runs: Sequence[Run], name: str) -> Curve | None:
    """Returns the merged curve of a latency; None if no run has it."""
    told = [run["latencies"][name]["curve"] for run in runs if run["latencies"].get(name)]
    if not told:
        return None
    shares = [share for share, _ in told[0]]
    alike = [points for points in told if [share for share, _ in points] == shares]
    columns = [[points[n][1] for points in alike] for n in range(len(shares))]
    return Curve(
        shares,
        [median(column) for column in columns],
        [min(column) for column in columns],
        [max(column) for column in columns],
        len(alike),
    )


def untold(series: Sequence[Series], names: Sequence[str]) -> str:
    """Returns a sentence that names the systems without a curve, and why; "" if there are none."""
    said = []
    for one in series:
        if any(curve(one.runs, name) for name in names):
            continue
        if one.entry["sustained"] is False:
            why = "the rate was not sustained"
        elif not one.runs:
            why = "there is no trace of it"
        else:
            why = "nothing of the kind is told"
        said.append(f"{one.name} ({why})")
    return f"Not drawn: {'; '.join(said)}." if said else ""


def ms(value: float | None) -> str:
    """Formats milliseconds: "4.2 ms", "1.3 s"."""
    if value is None:
        return "–"
    return f"{value / 1000:.2g} s" if value >= 1000 else f"{number(float(value))} ms"
