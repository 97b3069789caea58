"""Lists the systems under test, which all implement one small interface: base.py.

    deterministic_entry.py, kafka_entry.py, pulsar_entry.py   engine.py    this engine's modes, by its public face
    sqlite_entry.py                                           sqlite.py    SQLite, the usual alternative
    apache_kafka_entry.py                               apache_kafka.py    Apache Kafka, a peer with a server
    postgresql_entry.py                                   postgresql.py    PostgreSQL, another one

A system that has an entry here runs every workload that it can. Neither the workloads nor the report know a
system by its name.

Next: base.py.
"""

from collections.abc import Collection
from pathlib import Path

from . import (
    apache_kafka_entry,
    deterministic_entry,
    kafka_entry,
    postgresql_entry,
    pulsar_entry,
    sqlite_entry,
)
from .base import Options, System
from .entry import SHARED, Mode, SystemEntry

MODES: tuple[Mode, ...] = (
    deterministic_entry.MODE,
    kafka_entry.MODE,
    pulsar_entry.MODE,
    sqlite_entry.MODE,
    apache_kafka_entry.MODE,
    postgresql_entry.MODE,
)
"""The first is this engine's own mode, the baseline of every comparison."""
ENTRIES: dict[str, SystemEntry] = {system.name: system for mode in MODES for system in mode.systems}
PLACEMENTS = {name: entry.placements for name, entry in ENTRIES.items()}
"""The placements that each system supports; a system with a single one has no choice."""
_FIRST = tuple(mode.systems[0] for mode in MODES)
DEFAULT = tuple(system.name for system in _FIRST if not system.peer)
PEERS = tuple(system.name for system in _FIRST if system.peer)
"""The systems that `--peers` adds."""
_MODES = {system.name: mode for mode in MODES for system in mode.systems}


def modes_among(names: Collection[str]) -> tuple[Mode, ...]:
    """Returns the modes to explain where these systems ran: those that always can, and peers among them."""
    return tuple(
        mode
        for mode in MODES
        if any(not system.peer or system.name in names for system in mode.systems)
    )


def headline(name: str) -> str:
    """Returns the placement that a system is meant to run in."""
    return ENTRIES[name].headline if name in ENTRIES else SHARED


def label(name: str) -> str:
    """Returns the name that people read; a system without an entry keeps its own name."""
    return ENTRIES[name].label if name in ENTRIES else name


def about(name: str) -> str:
    """Returns a sentence that explains the system to a newcomer."""
    return ENTRIES[name].about if name in ENTRIES else ""


def column(name: str) -> str:
    """Returns the heading of a system's column of figures."""
    return ENTRIES[name].column if name in ENTRIES else name


def narrow(name: str) -> str:
    """Returns a shorter heading, for tables with many columns."""
    return ENTRIES[name].narrow if name in ENTRIES else name


def mode_of(name: str) -> Mode:
    """Returns the mode of a system. KeyError for a name that is not in ENTRIES."""
    return _MODES[name]


def where(name: str, placement: str) -> str:
    """Returns the placement as a suffix, ", separate", or "" for a system with a single placement."""
    return f", {placement}" if len(PLACEMENTS.get(name, ())) > 1 else ""


def original(name: str) -> str:
    """Returns the product whose rules and defaults are listed next to this system's settings.

    It is the one that the system's mode follows, if any; otherwise the one of the first mode that follows any.
    """
    own = _MODES[name].original if name in _MODES else ""
    return own or next(mode.original for mode in MODES if mode.original)


def open_system(name: str, folder: Path, options: Options) -> System:
    """Opens a system in a folder. ValueError for a name that is not in ENTRIES."""
    if name not in ENTRIES:
        raise ValueError(f"no system {name!r}: there are {', '.join(ENTRIES)}")
    return ENTRIES[name].open(folder, options)
