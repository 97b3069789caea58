"""Runs calls that block, in the virtual time of a simulated world: one of them, or the world, at a time.

    world ── resume ─▶ the call, in a thread of its own ── pause ─▶ the world goes on
                          └ an end or an error ─▶ resume returns or raises

So real code that waits for a shared log runs unchanged, and the same seed gives the same order of events.

Next: acting.py.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

_here = threading.local()
_LOOK_MS = 0.3


class Killed(BaseException):
    """Unwinds a call whose process is gone. No code between may take it for an error."""


def current() -> "Fiber | None":
    """Returns the fiber that runs this code; None for the world."""
    fiber: Fiber | None = getattr(_here, "fiber", None)
    return fiber


class _Carrier:
    """A thread that runs the calls of fibers, one after the other: to begin one costs more than most calls.

    Invariant: `go` is held while the thread waits, `back` while the world does.
    """

    def __init__(self) -> None:
        self.go, self.back = threading.Lock(), threading.Lock()
        self.go.acquire()
        self.back.acquire()
        self.run: Callable[[], None]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            self.go.acquire()
            self.run()
            _idle.append(self)
            self.back.release()


_idle: list[_Carrier] = []
os.register_at_fork(after_in_child=_idle.clear)


class Fiber:
    """A call under way. Invariant: either the world's thread runs, or one fiber's."""

    def __init__(self, call: Callable[..., object], *args: Any) -> None:
        self.done = self.killed = False
        self._call, self._args = call, args
        self._error: BaseException | None = None
        self._carrier: _Carrier | None = None

    def resume(self) -> None:
        """Runs the call until it pauses or ends; raises its error. Does nothing once it has ended."""
        if self.done:
            return
        carrier = self._carrier
        if carrier is None:
            carrier = self._carrier = _idle.pop() if _idle else _Carrier()
            carrier.run = self._run
        carrier.go.release()
        carrier.back.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def kill(self) -> None:
        """Ends the call where it pauses."""
        self.killed = True
        if self._carrier is None:
            self.done = True
        self.resume()

    def pause(self) -> None:
        """Lets the world go on; the fiber's own thread calls this. Killed."""
        carrier = self._carrier
        if not self.killed and carrier is not None:
            carrier.back.release()
            carrier.go.acquire()
        if self.killed:
            raise Killed

    def _run(self) -> None:
        _here.fiber = self
        try:
            self._call(*self._args)
        except Killed:
            pass
        except BaseException as error:
            if not self.killed:
                self._error = error
        _here.fiber = None
        self.done = True


class FiberLock:
    """A lock between fibers, which wait for it in virtual time (threading.Lock)."""

    def __init__(self, wait: Callable[[float], None]) -> None:
        self._wait = wait
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        waited = 0.0
        while self._held:
            if not blocking or 0 <= timeout * 1000 <= waited:
                return False
            self._wait(_LOOK_MS)
            waited += _LOOK_MS
        self._held = True
        return True

    def release(self) -> None:
        assert self._held
        self._held = False

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
