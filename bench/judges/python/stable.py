"""When what a transaction wrote could be read, where data lies in place before it counts.

    offset   A A B B A │commit B│ … │commit A│      nobody reads B before A's marker is there, too

Readers of committed records stop at the first record of a transaction that is open (the last stable offset): a
transaction can be read once its own markers are there, and those of all that have records before its last one.

What it leaves out: aborted transactions, of which the store shows nothing; in which partition a marker was there
first: what is known of a transaction is when its last one was.

Next: findings.py.
"""

from ..trace import COMMITTED
from .history import History


def readable(history: History) -> dict[int, int]:
    """Nanoseconds since the run's zero, by number, of committed transactions whose markers' time is known."""
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
