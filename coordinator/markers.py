"""Sends the markers of ended transactions until every partition has acknowledged them.

    an end in the log ─▶ marker to each partition ──answer──▶ one less ──none left──▶ complete, to the log
                           ▲───── every retry_ms ─────┘

Markers leave after the decision is durable; the client was answered before them. One timer serves all
transactions; it stops while no marker is on its way.

The markers of a transaction for one host are one request: they leave together, and count as one if the mode
says so (host/modes.py). The mode also defines the marker's message and matches answers to rows (`Ends`).

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
    """Describes to `Markers` how a mode's transactions end."""

    @property
    def retry_ms(self) -> float: ...
    @property
    def prepared(self) -> tuple[int, ...]:
        """The states of a transaction that is decided but not known everywhere."""

    @property
    def over(self) -> tuple[str, ...]:
        """Errors ("" for none) after which a tablet needs no further marker."""

    @property
    def refused(self) -> tuple[str, ...]:
        """Errors that mean that another coordinator has taken over."""

    @property
    def about(self) -> Callable[[Any], Any]:
        """Gives a row or an answer a key: equal keys are of the same transaction of a name."""

    def marker(self, name: str, row: R) -> Any:
        """Returns the marker's message, one object sent to every tablet; no tablet changes it."""

    def completed(self, row: R) -> R:
        """Returns the row of a transaction whose end is known everywhere."""


class Markers(Generic[R]):
    """Sends and repeats markers.

    Invariant: `ending` has the ids in a state of `prepared`, except those whose markers were refused.
    """

    __slots__ = ("_armed", "ending", "ends", "rows", "shell")

    def __init__(self, rows: TransactionRows[R], shell: Shell, ends: Ends[R]) -> None:
        self.rows = rows
        self.shell = shell
        self.ends = ends
        self.ending: dict[str, tuple[int, Any, tuple[int, ...]]] = {}
        """By id: when its markers were last sent (ms), their cause, the tablets yet to acknowledge (ascending)."""
        self._armed = False  # a wake is on its way

    def mark(self) -> Any:
        return dict(self.ending), self._armed

    def undo(self, mark: Any) -> None:
        ending, self._armed = mark
        self.ending = dict(ending)

    @property
    def unmarked(self) -> list[int]:
        """The tablets yet to acknowledge a marker; any thread may ask."""
        return [tablet for _, _, unmarked in list(self.ending.values()) for tablet in unmarked]

    def send(self, name: str, row: R) -> None:
        """Sends the marker to each partition that has not acknowledged it; completes the end if none is left."""
        _, _, unmarked = self.ending.get(name, (0, None, row.partitions))
        self.ending[name] = self.shell.now_ms, self.shell.cause, unmarked
        if not self._armed:
            self._armed = True
            self.shell.later(self.ends.retry_ms, Wake(MARKERS))
        if not unmarked:
            self._complete(name, row)
            return
        marker = self.ends.marker(name, row)
        for tablet in unmarked:
            self.shell.after_durable(tablet, marker)

    def resend(self) -> None:
        """Sends markers again that were sent at least `retry_ms` ago; the timer calls it."""
        now, wait = self.shell.now_ms, self.ends.retry_ms
        running = self.shell.cause
        for name, (sent_ms, cause, unmarked) in list(self.ending.items()):
            if now - wait < sent_ms <= now:
                continue
            if name in self.rows.pending:
                self.ending[name] = now, cause, unmarked  # its completion is on its way to the log
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
        sent_ms, cause, unmarked = self.ending.get(name, (0, None, ()))
        at = bisect_left(unmarked, message.tablet)
        if (
            row is None
            or row.state not in self.ends.prepared
            or unmarked[at : at + 1] != (message.tablet,)
        ):
            return  # a repeat, or for an earlier transaction
        if self.ends.about(message) != self.ends.about(row):
            return  # for an earlier transaction
        if message.error in self.ends.refused:
            # Another coordinator has taken over and ends it. If there is none, the transaction stays as
            # it is until the host starts again, with a higher epoch.
            self.ending.pop(name, None)
        elif message.error in self.ends.over:
            unmarked = unmarked[:at] + unmarked[at + 1 :]
            self.ending[name] = sent_ms, cause, unmarked
            if not unmarked and name not in self.rows.pending:
                self._complete(name, row)

    def _complete(self, name: str, row: R) -> None:
        def completed(error: str, _: R) -> None:
            if not error:  # otherwise the next timer tries again
                self.ending.pop(name, None)

        self.rows.append(name, row.state, self.ends.completed(row), completed)
