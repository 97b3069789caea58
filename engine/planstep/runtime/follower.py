"""Follows a store that another machine owns: a thread takes its turns into the folder while this process reads it.

    shared log ─ read ─┬─ turns ──▶ taken ─▶ shown: to this process, and by the folder's mark to others
                       ├─ none ───▶ rest: 0.2 s, then longer, up to 2 s ─▶ read
                       ├─ no answer, no space ─▶ rest: 1 s ─▶ find one's place again ─▶ read
                       └─ Diverged, Corruption, Trimmed ─▶ the end: nothing is shown any more

A turn becomes visible here as it does at its owner: all of it in one moment, with older versions for snapshots that
are open. The turns are taken as they were written, and not run again, so owner and follower may be of different
versions of this library.

Left out: showing stores whose tablets are "separate" and so leave messages between turns.

Next: ../api/follower.py.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import EngineClosed, IoError, LogUnreachable, NotSupported
from ..logs import follower_ended, follower_waits
from ..proto.ids import (
    CATALOGUE_ID,
    COORDINATOR_ID,
    HOST,
    PARTITION,
    SHARD,
    kind_of,
    tablet_id,
    tablet_prefix,
)
from ..shared.entry import Entry
from ..shared.owner import Ownership
from ..store import DiskStore
from ..store.checkpointing import CHECKPOINT_BYTES, CHECKPOINT_KEYS
from ..store.digests import Digests
from ..store.replicated import BEAT_KEY, DIGESTS_KEY, MARK_KEY
from ..store.turn import Turn
from .catalog import Names
from .replication import ReplicatedFolder, shared_stats
from .replies import own
from .wait_primitives import Signal, wait_for

if TYPE_CHECKING:
    from .runtime import Runtime

_REST_MIN, _REST_MAX = 0.2, 2.0
_AGAIN_SECONDS = 1.0
_WAIT_SECONDS = 0.5
_KEYS_MAX, _BYTES_MAX = 4 * CHECKPOINT_KEYS, 2 * CHECKPOINT_BYTES
_STEP_KEY = tablet_prefix(COORDINATOR_ID) + b"l"
_CATALOGUE = tablet_prefix(CATALOGUE_ID)
_SEPARATE = tablet_prefix(tablet_id(HOST, 0, 0)) + b"A"
_VERSIONED = {PARTITION: (b"m", b"c", b"f"), SHARD: (b"r",)}
"""The rows that snapshots read as of a step, by the kind of their tablet: those of `Space.put_version`."""


def is_versioned(key: bytes) -> bool:
    return key[4:5] in _VERSIONED.get(kind_of(int.from_bytes(key[:4], "big")), ())


class Lag(NamedTuple):
    """Tells how far a follower is behind: `turns` that it has read and not taken; `seconds` since it had all."""

    turns: int
    seconds: float


class _Shown(ReplicatedFolder):
    """A folder that is read while it takes turns."""

    def __init__(self, store: DiskStore, runtime: "Runtime") -> None:
        super().__init__(store)
        self._runtime = runtime
        self._node = runtime.nodes[0]
        self._digests: Digests | None = None
        self.compared = 0

    def take(self, entry: Entry) -> None:
        with self._node.lock:  # a backup pins the store between two turns
            super().take(entry)

    def _commit(self, turn: Turn) -> None:
        store, runtime, history = self._store, self._runtime, self._node.host.history
        step = turn.get(_STEP_KEY) or 0
        old = [
            (key, row, step)
            for key in (turn.overlay if runtime.hooks.has_places else ())
            if is_versioned(key) and (row := store.get(key)) is not None
        ]
        now_ms = time.time_ns() // 1_000_000
        store.commit(turn, lambda visible: history.release(step, old, now_ms, visible, True))
        history.forget(None, now_ms)
        if any(key[:4] == _CATALOGUE for key in turn.overlay):
            runtime.names = runtime.turns.names = Names(store)
        if runtime.turns.watches.watched:
            runtime.turns.watches.wake(list(runtime.turns.watches.watched))
        self._node.changed.ring()
        self._compare(turn)
        behind = store.behind()
        if behind["unsaved_keys"] > _KEYS_MAX or behind["unsaved_bytes"] > _BYTES_MAX:
            store.checkpoint()  # the engine's own checkpoints do not keep up

    def _compare(self, turn: Turn) -> None:
        """Compares this folder's tables with the owner's, as of the same turn. Diverged."""
        row = turn.overlay.get(DIGESTS_KEY)
        if isinstance(row, tuple) and self._digests is not None:
            theirs = Digests._make(row)
            if theirs.turn == self._digests.turn:
                self._digests.compare(theirs)
                self.compared += 1
        if MARK_KEY in turn.overlay:
            self._digests = self._store.digest()


class Tail:
    """The thread that follows. Invariant: once `failed` is set nothing more is taken, and no read begins."""

    def __init__(self, runtime: "Runtime", followed: Ownership) -> None:
        self.failed: Exception | None = None
        self.heard_at = self._complete_at = time.monotonic()
        """When the last turn came; when it was last asked and had all."""
        self._node = runtime.nodes[0]
        store = self._node.host.store
        assert isinstance(store, DiskStore), "a follower's turns go into a folder"
        self._store = store
        self.folder = _Shown(store, runtime)
        self._followed = followed
        self._stopping = runtime.threads.stopping
        self._stop_all = runtime.turns.stop_everything
        self._wake = Signal()
        self._rest = _REST_MIN
        self.rest_max = _REST_MAX

    # the thread ------------------------------------------------------------------------------

    def serve(self) -> None:
        log = self._followed.log
        lost = False
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                try:
                    if lost:
                        self._followed.find(self.folder)
                    taken = self._followed.take_next(self.folder, 0 if log.polls else _WAIT_SECONDS)
                    lost = False
                except (LogUnreachable, IoError) as error:
                    lost = True
                    follower_waits(self._store.folder, error)
                    self._wake.wait(_AGAIN_SECONDS)
                    continue
                if self._followed.at_end:
                    self._complete_at = began
                if taken:
                    self.heard_at, self._rest = time.monotonic(), _REST_MIN
                    continue
                self._node.changed.ring()
                if log.polls:
                    self._wake.wait(min(self._rest, self.rest_max))
                    self._rest = min(2 * self._rest, _REST_MAX)
        except Exception as error:
            self.failed = error
            follower_ended(self._store.folder, error)
            self._stop_all(error)
            self._node.changed.ring()
        finally:
            log.close()

    def stop(self) -> None:
        """Wakes the thread up, which sees that the engine is being closed."""
        self._wake.set()

    # for readers -----------------------------------------------------------------------------

    def check(self) -> None:
        """Raises the error that ended the following: what the folder holds is then not to be trusted, or old."""
        self.check_alive()
        if self._store.get(_SEPARATE):
            raise NotSupported(
                "its owner has opened this store with placement='separate' or rtt=, whose turns leave messages "
                "on their way: a follower can take it over, and cannot show it"
            )

    def check_alive(self) -> None:
        """Raises the error that ended the following."""
        if self.failed is not None:
            raise own(self.failed)

    @property
    def silence(self) -> float:
        """Seconds for which the log gave no turn, though it was asked: none before the question counts."""
        return self._complete_at - self.heard_at

    @property
    def beat_seconds(self) -> float | None:
        """Returns the seconds between two beats of the owner, 0 for none; None if the store was closed."""
        opened = self.folder.opened()
        row: tuple[int, int] = self._store.get(BEAT_KEY) or (0, 0)
        return None if opened is None or opened.closed else row[0] / 1000

    def reach(self, what: str, reached: Callable[[], bool], timeout: float) -> None:
        """Waits until `reached`, which is about turns or the lag. TimeoutError; the error that ended it."""
        deadline = time.monotonic() + timeout
        self._wake.set()  # once: it rings after each look, so each look would wake the next one
        with self._node.changed.listen() as queue:
            while True:
                self.check()
                if reached():
                    return
                if self._stopping.is_set():
                    raise EngineClosed("the follower was closed")
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    turns, seconds = self.lag()
                    raise TimeoutError(
                        f"{what} was not reached in {timeout:g} s: the follower is at turn "
                        f"{self._store.last_turn}, knows of {turns} more, and had all of them {seconds:.1f} s ago"
                    )
                self._rest = _REST_MIN
                wait_for(queue, min(remaining, _REST_MIN))

    def stats(self) -> dict[str, Any]:
        """Returns what statistics.py says of it."""
        return {
            "role": "follower",
            "term": self._followed.last_owner.term,
            **shared_stats(self._followed.log),
            "lag_turns": max(0, self._followed.end - self._store.last_turn),
            "lag_seconds": time.monotonic() - self._complete_at,
        }

    def lag(self) -> Lag:
        self.check_alive()
        behind = max(0, self._followed.end - self._store.last_turn)
        return Lag(behind, time.monotonic() - self._complete_at)
