"""Takes a transaction from its begin to its end, as the application sees it.

    open ──commit()/submit()──▶ sent ─▶ committed | aborted     once sent it cannot be withdrawn
      └───rollback()──────────▶ rolled back

Calling `tx.commit` commits; afterwards `tx.commit.place` is its place in the one order of all transactions.

Next: transaction.py, which adds the contents of a transaction.
"""

import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from ...errors import (
    Aborted,
    IoError,
    NoSpace,
    NotSupported,
    OffsetOutOfRange,
    Overloaded,
    PlanstepError,
    TransactionClosed,
)
from ...proto.ids import Place, tx_text
from ...proto.messages import Parts
from ...runtime.outcome import Commit, Outcome
from ...runtime.wait_primitives import CommitFuture
from ..arguments import seconds_or_none
from .participant_parts import Contents
from .snapshot_reader import Reading

if TYPE_CHECKING:
    from ...runtime.runtime import Runtime
    from ..context import Context

_UNSETTLED = ("open", "planned")
_REFUSED = (Overloaded, RecursionError)
"""Errors before it was sent: too much is under way, or the caller's stack has no room for it."""
_WITHOUT_EFFECT = (Aborted, NoSpace, NotSupported, *_REFUSED, TypeError, OffsetOutOfRange)


class CommitHandle:
    """Commits by `tx.commit()`; `tx.commit.place` is the place in the one order, None before."""

    __slots__ = ("_life",)

    def __init__(self, life: "Lifecycle") -> None:
        self._life = life

    def __call__(self, timeout: float | None = None) -> Commit:
        """Commits, and waits until that is durable and visible.

        Raises Conflict when something it read has changed (`db.run` tries again), Aborted for other
        reasons, Overloaded or NoSpace when there is no room (nothing was done), Undetermined after
        `timeout` seconds; without one after 30 s in which nothing was heard of another process that owns the store.
        Then the commit goes on, as it does after KeyboardInterrupt, and `tx.outcome()` waits for its end.
        """
        return self._life.commit(timeout)

    @property
    def place(self) -> Place | None:
        """The place (step, n). A transaction without effects has (S, None): after all of step S."""
        return self._life.place()

    def __repr__(self) -> str:
        return f"<commit of {self._life!r}>"


class Lifecycle:
    """Keeps a transaction's state; Transaction and CommitHandle describe the calls.

    Invariant: the snapshot is pinned only while the state is "open".
    """

    def __init__(self, context: "Context", contents: Contents, worker: Any = None) -> None:
        self.context = context
        self.contents = contents
        self._runtime = context.runtime
        self.tx = self._runtime.new_tx()
        if worker is not None:
            self._runtime.hooks.assign(self.tx, worker)
        self.future: Future[Commit] | None = None
        self.result: Commit | None = None
        self.failure: BaseException | None = None
        self.at_commit: list[Callable[[], None]] = []  # writes that wait for the commit
        self._known_place: Place | None = None
        self._reading: Reading | None = None
        self.state = "open"  # last: from here on `__del__` may find it open

    @property
    def id(self) -> str:
        return tx_text(self.tx)

    def submit(self) -> "Future[Commit]":
        parts = self.send()
        if parts is None:
            self.confirm()
            assert self.result is not None
            self.future = CommitFuture()
            self.future.set_result(self.result)
        else:
            try:
                self.future = self._runtime.transactions.submit(self.tx, parts)
            except BaseException as error:
                self.failed(error)
                raise
        return self.future

    def rollback(self) -> None:
        with self.contents.lock:
            self.check_open()
            self.state = "rolled back"
        self.release()
        self.take_back()

    def outcome(self, timeout: float | None = None) -> Outcome:
        self.context.check()
        timeout = seconds_or_none("timeout", timeout)
        if self.result is not None and self.result.place.n is None:
            return local_outcome(self.tx, "committed", self.result.place)
        if self.state in ("open", "rolled back"):
            return local_outcome(self.tx, "open" if self.state == "open" else "aborted")
        if self.state == "aborted":
            self.context.drop()  # it may have been refused without room to take it back
        outcome = wait_outcome(self._runtime, self.tx, timeout)
        unrecorded = outcome.state in ("unknown", "refused") and not outcome.when_ms
        if self.state == "aborted" and unrecorded:  # its owner was told
            return local_outcome(self.tx, "aborted")
        if outcome.state == "committed":
            self._known_place = outcome.place
        return outcome

    def commit(self, timeout: float | None) -> Commit:
        if timeout is not None:
            timeout = seconds_or_none("timeout", timeout)  # before it is sent
        was_open = self.state == "open"
        try:
            parts = self.send()
            if parts is not None:
                self.result = self._runtime.transactions.commit(self.tx, parts, timeout)
            else:
                self.confirm()
        except BaseException as error:
            if was_open and self.state != "open":
                self.failed(error)
            raise
        assert self.result is not None
        self.state = "committed"
        return self.result

    def confirm(self) -> None:
        """Ends a transaction without effects once what it has read is confirmed: see Runtime.confirm."""
        result, self.result = self.result, None
        self._runtime.confirm()
        self.result = result

    def failed(self, error: BaseException) -> None:
        """Notes how a commit failed, and takes back writes that can have no effect."""
        self.failure = error
        if isinstance(error, _WITHOUT_EFFECT):
            self.state = "aborted"
        if isinstance(error, _REFUSED):
            self._refused(error)
        elif not isinstance(error, PlanstepError) and self._runtime.outcomes.never_sent(self.tx):
            self._refused(error)  # a signal's handler raised, or memory was short, before

    def _refused(self, error: BaseException) -> None:
        self.state = "aborted"
        if isinstance(error, RecursionError):  # the stack has no room for taking it back either
            self.context.abandoned.append(self.tx)
        else:
            self.take_back()

    def place(self) -> Place | None:
        future = self.future
        if self.result is None and future is not None and future.done():
            if not future.cancelled() and future.exception() is None:
                self.result = future.result()
        return self._known_place if self.result is None else self.result.place

    def send(self) -> Parts | None:
        """Closes the transaction for its owner; returns the parts, or None when it has no effects."""
        with self.contents.lock:
            self.check_open()
            for write in self.at_commit:
                write()
            self.at_commit.clear()
            parts = self.contents.parts()
            step: int | None = None
            if parts is None:
                # Without places there is nothing to look up, and a look would take the worker's name.
                step = self.view().snap.step if self._runtime.hooks.has_places else 0
            self.state = "sent"
        self.release()
        if step is not None:
            self._runtime.hooks.forget(self.tx)
            self.result = Commit(self.tx, Place(step, None), {})  # at (S, ∞)
        return parts

    def check_open(self) -> None:
        """Raises TransactionClosed where the transaction has ended or was sent."""
        if not self.context.usable:
            self.context.check()
        if self.state != "open":
            how = "sent to commit" if self.state == "sent" else self.state
            raise TransactionClosed(
                f"transaction {self.id} was {how} already; begin another with db.transaction()"
            )

    def view(self) -> Reading:
        """Returns the view that it reads from; its snapshot is taken now at the latest."""
        if self._reading is None:
            self._reading = Reading(self._runtime, self._runtime.transactions.snapshot(self.tx))
        return self._reading

    def release(self) -> None:
        """Closes the snapshot."""
        reading, self._reading = self._reading, None
        self.context.consuming.pop(self.tx, None)
        if reading is not None:
            reading.snap.close()

    def leave(self) -> None:
        """Rolls back a transaction that is still open."""
        with self.contents.lock:
            if self.state != "open":
                return
            self.state = (
                "rolled back"  # after an error, or a commit that was refused before it was sent
            )
        self.release()
        self.take_back()

    def await_sent(self) -> None:
        """Waits until staged writes are durable."""
        try:
            self._runtime.hooks.flush(self.tx)
        except BaseException as error:
            self.give_up(error)
            raise

    def give_up(self, error: BaseException) -> None:
        """Ends a transaction whose staging failed; `run` may try again with another transaction."""
        self.failure = error
        self.leave()

    def take_back(self) -> None:
        """Takes back staged writes of a transaction that will not commit."""
        # Requests of a transaction that was refused may have been sent before.
        if self.contents.ahead or self.state == "aborted":
            self._runtime.transactions.rollback(self.tx)
        else:
            self._runtime.hooks.forget(self.tx)

    def __del__(self) -> None:
        # Collected without an end. The garbage collector may run where this thread holds a lock, so the engine
        # rolls back later; closing a snapshot needs no lock.
        reading = getattr(self, "_reading", None)
        if reading is not None:
            self.context.consuming.pop(self.tx, None)
            reading.snap.close()
        if getattr(self, "state", None) == "open":
            self._runtime.hooks.forget(self.tx)
            if self.contents.ahead:
                self.context.abandoned.append(self.tx)
            if self._loses_writes():
                warnings.warn(
                    f"transaction {self.id} was dropped without commit or rollback: what it wrote is lost",
                    ResourceWarning,
                    stacklevel=2,
                )

    def _loses_writes(self) -> bool:
        """Returns whether the transaction has writes, which would be lost."""
        return self.contents.has_writes()

    def __repr__(self) -> str:
        return f"<Transaction {self.id} {self.state}>"


def ended_by(life: Lifecycle, error: BaseException) -> bool:
    """Returns whether the error is this transaction's own."""
    future = life.future
    return error is life.failure or (
        future is not None and future.done() and error is future.exception()
    )


def standing(life: Lifecycle) -> str:
    """Returns the transaction's state, or "undetermined". Its future may know the end before it does."""
    future = life.future
    if life.state == "sent" and future is not None and future.done():
        return "committed" if future.exception() is None else "aborted"
    if life.state == "sent" and life.failure is not None:
        return "undetermined"
    return life.state


def wait_outcome(runtime: "Runtime", tx: bytes, timeout: float | None) -> Outcome:
    """Returns the outcome once the transaction has ended, or its state after `timeout` seconds. Without a time-out
    it is an IoError once another process that owns the store was silent for long."""
    began = time.monotonic()
    deadline = None if timeout is None else began + timeout
    pause = 0.0005
    while True:
        outcome = runtime.outcomes.of(tx)
        if outcome.state not in _UNSETTLED:
            return outcome
        if deadline is not None and time.monotonic() >= deadline:
            return outcome
        link = runtime.link
        if deadline is None and link is not None and time.monotonic() > link.patience(began):
            raise IoError(f"how transaction {tx_text(tx)} ends is not known: {link.doubt()}")
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def local_outcome(tx: bytes, state: str, place: Place | None = None) -> Outcome:
    """Makes the outcome of a transaction that was never sent."""
    return Outcome(tx_text(tx), state, place, 0, ())
