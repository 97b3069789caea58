"""Tells how busy the machine was: with what other work, and how long work had to wait for processors, disk, memory.

    moment() … work … moment() ─▶ between: busy cores, stolen cores, pressure
    before the first run, and in each run ─▶ load(): machine.load in the summary, with a sentence

Pressure is Linux's (PSI, /proc/pressure): the share of the time in which at least one process waited for processors
(cpu), the disk (io) or memory. It counts the measured work too. Steal is what a virtual machine's host took away
from its processors. All of it is None where the platform does not tell.

Next: summary.py.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .ranking import entries

RESOURCES = ("cpu", "io", "memory")
BUSY_SHARE = 0.1
"""Share of the machine's processors; more of other work than that distorts figures."""
_PRESSURE = Path("/proc/pressure")


class Moment(NamedTuple):
    """A moment, by time.monotonic(); totals in seconds since the machine's start."""

    at: float
    busy_s: float | None
    steal_s: float | None
    waited_s: dict[str, float]


def moment() -> Moment:
    """Returns this moment's totals, of all processors and all processes."""
    waited = {name: total for name in RESOURCES if (total := _waited_s(name)) is not None}
    return Moment(time.monotonic(), *_processors(), waited)


def between(before: Moment, after: Moment) -> dict[str, Any]:
    """Returns `busy_cores` (of processes), `steal` (cores) and `psi` (shares of the time) between two moments."""
    seconds = after.at - before.at
    return {
        "busy_cores": _rate(before.busy_s, after.busy_s, seconds),
        "steal": _rate(before.steal_s, after.steal_s, seconds),
        "psi": {
            name: _rate(before.waited_s.get(name), after.waited_s.get(name), seconds)
            for name in RESOURCES
        },
    }


def watch(seconds: float) -> dict[str, Any]:
    """Watches the machine for so long; returns `between`, and `load1`, the processes that ran or waited."""
    before = moment()
    time.sleep(seconds)
    return {"load1": load1(), **between(before, moment())}


def load1() -> float | None:
    """Returns the load average of the last minute."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def load(machine: dict[str, Any], systems: dict[str, Any]) -> dict[str, Any]:
    """Returns what is known about the load of the machine, for the summary: docs/compare.md has the fields."""
    before = (machine.get("load") or {}).get("before") or {}
    others = list(_most(systems, "other_cores"))
    stolen = list(_most(systems, "steal_cores"))
    psi = {name: max(_most(systems, f"pressure_{name}"), default=None) for name in RESOURCES}
    during = {
        "busy_other_cores_max": max(others, default=None),
        "steal_max": max(stolen, default=None),
        "psi_max": psi,
    }
    cpus, ahead = machine["cpus"], machine.get("busy_cores")
    known = [n for n in (ahead, before.get("steal"), *others, *stolen) if n is not None]
    busy = any(n > BUSY_SHARE * cpus for n in known)
    return {
        "before": before,
        "during": during,
        "busy": busy,
        "sentence": _sentence(cpus, ahead, during, busy) if known else _UNKNOWN,
    }


_UNKNOWN = "The load by other work is not known on this platform."


def _sentence(cpus: int, ahead: float | None, during: dict[str, Any], busy: bool) -> str:
    most, stolen = during["busy_other_cores_max"], during["steal_max"]
    text = f"Other work on this machine used {_number(ahead)} of {cpus} cores before"
    text += f", and at most {_number(most)} during a run"
    if stolen and stolen > BUSY_SHARE:
        text += f"; its host took up to {_number(stolen)} of them away"
    if not busy:
        return f"{text}."
    return f"{text}: too much for reliable figures. Run it again when nothing else runs."


def _number(cores: float | None) -> str:
    return "–" if cores is None else f"{cores:.2f}"


def _most(systems: dict[str, Any], name: str) -> Iterator[float]:
    """Yields the highest value of a figure in each entry that has it."""
    for *_, entry in entries(systems):
        _, most = entry["range"].get(name, (None, None))
        if most is not None:
            yield most


def _processors() -> tuple[float | None, float | None]:
    """Returns the seconds that processors spent on processes, and those that were stolen.

    Interrupts are nobody's: those of a server's network alone took 0.18 cores, which would pass for other work.
    """
    try:
        with open("/proc/stat") as stat:
            ticks = list(map(int, stat.readline().split()[1:9]))
    except (OSError, ValueError):
        return None, None
    user, nice, system, *_, steal = ticks
    a_second = os.sysconf("SC_CLK_TCK")
    return (user + nice + system) / a_second, steal / a_second


def _waited_s(resource: str) -> float | None:
    """Returns the seconds in which some process waited for the resource."""
    try:
        some = (_PRESSURE / resource).read_text().splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, IndexError):
        return None


def _rate(before: float | None, after: float | None, seconds: float) -> float | None:
    if before is None or after is None or seconds <= 0:
        return None
    return round((after - before) / seconds, 3)
