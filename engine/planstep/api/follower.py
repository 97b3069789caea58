"""Follows a replicated store that another machine owns: reads it here, and takes it over when it is time.

    with planstep.follow("copy.planstep", "s3://bucket/shop") as me:
        me.lag(); me.snapshot(at_least=place); me.db.table("stock").get("apples")
        db = me.lead()                                  # by command
        db = me.lead(after=10)                          # or once its owner has been silent for so long

`me.db` is a read-only engine: other processes open the folder with read_only=True as that of any store.

Next: ../runtime/follower.py.
"""

import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..closing import Closing
from ..errors import NotSupported, TooManyTakeovers
from ..proto.ids import Place
from .arguments import brief, seconds, whole
from .open_engine import open
from .slots import in_use, slot_of
from .snapshot import SnapshotView

if TYPE_CHECKING:
    from ..runtime.follower import Lag
    from ..shared.settings import Replicate
    from .engine import Engine

_LOOK_SECONDS = 0.05
_TAKEOVERS = 3
"""How often a machine takes a store over by itself within ten times the silence that it waits for."""
_taken_over: dict[str, deque[float]] = {}
"""When this process has taken stores over by itself, by their folders."""


class Follower(Closing):
    """A folder that follows a store. Close it, or use it in a `with`."""

    def __init__(self, db: "Engine", url: "str | Replicate") -> None:
        tail = db.context.runtime.tail
        assert tail is not None
        self.db = db
        """The read-only engine of the folder."""
        self._tail = tail
        self._url = url

    def lag(self) -> "Lag":
        """Tells how far it is behind: (turns, seconds). `seconds` counts from when it last had all there was; a log
        in objects is asked every 2 seconds at least. Raises the error that ended the following.
        """
        self.db.context.check()
        return self._tail.lag()

    def snapshot(
        self,
        at_least: Place | int | None = None,
        max_lag: float | None = None,
        timeout: float = 30.0,
    ) -> SnapshotView:
        """Opens a snapshot, once the folder has what is asked for: see Engine.snapshot. TimeoutError.

        at_least  the place of a commit, or the owner's `db.turn` after it: the snapshot shows that commit
        max_lag   seconds: it shows all that was committed until so long ago
        """
        timeout = seconds("timeout", timeout)
        runtime, tail = self.db.context.runtime, self._tail
        runtime.schema.check_snapshots()
        self.db.context.check()
        if isinstance(at_least, Place):
            if not at_least.step:
                raise ValueError(f"a commit in mode {self.db.mode!r} has no place: give db.turn")
            step, host = at_least.step, runtime.nodes[0].host
            tail.reach(f"step {step}", lambda: host.step_released >= step, timeout)
        elif at_least is not None:
            if isinstance(at_least, bool) or not isinstance(at_least, int):
                raise TypeError(
                    "at_least is the place of a commit, as put and tx.commit() return it, or db.turn, not "
                    f"{brief(at_least)}"
                )
            turn = whole("at_least", at_least)
            tail.reach(f"turn {turn}", lambda: self.db.turn >= turn, timeout)
        if max_lag is not None:
            limit = seconds("max_lag", max_lag)
            tail.reach(f"a lag of {limit:g} s", lambda: tail.lag().seconds <= limit, timeout)
        return self.db.snapshot()

    def lead(
        self, after: float | None = None, stop: threading.Event | None = None, **settings: Any
    ) -> "Engine":
        """Takes the store over: its owner writes nothing more. Returns the engine, and this follower is closed.

        after     waits until the owner has been silent for so many seconds, times 1 to 1.5, on this machine's
                  clock: it closed the store, or is dead or cut off. One that was only slow is fenced, and nothing
                  is lost. NotSupported if it owns the store and writes no beats: Replicate(beat=)
        stop      an Event that ends the waiting with an InterruptedError
        settings  as of `open`; `replicate` is the URL that is followed

        TooManyTakeovers when this process has taken it over by itself three times in ten times `after`: then two
        machines end one another's work. After an error in taking over, follow again.
        """
        self.db.context.check()
        path, runtime = self.db.path, self.db.context.runtime
        if after is not None:
            self._await_silence(seconds("after", after), stop)
        self._tail.check_alive()
        if self.db.lifetime.opens > 1:
            raise in_use(f"{path} is open elsewhere in this process, to follow: close that first")
        slot = slot_of(path)
        store: Any = runtime.nodes[0].host.store
        runtime.shutdown.keeps_store = True
        try:
            self.db.close()
            slot.store = store
            return open(path, **{"replicate": self._url, "takeover": True, **settings})
        except BaseException:
            if self.db.closed:
                store.crash()
            runtime.shutdown.keeps_store = False
            raise
        finally:
            slot.store = None

    def _await_silence(self, after: float, stop: threading.Event | None) -> None:
        """Waits until the owner was silent for `after` seconds, times a number that two followers hardly share."""
        tail = self._tail
        mine = _taken_over.setdefault(self.db.path, deque(maxlen=_TAKEOVERS))
        limit = after * random.uniform(1, 1.5)
        tail.rest_max = min(tail.rest_max, after / 4)
        while tail.silence < limit:
            self.db.context.check()
            tail.check_alive()
            beat = tail.beat_seconds
            if beat == 0:
                raise NotSupported(
                    "the store's owner writes no beats, so an idle one looks as if it was dead: open it there with "
                    "planstep.Replicate(URL, beat=1), or take it over by command"
                )
            if beat is not None and after < 2 * beat:
                raise ValueError(f"after is twice the owner's beat of {beat:g} s, at least")
            if stop is not None and stop.wait(_LOOK_SECONDS):
                raise InterruptedError("the owner was there until the waiting was stopped")
            if stop is None:
                time.sleep(_LOOK_SECONDS)
        now = time.monotonic()
        if len(mine) == _TAKEOVERS and now - mine[0] < 10 * after:
            raise TooManyTakeovers(
                f"{self.db.path} has taken the store over {_TAKEOVERS} times by itself in {now - mine[0]:.0f} s: "
                "its owners live and are slow, so it does not do it again; wait longer (after=)"
            )
        mine.append(now)

    def close(self) -> None:
        """Ends the following, and closes the folder. Does nothing on a closed follower."""
        self.db.close()


def follow(
    path: str | os.PathLike[str],
    url: "str | Replicate",
    *,
    wait: float = 0,
    progress: Callable[[int], object] | None = None,
) -> Follower:
    """Follows the store of a shared log into a folder, which may be empty or old; returns once it has caught up.

    url       the shared log's, or a planstep.Replicate
    wait      seconds to wait for another process that owns the folder
    progress  called with the number of each turn that is taken until then

    Errors as of `open`, and FormatError where there is no log yet.
    """
    slot = slot_of(os.path.realpath(path))
    slot.told = progress
    try:
        db = open(path, replicate=url, follow=True, read_only=True, wait=wait)
    finally:
        slot.told = None
    return Follower(db, url)
