"""Runs transactions of the Pulsar-style mode from their first request to their end.

    write  ─▶ opened: NewTxn ─▶ sent …
    commit ─▶ the rest is sent, acknowledgements, EndTxn ─▶ answered when all participants have the end
    worker ─▶ a producer's name; without one a name of the pool, one transaction at a time each

Many transactions may be open; a name is no identity, so nobody is fenced. What a process leaves open is aborted by
its coordinator after its time-out. Names carry the process's incarnation: numbers of a producer begin at 0 in each
process, and with deduplication a partition would drop them as repeats.

Next: ../client_transactions.py.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import PlanstepError, Undetermined
from ...proto.ids import tx_text
from ...proto.messages import AheadSlices
from ...proto.pulsar.messages import NO_TXN, TxnID
from ...proxy.pulsar.client import UNDETERMINED
from ...proxy.pulsar.states import State
from ..batch_cutting import bounded
from ..client_requests import NO_PLACE, Flushes
from ..client_transactions import CommitRequest
from ..outcome import Commit, undetermined
from .errors import pulsar_error

if TYPE_CHECKING:
    from .hooks import PulsarHooks

OUTCOMES_KEPT = 10_000
_OWN_NAMES = ("TransactionConflict", "NoSpace", "TooManyGaps", "TransactionTimeout")
"""Failures of an operation that a caller hears of by their own name, not as TransactionHasOperationFailed."""


@dataclass(slots=True, eq=False)
class Open:
    """A transaction from its first request to its end."""

    tx: bytes
    producer: str
    pooled: bool
    ending: str = ""  # "commit" or "abort", once asked


class Writing:
    """Keeps open transactions, guarded by the client's lock. Invariant: `open` has those that the core has."""

    def __init__(self, mode: "PulsarHooks") -> None:
        self.open: dict[bytes, Open] = {}
        self.ended: dict[bytes, str] = {}
        self._ids: dict[bytes, TxnID] = {}
        """Of those that have ended, as long as `ended` has them."""
        self._assigned: dict[bytes, str] = {}
        self._each: dict[bytes, tuple[int, str, list[int]]] = {}
        self._free: list[str] = []
        self._made = 0
        self._flushes = Flushes(mode, self._failure)
        self._mode = mode
        self._runtime = mode.runtime
        self._client = mode.client
        self._core = mode.client.core

    @property
    def plain_name(self) -> str:
        """The producer of writes outside of transactions."""
        return f"plain-{self._runtime.incarnation}"

    def assign(self, tx: bytes, worker: str | None) -> None:
        if worker is not None:
            self._assigned[tx] = worker

    def acknowledge_each(self, tx: bytes, tablet: int, consumer: str, offsets: list[int]) -> None:
        """Makes the commit send an acknowledgement for each of these records, not one for all."""
        self._each[tx] = tablet, consumer, offsets

    def forget(self, tx: bytes) -> None:
        self._assigned.pop(tx, None)
        self._each.pop(tx, None)

    def _opened(self, tx: bytes) -> Open:
        """Opens a transaction if it is not open yet; under the client's lock."""
        opened = self.open.get(tx)
        if opened is None:
            worker = self._assigned.pop(tx, None)
            opened = self.open[tx] = Open(tx, self._name(worker), worker is None)
            self._core.begin(tx)
        return opened

    def _name(self, worker: str | None) -> str:
        if worker is not None:
            return f"{worker}-{self._runtime.incarnation}"
        if self._free:
            return self._free.pop()
        self._made += 1
        return f"pool-{self._made - 1}-{self._runtime.incarnation}"

    def txn_id(self, tx: bytes) -> TxnID | None:
        """Returns the id that a coordinator has given, None while there is none."""
        with self._client.locked():
            id = self._core.id(tx) if tx in self.open else self._ids.get(tx, NO_TXN)
        return None if id == NO_TXN else id

    def tx_of(self, txn: TxnID) -> bytes | None:
        """Returns the transaction of this engine that has a coordinator's id, if it is remembered."""
        with self._client.locked():
            ids = [*((tx, self._core.id(tx)) for tx in self.open), *self._ids.items()]
        return next((tx for tx, id in ids if id == txn), None)

    def is_aborted(self, tx: bytes) -> bool:
        """Returns whether an open transaction has timed out, or an operator has aborted it."""
        with self._client.locked():
            return tx in self.open and self._core.state(tx) is State.TIME_OUT

    def open_ids(self) -> dict[TxnID, bytes]:
        with self._client.locked():
            return {self._core.id(tx): tx for tx in self.open}

    def aborted_by_operator(self, txn: TxnID) -> None:
        """Ends a transaction of this engine that its coordinator has aborted; its commit is InvalidTxnStatus."""
        tx = self.open_ids().get(txn)
        if tx is not None:
            with self._client.locked():
                self._core.was_aborted(tx)
            self._client.deliver()

    def send_ahead(self, tx: bytes, slices: AheadSlices) -> None:
        self._runtime.turns.check_open()
        batches = bounded(
            {tablet: pieces for tablet, (_, pieces) in slices.items()}, self._mode.gathering.bytes
        )
        self._client.admit(tx, batches, None)
        with self._client.locked():
            self._core.send(tx, self._opened(tx).producer, batches)
        self._client.deliver()

    def flush(self, tx: bytes) -> None:
        """Waits until everything sent is written. PulsarError when some of it was refused: then the transaction can
        only be rolled back."""
        self._flushes.wait(tx)

    def end_flushes(self) -> None:
        self._flushes.end()

    def _failure(self, tx: bytes) -> PlanstepError | None:
        if tx not in self.open:
            return pulsar_error("InvalidTxnStatus", "the transaction has ended")
        failure = self._core.failure(tx)
        return None if failure is None else pulsar_error(*failure)

    def commit(self, tx: bytes, batches: Any, request: CommitRequest) -> None:
        opened = self._opened(tx)
        opened.ending = "commit"
        if batches:
            self._core.send(tx, opened.producer, batches)
        for consumer, positions in request.positions.items():
            for tablet, position in positions.items():
                self._core.acknowledge(tx, tablet, consumer, position=position)
        *one_by_one, offsets = self._each.pop(tx, (-1, "", []))
        for consumer, acks in request.acks.items():
            for tablet, ranges in acks.items():
                if [tablet, consumer] == one_by_one:
                    for offset in offsets:
                        self._core.acknowledge(tx, tablet, consumer, ((offset, offset + 1),))
                else:
                    self._core.acknowledge(tx, tablet, consumer, ranges)
        self._core.commit(self._client.call(partial(self._committed, opened)), tx)

    def _committed(self, opened: Open, error: str, value: Any, detail: str) -> None:
        """Ends a transaction when the commit's call has ended; under the client's lock."""
        answer: Commit | PlanstepError
        if not error:
            half_ns = int(1e6 * self._runtime.turns.half_ms)
            self._runtime.ledger.decided(opened.tx, half_ns, visible=True)
            self._ended_as(opened.tx, "committed")
            names, id = self._runtime.names.of_tablet, self._core.id(opened.tx)
            answer = Commit(
                opened.tx, NO_PLACE, dict(value), names, txn_id=None if id == NO_TXN else id
            )
        elif error == UNDETERMINED:
            answered = self._core.state(opened.tx) is State.ERROR
            self._ended_as(opened.tx, "undetermined")
            answer = self._doubt(opened.tx, detail if answered else "")
        else:
            self._ended_as(opened.tx, "aborted")
            answer = pulsar_error(value if value in _OWN_NAMES else error, detail)
        self._mode.client_transactions.answer_call(opened.tx, answer)
        self._free_name(opened)

    def _doubt(self, tx: bytes, answer: str) -> Undetermined:
        """Makes the error of a commit whose end is not known; `answer`: what its coordinator said, if it did."""
        if not answer:
            return undetermined(tx, self._mode.settings.operation_timeout_ms / 1000, told=False)
        return Undetermined(
            f"transaction {tx_text(tx)}: {answer}. It has ended, and nobody knows how: an earlier answer may have "
            "been lost with the store's owner. Look for its effects before it runs again; "
            "PulsarSettings(ended_kept=100_000) has coordinators remember"
        )

    def rollback(self, tx: bytes) -> None:
        if self._runtime.turns.closed:
            return
        with self._client.locked():
            self.forget(tx)
            opened = self.open.get(tx)
            if opened is None:
                self._client.let_go(tx)
                return
            if opened.ending:
                return
            opened.ending = "abort"
            self._core.abort(self._client.call(partial(self._aborted, opened)), tx)
        self._client.deliver()

    def _aborted(self, opened: Open, error: str, value: Any, detail: str) -> None:
        """Ends a transaction; whatever the answer was, its commit was never asked for."""
        self._ended_as(opened.tx, "aborted")
        self._free_name(opened)

    def _free_name(self, opened: Open) -> None:
        del self.open[opened.tx]
        self._client.let_go(opened.tx)
        self._core.drop(opened.tx)
        if opened.pooled:
            self._free.append(opened.producer)

    def _ended_as(self, tx: bytes, state: str) -> None:
        if state == "aborted":
            self._runtime.ledger.aborted(tx)
        self.ended[tx], self._ids[tx] = state, self._core.id(tx)
        while len(self.ended) > OUTCOMES_KEPT:
            oldest = next(iter(self.ended))
            del self.ended[oldest], self._ids[oldest]
