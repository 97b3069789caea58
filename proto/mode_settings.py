"""Defines the base class of a mode's settings: only the mode's own code reads them, all other code hands them on.

Next: kafka/settings.py.
"""

from collections.abc import Mapping
from typing import Any, Self

MILLISECONDS_MAX = 3_155_760_000_000
"""The longest time: 100 years. Clocks count several of them together."""
_NUMBER_MAX = (1 << 53) - 1


class ModeSettings:
    """The settings of mode "deterministic", which has none of its own; other modes subclass it, frozen."""

    __slots__ = ()

    max_block_ms: int = 60_000
    """The longest that a call waits in all for the end of a transaction."""

    def check(self) -> None:
        """Raises ValueError, which names the setting and its allowed values."""

    def with_version(self, version: int) -> Self:
        """Returns the settings for a version of the mode's protocol, if it has several."""
        return self

    def with_rtt(self, rtt_ms: float) -> Self:
        """Returns the settings adapted to a round-trip time between hosts."""
        return self


def check_fields(settings: Any, least: Mapping[str, float]) -> None:
    """Raises ValueError for a flag or number of a frozen dataclass that is out of range; names in `_ms` are times.

    `least`: the least values of those where it is not 1.
    """
    for name, field in settings.__dataclass_fields__.items():
        value, default = getattr(settings, name), field.default
        if isinstance(default, bool):
            if not isinstance(value, bool):
                raise ValueError(f"{name} is True or False, not {value!r}")
        elif isinstance(default, (int, float)):
            low = least.get(name, 1)
            high = MILLISECONDS_MAX if name.endswith("_ms") else _NUMBER_MAX
            if not is_number(value, isinstance(default, int), low, high):
                raise ValueError(f"{name} is a number from {low:,} to {high:,}, not {value!r}")


def is_number(value: object, whole: bool, low: float, high: float) -> bool:
    if isinstance(value, bool) or (whole and isinstance(value, float)):
        return False
    return isinstance(value, (int, float)) and low <= value <= high
