"""Describes one of the engine's modes as a system under test: missing features, history, settings.

Next: engine.py, which opens it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from .base import Options, System


class EngineMode(NamedTuple):
    """Data of a mode. `missing`, `history`, `allowed`, `ended_by`: see System.

    `settings` makes the value that `planstep.open` takes under the mode's name from the options; None if there is
    none. `originals` maps each listed setting to its name and default in the product that the mode follows.
    """

    name: str
    missing: Mapping[str, str]
    history: str
    allowed: tuple[str, ...]
    ended_by: tuple[str, ...]
    settings: Callable[[Options], object]
    originals: Mapping[str, tuple[str, str | int]]


def opens(system: str, mode: EngineMode) -> Callable[[Path, Options], System]:
    """Returns a function that opens a store in that mode, as the system of that name."""

    def opened(folder: Path, options: Options) -> System:
        from .engine import EngineSystem

        return EngineSystem(folder, options, system, mode)

    return opened
