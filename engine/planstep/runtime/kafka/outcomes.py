"""Reports how transactions ended in mode "kafka", from memory: the log knows only producers and epochs.

Next: ../outcomes.py.
"""

from typing import TYPE_CHECKING

from ...errors import NotSupported
from ...proto.ids import tx_parse, tx_text
from ..open_transactions import OpenTransaction
from ..outcome import Outcome
from ..outcomes import Outcomes

if TYPE_CHECKING:
    from .hooks import KafkaHooks


class KafkaOutcomes(Outcomes):
    """Knows the transactions of this process alone."""

    def __init__(self, mode: "KafkaHooks") -> None:
        super().__init__(mode.runtime)
        self._mode = mode

    def of(self, tx: bytes | str) -> Outcome:
        """Returns the outcome that this engine remembers: the log knows producers and epochs, not transactions."""
        tx = tx_parse(tx) if isinstance(tx, str) else tx
        state = self._mode.writing.ended.get(tx)
        if state is None:
            waits = tx in self._mode.writing.open or tx in self._runtime.replies.waiting
            state = "open" if waits else "unknown"
        return Outcome(tx_text(tx), state, None, 0, ())

    def newest(self, limit: int = 100) -> list[Outcome]:
        raise _unknown_transactions()

    def under_way(self) -> list[OpenTransaction]:
        raise _unknown_transactions()

    def resolve(self, tx: bytes | str) -> Outcome:
        raise _unknown_transactions()


def _unknown_transactions() -> NotSupported:
    return NotSupported(
        'in mode "kafka" the log knows producers and epochs, not transactions: '
        "db.transactional_ids() tells how they stand, `planstep tx resolve` ends one"
    )
