"""Runs the face's transactions through a client outside of turns (core_client.py), in modes that have one.

    write  ─▶ sent at once while few requests are on the way, else gathered, and for a while
    commit ─▶ the rest is sent, then what it has consumed, then its end ─▶ the protocol's answer
    plain writes ─▶ the client's producer without transactions

Each request is an input of a turn, each answer leaves when the turn is durable. Changes of names are mode
"deterministic"'s transactions: the catalogue.

Next: client_requests.py.
"""

from typing import TYPE_CHECKING, NamedTuple

from ..errors import NotSupported, PlanstepError
from ..proto.ids import CATALOGUE, PARTITION, kind_of
from ..proto.messages import AheadSlices, PartitionPart, Parts, Slices
from .batch_cutting import bounded
from .deferred_signals import room_for_a_turn
from .group_commit import ReplySink, Waiter
from .outcome import Commit, undetermined
from .transactions import Transactions

if TYPE_CHECKING:
    from .client_hooks import ClientHooks

PLAIN = (b"", 0, 0)
"""Takes the place of a writer's numbers in a single write outside of a transaction."""


class CommitRequest(NamedTuple):
    """A transaction's parts, sorted by how such a mode handles them."""

    batches: dict[int, Slices]
    positions: dict[str, dict[int, int]]
    """Consumer → partition's tablet → the offset after what it has consumed."""
    acks: dict[str, dict[int, tuple[tuple[int, int], ...]]]
    """Individual consumer → partition's tablet → the ranges of offsets that it has consumed."""
    plain: bool
    """A write without a transaction."""
    trim: tuple[int, int] | None
    """(tablet, offset); there is nothing else then."""
    seen: frozenset[tuple[int, str]] = frozenset()
    """(partition's tablet, consumer) of consumers that were there when they were read."""


class ClientTransactions(Transactions):
    """Passes each request to the part of the mode that does it: `writing`, or client_requests.py."""

    def __init__(self, mode: "ClientHooks") -> None:
        super().__init__(mode.runtime)
        self._mode = mode

    def send_ahead(self, tx: bytes, slices: AheadSlices) -> None:
        room_for_a_turn()
        self._mode.lingering.pop(tx, None)
        self._mode.writing.send_ahead(tx, slices)

    def rollback(self, tx: bytes) -> None:
        self._mode.lingering.pop(tx, None)
        self._mode.writing.rollback(tx)

    def commit(self, tx: bytes, parts: Parts, timeout: float | None = None) -> Commit:
        if any(kind_of(tablet) == CATALOGUE for tablet in parts):
            return super().commit(tx, parts, timeout)
        numbered = {
            tablet: part
            for tablet, part in parts.items()
            if type(part) is PartitionPart and part.producer not in (None, PLAIN)
        }
        if numbered:
            assert len(numbered) == len(parts), "a writer's parts are all numbered"
            return self._mode.numbers.commit(tx, numbered, timeout)
        return self.commit_request(tx, self._split(parts), timeout)

    def commit_request(self, tx: bytes, request: CommitRequest, timeout: float | None) -> Commit:
        waiter = self.ask(tx, request, None, timeout)
        self._threads.wait_for(waiter, timeout)
        if waiter.answer is None:
            raise undetermined(tx, timeout)
        return waiter.result()

    def send(
        self,
        tx: bytes,
        parts: Parts,
        ending: ReplySink,
        wait: float | None = 0.0,
        attended: bool = False,
    ) -> Waiter:
        if any(kind_of(tablet) == CATALOGUE for tablet in parts):
            return super().send(tx, parts, ending, wait, attended)
        return self.ask(tx, self._split(parts), ending, wait)

    def ask(
        self, tx: bytes, request: CommitRequest, ending: ReplySink | None, wait: float | None
    ) -> Waiter:
        """Hands a commit, a plain write or a trim to the client; its answer goes to `ending`, or to the waiter.

        Overloaded after `wait` seconds without room.
        """
        mode = self._mode
        self._turns.check_open()
        room_for_a_turn()
        mode.lingering.pop(tx, None)
        batches = bounded(request.batches, mode.gathering.bytes)
        try:
            mode.client.admit(tx, batches, wait)
            with mode.client.locked():
                waiter = self._replies.waiting[tx] = Waiter(tx, 0, ending)
                if request.trim is not None:
                    mode.requests.trim(tx, *request.trim)
                elif request.plain:
                    mode.requests.write(tx, batches)
                else:
                    mode.writing.commit(tx, batches, request)
        except (PlanstepError, RecursionError):
            raise
        except BaseException:
            if tx not in self._replies.waiting:  # interrupted before it was sent:
                self.rollback(tx)  # nothing else would end it
            raise
        self.deliver_requests()
        return waiter

    def deliver_requests(self) -> None:
        """Delivers a call's requests to the hosts, and gives up the call if the engine has stopped meanwhile."""
        self._mode.client.deliver()
        if self._turns.stopped is not None:
            self._replies.give_up(self._turns.stopped)
            self._replies.answer()

    def answer_call(self, tx: bytes, answer: Commit | BaseException) -> None:
        """Answers a call that has ended, under the client's lock; the lock's holder delivers the answer."""
        if isinstance(answer, Commit):
            self._turns.committed += 1
        else:
            self.count_aborted(getattr(answer, "name", type(answer).__name__))
            self._turns.names.stale = True
        self._replies.answers[tx] = answer

    def count_aborted(self, cause: str) -> None:
        self._turns.conflicts += 1
        self._turns.aborted[cause] = self._turns.aborted.get(cause, 0) + 1

    def _split(self, parts: Parts) -> CommitRequest:
        mode = self._mode
        batches: dict[int, Slices] = {}
        positions: dict[str, dict[int, int]] = {}
        acks: dict[str, dict[int, tuple[tuple[int, int], ...]]] = {}
        seen: list[tuple[int, str]] = []
        plain, trim = False, None
        for tablet, part in parts.items():
            if kind_of(tablet) != PARTITION:
                raise NotSupported(
                    f'mode "{mode.mode}" has no tables: mode "deterministic" has them'
                )
            assert isinstance(part, PartitionPart)
            if part.acks:
                mode.check_individual()
            if part.trim is not None:
                trim = (tablet, part.trim)
            plain = plain or part.producer is not None
            if part.slices:
                batches[tablet] = part.slices
            for consumer, _, end in part.ranges:
                positions.setdefault(consumer, {})[tablet] = end
            for consumer, begin, end in part.acks:
                tablets = acks.setdefault(consumer, {})
                tablets[tablet] = (*tablets.get(tablet, ()), (begin, end))
            seen += [(tablet, consumer) for consumer, _ in part.fences]
        return CommitRequest(batches, positions, acks, plain, trim, frozenset(seen))
