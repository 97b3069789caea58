"""Computes when a transaction's records could be read, where data lies in place before its commit.

    offset   A A B B A │commit B│ … │commit A│      B can be read only after A's marker, too

Readers of committed records stop at the first record of an open transaction (the last stable offset). So a
transaction can be read once its own markers are there, and those of all that have records before its last one.

Left out: aborted transactions, whose records the store does not show; the time of each partition's marker, since
only that of the last one is known.

Next: findings.py.
"""

from ..trace import COMMITTED
from .history import History


def readable(history: History) -> dict[int, int]:
    """Returns the times, in nanoseconds since the run's zero, of committed transactions with known markers."""
    marked = {
        row.tx: row.visible
        for row in history.trace.transactions
        if row.outcome == COMMITTED and row.visible is not None
    }
    found = dict(marked)
    for log in history.stored.values():
        latest = last = -1
        for tx in log.owner:
            if tx == last:
                continue
            last, at = tx, marked.get(tx)
            if at is not None:
                latest = max(latest, at)
                found[tx] = max(found[tx], latest)
    return found
