"""Ships the turns of a store in mode "async": each is durable in the folder, then answered, then in the shared log.

    commit ─▶ room? ─ no ─▶ waits, up to log_timeout ─▶ the store closes
                └ yes ─▶ local log, synced ─▶ shown, answered
                                   └▶ queue ─▶ thread: one append at a time, each until it is decided
                                                 └ Fenced: the store closes; the folder keeps what it has

    shared log   … n−3  n−2
    folder       … n−3  n−2  n−1  n       room: n−1 is no older than max_lag, and n−1 … n have under 64 MiB

The queue has the same entries that the log will have, so the log is a prefix of the folder's history. Row S of each
turn names a place that the log had reached by then: unshipped.py begins there at the next opening. The segments of
turns in the queue stay, and so does the log behind row S (floor_max).

Next: unshipped.py.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import Fenced, LogUnreachable, NoSpace, PlanstepError, Refused, StoreClosed, reason
from ..shared.entry import Entry
from ..shared.owner import OwnerRow, Ownership
from ..shared.settings import Replicate
from ..shared.shared_log import Position, SharedLog
from ..store import DiskStore
from ..store.digests import Digests
from ..store.layers import Changes
from ..store.log.extents import Extent
from ..store.log.log_writer import LogEnd
from ..store.replicated import SHIPPED_KEY
from .replication import Opened, ReplicatedFolder, Replication
from .replies import own
from .wait_primitives import Latch, Signal

LAG_BYTES_MAX = 64 << 20
"""Bytes of entries that may be in the folder alone, beside the last one."""
_SLICE_SECONDS = 1.0
"""How long one call to the shared log lasts that does not answer; the same entry is sent again behind it."""
_LOOK_SECONDS = 0.05


class _Unshipped(NamedTuple):
    entry: Entry
    segment: str
    since: float


class Shipping(Replication):
    """The shared log of a store in mode "async".

    Invariants: all turns in `_queue` are durable in the folder, and are those behind `_ownership.last`, in order
    (its first may be there already). `_chain` is that of the newest. Who holds `_using` uses the log.
    """

    def __init__(
        self,
        settings: Replicate,
        log: SharedLog,
        ownership: Ownership,
        opened: Opened,
        store: DiskStore,
    ) -> None:
        super().__init__(log, ownership, opened, settings.beat)
        row = ReplicatedFolder(store).owner_row()
        assert row is not None and store.last_turn == ownership.last.turn  # of the BEGIN
        self._before = Position(store.last_turn - 1, row.before, row.mark)
        self._max_lag = settings.max_lag
        self._timeout = settings.log_timeout
        self._store = store
        self._chain = ownership.last.chain
        self._queue: deque[_Unshipped] = deque()
        self._written_bytes = self._shipped_bytes = 0
        self._error: BaseException | None = None
        self._fence = ""  # what the log said of it
        self._trouble: PlanstepError | None = None  # why the first of the queue is not shipped yet
        self._using = threading.Lock()
        self._stopping = Latch()
        self._more, self._less = Signal(), Signal()
        self._thread = threading.Thread(target=self._serve, name="planstep-shipper", daemon=True)
        self.owner_row = self._row
        log.wait_less(_SLICE_SECONDS)

    # the store's end -------------------------------------------------------------------------

    def join(self, end: LogEnd) -> None:
        self._end = end
        end.written, end.first_kept = self._written, self._first_kept
        self._thread.start()

    def rows(self, busy: bool, digests: Digests | None) -> Changes:
        """Waits for room first, where a turn comes."""
        self._check()
        if busy or self.beat_is_due():
            self._await("the bound of what is in the folder alone", self._has_room)
        rows = super().rows(busy, digests)
        if busy or rows:
            rows[SHIPPED_KEY] = self.term, *self._before
        return rows

    def _row(self) -> OwnerRow:
        return OwnerRow(*self._ownership.owner, self._chain, self._ownership.last.mark)

    def _has_room(self) -> bool:
        return self._lag_bytes <= LAG_BYTES_MAX and self._lag_seconds() <= self._max_lag

    @property
    def _lag_bytes(self) -> int:
        return self._written_bytes - self._shipped_bytes

    def _lag_seconds(self) -> float:
        try:
            return time.monotonic() - self._queue[0].since
        except IndexError:  # all is shipped
            return 0.0

    def _written(
        self, run: Extent, turn: int, changes: bytes, dropped: bytes, payloads: list[bytes]
    ) -> None:
        entry = self._ownership.seal(turn, self._chain, run.address, changes, dropped, payloads)
        self._appended_at = time.monotonic()
        self._chain = entry.chain
        self._written_bytes += len(entry.data)
        self._queue.append(_Unshipped(entry, run.file, self._appended_at))
        self._more.set()

    def _first_kept(self, first: str) -> str:
        try:
            return min(first, self._queue[0].segment)
        except IndexError:
            return first

    def wait_less(self, timeout: float) -> None:
        self._timeout = min(self._timeout, timeout)

    def flush(self) -> None:
        self._await("closing", lambda: not self._queue)

    def await_decided(self, turn: int, check: Callable[[], object]) -> None:
        def is_there() -> bool:
            check()
            return self._ownership.last.turn >= turn

        self._await(f"a snapshot of turn {turn}", is_there, ends=False)

    @property
    def floor_max(self) -> float:
        row: tuple[int, ...] = self._store.get(SHIPPED_KEY) or (0, 0)
        return row[1] + 1 if row[0] == self.term else 0

    def _await(self, what: str, reached: Callable[[], bool], ends: bool = True) -> None:
        """Waits until something is reached: for `log_timeout`, then LogUnreachable, which `ends` the store."""
        if reached():
            return
        began = time.monotonic()
        while not reached():
            self._check()
            timeout = self._timeout
            if time.monotonic() - began >= timeout:
                why = "it is too slow" if self._trouble is None else reason(self._trouble)
                error = LogUnreachable(
                    f"{what} waited {timeout:g} seconds for the shared log ({why}), which lacks "
                    f"{len(self._queue)} turns that are safe here: reopen the store once it can be reached"
                )
                if ends:
                    self._fail(error)
                raise error
            self._less.wait(_LOOK_SECONDS)

    def _check(self) -> None:
        """Raises the error that ended the shipping, and closes the store."""
        error = self._error
        if error is None:
            return
        self._count_lost(error)
        self._end.broken = error
        if isinstance(error, StoreClosed):
            raise own(error)
        raise StoreClosed(
            f"turns of this folder cannot be shipped to the shared log: {reason(error)}"
        ) from error

    # the thread ------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while not self._stopping.is_set():
                if self._queue:
                    with self._using:
                        self._ship(self._queue[0].entry)
                else:
                    self._more.wait(_SLICE_SECONDS)
        except BaseException as error:
            self._fail(error)
            self.failed()
        self._less.set()

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, Fenced):
            error.in_doubt, self._fence = False, str(error)
            self._count_lost(error)
        self._error = self._failure = error

    def _count_lost(self, error: BaseException) -> None:
        """Counts once more: a turn that was under way when the fence was found is answered, and in the queue."""
        if isinstance(error, Fenced):
            error.lost = len(self._queue)
            error.args = (f"{self._fence}; turns answered here that it has not: {error.lost}",)

    def _ship(self, entry: Entry) -> None:
        """Sends an entry until it is decided."""
        self._begun += 1
        began = self._waits_since = time.monotonic()
        before = self._ownership.last
        while not self._stopping.is_set():
            try:
                self._ownership.send(entry)
            except (LogUnreachable, NoSpace, Refused) as error:
                self._trouble = error
                self._stopping.wait(_LOOK_SECONDS)
                continue
            self._trouble = self._waits_since = None
            self._before = before
            self._proved = self._begun
            self._append_seconds.add(time.monotonic() - began)
            self._shipped_bytes += len(entry.data)
            self._queue.popleft()
            self._less.set()
            return

    # for readers -----------------------------------------------------------------------------

    def confirm(self, appending: Any) -> None:
        """Waits as in mode "sync": nobody has begun a newer term. What is shown may be in the folder alone."""
        patient: Any = _Patient(self._using, self._timeout)
        super().confirm(patient)

    def _barrier(self) -> None:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                super()._barrier()
                return
            except Fenced as error:
                self._fail(error)  # what is answered from now on would be lost
                raise
            except LogUnreachable:
                if self._stopping.is_set() or time.monotonic() >= deadline:
                    raise

    def stats(self) -> dict[str, Any]:
        lag = len(self._queue), self._lag_bytes, self._lag_seconds()
        named = zip(("lag_turns", "lag_bytes", "lag_seconds"), lag, strict=True)
        return {**super().stats(), **dict(named)}

    def close(self) -> None:
        self._closed = True  # the queue's first may be there, for a barrier to take for another's
        self._stopping.set()
        self._more.set()
        if self._thread.ident is not None:
            self._thread.join()
        with self._using:
            super().close()


class _Patient:
    """A lock that is waited for so long, in all."""

    def __init__(self, lock: threading.Lock, seconds: float) -> None:
        self._lock = lock
        self._deadline = time.monotonic() + seconds
        self.release = lock.release

    def acquire(self, timeout: float) -> bool:
        if self._lock.acquire(timeout=timeout):
            return True
        if time.monotonic() >= self._deadline:
            raise LogUnreachable(
                "the shared log does not answer, so nobody knows whether this machine still owns the store; read "
                "again, or open it with reads='local'"
            )
        return False
