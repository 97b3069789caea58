"""Keeps overwritten versions in memory, for snapshots that are older than the newest version.

    key ──▶ [(old value, step that superseded it), …]      store: only the newest version

A version stays while an open snapshot is older than the place that superseded it, for a limited time and within
a limit of bytes. The last released step always counts as open. A version enters before its successor becomes
visible, so a reader that finds a too new version (or none) in the store finds the older one here.

`release` is the moment in which a turn becomes visible: to other processes, in the store, and to snapshots. A
snapshot is opened without a lock, unless a turn becomes visible meanwhile: many threads that take one lock for a
moment each soon all wait in line for it. What it leaves out: reads without a snapshot (mode "kafka", lags) never
wait for `release`, and may see a turn some microseconds after another process has.

Next: host.py.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from operator import itemgetter
from typing import Any
from weakref import ReferenceType, ref

from ..errors import SnapshotTooOld
from ..proto.stored import AnyRow, Versioned

Superseded = tuple[bytes, Versioned, int]
"""(key, old version, step that superseded it)"""
BYTES_MAX = 64 << 20
MS_MAX = 60_000


class Pin:
    """An open snapshot at `step`."""

    __slots__ = ("__weakref__", "_pins", "number", "step")

    def __init__(self, pins: "Pins", number: int, step: int) -> None:
        self._pins = pins
        self.number = number
        self.step = step

    def close(self) -> None:
        self._pins.pop(self.number, None)


Pins = dict[int, tuple[int, int, float, "ReferenceType[Pin]"]]
"""A pin's number → (its step, its number, the seconds at which it was opened, itself)"""


class Retired(Exception):
    """A newer view has replaced the view of this history: read there instead."""


class History:
    """Holds old versions by key. Invariants: the superseding steps of a key never decrease; no open snapshot is
    below `horizon`."""

    def __init__(
        self,
        bytes_max: int = BYTES_MAX,
        ms_max: int = MS_MAX,
        lock: AbstractContextManager[Any] | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`lock`: for a history that threads share; reentrant, because a signal handler may read on a thread that
        releases. `clock`: seconds, for `pins`."""
        self.bytes_max = bytes_max
        self.ms_max = ms_max
        self.bytes = 0
        self.horizon = 0
        self.released = 0
        self._retired = False
        self._pins: Pins = {}
        self._numbers = count()
        self._changes = 0  # odd while a turn, or a newer view, becomes visible
        self._versions: dict[bytes, list[tuple[Versioned, int]]] = {}
        self._order: deque[tuple[int, bytes, int, int]] = deque()
        self._lock = lock or nullcontext()
        self._clock = clock

    def open(self, step: int | None = None) -> Pin:
        """Pins the last released step (or `step`) and returns the pin. Raises Retired."""
        changes = self._changes
        pin = self._pin(self.released if step is None else step)
        # Nothing has become visible since: the pin is there before the next `release` looks for pins.
        if changes == self._changes and not (changes & 1 or self._retired):
            return pin
        pin.close()
        with self._lock:
            if self._retired:
                raise Retired
            return self._pin(self.released if step is None else step)

    def _pin(self, step: int) -> Pin:
        pin = Pin(self._pins, next(self._numbers), step)
        self._pins[pin.number] = step, pin.number, self._clock(), ref(pin)
        return pin

    def retire(self, show: Callable[[], None]) -> bool:
        """Calls `show`, which puts a newer view in this one's place, while no snapshot can be opened. Returns
        False, without calling it, while a snapshot is open."""
        with self._lock:
            self._changes += 1
            try:
                if self._pins:
                    return False
                show()
                self._retired = True
                return True
            finally:
                self._changes += 1

    def pins(self) -> tuple[int, float]:
        """Returns (open snapshots, seconds since the oldest of them was opened).

        Closes those that nobody holds: a signal's handler may have raised before their owner had them.
        """
        for _, number, _, owner in list(self._pins.values()):
            if owner() is None:
                self._pins.pop(number, None)
        opened = [since for _, _, since, _ in list(self._pins.values())]
        return len(opened), self._clock() - min(opened) if opened else 0.0

    def oldest(self) -> int:
        return min(self._pins.values(), default=(self.released,))[0]

    def release(
        self,
        step: int,
        superseded: Sequence[Superseded] = (),
        now_ms: int = 0,
        show: Callable[[], None] | None = None,
        all_pinned: bool = False,
    ) -> None:
        """Releases all steps of this host up to `step`. `superseded`: (key, old value or None, superseding step).

        `all_pinned`: every snapshot that reads these rows is open here. Without any, no old version is needed: a
        later snapshot gets this step at least.

        `show` makes the turn's changes visible: to other processes, and in the store. No snapshot opens while
        it runs, so no reader sees less than another has seen, or than an outcome has reported.
        """
        with self._lock:
            self._changes += 1
            try:
                for key, old, since in superseded if self._pins or not all_pinned else ():
                    if old is None:
                        continue
                    size = len(key) + 64 + (len(old[-1]) if isinstance(old[-1], bytes) else 8)
                    self._versions.setdefault(key, []).append((old, since))
                    self._order.append((since, key, size, now_ms))
                    self.bytes += size
                if show is not None:
                    show()
                self.released = max(step, self.released)
            finally:
                self._changes += 1

    def forget(self, horizon: int | None = None, now_ms: int = 0) -> None:
        """Drops the versions that no snapshot can ask for.

        `horizon`: the oldest snapshot as the coordinator's host knows it; None on that host itself.
        """
        if not self._order:
            return
        with self._lock:
            oldest = self.oldest() if horizon is None else horizon
            while self._order:
                superseded, key, size, since_ms = self._order[0]
                if superseded > oldest:
                    if self.bytes <= self.bytes_max and now_ms - since_ms <= self.ms_max:
                        break
                    self.horizon = max(self.horizon, superseded)
                self._order.popleft()
                self.bytes -= size
                versions = self._versions[key]
                versions.pop(0)
                if not versions:
                    del self._versions[key]

    def value_at(self, key: bytes, newest: Versioned | None, step: int) -> AnyRow:
        """Returns the version of `key` that the snapshot at `step` sees, None when it was absent then."""
        if newest is not None and newest[0] <= step:
            return newest
        with self._lock:  # `forget` shortens the list
            self.check(step)
            versions = self._versions.get(key, ())
            at = bisect_right(versions, step, key=itemgetter(1))
            if at < len(versions) and versions[at][0][0] <= step:
                return versions[at][0]
            return None

    def check(self, step: int) -> None:
        """Raises SnapshotTooOld when a version that `step` sees may have been forgotten."""
        if step < self.horizon:
            raise SnapshotTooOld(
                f"the snapshot at step {step} has been forgotten: what was overwritten since is kept for "
                f"{self.ms_max / 1000:g} s, up to {self.bytes_max:,} bytes; open a new one, end it sooner, or "
                "open the store with larger snapshot_seconds and snapshot_bytes"
            )

    def keys_between(self, begin: bytes, end: bytes) -> list[bytes]:
        """Returns the keys with old versions in a range: rows deleted since a snapshot may be among them."""
        if not self._versions:
            return []
        with self._lock:
            return [key for key in self._versions if begin <= key < end]
