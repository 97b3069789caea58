"""What may strike anywhere waits until a turn is over: between durable and visible nothing may be raised.

    signal ─▶ Python's handler, on the main thread ─▶ put off while Uninterrupted ─▶ called at its end: may raise
    deep stack ─▶ room_for_a_turn: RecursionError before anything is done

A signal's handler that raises (Ctrl-C, a time-out's SIGALRM) does so between any two steps of the main thread,
whichever thread took the signal: so masking is of no use, and the handlers themselves stand aside. Only the main
thread is interrupted, and only where it runs a turn for itself and others, or holds what others wait for.

What it leaves out: exceptions that another thread sets into this one (PyThreadState_SetAsyncExc). Nothing can put
them off. A turn that one hits after its sync stops the engine, and whoever waits hears Undetermined.

Next: turn_loop.py.
"""

import signal
import sys
import threading
from queue import SimpleQueue
from sys import _getframe as _frame_at
from types import FrameType, TracebackType
from typing import Any

_MAIN = threading.main_thread().ident
_NEVER = {getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP")}
_SIGNALS = tuple(sorted(map(int, signal.valid_signals() - _NEVER)))
# What the module `signal` wraps these in turns numbers into enums and back: 4 of 5 us, in each commit.
_plain: Any = sys.modules.get("_signal", signal)
_set, _get = _plain.signal, _plain.getsignal
_FRAMES = 64
"""A turn takes some 20, and what goes wrong in it is logged; an engine without room for them would stop for all."""

_SHALLOW = 4
"""A stack with so many times fewer frames than the limit, and some more, has room: of calls that are counted there
are at most three a frame, those of C included. To look is a tenth of descending."""
_TRIES = 3
"""How often a handler is put back at most: signals may come faster than that is done."""

_held: "Uninterrupted | None" = None
"""Who puts handlers off now: the outermost block of the main thread."""


class Uninterrupted:
    """`with Uninterrupted():` signals' handlers are called when the block is left, not before.

    A handler that strikes while others are put aside, or back, does so as ever; then all are where they were.
    """

    __slots__ = ("_came", "_handlers", "_wakes")

    def __enter__(self) -> "Uninterrupted":
        global _held
        if threading.get_ident() == _MAIN and _held is None:
            self._came: dict[int, FrameType | None] = {}
            self._handlers = [(n, found) for n in _SIGNALS if callable(found := _get(n))]
            self._wakes: SimpleQueue[None] | None = None
            try:
                for number, _ in self._handlers:
                    _set(number, self._note)
                _held = self
            except BaseException:
                self._put_back()
                raise
        return self

    def tells(self, queue: "SimpleQueue[None] | None") -> bool:
        """From now on something is put into `queue` when a signal comes whose handler this block puts off; whether
        one has come already. A block within another puts off nothing, so nothing ends its waiting."""
        if _held is not self:
            return False
        self._wakes = queue
        return bool(self._came)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if _held is not self:  # it came while they are put aside, or back
            dict(self._handlers)[number](number, frame)
            return
        self._came[number] = frame
        if self._wakes is not None:
            self._wakes.put(None)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _held
        if _held is self:
            try:
                _held = None
                self._put_back()
            except BaseException:
                self._put_back()
                raise
            finally:
                if self._came:
                    self._call_handlers()

    def _put_back(self) -> None:
        """Put back each handler, whatever is raised meanwhile; what was raised last is raised after it.

        One that cannot be put back is left to `_note`, which hands on.
        """
        at, tries = len(self._handlers), 0
        struck: BaseException | None = None
        while at:
            try:
                while at:
                    number, handler = self._handlers[at - 1]
                    _set(number, handler)
                    at, tries = at - 1, 0
            except BaseException as error:
                struck = error
                tries += 1
                if tries == _TRIES:
                    at, tries = at - 1, 0
        if struck is not None:
            raise struck

    def _call_handlers(self) -> None:
        """All that were put off, whatever they raise."""
        while self._came:
            number, frame = self._came.popitem()
            try:
                dict(self._handlers)[number](number, frame)
            finally:
                self._call_handlers()


def are_put_off() -> bool:
    """Does the main thread put handlers off now?"""
    return _held is not None


def room_for_a_turn() -> None:
    """RecursionError where the stack's end is too near: the caller's own call fails, before anything is done."""
    try:
        _frame_at(max(0, sys.getrecursionlimit() // _SHALLOW - _FRAMES))
    except ValueError:  # the stack is less deep than that
        return
    try:
        _descend(_FRAMES)
    except RecursionError:
        pass
    else:
        return
    raise RecursionError(
        f"the stack has no room for the {_FRAMES} calls that planstep may need; nothing was done: "
        "call it from a less deep function, or raise sys.setrecursionlimit"
    )


def _descend(frames: int) -> None:
    if frames:
        _descend(frames - 1)
