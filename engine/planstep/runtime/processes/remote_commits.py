"""Stands at the owner for the transactions of an attached process.

    Commit, Stage ─▶ is the id one of this link's? ─▶ under way already? ─▶ is there such a tablet? ─▶ enqueue
                       └ no: the link ends            └ a new sink for it    └ no: Dropped

A frame is checked for what only the owner knows before anything is queued. When the link ends, what its process had
sent ahead of commits is taken back; commits under way go on.

Next: remote_client.py.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import Overloaded, PlanstepError, Undetermined
from ...host.inputs import Commit as CommitInput
from ...host.inputs import CommitAgain, StageInput
from ...proto.frame_checks import MalformedFrame
from ...proto.ids import CATALOGUE_ID
from ...proto.messages import CataloguePart
from ...proto.reasons import TabletDropped, kept_as
from ..catalog import Name
from ..outcome import Commit, failure
from .ids import Blocks

if TYPE_CHECKING:
    from ..runtime import Runtime
    from .peer import Peer


class RemoteCommits:
    """The server's thread calls it."""

    def __init__(self, runtime: "Runtime", blocks: Blocks, peer: "Peer") -> None:
        self._runtime = runtime
        self._blocks = blocks
        self._peer = peer
        self._staged: dict[bytes, None] = {}
        self._named: dict[bytes, Name] = {}  # transactions under way → the name that they change

    def take(self, item: CommitInput | StageInput) -> bool:
        """Takes an input; False when there is no room for it now. MalformedFrame."""
        if self._is_answered_here(item):
            return True
        try:
            self._check(item)
            self._runtime.turns.enqueue(item, self._peer, 0.0)
        except Overloaded:
            return False
        except PlanstepError as error:
            self._peer.take(item.tx, error)
            return True
        if isinstance(item, StageInput):
            self._staged[item.tx] = None
        else:
            self._staged.pop(item.tx, None)
        return True

    def _is_answered_here(self, item: CommitInput | StageInput) -> bool:
        """Returns whether a commit is under way already, handed in on a link that has ended. MalformedFrame for
        what this process may not send."""
        tx, runtime, linked = item.tx, self._runtime, self._peer.linked
        if runtime.turns.client is not None and not _changes_names(item):
            raise MalformedFrame(f"clients of mode {runtime.mode!r} send requests")
        if not self._blocks.has(tx, linked):
            raise MalformedFrame("the owner has not given this transaction's id to this process")
        waiter = runtime.replies.waiting.get(tx)
        if waiter is not None and not isinstance(item, CommitAgain):
            if runtime.replies.waits(tx):
                raise MalformedFrame("a transaction is committed twice at a time")
            waiter = None
        if waiter is not None and getattr(waiter.future, "linked", None) != linked:
            raise MalformedFrame("the transaction is under way for another process")
        part = item.parts.get(CATALOGUE_ID) if isinstance(item, CommitInput) else None
        if isinstance(part, CataloguePart):
            self._named[tx] = Name(part.kind, part.name, part.id)
        return waiter is not None and runtime.replies.redirect(tx, self._peer) is not None

    def _check(self, item: CommitInput | StageInput) -> None:
        """Raises Dropped for tablets that no name has: one that never was must not begin."""
        names = self._runtime.names
        for tablet in item.parts if isinstance(item, CommitInput) else item.slices:
            if tablet != CATALOGUE_ID and not names.has_tablet(tablet):
                if isinstance(item, CommitAgain) and self._is_known(item.tx):
                    return  # its record answers it
                raise failure(item.tx, kept_as(tablet, TabletDropped()), names.of_tablet)

    def _is_known(self, tx: bytes) -> bool:
        return self._runtime.outcomes.told_here(tx).state not in ("unknown", "refused")

    def rollback(self, tx: bytes) -> None:
        if self._staged.pop(tx, self) is None:
            self._runtime.transactions.rollback(tx)

    def answered(self, tx: bytes, answer: Commit | BaseException) -> None:
        """Lets this engine know of a name that a transaction has changed, before its process hears of it."""
        name = self._named.pop(tx, None)
        if name is not None:
            decided = not isinstance(answer, Undetermined)
            self._runtime.schema.changed(name, decided, dropped=name.id > 0)

    def settle(self, is_answered: Callable[[], bool]) -> bool:
        """Returns whether a change of a name is under way though the link has ended. `is_answered`: are there
        answers that were not taken yet?"""
        waiting = self._runtime.replies.waiting
        for tx in list(self._named):
            waiter = waiting.get(tx)
            if waiter is None and is_answered():
                continue  # answered just now: the server's thread comes again
            if waiter is None or waiter.future is not self._peer:  # never taken, or another link's
                del self._named[tx]
        return bool(self._named)

    def end(self) -> None:
        """Takes back what its process had sent ahead of commits."""
        for tx in self._staged:
            self._runtime.transactions.rollback(tx)
        self._staged.clear()


def _changes_names(item: CommitInput | StageInput) -> bool:
    """Returns whether this is a commit of the catalogue alone, which is one in each mode."""
    return isinstance(item, CommitInput) and list(item.parts) == [CATALOGUE_ID]
