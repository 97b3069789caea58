"""Reports how transactions ended in mode "kafka", from memory: the log knows only producers and epochs.

Next: ../client_outcomes.py.
"""

from ...errors import NotSupported
from ..client_outcomes import ClientOutcomes
from ..open_transactions import OpenTransaction
from ..outcome import Outcome


class KafkaOutcomes(ClientOutcomes):
    """Knows the transactions of this process alone."""

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
