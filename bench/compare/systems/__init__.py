"""Systems under test, all behind one small interface: base.py.

    deterministic_entry.py, kafka_entry.py   engine.py    this engine's modes, by its public face
    sqlite_entry.py                          sqlite.py    what many would use instead

A system that has an entry here runs every workload that it can, and the report speaks of it: neither knows systems
by name.

Next: base.py.
"""

from pathlib import Path

from . import deterministic_entry, kafka_entry, sqlite_entry
from .base import Options, System
from .entry import SHARED, Mode

MODES: tuple[Mode, ...] = (deterministic_entry.MODE, kafka_entry.MODE, sqlite_entry.MODE)
"""The first is this engine's own: others are set against it."""
ENTRIES = {system.name: system for mode in MODES for system in mode.systems}
SYSTEMS = {name: entry.opened for name, entry in ENTRIES.items()}
HISTORIES = {name: entry.history for name, entry in ENTRIES.items()}
"""What each one's histories can be held to, for traces that do not say it themselves (System.history)."""
PLACEMENTS = {name: entry.placements for name, entry in ENTRIES.items()}
"""Where a system's parts can stand; the first is where there is no choice."""
HEADLINE = {name: entry.headline for name, entry in ENTRIES.items()}
"""As each is meant to be run."""
DEFAULT = tuple(mode.systems[0].name for mode in MODES)
_MODES = {system.name: mode for mode in MODES for system in mode.systems}


def headline(name: str) -> str:
    """The placement that a system is meant to be run in."""
    return HEADLINE.get(name, SHARED)


def label(name: str) -> str:
    """What people are told; a system that is not here is called by its name."""
    return ENTRIES[name].label if name in ENTRIES else name


def about(name: str) -> str:
    """For those who do not know it."""
    return ENTRIES[name].about if name in ENTRIES else ""


def column(name: str) -> str:
    """What heads a system's column of figures."""
    return ENTRIES[name].column if name in ENTRIES else name


def narrow(name: str) -> str:
    """The same where there are many of them."""
    return ENTRIES[name].narrow if name in ENTRIES else name


def where(name: str, placement: str) -> str:
    """ ", separate"; "" for a system that can stand in one way only."""
    return f", {placement}" if len(PLACEMENTS.get(name, ())) > 1 else ""


def original(name: str) -> str:
    """Whose rules and defaults a system's are set beside: what its mode follows; where that follows nothing, what
    the first mode does that follows any."""
    own = _MODES[name].original if name in _MODES else ""
    return own or next(mode.original for mode in MODES if mode.original)


def open_system(name: str, folder: Path, options: Options) -> System:
    """ValueError for a name that is not in SYSTEMS."""
    try:
        opened = SYSTEMS[name]
    except KeyError:
        raise ValueError(f"no system {name!r}: there are {', '.join(SYSTEMS)}") from None
    return opened(folder, options)
