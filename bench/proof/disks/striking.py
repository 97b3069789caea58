"""Raises exceptions while the real engine commits, then checks that the engine works on.

    signal   a handler that raises, at the n-th bytecode of a commit
    alarm    the same by a timer of the system's, at any moment
    depth    a commit whose caller is so near to the stack's end that only n calls fit in

By bytecode: a trace function raises the signal in the engine's own frames. While handlers are deferred it does so
at once, else at the next place where CPython checks for signals (3.11: after calls of C, at a function's begin,
at a jump back). No handler ever runs elsewhere, for example between the end of a `with` and its lock's release.

Next: ../rows/interrupts.py.
"""

import contextlib
import dis
import inspect
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any

import planstep
from planstep.api.open_engine import Mode
from planstep.errors import PlanstepError
from planstep.runtime import deferred_signals

from ..patching import exchange
from .modes import CONSUMER, MODES
from .sample import quickly

KINDS = ("signal", "alarm", "depth")
_SIGNAL = signal.SIGUSR2
_CALLS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX")
_LOOKS = {dis.opmap.get(name) for name in (*_CALLS, "JUMP_BACKWARD", "RESUME")}
_OURS = (os.path.dirname(planstep.__file__) + os.sep, contextlib.__file__)
_SECONDS, _OF_PLANTED = 30.0, 2.0
"""Longest waits, in seconds; the second for a planted bug, which is expected to hang."""
_LOOKS_AT_MOST = 1_000
_FAR = 1 << 60


class Struck(TimeoutError):
    """The error of a time-out's handler: an OSError without a message."""


@dataclass(frozen=True)
class Piece:
    """The work of one child. `at`: bytecodes, calls of room, or seeds of alarms, one strike each."""

    kind: str
    mode: Mode
    at: tuple[int, ...]
    folder: Path
    planted: bool = False


@dataclass
class Strikes:
    """Counts of one child. `strikes`: how many struck; `put_off`: with handlers deferred; `raised`: reached the
    caller.
    """

    runs: int = 0
    strikes: int = 0
    put_off: int = 0
    raised: int = 0
    committed: int = 0
    wrong: list[str] = field(default_factory=list)


class Tracer:
    """Raises the signal at the n-th bytecode that runs within `on`; `passed` counts them."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._codes: dict[CodeType, bytes] = {}
        self._before: tuple[FrameType, int] | None = None
        self.passed = 0
        self.struck = self.put_off = False

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(_OURS) or f"{os.sep}bench{os.sep}" in file:
            return None
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event != "opcode":
            return self._step
        code = self._codes.get(frame.f_code)
        if code is None:
            code = self._codes[frame.f_code] = frame.f_code.co_code
        before, self._before = self._before, (frame, code[frame.f_lasti])
        self.passed += 1
        if self.passed >= self._n and not self.struck:
            put_off = deferred_signals.are_deferred()
            if put_off or (before is not None and before[0] is frame and before[1] in _LOOKS):
                self.struck, self.put_off = True, put_off
                signal.raise_signal(_SIGNAL)
        return self._step


def strike(piece: Piece) -> Strikes:
    """Runs the strikes in a child, on its main thread."""
    quickly()
    if piece.planted:
        exchange(deferred_signals, "_SIGNALS", (int(signal.SIGINT),))
        exchange(deferred_signals, "_FRAMES", 0)
    return _Striking(piece).run()


def bytecodes(piece: Piece) -> int:
    """Counts a commit's bytecodes, in a child."""
    quickly()
    striking = _Striking(piece)
    tracer = Tracer(_FAR)
    striking.commit(striking.begin(), 0)
    with tracer.on():
        striking.commit(striking.begin(), 1)
    return tracer.passed


class _Striking:
    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.report = Strikes()
        self.calls = 0
        self.seconds = _OF_PLANTED if piece.planted else _SECONDS
        self.sure: dict[int, bool] = {}
        self.db = planstep.open(piece.folder, mode=piece.mode)
        self.tables, self.reads = self.db.context.runtime.hooks.has_tables, MODES[piece.mode].reads
        self.db.create_topic("t", format="msgpack")
        if self.reads:
            self.db.topic("t").create_consumer(CONSUMER, "individual")
        if self.tables:
            self.db.create_table("k")
        signal.signal(_SIGNAL, self._raise)
        signal.signal(signal.SIGALRM, self._raise)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self.calls += 1
        raise Struck

    def begin(self) -> planstep.Transaction:
        tx = self.db.transaction(worker="w")
        if self.reads:
            tx.read("t", CONSUMER, max_records=1)
        return tx

    def commit(self, tx: planstep.Transaction, n: int) -> None:
        with tx:
            tx.write("t", n)
            if self.tables:
                tx.put("k", n, n)

    def run(self) -> Strikes:
        report, piece = self.report, self.piece
        for n, at in enumerate(piece.at):
            report.runs += 1
            tx = self.begin()
            error: BaseException | None = None
            self.calls = 0
            try:
                getattr(self, f"_{piece.kind}")(at, tx, n)
            except BaseException as caught:
                error = caught
            report.raised += isinstance(error, (Struck, RecursionError))
            wrong = self._wrong(tx, n, error)
            if wrong:
                report.wrong.append(f"{piece.mode}, {piece.kind} {at}: {wrong}")
                return report  # the engine's state is unknown from here on
        report.wrong += self._check_reopened()
        return report

    def _signal(self, at: int, tx: planstep.Transaction, n: int) -> None:
        tracer = Tracer(at)
        try:
            with tracer.on():
                self.commit(tx, n)
        finally:
            self.report.strikes += tracer.struck
            self.report.put_off += tracer.put_off
            if tracer.struck and self.calls != 1:
                self.report.wrong.append(f"signal {at}: its handler was called {self.calls} times")

    def _alarm(self, at: int, tx: planstep.Transaction, n: int) -> None:
        signal.setitimer(signal.ITIMER_REAL, Random(at).random() * 0.0006 + 1e-6)
        try:
            self.commit(tx, n)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.report.strikes += self.calls

    def _depth(self, at: int, tx: planstep.Transaction, n: int) -> None:
        """Commits with room for `at` calls on the stack."""
        room = sys.getrecursionlimit() - len(inspect.stack(0))
        self.report.strikes += 1
        _deeper(room - at, lambda: self.commit(tx, n))

    def _wrong(self, tx: planstep.Transaction, n: int, error: BaseException | None) -> str:
        if error is not None and not isinstance(error, (Struck, RecursionError)):
            return f"{error!r} was raised"
        for number in (_SIGNAL, signal.SIGALRM):
            if signal.getsignal(number) != self._raise:
                return f"the handler of {number.name} is {signal.getsignal(number)!r} now"
        try:
            state = tx.outcome(self.seconds).state
            there = self._is_there(n, state)
            self._others(n)
        except PlanstepError as stopped:
            return f"the engine stopped, where {error!r} struck: {stopped!r}"
        self.report.committed += there
        if tx.life.state == "open" and error is not None:
            tx.rollback()  # it struck before anything was sent
        elif state not in ("committed", "aborted"):
            return f"raised {error!r}, the outcome is {state!r}"
        if (state == "committed") != there or (error is None and not there):
            return f"raised {error!r}, the outcome is {state!r}, it is there: {there}"
        self.sure[n] = there
        return ""

    def _is_there(self, n: int, state: str) -> bool:
        """Returns whether the topic has the record, and checks the rows. A mode may reply before it shows."""
        if not self.tables:
            for _ in range(_LOOKS_AT_MOST):
                if n in self._values() or state != "committed":
                    break
                time.sleep(0.01)
        elif (self.db.table("k").get(n) == n) != (n in self._values()):
            raise PlanstepError(f"torn: {n}")
        return n in self._values()

    def _values(self) -> set[int]:
        return {*self.db.topic("t").read(max_records=1_000_000).values}

    def _others(self, n: int) -> None:
        """Commits from another thread, and from this one."""
        failed: list[BaseException] = []

        def works() -> None:
            try:
                self.db.write("t", -1 - n)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=works, daemon=True)
        thread.start()
        thread.join(self.seconds)
        if failed or thread.is_alive():
            raise PlanstepError(f"another thread's commit: {failed or 'has no end'}")
        self.db.write("t", -1 - n)

    def _check_reopened(self) -> list[str]:
        self.db.close()
        with planstep.open(self.piece.folder) as self.db:
            now = self._values()
        wrong = [n for n, there in self.sure.items() if there != (n in now)]
        return [f"after reopening {wrong} are not as they were"] if wrong else []


def _deeper(frames: int, call: Callable[[], None]) -> None:
    if frames > 0:
        _deeper(frames - 1, call)
    else:
        call()
