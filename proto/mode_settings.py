"""What a store's mode may be told: one value, which the mode's own rooms read and all others hand on.

Next: kafka/settings.py.
"""

from typing import Self


class ModeSettings:
    """Those of mode "deterministic", which has none of its own; other modes' are frozen dataclasses below it."""

    __slots__ = ()

    max_block_ms: int = 60_000
    """How long a call waits in all for the end of a transaction."""

    def check(self) -> None:
        """ValueError names the setting and what it takes."""

    def with_version(self, version: int) -> Self:
        """As they are of this version of the protocol, where it has several."""
        return self

    def with_rtt(self, rtt_ms: float) -> Self:
        """As they are meant where a message's way there and back takes so long."""
        return self
