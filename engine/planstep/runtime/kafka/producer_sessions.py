"""Runs transactions of the Kafka-style mode from their first request to their end, each with its producer.

    write ─▶ opened: a worker's producer, or one of the pool ─▶ begun ─▶ sent … ─▶ committed | aborted
                                    │ being initialized, or busy with the transaction before: its work waits
    read  ─▶ the producer is initialized first, so that no earlier one of its name can commit what is read

Next: producers.py.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import PlanstepError
from ...proto.messages import AheadSlices
from ...proxy.kafka.client import FENCED, UNKNOWN_END
from ..batch_cutting import bounded
from ..client_hooks import LOOK_SECONDS
from ..client_requests import NO_PLACE, Flushes
from ..client_transactions import CommitRequest
from ..group_commit import Waiter
from ..outcome import Commit, undetermined
from .errors import kafka_error
from .producers import Open, Pool, Producer, Workers
from .views import LiveSnapshot

if TYPE_CHECKING:
    from .hooks import KafkaHooks

OUTCOMES_KEPT = 10_000


class Writing:
    """Keeps producers and open transactions, guarded by the client's lock.

    Invariants: a producer has one transaction at a time; `open` holds a transaction from its first request to
    its end.
    """

    def __init__(self, mode: "KafkaHooks") -> None:
        self.open: dict[bytes, Open] = {}
        self.ended: dict[bytes, str] = {}  # how the newest transactions ended, in memory only
        self.producers = Workers()
        self._assigned: dict[bytes, Producer] = {}
        self._pool = Pool(mode.pool_names)
        self._ready: dict[Producer, list[bytes]] = {}  # calls waiting for its initialization
        self._flushes = Flushes(mode, self._failure)
        self._mode = mode
        self._runtime = mode.runtime
        self._client = mode.client
        self._core = mode.client.core
        self._settings = mode.settings

    # producers -----------------------------------------------------------------------------

    def producer(self, name: str) -> Producer:
        """Makes a new incarnation of a transactional id; its first transaction fences the one before."""
        producer = Producer(name)
        with self._client.locked():
            self.producers.stand_last(producer)
        return producer

    def assign(self, tx: bytes, worker: "str | Producer | None") -> None:
        """Assigns a transaction to a producer. A worker's name means its newest incarnation, or a new
        one while that has a transaction open."""
        if isinstance(worker, str):
            with (
                self._client.locked()
            ):  # or two threads take one producer: neither fences the other
                self._assigned[tx] = self._newest(worker, free=True)
        elif worker is not None:
            self._owner_begins(worker)
            self._assigned[tx] = worker

    def _newest(self, name: str, free: bool) -> Producer:
        """Returns the newest incarnation of a transactional id, a new one if that has ended, or `free` and it is
        taken; under the client's lock."""
        producer = self.producers.get(name)
        if producer is None or producer.dead is not None or (free and self._is_taken(producer)):
            producer = Producer(name)
            self.producers.stand_last(producer)
        return producer

    def _is_taken(self, producer: Producer) -> bool:
        """Returns whether it has a transaction that does not end by itself, or is assigned to one."""
        if producer.busy and not self._is_ending(producer):
            return True
        return producer in list(self._assigned.values())

    def ready(self, worker: str, alone: bool = False) -> None:
        """Initializes the worker's producer, which ends what was left open under its transactional id. `alone`:
        also what this engine has open under it; a commit that is under way is waited for."""
        self._runtime.turns.check_open()
        producer = self.producers.get(worker)
        if alone and producer is not None:
            self._wait_while(producer, lambda one: one.busy and self._is_ending(one))
        with self._client.locked():
            producer = self._newest(worker, free=alone)
        self._initialized_once(producer)

    def take_over(self, producer: Producer) -> None:
        """Initializes a reader's producer, which ends what was left open under its transactional id."""
        self._owner_begins(producer)
        self._initialized_once(producer)

    def end_left(self, name: str) -> None:
        """Initializes a transactional id of a process that is gone, which ends its transaction; does not wait."""

        def then(error: str, handle: Any, detail: str) -> None:
            if not error:
                self._core.drop(handle)

        with self._client.locked():
            self._core.init(self._client.call(then), name)
        self._client.deliver()

    def _owner_begins(self, producer: Producer) -> None:
        """Makes a reader's producer its name's last incarnation, unless it has asked for its id before."""
        if producer.later is not None and not producer.id_requested:
            with self._client.locked():
                self.producers.stand_last(producer)

    def _initialized_once(self, producer: Producer) -> None:
        if producer.handle is None and producer.dead is None:
            self._make_ready(producer)

    def _make_ready(self, producer: Producer) -> None:
        tx = self._runtime.new_tx()
        with self._client.locked():
            waiter = self._runtime.replies.waiting[tx] = Waiter(tx, 0, None)
            self._initialize(producer)
            if producer.initializing:
                self._ready.setdefault(producer, []).append(tx)
            else:
                self._runtime.replies.answers[tx] = Commit(tx, NO_PLACE, {})
        self._mode.client_transactions.deliver_requests()
        self._runtime.threads.wait_for(waiter, None)
        waiter.result()

    def retire(self, producer: Producer) -> None:
        """Retires a producer: no transaction begins with it any more, and it is forgotten once it is free."""
        with self._client.locked():
            producer.retired = True
            self._forget_if_free(producer)

    def _forget_if_free(self, producer: Producer) -> None:
        if not producer.retired or producer.busy or producer.initializing:
            return
        if self.producers.get(producer.name) is producer:
            del self.producers[producer.name]
        if producer.handle is not None and producer.dead is None:
            self._core.drop(producer.handle)
        producer.dead = producer.dead or ("INVALID_REQUEST", "its reader is closed")

    def _is_ending(self, producer: Producer) -> bool:
        """Returns whether its transactions, the current and the waiting ones, are all ending: they need nothing."""
        return all(one.ending for one in self._transactions(producer))

    def _transactions(self, producer: Producer) -> list[Open]:
        """Returns a producer's transactions, first the current one."""
        transactions = [self.open.get(producer.tx or b""), *producer.waiting]
        return [one for one in transactions if one is not None]

    def forget(self, tx: bytes) -> None:
        """Forgets a transaction that has ended without any request."""
        self._assigned.pop(tx, None)

    def fence(self, tx: bytes, consumer: str, generation: int, member: str) -> None:
        """Notes the group metadata that go with the positions of this transaction (KIP-447)."""
        with self._client.locked():
            self._opened(tx).group[consumer] = (generation, member)

    def snapshot(self, tx: bytes) -> LiveSnapshot:
        """Returns the snapshot that a transaction reads with; its producer's consumer keeps positions in memory.

        The producer is initialized first, so that no earlier one of its name can commit what is read. Then this
        waits for positions that its earlier transactions are about to commit.
        """
        producer = self._assigned.get(tx) if self._mode.writes else None
        if producer is not None:
            self._initialized_once(producer)
        if producer is not None and self._is_moving(producer, tx):
            self._wait_while(producer, lambda one: self._is_moving(one, tx))
        return LiveSnapshot(None if producer is None else producer.positions, stable=True)

    def _wait_while(self, producer: Producer, goes_on: Callable[[Producer], bool]) -> None:
        deadline = time.monotonic() + self._settings.max_block_ms / 1000
        while goes_on(producer):
            self._runtime.turns.check_open()
            if time.monotonic() > deadline:
                raise kafka_error("CONCURRENT_TRANSACTIONS", f"producer {producer.name!r}")
            time.sleep(LOOK_SECONDS)

    def _is_moving(self, producer: Producer, tx: bytes) -> bool:
        with self._client.locked():
            return any(
                one.tx != tx and one.ending == "commit" and one.positions
                for one in self._transactions(producer)
            )

    def _opened(self, tx: bytes) -> Open:
        """Opens a transaction if it is not open yet; under the client's lock."""
        transaction = self.open.get(tx)
        if transaction is None:
            producer = self._assigned.pop(tx, None) or self._pool.take()
            transaction = self.open[tx] = Open(tx, producer)
            if producer.tx is None:
                producer.tx = tx
            else:
                producer.waiting.append(transaction)
            self._initialize(producer)
        return transaction

    def _initialize(self, producer: Producer) -> None:
        if producer.handle is not None or producer.initializing or producer.dead is not None:
            return
        if producer.is_passed:
            producer.dead = FENCED, ""
            return
        producer.id_requested = producer.initializing = True
        if self.producers.asks(producer):
            self._ask(producer)

    def _ask(self, producer: Producer) -> None:
        self._core.init(self._client.call(partial(self._initialized, producer)), producer.name)

    def _initialized(self, producer: Producer, error: str, handle: Any, detail: str) -> None:
        producer.initializing = False
        following = self.producers.answered(producer)
        if following is not None:
            self._ask(following)
        for tx in self._ready.pop(producer, ()):
            done = Commit(tx, NO_PLACE, {}) if not error else kafka_error(error, detail)
            self._runtime.replies.answers[tx] = done
        if error:
            producer.dead = (error, detail)
            for opened in self._transactions(producer):
                self._end(opened, error, detail)
            return
        producer.handle = handle
        self._go_on(producer)
        self._forget_if_free(producer)

    def _go_on(self, producer: Producer) -> None:
        """Does the waiting work of the producer's transaction, if the producer is initialized."""
        opened = self.open.get(producer.tx) if producer.tx is not None else None
        if opened is None or producer.handle is None:
            return
        if not opened.begun:
            opened.begun = True
            opened.refused = self._core.begin(producer.handle, opened.tx)
        if opened.refused:  # nothing of it is sent, and its commit or rollback gets the error
            opened.wants = []
            self._end(opened, opened.refused, "")
            return
        wants, opened.wants = opened.wants, []
        for want in wants:
            want(producer.handle)

    def _want(self, opened: Open, want: Any) -> None:
        opened.wants.append(want)
        producer = opened.producer
        if producer.dead is not None:
            if opened.tx in self.open:  # it may have ended by earlier work
                self._end(opened, *producer.dead)
        elif producer.tx == opened.tx:
            self._go_on(producer)

    # transactions --------------------------------------------------------------------------

    def send_ahead(self, tx: bytes, slices: AheadSlices) -> None:
        """Sends batches to their partitions, which write them in place; does not wait for it.

        Overloaded: nothing of it was sent.
        """
        self._runtime.turns.check_open()
        batches = bounded(
            {tablet: pieces for tablet, (_, pieces) in slices.items()}, self._settings.batch_bytes
        )
        self._client.admit(tx, batches, None)
        with self._client.locked():
            opened = self._opened(tx)
            self._want(opened, partial(self._produce, opened, batches))
        self._client.deliver()

    def flush(self, tx: bytes) -> None:
        """Waits until everything sent is written. KafkaError when some of it was refused: then the transaction can
        only be rolled back."""
        self._flushes.wait(tx)

    def end_flushes(self) -> None:
        self._flushes.end()

    def _failure(self, tx: bytes) -> PlanstepError | None:
        failure = self._failed(tx)
        return None if failure is None else kafka_error(*failure)

    def _failed(self, tx: bytes) -> tuple[str, str] | None:
        opened = self.open.get(tx)
        if opened is None:
            return "INVALID_TXN_STATE", "the transaction has ended"
        producer = opened.producer
        if producer.dead is not None:
            return producer.dead
        if producer.handle is None or producer.tx != tx or not opened.begun:
            return None
        return (opened.refused, "") if opened.refused else self._core.failure(producer.handle)

    def _produce(self, opened: Open, batches: Any, handle: int) -> None:
        self._core.send(handle, opened.tx, batches)

    def rollback(self, tx: bytes) -> None:
        """Aborts a transaction; does not wait for it."""
        if self._runtime.turns.closed:
            return
        with self._client.locked():
            self._assigned.pop(tx, None)
            opened = self.open.get(tx)
            if opened is None:
                self._client.let_go(tx)
                return
            if opened.ending:
                return
            opened.ending = "abort"
            for consumer, tablet in opened.positions:
                opened.producer.positions.pop((consumer, tablet), None)
            self._want(opened, partial(self._abort, opened))
        self._client.deliver()

    def _abort(self, opened: Open, handle: int) -> None:
        self._core.abort(self._client.call(partial(self._ended_call, opened)), handle, opened.tx)

    def commit(self, tx: bytes, batches: Any, request: CommitRequest) -> None:
        opened = self._opened(tx)
        opened.ending = "commit"
        if batches:
            self._want(opened, partial(self._produce, opened, batches))
        offsets = {}
        for consumer, moved in request.positions.items():
            generation, member = opened.group.get(consumer, (-1, ""))
            offsets[consumer] = (generation, member, tuple(moved.items()))
            for tablet, offset in moved.items():
                opened.positions[consumer, tablet] = offset
        self._want(opened, partial(self._end_commit, opened, offsets))

    def _end_commit(self, opened: Open, offsets: Any, handle: int) -> None:
        call = self._client.call(partial(self._ended_call, opened))
        self._core.commit(call, handle, opened.tx, offsets)

    def _ended_call(self, opened: Open, error: str, value: Any, detail: str) -> None:
        """Ends a transaction when the client's call has ended; under the client's lock."""
        if error:
            self._end(opened, error, detail)
            return
        producer = opened.producer
        self._runtime.ledger.decided(opened.tx, int(1e6 * self._runtime.turns.half_ms))
        if opened.ending == "commit":
            producer.positions.update(opened.positions)
            self._ended_as(opened.tx, "committed")
            epoch, details = value
            names = self._runtime.names.of_tablet
            answer = Commit(opened.tx, NO_PLACE, dict(details), names, epoch)
            self._mode.client_transactions.answer_call(opened.tx, answer)
        else:
            self._ended_as(opened.tx, "aborted")
        self._free(opened)

    def _end(self, opened: Open, error: str, detail: str) -> None:
        """Ends a transaction with an error, its producer's or its own."""
        for key in opened.positions:
            opened.producer.positions.pop(key, None)
        unknown = error == "REQUEST_TIMED_OUT" or detail == UNKNOWN_END
        self._ended_as(opened.tx, "undetermined" if unknown else "aborted")
        if error == "REQUEST_TIMED_OUT" and opened.producer.dead is None and opened.ending:
            # Its request goes on: no other transaction may write under this incarnation meanwhile.
            opened.producer.dead = (error, detail)
            if opened.producer.handle is not None:
                self._core.drop(opened.producer.handle)
        if opened.ending == "commit":
            seconds = self._settings.max_block_ms / 1000
            answer = (
                undetermined(opened.tx, seconds, told=False)
                if unknown
                else kafka_error(error, detail)
            )
            self._mode.client_transactions.answer_call(opened.tx, answer)
        elif not opened.ending:
            return  # its owner gets the error at the commit
        self._free(opened)

    def _free(self, opened: Open) -> None:
        producer = opened.producer
        self.open.pop(opened.tx, None)
        self._client.let_go(opened.tx)
        if producer.dead is None and producer.handle is not None:
            producer.dead = self._core.dead(producer.handle)
            if producer.dead is not None:
                self._core.drop(producer.handle)
        if producer.tx != opened.tx:
            producer.waiting = [other for other in producer.waiting if other is not opened]
            return
        producer.tx = None
        if producer.dead is not None:
            for other in list(producer.waiting):
                if other.ending:
                    self._end(other, *producer.dead)
        elif producer.waiting:
            producer.tx = producer.waiting.pop(0).tx
            self._go_on(producer)
            return
        if producer.pooled:
            self._pool.give(producer)
        self._forget_if_free(producer)

    def _ended_as(self, tx: bytes, state: str) -> None:
        if state == "aborted":
            self._runtime.ledger.aborted(tx)
        self.ended[tx] = state
        while len(self.ended) > OUTCOMES_KEPT:
            del self.ended[next(iter(self.ended))]
