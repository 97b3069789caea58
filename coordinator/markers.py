"""The markers of ended transactions: sent until every partition has acknowledged them.

    an end in the log ─▶ marker to each partition ──answer──▶ one less ──none left──▶ complete, to the log
                           ▲───── every retry_ms ─────┘

Markers leave after the decision is durable; the client was answered before them. One timer serves all
transactions, and none runs while nothing is on its way.

The markers of a transaction for one host are one request: they leave together, and count as one where the mode
says so (host/modes.py). What a marker is as a message, and which answer is whose, the mode says too (`Ends`).

Left out: one request with the markers of many transactions for one host; the links between hosts gather.

Next: kafka/ends.py.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Generic, Protocol

from ..proto.shell import Shell, Wake
from .logged_rows import R, TransactionRows

MARKERS = "markers"


class Marked(Protocol):
    """A tablet's answer to a marker."""

    @property
    def tablet(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def error(self) -> str: ...


class Ends(Protocol[R]):
    """What a mode says of the ends of its transactions."""

    @property
    def retry_ms(self) -> float: ...
    @property
    def prepared(self) -> tuple[int, ...]:
        """The states of what is decided, and not known everywhere."""

    @property
    def over(self) -> tuple[str, ...]:
        """Errors ("" is none) after which a tablet is no longer awaited."""

    @property
    def refused(self) -> tuple[str, ...]:
        """Errors that say that another coordinator has gone on."""

    @property
    def about(self) -> Callable[[Any], Any]:
        """Of a row and of an answer: which of its name's transactions it is about."""

    def marker(self, name: str, row: R) -> Any:
        """The message, the same to each tablet; they leave it as it is."""

    def completed(self, row: R) -> R:
        """The row of what is known everywhere."""


class Markers(Generic[R]):
    """Invariant: `ending` are the ids in a state of `prepared`, but for those whose markers were refused."""

    __slots__ = ("_armed", "ending", "ends", "rows", "shell")

    def __init__(self, rows: TransactionRows[R], shell: Shell, ends: Ends[R]) -> None:
        self.rows = rows
        self.shell = shell
        self.ends = ends
        self.ending: dict[str, tuple[int, Any, tuple[int, ...]]] = {}
        """id: when its markers were sent last, ms; for whose sake; to whom, not acknowledged yet, in
        ascending order"""
        self._armed = False  # a wake is on its way

    def mark(self) -> Any:
        return dict(self.ending), self._armed

    def undo(self, mark: Any) -> None:
        ending, self._armed = mark
        self.ending = dict(ending)

    def send(self, name: str, row: R) -> None:
        """To every partition that has not acknowledged; when there is none, the end is complete."""
        _, _, left = self.ending.get(name, (0, None, row.partitions))
        self.ending[name] = self.shell.now_ms, self.shell.cause, left
        if not self._armed:
            self._armed = True
            self.shell.later(self.ends.retry_ms, Wake(MARKERS))
        if not left:
            self._complete(name, row)
            return
        marker = self.ends.marker(name, row)
        for tablet in left:
            self.shell.after_durable(tablet, marker)

    def resend(self) -> None:
        """The timer has passed: whose markers were sent so long ago has them sent again."""
        now, wait = self.shell.now_ms, self.ends.retry_ms
        running = self.shell.cause
        for name, (sent_ms, cause, left) in list(self.ending.items()):
            if now - wait < sent_ms <= now:
                continue
            if name in self.rows.pending:
                self.ending[name] = now, cause, left  # the end itself is on its way to the log
                continue
            row = self.rows.get(name)
            assert row is not None and row.state in self.ends.prepared, name
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
        if (
            row is None
            or row.state not in self.ends.prepared
            or left[at : at + 1] != (message.tablet,)
        ):
            return  # of a former transaction, or a repeat
        if self.ends.about(message) != self.ends.about(row):
            return  # a repeat from a former transaction
        if message.error in self.ends.refused:
            # Another coordinator has gone on, and it is its to end. If there is none, the transaction
            # stays as it is until the host starts again, with a higher epoch.
            self.ending.pop(name, None)
        elif message.error in self.ends.over:
            left = left[:at] + left[at + 1 :]
            self.ending[name] = sent_ms, cause, left
            if not left and name not in self.rows.pending:
                self._complete(name, row)

    def _complete(self, name: str, row: R) -> None:
        def completed(error: str, _: R) -> None:
            if not error:  # else the next wake for markers tries again
                self.ending.pop(name, None)

        self.rows.append(name, row.state, self.ends.completed(row), completed)
