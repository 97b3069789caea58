"""Feeds the links between a store's processes for row `badinput`, each input to processes that stay until the end.

    links      damaged frames ─▶ a real owner         limits     a limit after the other ─▶ a real owner
    deceived   a real engine ─▶ a false owner

A feed takes (random, number), and returns what is wrong; number -1 ends it.

Next: ../rows/badinput.py.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from planstep.proto import frame_codec, frames
from planstep.proto.frame_checks import checker

from ..patching import exchange
from .false_owner import Deceived, hurry
from .link_limits import LIMITS as LIMITS
from .link_limits import reach, soon
from .odd_links import strike
from .owner_struck import Struck

Feed: TypeAlias = Callable[[Random, int], str]


def links(folder: Path, mode: str, first: int, growth_mib: int, *, planted: bool = False) -> Feed:
    """`first`: the number that comes after what is fed to load and cache. `planted`: the owner checks less."""
    struck = Struck(folder, mode, plant_no_checks if planted else soon)
    before: list[int] = []

    def feed(random: Random, n: int) -> str:
        if n >= 0:
            if n == first:
                before.append(struck.settled("at the beginning").rss)
            return strike(struck, random)
        try:
            grown = struck.settled("at the end").rss - before[-1] >> 20
            return f"the owner has grown by {grown} MiB" if grown > growth_mib else struck.finish()
        finally:
            struck.end()

    return feed


def limits(folder: Path) -> Feed:
    struck = Struck(folder, "deterministic", soon)

    def feed(random: Random, n: int) -> str:
        if n >= 0:
            return reach(struck, list(LIMITS)[n])
        try:
            return struck.finish()
        finally:
            struck.end()

    return feed


def deceived(folder: Path, seed: int) -> Feed:
    hurry()
    victim = Deceived(folder, str(seed))

    def feed(random: Random, n: int) -> str:
        return victim.attach(random) if n >= 0 else victim.ends()

    return feed


def plant_no_checks() -> None:
    """Plants an owner that takes the fields of frames without payload as they come."""
    checks: dict[int, Any] = {}
    exchange(frame_codec, "_CHECKS", checks)
    checks |= {code: checker(kind) for code, kind in frames.OF_ATTACHED.items()}
    for code, kind in frames.OF_ATTACHED.items():
        if kind in (frames.Rollback, frames.Leave, frames.Floor, frames.Unwatch):
            checks[code] = partial(_believe, kind)


def _believe(kind: Any, values: Any, reading: Any) -> Any:
    return kind._make(values)
