"""Runs transactions of the Kafka-style mode: the face's requests, done in Kafka's way.

    write  ─▶ sent at once while few requests are on the way, else gathered, and for linger_ms
    commit ─▶ the rest is sent, positions, EndTxn ─▶ answered when the decision is durable, not when
              markers are written: its writes become visible after that
    plain writes ─▶ an idempotent producer without transactions

Clients stand outside of the hosts' turns (../core_client.py): each request is an input of a turn, each answer
leaves when the turn is durable. Changes of names are mode "deterministic"'s transactions: the catalogue.

Next: hooks.py, producer_sessions.py, requests.py, views.py.
"""

from typing import TYPE_CHECKING, NamedTuple

from ...errors import NotSupported, PlanstepError
from ...proto.ids import CATALOGUE, PARTITION, kind_of
from ...proto.messages import AheadSlices, PartitionPart, Parts, Slice, Slices
from ..deferred_signals import room_for_a_turn
from ..group_commit import ReplySink, Waiter
from ..outcome import Commit, undetermined
from ..snapshot_reads import Snapshot
from ..transactions import Transactions
from .batches import bounded

if TYPE_CHECKING:
    from .hooks import KafkaHooks

PLAIN = (b"", 0, 0)
"""Takes the place of a writer's numbers in a single write outside of a transaction."""


class KafkaTransactions(Transactions):
    """Passes each request to the part that does it: producer_sessions.py, requests.py, numbers.py."""

    def __init__(self, mode: "KafkaHooks") -> None:
        super().__init__(mode.runtime)
        self._mode = mode

    def snapshot(self, tx: bytes) -> Snapshot:
        return self._mode.writing.snapshot(tx) if self._mode.writes else self._views.snapshot()

    def last_sequence(self, snap: Snapshot, tablet: int, producer: bytes) -> int | None:
        return self._mode.numbers.last(snap, tablet, producer)

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
        return self._waited(tx, self._ask(tx, _split_parts(parts), None, timeout), timeout)

    def commit_moving(
        self, tx: bytes, parts: dict[int, PartitionPart[Slice]], group: str, timeout: float | None
    ) -> Commit:
        """Commits a writer's transaction: its records, and their last numbers as a group's positions."""
        batches: dict[int, Slices] = {tablet: part.slices for tablet, part in parts.items()}
        moved = {tablet: part.producer[2] + 1 for tablet, part in parts.items() if part.producer}
        request = _CommitRequest(batches, {group: moved}, False, None)
        return self._waited(tx, self._ask(tx, request, None, timeout), timeout)

    def _waited(self, tx: bytes, waiter: Waiter, timeout: float | None) -> Commit:
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
        return self._ask(tx, _split_parts(parts), ending, wait)

    def _ask(
        self, tx: bytes, request: "_CommitRequest", ending: ReplySink | None, wait: float | None
    ) -> Waiter:
        self._turns.check_open()
        room_for_a_turn()
        self._mode.lingering.pop(tx, None)
        batches = bounded(request.batches, self._mode.settings.batch_bytes)
        try:
            self._mode.client.admit(tx, batches, wait)
            with self._mode.client.locked():
                waiter = self._replies.waiting[tx] = Waiter(tx, 0, ending)
                if request.trim is not None:
                    self._mode.requests.trim(tx, *request.trim)
                elif request.plain:
                    self._mode.requests.write(tx, batches)
                else:
                    self._mode.writing.commit(tx, batches, request.positions)
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
        self._replies.answers[tx] = answer

    def count_aborted(self, cause: str) -> None:
        self._turns.conflicts += 1
        self._turns.aborted[cause] = self._turns.aborted.get(cause, 0) + 1


class _CommitRequest(NamedTuple):
    """A transaction's parts, sorted by how this mode handles them."""

    batches: dict[int, Slices]
    positions: dict[str, dict[int, int]]
    plain: bool
    """A write without a transaction."""
    trim: tuple[int, int] | None
    """(tablet, offset); there is nothing else then."""


def _split_parts(parts: Parts) -> _CommitRequest:
    batches: dict[int, Slices] = {}
    positions: dict[str, dict[int, int]] = {}
    plain, trim = False, None
    for tablet, part in parts.items():
        if kind_of(tablet) != PARTITION:
            raise NotSupported('mode "kafka" has no tables: mode "deterministic" has them')
        assert isinstance(part, PartitionPart)
        if part.acks:
            raise NotSupported(
                'mode "kafka" has no individual consumers: mode "deterministic" has them'
            )
        if part.trim is not None:
            trim = (tablet, part.trim)
        plain = plain or part.producer is not None
        if part.slices:
            batches[tablet] = part.slices
        for consumer, _, end in part.ranges:
            positions.setdefault(consumer, {})[tablet] = end
    return _CommitRequest(batches, positions, plain, trim)
