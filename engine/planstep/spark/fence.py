"""Fences batches: a commit notes the batch that it commits, in its own transaction, and finds a repeated one done.

    modes with tables      a row of the table `planstep.spark`: (query, kind, name) ─▶ newest batch
    others                 a record of the topic `planstep.spark`, one partition: the key's last value counts

Two commits of one batch never both count. A store has one owner, so the processes that commit take turns. In one
process `commit.py` lets one commit run at a time. What an earlier process left open under these commits is ended
before the fence is read: `end_left_open`, and the changelog waits for those that are decided. So each commit reads
what the last one wrote.

Next: commit.py, which uses this.
"""

import json
import time
from typing import TYPE_CHECKING, NamedTuple

from ..errors import Overloaded

if TYPE_CHECKING:
    from ..api.engine import Engine
    from ..api.transaction.transaction import Transaction

FENCES = "planstep.spark"
"""The table, or topic, of fences; and the worker that commits run under, where workers have names."""
_LOOK_SECONDS = 0.005
_COMPACT_RECORDS, _COMPACT_SHARE = 1000, 4


class Mark(NamedTuple):
    """Identifies a commit: the fence's key, and a batch of its query, or an id of its own."""

    key: tuple[str, str, str]
    value: int | str


class Fences:
    """The fences of an opened store."""

    def __init__(self, db: "Engine") -> None:
        self._db = db
        self._log = None
        if db.context.runtime.hooks.has_tables:
            db.create_table(FENCES, exist_ok=True)
        else:
            db.create_topic(FENCES, partitions=1, format="msgpack", exist_ok=True)
            self._log = db.changelog(FENCES, worker=FENCES)

    def passes(self, tx: "Transaction", mark: Mark) -> bool:
        """Returns whether this batch is not committed yet, and notes in the transaction that it is."""
        text = json.dumps(mark.key)
        done = tx.get(FENCES, mark.key) if self._log is None else self._log.get(tx, text)
        if done is not None and (done == mark.value or _is_after(done, mark.value)):
            return False
        if self._log is None:
            tx.put(FENCES, mark.key, mark.value)
        else:
            self._log.put(tx, text, mark.value)
        return True

    def compact(self) -> None:
        """Writes the fences anew, then trims the records before them, once these are many."""
        log = self._log
        if log is None:
            return
        (part,) = self._db.topic(FENCES).describe().partitions
        if part.end - part.start < max(_COMPACT_RECORDS, _COMPACT_SHARE * len(log)):
            return
        with self._db.transaction(worker=FENCES) as tx:
            for key, value in log.items():
                log.put(tx, key, value)
        self._db.topic(FENCES).trim({0: part.end})


def _is_after(done: int | str, batch: int | str) -> bool:
    return isinstance(done, int) and isinstance(batch, int) and batch < done


def end_left_open(db: "Engine") -> None:
    """Ends the transactions that earlier processes have left open; waits for those that are decided. Overloaded.

    Afterwards positions and records are those of whole transactions.
    """
    hooks = db.context.runtime.hooks
    hooks.ready(FENCES, alone=True)
    if not hooks.by_txn_id:
        return
    db.abort_left_open()
    ending = {one.tx for one in db.open_transactions() if one.state != "OPEN"}
    deadline = time.monotonic() + 30
    while ending & {one.tx for one in db.open_transactions()}:
        if time.monotonic() > deadline:
            raise Overloaded(
                f"transactions that an earlier process has decided do not end: {', '.join(sorted(ending))}"
            )
        time.sleep(_LOOK_SECONDS)
