"""Defers signals' handlers until a turn is over: between durable and visible no exception may be raised.

    signal ─▶ Python's handler, on the main thread ─▶ deferred while Uninterrupted ─▶ called at its end: may raise
    deep stack ─▶ room_for_a_turn: RecursionError before anything is done

A handler that raises (Ctrl-C, a time-out's SIGALRM) does so between any two steps of the main thread, whichever
thread took the signal. So masking signals does not help, and the handlers are exchanged instead. Only the main
thread is interrupted, and only where it runs a turn for itself and others, or holds what others wait for.

What it leaves out: exceptions that another thread sets into this one (PyThreadState_SetAsyncExc). They cannot be
deferred. A turn that one hits after its sync stops the engine, and those that wait get Undetermined.

Next: turn_loop.py.
"""

import signal
import sys
import threading
from collections.abc import Callable
from sys import _getframe as _frame_at
from types import FrameType, TracebackType
from typing import Any, Protocol, Self, TypeAlias


class Told(Protocol):
    """A queue that a thread waits for besides signals, or an object like it."""

    def put(self, item: None, /) -> None: ...


Handler: TypeAlias = Callable[[int, FrameType | None], Any]
_MAIN = threading.main_thread().ident
_NEVER = {getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP")}
_SIGNALS = tuple(sorted(map(int, signal.valid_signals() - _NEVER)))
# The wrappers of the module `signal` turn numbers into enums and back: 4 of 5 us, in each commit.
_plain: Any = sys.modules.get("_signal", signal)
_set, _get = _plain.signal, _plain.getsignal
_FRAMES = 64
"""A turn takes some 20, and its errors are logged; an engine without room for them would stop for all."""

_SHALLOW = 4
"""A stack with fewer frames than the recursion limit divided by this, less `_FRAMES`, has room: each frame has at
most three counted calls, those of C included. This check costs a tenth of descending."""
_TRIES = 3
"""How often a handler's restoring is tried: signals may come faster than that is done."""

_last_handlers: tuple[list[Any], list[tuple[int, Handler]]] = [], []
"""All signals' handlers at the last look, and those in Python. Only the main thread uses it."""
_held: "Uninterrupted | None" = None
"""The outermost block of the main thread, which defers handlers now."""


class Uninterrupted:
    """`with Uninterrupted():` calls signals' handlers when the block is left, not before.

    A signal that comes while the block exchanges or restores handlers calls its handler at once; if that raises,
    all handlers are restored first.
    """

    __slots__ = ("_came", "_handlers", "_wakes")

    def __enter__(self) -> Self:
        global _held
        if threading.get_ident() == _MAIN and _held is None:
            self._came: dict[int, FrameType | None] = {}
            self._handlers = _handlers()
            self._wakes: Told | None = None
            try:
                for number, _ in self._handlers:
                    _set(number, self._note)
                _held = self
            except BaseException:
                self._put_back()
                raise
        return self

    def tells(self, queue: "Told | None") -> bool:
        """Puts something into `queue` when a signal comes whose handler this block defers. Returns whether one has
        come already. A block within another defers nothing, so it does not end a wait."""
        if _held is not self:
            return False
        self._wakes = queue
        return bool(self._came)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if _held is not self:  # it came while handlers are exchanged or restored
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
        """Restores each handler, whatever is raised meanwhile; the last error is raised afterwards.

        A handler that cannot be restored is left to `_note`, which calls it.
        """
        at, tries = len(self._handlers), 0
        raised: BaseException | None = None
        while at:
            try:
                while at:
                    number, handler = self._handlers[at - 1]
                    _set(number, handler)
                    at, tries = at - 1, 0
            except BaseException as error:
                raised = error
                tries += 1
                if tries == _TRIES:
                    at, tries = at - 1, 0
        if raised is not None:
            raise raised

    def _call_handlers(self) -> None:
        """Calls all deferred handlers, whatever they raise."""
        while self._came:
            number, frame = self._came.popitem()
            try:
                dict(self._handlers)[number](number, frame)
            finally:
                self._call_handlers()


def _handlers() -> list[tuple[int, Handler]]:
    """Returns the signals with handlers in Python. Lists are compared in C, since each commit asks twice."""
    global _last_handlers
    now = list(map(_get, _SIGNALS))
    before, in_python = _last_handlers
    if now != before:  # an equal handler is as good as the same one
        in_python = [
            (n, handler) for n, handler in zip(_SIGNALS, now, strict=True) if callable(handler)
        ]
        _last_handlers = now, in_python
    return in_python


def are_deferred() -> bool:
    """Returns whether the main thread defers handlers now."""
    return _held is not None


def room_for_a_turn() -> None:
    """Raises RecursionError where the stack's end is too near: the caller's call fails before anything is done."""
    try:
        _frame_at(max(0, sys.getrecursionlimit() // _SHALLOW - _FRAMES))
    except ValueError:  # the stack is shallower than that
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
