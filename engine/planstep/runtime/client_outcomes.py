"""Reports how transactions ended in modes with clients outside of turns, from memory: their logs have other ids.

Next: outcomes.py.
"""

from typing import TYPE_CHECKING

from ..proto.ids import tx_parse, tx_text
from .outcome import Outcome
from .outcomes import Outcomes

if TYPE_CHECKING:
    from .client_hooks import ClientHooks


class ClientOutcomes(Outcomes):
    """Knows the transactions of this process alone."""

    def __init__(self, mode: "ClientHooks") -> None:
        super().__init__(mode.runtime)
        self._mode = mode

    def of(self, tx: bytes | str) -> Outcome:
        """Returns the outcome that this engine remembers."""
        tx = tx_parse(tx) if isinstance(tx, str) else tx
        writing = self._mode.writing
        state = writing.ended.get(tx)
        if state is None:
            waits = tx in writing.open or tx in self._runtime.replies.waiting
            state = "open" if waits else "unknown"
        return Outcome(tx_text(tx), state, None, 0, ())
