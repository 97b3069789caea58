"""Ends commits that are handed in once more, by clients that lost the store's owner before they had the answer.

    record of it? ─ none, and none forgotten ─▶ it never happened: done now, under its own id
                  ├ committed, aborted, refused ─▶ answered from the record
                  ├ planned ─▶ waits until it is committed or aborted
                  └ forgotten ─▶ nobody can tell

Look-up and execution are one input of one turn, and the coordinator gives an id one place. So a transaction has its
effect once, however often it is handed in. Its offsets are found in the partitions, by its place. The reason of an
abort is not recorded: conditions that do not hold now tell it.

Left out: offsets in partitions of other hosts. Whoever passes on the answer reads them there.

Next: host.py.
"""

from collections.abc import Callable
from typing import Any

from ..coordinator.plan import ABORTED, COMMITTED, EXPIRED, PLANNED, Coordinator, OutcomeRow
from ..proto.ids import COORDINATOR_ID, host_of
from ..proto.messages import Detail, Part, PartitionPart, Parts, Reason
from ..proto.reasons import DiskFull, OwnerEnded, RecordForgotten, kept_as
from ..proxy.deterministic import Proxy, Result, role
from .inputs import CommitAgain, frees
from .log_entries import published_at


class RepeatedCommits:
    """Invariants: `waiting` has each that an earlier owner planned, until it is answered. `journal` has its entries
    as they were before the running turn changed them.
    """

    def __init__(
        self, number: int, coordinator: Coordinator, proxy: Proxy, tablet_of: Callable[[int], Any]
    ) -> None:
        self.waiting: dict[bytes, Parts] = {}
        self.journal: list[tuple[bytes, Parts | None]] = []
        self.partial: list[tuple[Result, Parts]] = []
        """Answers of the running turn that lack offsets of other hosts' partitions."""
        self._number = number
        self._coordinator = coordinator
        self._proxy = proxy
        self._tablet_of = tablet_of

    def is_new(self, item: CommitAgain, turn: Any) -> bool:
        """Returns whether the commit is to be done now; else it is answered here, or waits. On a full disk it is
        done only if it takes no space.
        """
        tx, parts = item.tx, item.parts
        if tx in self._proxy.open:
            return False  # it came before, on a link that is gone
        known = self._coordinator.known(tx)
        if known is None:
            if turn.reserve and not all(map(frees, parts.values())):
                self._proxy.finished.append(Result(tx, reason=kept_as(min(parts), DiskFull())))
                return False
            return True
        if known.state == PLANNED:
            self.journal.append((tx, self.waiting.get(tx)))
            self.waiting[tx] = parts
        else:
            self._answer(tx, parts, known, turn)
        return False

    def look(self, turn: Any) -> None:
        """Answers those that wait and have come to their end."""
        for tx, parts in list(self.waiting.items()):
            known = self._coordinator.known(tx)
            assert known is not None, "what was planned has a record"
            if known.state != PLANNED:
                self.journal.append((tx, self.waiting.pop(tx)))
                self._answer(tx, parts, known, turn)

    def _answer(self, tx: bytes, parts: Parts, known: OutcomeRow, turn: Any) -> None:
        step, n = known.step, known.n
        if known.state == COMMITTED:
            result = Result(tx, step, n)
            elsewhere = False
            for tablet, part in sorted(parts.items()):
                if host_of(tablet) == self._number:
                    if role(part)[1]:
                        result.details[tablet] = detail_of(part, tablet, turn, step, n)
                else:
                    elsewhere = elsewhere or publishes(part)
            if elsewhere:
                self.partial.append((result, parts))
                return
        elif known.state == EXPIRED:
            result = Result(tx, reason=kept_as(COORDINATOR_ID, RecordForgotten()))
        else:
            result = Result(tx, step, n, self._why(tx, parts, known.state == ABORTED))
        self._proxy.finished.append(result)

    def _why(self, tx: bytes, parts: Parts, executed: bool) -> Reason:
        """Returns a reason that holds now, of the tablets of this host; `OwnerEnded` if there is none."""
        for tablet in sorted(parts) if executed else ():
            if host_of(tablet) == self._number and role(parts[tablet])[0]:
                reason: Reason | None = self._tablet_of(tablet).vote(tx, parts[tablet])
                if reason is not None:
                    return reason
        return kept_as(COORDINATOR_ID, OwnerEnded())

    # one turn ------------------------------------------------------------------------------

    def mark(self) -> tuple[int, int]:
        return len(self.journal), len(self.partial)

    def undo(self, mark: tuple[int, int]) -> None:
        del self.partial[mark[1] :]
        while len(self.journal) > mark[0]:
            tx, parts = self.journal.pop()
            if parts is None:
                self.waiting.pop(tx, None)
            else:
                self.waiting[tx] = parts

    def durable(self) -> list[tuple[Result, Parts]]:
        """Returns the answers of a durable turn that lack offsets."""
        self.journal.clear()
        partial, self.partial = self.partial, []
        return partial


def publishes(part: Part) -> bool:
    return type(part) is PartitionPart and bool(part.slices or part.staged)


def detail_of(part: Part, tablet: int, store: Any, step: int, n: int) -> Detail:
    """Finds the detail that a participant gave of a commit at a place."""
    return published_at(store, tablet, step, n) if publishes(part) else None
