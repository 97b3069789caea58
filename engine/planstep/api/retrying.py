"""When a transaction's function runs again: for `run` of both faces, with threads and with asyncio.

    fails ─▶ its own Conflict, Overloaded, first SnapshotTooOld? attempts and time left? ─▶ a pause, and again
                                              └ no ─▶ raised

Next: engine.py.
"""

import random
import time
from inspect import isawaitable, isgenerator
from typing import Any

from ..errors import Conflict, KafkaError, Overloaded, SnapshotTooOld
from ..logs import snapshot_too_old
from .checks import seconds, whole

_PAUSE_MIN, _PAUSE_MAX = 0.001, 0.1
RETRIED = (Conflict, KafkaError, Overloaded, SnapshotTooOld)


class Attempts:
    """One call of `run`: how often it has failed, and until when it may."""

    def __init__(self, attempts: int, deadline: float) -> None:
        self._most = whole("attempts", attempts, 1)
        self._end = time.monotonic() + seconds("deadline", deadline)
        self._failed = 0
        self._too_old = False

    def pause_after(self, error: Exception, own: bool) -> float:
        """Seconds to wait before the next attempt: about twice as long each time, jittered.

        Raises the error when there is none: `own` says that it is this transaction's, not one of some
        other that the function ran.
        """
        self._failed += 1
        if not own and not isinstance(error, SnapshotTooOld):
            raise error
        if isinstance(error, KafkaError) and not error.retryable:
            raise error
        if isinstance(error, SnapshotTooOld):
            if self._too_old:
                error.add_note("db.run: the function outlived its snapshot twice, and would again")
                raise error
            self._too_old = True
            snapshot_too_old("the function of db.run", error)
        grown = _PAUSE_MIN * 2.0 ** min(self._failed - 1, 10)
        pause = random.uniform(0.5, 1.0) * min(grown, _PAUSE_MAX)
        if self._failed >= self._most or time.monotonic() + pause >= self._end:
            error.add_note(f"db.run gave up after {self._failed} attempts")
            raise error
        return pause


def refuse_unrun(value: Any, who: str) -> None:
    """TypeError where a function gave a coroutine or generator: of its body nothing has run."""
    if isawaitable(value) or isgenerator(value):
        close = getattr(value, "close", None)
        if close is not None:
            close()  # else it is warned of, as never awaited
        raise TypeError(
            f"{who} of an engine without asyncio takes a plain function; planstep.open_async has one "
            "for async functions"
        )
