"""How a transaction ends, seen from its owner.

    open ──commit()/submit()──▶ sent ─▶ committed | aborted       sent: it cannot be withdrawn any more
      └───rollback()──────────▶ rolled back

`tx.commit` is called to commit, and afterwards carries the certificate: `tx.commit.place`.

Next: transaction.py.
"""

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

from ..outcome import Commit, Outcome
from ..proto.ids import Place, tx_text

if TYPE_CHECKING:
    from ..runtime import Runtime
    from .transaction import Transaction

_UNSETTLED = ("open", "planned")


class CommitHandle:
    """`tx.commit()` commits; `tx.commit.place` is the place in the one order, None before."""

    __slots__ = ("_tx",)

    def __init__(self, tx: "Transaction") -> None:
        self._tx = tx

    def __call__(self, timeout: float | None = None) -> Commit:
        """Commits, and waits until that is durable and visible.

        Raises Conflict when something read has changed (`db.run` tries again), Aborted for other
        reasons, Undetermined after `timeout` seconds: it goes on then, as it does after
        KeyboardInterrupt, and `tx.outcome()` waits for its end.
        """
        return self._tx._commit(timeout)

    @property
    def place(self) -> Place | None:
        """(step, n). A transaction without effects has (S, None): behind all of step S."""
        committed = self._tx._committed()
        return None if committed is None else committed.place

    def __repr__(self) -> str:
        return f"<commit of {self._tx!r}>"


def read_only_commit(tx: bytes, step: int) -> Commit:
    """A transaction without effects: at (S, ∞), written as (S, None)."""
    return Commit(tx, Place(step, None), {})  # type: ignore[arg-type]


def finished(commit: Commit) -> "Future[Commit]":
    future: Future[Commit] = Future()
    future.set_result(commit)
    return future


def wait_outcome(runtime: "Runtime", tx: bytes, timeout: float | None) -> Outcome:
    """The outcome once the transaction has ended, or what is known after `timeout` seconds."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = 0.0005
    while True:
        outcome = runtime.outcome(tx)
        if outcome.state == "unknown":  # it may have ended between the two places it is looked for
            outcome = runtime.outcome(tx)
        if outcome.state not in _UNSETTLED:
            return outcome
        if deadline is not None and time.monotonic() >= deadline:
            return outcome
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def local_outcome(tx: bytes, state: str, place: Place | None = None) -> Outcome:
    """Of a transaction that never left this object."""
    return Outcome(tx_text(tx), state, place, 0, ())
