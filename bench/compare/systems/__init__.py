"""Systems under test, all behind one small interface: base.py.

    deterministic, kafka, kafka-v1   engine.py    this engine's modes, by its public face
    sqlite, sqlite-64                sqlite.py    what many would use instead

A system that is added here runs every workload that it can: none of them knows systems by name.

Next: base.py.
"""

from collections.abc import Callable
from pathlib import Path

from planstep import KafkaSettings

from .base import Options, System


def _engine(
    name: str, mode: str, settings: KafkaSettings | None = None
) -> Callable[[Path, Options], System]:
    def opened(folder: Path, options: Options) -> System:
        from .engine import EngineSystem

        return EngineSystem(folder, options, name, mode, settings)

    return opened


def _sqlite(per_commit: int) -> Callable[[Path, Options], System]:
    def opened(folder: Path, options: Options) -> System:
        from .sqlite import SqliteSystem

        return SqliteSystem(folder, options, per_commit)

    return opened


SYSTEMS: dict[str, Callable[[Path, Options], System]] = {
    "deterministic": _engine("deterministic", "deterministic"),
    "kafka": _engine("kafka", "kafka", KafkaSettings(protocol_version=2)),
    "kafka-v1": _engine("kafka-v1", "kafka", KafkaSettings(protocol_version=1)),
    "sqlite": _sqlite(1),
    "sqlite-64": _sqlite(64),
}
HISTORIES = {
    "deterministic": "places",
    "kafka": "kafka",
    "kafka-v1": "kafka",
    "sqlite": "places",
    "sqlite-64": "places",
}
"""What each one's histories can be held to, for traces that do not say it themselves (System.history)."""
PLACEMENTS: dict[str, tuple[str, ...]] = {
    "deterministic": ("shared", "separate"),
    "kafka": ("shared", "separate"),
    "kafka-v1": ("shared", "separate"),
    "sqlite": ("shared",),
    "sqlite-64": ("shared",),
}
"""Where a system's parts can stand; the first is where there is no choice."""
HEADLINE = {"deterministic": "shared", "kafka": "separate", "kafka-v1": "separate"}
"""As each is meant to be run: this engine's tablets share the turns of their host, Kafka's brokers stand apart."""
DEFAULT = ("deterministic", "kafka", "sqlite")
LABELS = {
    "kafka": "kafka-style (this engine)",
    "kafka-v1": "kafka-style v1 (this engine)",
    "sqlite": "SQLite (1 per COMMIT)",
    "sqlite-64": "SQLite (64 per COMMIT)",
}
"""What people are told; a system that is not here is called by its name."""


def headline(name: str) -> str:
    """The placement that a system is meant to be run in."""
    return HEADLINE.get(name, PLACEMENTS.get(name, ("shared",))[0])


def label(name: str) -> str:
    return LABELS.get(name, name)


def where(name: str, placement: str) -> str:
    """ ", separate"; "" for a system that can stand in one way only."""
    return f", {placement}" if len(PLACEMENTS.get(name, ())) > 1 else ""


def open_system(name: str, folder: Path, options: Options) -> System:
    """ValueError for a name that is not in SYSTEMS."""
    try:
        opened = SYSTEMS[name]
    except KeyError:
        raise ValueError(f"no system {name!r}: there are {', '.join(SYSTEMS)}") from None
    return opened(folder, options)
