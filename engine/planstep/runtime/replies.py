"""Hands answers from the turn that decided to the threads and futures that wait, each answer once.

    answers ─ hand out ─▶ a waiter woken · or a future ended, which has no callback
                        └▶ a future due ─▶ ended, on a thread of the engine, under no lock

Next: turn_loop.py.
"""

import threading
from collections.abc import Callable
from concurrent.futures import InvalidStateError
from contextlib import suppress
from copy import copy

from ..errors import NoSpace, StoreClosed, Undetermined, reason
from ..logs import callback_raised
from ..proto.ids import tx_text
from .admission import Admission
from .deferred_signals import Uninterrupted
from .group_commit import ReplySink, Sink, Waiter
from .outcome import Commit
from .wait_primitives import CommitFuture, Signal

_REFUSED_KEPT = 10_000


class ReplyBook:
    """Keeps waiting transactions and their answers. Invariants: a transaction is in `waiting` from its input to its
    answer, which also gives back its room. By then an ended one has a record in the store or is in `refused`,
    unless the engine stopped: then its end may not be known."""

    def __init__(
        self, hosts: int, admission: Admission, record_refusal: Callable[[bytes], None]
    ) -> None:
        self.admission = admission
        self.waiting: dict[bytes, Waiter] = {}
        self.answers: dict[bytes, Commit | BaseException] = {}
        self.due: dict[bytes, Waiter] = {}  # answered, but their futures are not ended
        self.attended: dict[bytes, Waiter] = {}
        """The same, but the thread that waits for it ends the future. Another does once that has left it."""
        self.is_due = Signal()
        self.refused: dict[bytes, bool] = {}
        """The newest that ended without a place, so perhaps without a record → whether they may get one."""
        self.remembered = True
        """Whether the next engine of the store knows how a transaction ended."""
        self._hosts = hosts
        self._record_refusal = record_refusal
        """Records a refusal durably; does not wait for that."""
        self._handing_out = threading.Lock()

    def note_refused(self, tx: bytes, error: BaseException) -> None:
        self.refused[tx] = not isinstance(error, NoSpace)
        if len(self.refused) > _REFUSED_KEPT:
            del self.refused[next(iter(self.refused))]

    def unheard(self, tx: bytes) -> None:
        """Notes that a transaction's sender has stopped waiting, and may ask its outcome even after reopening."""
        with self._handing_out:
            waiter = self.waiting.get(tx)
            if waiter is not None:
                waiter.unheard = True
                return
        self._record(tx)

    def redirect(self, tx: bytes, future: ReplySink | Sink | None) -> Waiter | None:
        """Has a waiting transaction answered to another sink; returns its waiter, None if it does not wait."""
        with self._handing_out:
            waiter = self.waiting.get(tx)
            if waiter is not None:
                waiter.future, waiter.attended = future, future is None
            return waiter

    def waits(self, tx: bytes) -> bool:
        """Returns whether a transaction waits, and is not being answered: then its next input may be here."""
        with self._handing_out:
            return tx in self.waiting

    def _record(self, tx: bytes) -> None:
        if self.refused.get(tx):  # not on a full disk, whose reserve is for others
            self._record_refusal(tx)

    def give_up(self, error: BaseException) -> None:
        why = reason(error)
        ask = "then " if "reopen" in why else "reopen and "
        if self.remembered:
            ask += "ask its outcome"
        else:
            ask += "look for its effects: this mode forgets ends of transactions with its engine"
        for tx in list(self.waiting):
            text = f"transaction {tx_text(tx)}: {why}; {ask}"
            doubt = Undetermined(text)
            doubt.__cause__ = error
            self.answers.setdefault(tx, doubt)

    def answer(self) -> None:
        """Hands answers to those that wait."""
        if self.answers:
            with Uninterrupted():
                self.hand_out()

    def hand_out(self) -> None:
        """Hands out all answers. On the main thread the caller is Uninterrupted. Several threads may meet here.

        A waiter is removed before it gets its answer: its next input, the commit after its staged data, waits
        under the same id. One of another process is removed behind that: see `waits`.
        """
        with self._handing_out:
            for tx, answer in self.answers.copy().items():
                self.admission.let_go(tx)
                waiter = self.waiting.get(tx)
                future = None if waiter is None else waiter.future
                if waiter is None or future is None:
                    pass
                elif isinstance(future, Sink):
                    future.take(tx, answer)
                else:
                    self._make_due(waiter, answer)
                self.waiting.pop(tx, None)
                del self.answers[tx]
                if waiter is None:
                    continue
                if tx in self.due:
                    self._end_here(tx, future, answer)
                waiter.answer = answer
                if waiter.attended:  # read behind the answer: who attends later sees the answer
                    waiter.wake()
                if waiter.unheard:
                    self._record(tx)
        if self.due and self._hosts > 1:
            self.is_due.set()

    def _make_due(self, waiter: Waiter, answer: Commit | BaseException) -> None:
        if waiter.attended:
            self.attended[waiter.tx] = waiter  # before its thread can see the answer
        waiter.answer = answer
        if waiter.tx not in self.attended:
            self.due[waiter.tx] = waiter

    def _end_here(
        self, tx: bytes, future: ReplySink | Sink | None, answer: Commit | BaseException
    ) -> None:
        """Ends a future that is due, if that calls nobody's code."""
        if isinstance(future, CommitFuture) and future.end_here(answer):
            self.due.pop(tx, None)

    def end_in_doubt(self, waiter: Waiter, doubt: Undetermined) -> None:
        """Ends the future of a waiter that has no answer, unless a thread waits for that. The waiter stays."""
        with self._handing_out:
            future = waiter.future
            if waiter.answer is not None or waiter.attended or isinstance(future, Sink):
                return
            waiter.future, waiter.attended, waiter.unheard = None, True, True
        if future is not None:
            with suppress(InvalidStateError), Uninterrupted():
                future.set_exception(doubt)

    def end_futures(self) -> None:
        """Ends the futures that are due, under no lock and without the lead, because a callback may commit. One
        thread of the engine does it: callbacks run one by one, never on a thread that holds locks of its own."""
        for waiter in self.attended.copy().values():
            if not waiter.attended and waiter.answer is not None:
                self.end_future(waiter)
        while self.due:
            for waiter in self.due.copy().values():
                self.end_future(waiter)

    def end_future(self, waiter: Waiter) -> None:
        """Ends the future of a waiter that is answered. Several threads may do it; it ends once."""
        future, answer = waiter.future, waiter.answer
        assert future is not None and answer is not None and not isinstance(future, Sink)
        try:
            with Uninterrupted():  # else the future's lock might stay taken for ever
                if isinstance(answer, BaseException):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        except InvalidStateError:
            pass  # it was ended already
        except (SystemExit, KeyboardInterrupt) as error:  # raised by a callback
            callback_raised(error)
        self.due.pop(waiter.tx, None)
        self.attended.pop(waiter.tx, None)


def own(error: BaseException) -> BaseException:
    """Copies an exception, because several threads must not raise the same one."""
    try:
        own: BaseException = copy(error)
    except TypeError:  # it is made from more than its text, and no error of the library
        return error
    own.__cause__ = error.__cause__
    if isinstance(own, StoreClosed):
        own.in_doubt = False  # callers of the turn that is in doubt get Undetermined
    return own
