"""Makes plain values of an engine's settings, for another process that opens the same store, and back.

    Settings(kafka=KafkaSettings(…), …) ─ plain ─▶ {"kafka": {…}, …} ─ a frame ─▶ of_plain ─▶ the same settings

What each process decides for itself is left out: whether it only reads, and the addresses of a shared log, which
may hold secrets.

Next: open_engine.py.
"""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

_OWN = ("read_only", "follow", "replicate", "mode", "hosts")
_OF_OWNER = ("confirms", "incarnation")
"""What a process is told of the owner besides its settings."""


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that processes must agree in, as numbers, texts and dicts of them."""
    return {
        name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in settings.items()
        if name not in _OWN
    }


def of_plain(said: Mapping[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    """Returns settings of plain values; `kinds`: the classes of those that are dicts."""
    return {
        name: kinds[name](**value) if name in kinds else value
        for name, value in said.items()
        if name not in _OF_OWNER
    }
