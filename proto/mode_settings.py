"""Defines the base class of a mode's settings: only the mode's own code reads them, all other code hands them on.

Next: kafka/settings.py.
"""

from typing import Self


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
