"""The life of a transaction, seen from its owner.

    open ──commit()/submit()──▶ sent ─▶ committed | aborted     once sent it cannot be withdrawn
      └───rollback()──────────▶ rolled back

`tx.commit` is called to commit, and afterwards carries the certificate: `tx.commit.place`.

Next: transaction.py, which adds what a transaction holds.
"""

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import (
    Aborted,
    NoSpace,
    NotSupported,
    OffsetOutOfRange,
    Overloaded,
    PlanstepError,
    TransactionClosed,
)
from ...proto.ids import Place, tx_text
from ...runtime.outcome import Commit, Outcome
from ...runtime.wait_primitives import CommitFuture
from ..arguments import seconds_or_none
from .participant_parts import Parts
from .snapshot_reader import Reading

if TYPE_CHECKING:
    from ...runtime.runtime import Runtime
    from ..engine import Engine

Self = TypeVar("Self", bound="Life")
_UNSETTLED = ("open", "planned")
_REFUSED = (Overloaded, RecursionError)
"""Before it was sent: too much is under way, or the caller's stack has no room for it."""
_WITHOUT_EFFECT = (Aborted, NoSpace, NotSupported, *_REFUSED, TypeError, OffsetOutOfRange)


class CommitHandle:
    """`tx.commit()` commits; `tx.commit.place` is the place in the one order, None before."""

    __slots__ = ("_tx",)

    def __init__(self, tx: "Life") -> None:
        self._tx = tx

    def __call__(self, timeout: float | None = None) -> Commit:
        """Commits, and waits until that is durable and visible.

        Raises Conflict when something read has changed (`db.run` tries again), Aborted for other
        reasons, Overloaded or NoSpace when there is no room (nothing was done), Undetermined after
        `timeout` seconds: it goes on then, as it does after
        KeyboardInterrupt, and `tx.outcome()` waits for its end.
        """
        return self._tx._commit(timeout)

    @property
    def place(self) -> Place | None:
        """(step, n). A transaction without effects has (S, None): behind all of step S."""
        return self._tx._place()

    def __repr__(self) -> str:
        return f"<commit of {self._tx!r}>"


class Life(ABC):
    """Invariant: the snapshot is pinned only while the state is "open"."""

    def __init__(self, engine: "Engine", worker: Any = None) -> None:
        self._engine = engine
        self._runtime = engine._runtime
        self._tx = self._runtime.new_tx()
        if worker is not None:
            self._runtime.hooks.assign(self._tx, worker)
        self._state = "open"
        self._reading: Reading | None = None
        self._future: Future[Commit] | None = None
        self._result: Commit | None = None
        self._failure: BaseException | None = None
        self._known_place: Place | None = None
        self._at_commit: list[Callable[[], None]] = []  # what is still to be written then
        self._ahead: dict[int, int] = {}  # batches sent ahead of the commit, by tablet

    @property
    def id(self) -> str:
        """The transaction's id, as in "3-17": `db.outcome(id)` finds it, after reopening too."""
        return tx_text(self._tx)

    @property
    def commit(self) -> CommitHandle:
        """Call it to commit; afterwards `tx.commit.place` is the place (step, n)."""
        return CommitHandle(self)

    def submit(self) -> "Future[Commit]":
        """Commits without waiting; the future gives the Commit or raises as `commit` would.

        It cannot be cancelled. Its callbacks run on a thread of the engine, one after the other:
        they may commit, but must not wait for another future of this engine. Overloaded, without
        effect, when there is no room for its bytes within 30 s.
        """
        parts = self._send()
        if parts is None:
            assert self._result is not None
            self._future = finished(self._result)
        else:
            try:
                self._future = self._runtime.transactions.submit(self._tx, parts)
            except BaseException as error:
                self._failed(error)
                raise
        return self._future

    def rollback(self) -> None:
        """Ends the transaction without effect."""
        self._check()
        self._state = "rolled back"
        self._release()
        self._take_back()

    def outcome(self, timeout: float | None = None) -> Outcome:
        """How the transaction ended; waits for that, at most `timeout` seconds, once it was sent."""
        self._engine._check()
        timeout = seconds_or_none("timeout", timeout)
        if self._result is not None and self._result.place.n is None:
            return local_outcome(self._tx, "committed", self._result.place)
        if self._state in ("open", "rolled back"):
            return local_outcome(self._tx, "open" if self._state == "open" else "aborted")
        if self._state == "aborted":
            self._engine._drop()  # perhaps it was refused where there was no room to take it back
        outcome = wait_outcome(self._runtime, self._tx, timeout)
        if (
            self._state == "aborted"
            and outcome.state in ("unknown", "refused")
            and not outcome.when_ms
        ):
            # Its owner was told, and no record was made of it.
            return local_outcome(self._tx, "aborted")
        if outcome.state == "committed":
            self._known_place = outcome.place
        return outcome

    def _commit(self, timeout: float | None) -> Commit:
        timeout = seconds_or_none("timeout", timeout)  # before it is sent
        self._check()
        try:
            parts = self._send()
            if parts is not None:
                self._result = self._runtime.transactions.commit(self._tx, parts, timeout)
        except BaseException as error:
            if self._state != "open":
                self._failed(error)
            raise
        assert self._result is not None
        self._state = "committed"
        return self._result

    def _failed(self, error: BaseException) -> None:
        self._failure = error
        if isinstance(error, _WITHOUT_EFFECT):
            self._state = "aborted"
        if isinstance(error, _REFUSED):
            self._refused(error)
        elif not isinstance(error, PlanstepError) and self._runtime.outcomes.never_sent(self._tx):
            self._refused(error)  # a signal's handler raised, or memory was short, before it was

    def _refused(self, error: BaseException) -> None:
        self._state = "aborted"
        if isinstance(error, RecursionError):  # nor is there room for taking it back
            self._engine._abandoned.append(self._tx)
        else:
            self._take_back()

    def _place(self) -> Place | None:
        future = self._future
        if self._result is None and future is not None and future.done():
            if not future.cancelled() and future.exception() is None:
                self._result = future.result()
        return self._known_place if self._result is None else self._result.place

    def _ended_by(self, error: BaseException) -> bool:
        future = self._future
        return error is self._failure or (
            future is not None and future.done() and error is future.exception()
        )

    def _send(self) -> Parts | None:
        """Closes the transaction for its owner; the parts, or None when it has no effects."""
        self._check()
        for write in self._at_commit:
            write()
        self._at_commit.clear()
        parts = self._parts()
        step: int | None = None
        if parts is None:
            step = self._view().snap.step
        self._state = "sent"
        self._release()
        if step is not None:
            self._runtime.hooks.forget(self._tx)
            self._result = read_only_commit(self._tx, step)
        return parts

    @abstractmethod
    def _parts(self) -> Parts | None:
        """What to send, None without effects; what is wrong with it is raised here."""

    def _check(self) -> None:
        self._engine._check()
        if self._state != "open":
            how = "sent to commit" if self._state == "sent" else self._state
            raise TransactionClosed(
                f"transaction {self.id} was {how} already; begin another with db.transaction()"
            )

    def _view(self) -> Reading:
        reading = self._reading
        if reading is None:
            reading = self._reading = Reading(
                self._runtime, self._runtime.transactions.look(self._tx)
            )
        return reading

    def _release(self) -> None:
        reading, self._reading = self._reading, None
        self._engine._consuming.pop(self._tx, None)
        if reading is not None:
            reading.snap.close()

    def __enter__(self: Self) -> Self:
        self._check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._state != "open":
            return
        try:
            if error is None:
                self._commit(None)
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._state == "open":  # an error, or a commit that was refused before it was sent
            self._state = "rolled back"
            self._release()
            self._take_back()

    def _await_sent(self) -> None:
        try:
            self._runtime.hooks.flush(self._tx)
        except BaseException as error:
            self._give_up(error)
            raise

    def _give_up(self, error: BaseException) -> None:
        """What was sent ahead cannot be committed: `run` may try again with another transaction."""
        self._failure = error
        self._leave()

    def _take_back(self) -> None:
        """What went ahead of a commit that will not be."""
        if self._ahead or self._state == "aborted":  # it may have been begun before it was refused
            self._runtime.transactions.rollback(self._tx)
        else:
            self._runtime.hooks.forget(self._tx)

    def __del__(self) -> None:
        # Dropped without an end: the engine unpins its snapshot later. Closing it here could meet
        # a lock that this very thread holds, wherever the garbage collector happened to run.
        reading = getattr(self, "_reading", None)
        if reading is not None:
            self._engine._consuming.pop(self._tx, None)
            self._engine._dropped.append(reading.snap)
        if getattr(self, "_state", None) == "open":
            self._runtime.hooks.forget(self._tx)
            if getattr(self, "_ahead", None):
                self._engine._abandoned.append(self._tx)
            if self._has_writes():
                warnings.warn(
                    f"transaction {self.id} was dropped without commit or rollback: what it wrote is lost",
                    ResourceWarning,
                    stacklevel=2,
                )

    @abstractmethod
    def _has_writes(self) -> bool:
        """Something would be lost with it."""

    def __repr__(self) -> str:
        return f"<Transaction {self.id} {self._state}>"


def read_only_commit(tx: bytes, step: int) -> Commit:
    """A transaction without effects: at (S, ∞), written as (S, None)."""
    return Commit(tx, Place(step, None), {})


def finished(commit: Commit) -> "Future[Commit]":
    future: Future[Commit] = CommitFuture()
    future.set_result(commit)
    return future


def wait_outcome(runtime: "Runtime", tx: bytes, timeout: float | None) -> Outcome:
    """The outcome once the transaction has ended, or what is known after `timeout` seconds."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = 0.0005
    while True:
        outcome = runtime.outcomes.of(tx)
        if outcome.state not in _UNSETTLED:
            return outcome
        if deadline is not None and time.monotonic() >= deadline:
            return outcome
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def local_outcome(tx: bytes, state: str, place: Place | None = None) -> Outcome:
    """Of a transaction that never left this object."""
    return Outcome(tx_text(tx), state, place, 0, ())
