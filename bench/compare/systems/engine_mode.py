"""One of the engine's modes as a system under test: what it lacks, what its histories are held to, its settings.

Next: engine.py, which opens it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from .base import Options, System


class EngineMode(NamedTuple):
    """`missing`, `history`, `allowed`, `ended_by`: see System. `settings`: what `planstep.open` takes under the
    mode's name, the options told to it; None where it has none. `originals`: of those settings that are listed the
    names where the mode comes from, and the defaults there."""

    name: str
    missing: Mapping[str, str]
    history: str
    allowed: tuple[str, ...]
    ended_by: tuple[str, ...]
    settings: Callable[[Options], object]
    originals: Mapping[str, tuple[str, str | int]]


def opens(system: str, mode: EngineMode) -> Callable[[Path, Options], System]:
    """What opens a store in that mode, as the system of that name."""

    def opened(folder: Path, options: Options) -> System:
        from .engine import EngineSystem

        return EngineSystem(folder, options, system, mode)

    return opened
