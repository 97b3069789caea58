"""The markers of ended transactions: sent until every partition has acknowledged them.

    Prepare* in the log ─▶ Marker to each partition ──Marked──▶ one less ──none left──▶ Complete* to the log
                             ▲── every marker_retry_ms ──┘

Markers leave after the decision is durable; the client was answered before them. One timer serves all
transactions, and none runs while nothing is on its way.

The markers of a transaction for one host are one request, as WriteTxnMarkers is: they leave together, and count
as one (proto.kafka.request_of).

Left out: one request with the markers of many transactions for one host; the links between hosts gather.

Next: kafka/groups.py.
"""

from bisect import bisect_left
from typing import Any

from ..proto.kafka.messages import Marked, Marker, Shell
from ..proto.shell import Wake
from .kafka.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    PREPARE_COMMIT,
    PREPARED,
    Transaction,
)
from .logged_rows import TransactionRows

MARKERS = "markers"
_NO_LONGER_AWAITED = (
    "",
    "UNKNOWN_TOPIC_OR_PARTITION",
)  # written; dropped, so there is nothing to end


class Markers:
    """Invariant: `ending` are the ids in Prepare*, but for those whose markers were refused for good."""

    __slots__ = ("_armed", "ending", "rows", "shell", "tablet")

    def __init__(self, tablet: int, rows: TransactionRows, shell: Shell) -> None:
        self.tablet = tablet
        self.rows = rows
        self.shell = shell
        self.ending: dict[str, tuple[int, Any, tuple[int, ...]]] = {}
        """id: when its markers were sent last, ms; for whose sake; to whom, not acknowledged yet, in
        ascending order"""
        self._armed = False  # a wake is on its way

    def mark(self) -> Any:
        return dict(self.ending), self._armed

    def undo(self, mark: Any) -> None:
        ending, self._armed = mark
        self.ending = dict(ending)

    def send(self, name: str, row: Transaction) -> None:
        """To every partition that has not acknowledged; when there is none, the end is complete."""
        _, _, left = self.ending.get(name, (0, None, row.partitions))
        self.ending[name] = self.shell.now_ms, self.shell.cause, left
        if not self._armed:
            self._armed = True
            self.shell.later(self.shell.settings.marker_retry_ms, Wake(MARKERS))
        if not left:
            self._complete(name, row)
        commit = row.state == PREPARE_COMMIT
        for tablet in left:
            who = name, row.producer, row.epoch
            marker = Marker(self.tablet, *who, commit, self.shell.epoch, row.version, row.number)
            self.shell.after_durable(tablet, marker)

    def resend(self) -> None:
        """The timer has passed: whose markers were sent so long ago has them sent again."""
        now, wait = self.shell.now_ms, self.shell.settings.marker_retry_ms
        running = self.shell.cause
        for name, (sent_ms, cause, left) in list(self.ending.items()):
            if now - wait < sent_ms <= now:
                continue
            if name in self.rows.pending:
                self.ending[name] = now, cause, left  # the end itself is on its way to the log
                continue
            row = self.rows.get(name)
            assert row is not None and row.state in PREPARED, name
            self.shell.cause = cause
            self.send(name, row)
        self.shell.cause = running
        self._armed = bool(self.ending)
        if self._armed:
            due = min(sent_ms for sent_ms, _, _ in self.ending.values()) + wait
            self.shell.later(min(max(1, due - now), wait), Wake(MARKERS))

    def marked(self, message: Marked) -> None:
        name = message.name
        row = self.rows.get(name)
        sent_ms, cause, left = self.ending.get(name, (0, None, ()))
        at = bisect_left(left, message.tablet)
        if row is None or row.state not in PREPARED or left[at : at + 1] != (message.tablet,):
            return  # of a former transaction, or a repeat
        if (row.producer, row.epoch) != (message.producer, message.epoch):
            return
        if message.number != row.number:
            return  # a repeat from a former transaction of the same epoch
        if message.error in ("INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED"):
            # Another coordinator has gone on, and it is its to end. If there is none, the transaction
            # stays as it is until the host starts again, with a higher epoch.
            self.ending.pop(name, None)
        elif message.error in _NO_LONGER_AWAITED:
            left = left[:at] + left[at + 1 :]
            self.ending[name] = sent_ms, cause, left
            if not left and name not in self.rows.pending:
                self._complete(name, row)

    def _complete(self, name: str, row: Transaction) -> None:
        new = row._replace(
            state=COMPLETE_COMMIT if row.state == PREPARE_COMMIT else COMPLETE_ABORT,
            update_ms=self.shell.now_ms,
            partitions=(),
        )
        if row.next >= 0:
            new = new._replace(producer=row.next, previous=row.producer, epoch=0, next=-1)

        def completed(error: str, _: Transaction) -> None:
            if not error:  # else the next wake for markers tries again
                self.ending.pop(name, None)

        self.rows.append(name, row.state, new, completed)
