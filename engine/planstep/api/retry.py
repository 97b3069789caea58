"""Decides when a transaction's function runs again, for `run` of both faces: threads and asyncio.

    fails ─▶ its own Conflict, Overloaded, first SnapshotTooOld? attempts and time left? ─▶ a pause, and again
                                              └ no ─▶ raised

Transactions that lost to the same conflict wait by age: the oldest shortest, later ones longer.

Next: engine.py.
"""

import random
import threading
import time
from collections.abc import Callable
from inspect import isawaitable, isgenerator
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import Conflict, Overloaded, ProtocolError, SnapshotTooOld
from ..logs import snapshot_too_old
from .arguments import brief, seconds, whole
from .transaction.lifecycle import ended_by

if TYPE_CHECKING:
    from .context import Context
    from .transaction.transaction import Transaction

T = TypeVar("T")
_TOOK_MIN, _PAUSE_MAX = 0.001, 0.25
_ALONE = object()
RETRIED = (Conflict, ProtocolError, Overloaded, SnapshotTooOld)


class Losers:
    """Keeps which calls of `run` lost to which conflict, and have not won since."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = 0
        self._of: dict[Any, _Crowd] = {}

    def number(self) -> int:
        """Returns a number for comparing ages: the smaller, the older."""
        with self._lock:
            self._begun += 1
            return self._begun

    def lost(self, what: Any, number: int) -> tuple[int, int]:
        """Notes a loss; returns (how many losers are older, how often each has lost since one of them won)."""
        with self._lock:
            crowd = self._of.setdefault(what, _Crowd())
            crowd.numbers.add(number)
            rounds = crowd.lost // len(crowd.numbers)
            crowd.lost += 1
            return sum(other < number for other in crowd.numbers), rounds

    def leave(self, what: Any, number: int, won: bool) -> None:
        with self._lock:
            crowd = self._of.get(what)
            if crowd is None:  # interrupted before it was counted
                return
            crowd.numbers.discard(number)
            if won:
                crowd.lost = 0
            if not crowd.numbers:
                del self._of[what]


class _Crowd:
    """The calls that lost to the same conflict, and their losses since one of them won."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.lost = 0


class Attempts:
    """One call of `run`, in a `with`: counts its failures, and knows until when it may retry."""

    def __init__(self, attempts: int | None, deadline: float, losers: Losers) -> None:
        self._most = None if attempts is None else whole("attempts", attempts, 1)
        self._begun = time.monotonic()
        self._end = self._begun + seconds("deadline", deadline)
        self._failed = 0
        self._too_old = False
        self._losers = losers
        self._number = 0
        self._lost: Any = _ALONE

    def __enter__(self) -> "Attempts":
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._leave(error is None)

    def _leave(self, won: bool) -> None:
        if self._lost is not _ALONE:
            self._losers.leave(self._lost, self._number, won)
            self._lost = _ALONE

    def pause_after(self, error: Exception, own: bool) -> float:
        """Returns the seconds to wait before the next attempt, jittered.

        They are the time that an attempt takes, once for each older loser of the same conflict, and about twice as
        long each time that none of them has won. So a call that lost by chance, and the oldest of a crowd that
        makes progress, do not wait.

        Raises the error when there is no next attempt. `own`: the error is this transaction's, not that of
        another one that the function ran.
        """
        self._failed += 1
        if not own and not isinstance(error, SnapshotTooOld):
            raise error
        if not getattr(error, "retryable", True):
            raise error
        if isinstance(error, SnapshotTooOld):
            if self._too_old:
                error.add_note("db.run: the function outlived its snapshot twice, and would again")
                raise error
            self._too_old = True
            snapshot_too_old("the function of db.run", error)
        older, rounds = self._rank(error)
        now = time.monotonic()
        took = max(_TOOK_MIN, now - self._begun)
        grown = took * ((1 + older) * 2.0 ** min(rounds, 10) - 1)
        pause = random.uniform(0.5, 1.0) * min(grown, _PAUSE_MAX)
        if self._failed == self._most or now + pause >= self._end:
            error.add_note(f"db.run gave up after {self._failed} attempts")
            raise error
        self._begun = now + pause
        return pause

    def _rank(self, error: Exception) -> tuple[int, int]:
        if not isinstance(error, Conflict):
            self._leave(False)
            return 0, self._failed
        what = error.kind, error.name, error.part, brief(error.key), error.consumer, error.producer
        if what != self._lost:
            self._leave(False)
            self._number = self._number or self._losers.number()
            self._lost = what
        return self._losers.lost(what, self._number)


def run(
    context: "Context",
    fn: "Callable[[Transaction], T]",
    attempts: int | None = None,
    deadline: float = 30.0,
    worker: str | None = None,
) -> T:
    """Runs a function in transactions: see Engine.run."""
    if not callable(fn):
        raise TypeError(f"run takes a function of the transaction, not {brief(fn)}")
    with Attempts(attempts, deadline, context.losers) as tried:
        while True:
            tx = None
            try:
                tx = context.begin(worker)
                with tx:
                    value = fn(tx)
                    refuse_unrun(value, "run")
                if tx.life.future is not None:
                    tx.life.future.result()
                return value
            except RETRIED as error:
                time.sleep(tried.pause_after(error, is_own(tx, error)))


def is_own(tx: "Transaction | None", error: Exception) -> bool:
    """Returns whether the error is that of `run`'s own transaction, which may be that none could begin."""
    return isinstance(error, Overloaded) if tx is None else ended_by(tx.life, error)


def never_run(value: Any) -> bool:
    """Returns whether a function gave a coroutine or generator, whose body has not run and never will."""
    if value is None or not (isawaitable(value) or isgenerator(value)):
        return False
    close = getattr(value, "close", None)
    if close is not None:
        close()  # else Python warns that it was never awaited
    return True


def refuse_unrun(value: Any, who: str) -> None:
    """Raises TypeError where a function gave a coroutine or generator."""
    if never_run(value):
        raise TypeError(
            f"{who} of an engine without asyncio takes a plain function; planstep.open_async has one "
            "for async functions"
        )
