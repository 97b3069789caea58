"""Ctrl-C waits until a turn is over: between durable and visible there is nothing to raise from.

Only the main thread is interrupted, and only where it runs a turn for itself and others. What it
waits for otherwise (a lock, another's turn) can be interrupted as ever.

What it leaves out: handlers of other signals that raise. A turn that they hit after its sync closes
the store, which has to be opened anew: nothing is lost, nothing goes on in doubt.

Next: turns.py.
"""

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

_MAIN = threading.main_thread().ident
_SIGINT = int(signal.SIGINT)
# What the module `signal` wraps these in turns numbers into enums and back: 4 of 5 us, in each commit.
_plain: Any = sys.modules.get("_signal", signal)
_set, _get = _plain.signal, _plain.getsignal


class Uninterrupted:
    """`with Uninterrupted():` SIGINT's handler is called when the block is left, not before."""

    __slots__ = ("_came", "_handler")

    def __init__(self) -> None:
        self._handler: Any = None
        self._came: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> None:
        if threading.get_ident() == _MAIN:
            handler = _get(_SIGINT)
            if callable(handler):
                self._handler = handler
                _set(_SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = number, frame

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handler is not None:
            _set(_SIGINT, self._handler)
            if self._came is not None:
                self._handler(*self._came)
