"""Runs aborted ids and their snapshots over a dict, beside the plain list that they must equal.

A `Log` has markers in its rows, as a partition has them. A turn of it is kept or lost whole: `turn` undoes rows and
memory if the disk fails at one of its writes.
"""

from collections.abc import Callable
from typing import Any

import msgpack
from dict_space import DictSpace

from planstep.proto.pulsar.messages import ABORT, COMMIT
from planstep.tablets.pulsar.aborted import Aborted
from planstep.tablets.pulsar.rows import Entry, numbered
from planstep.tablets.pulsar.snapshots import Snapshots, SnapshotSettings, recover

FIVE_IDS = 14 + 5 * 8
"""Bytes of five packed ids of one coordinator."""


class PowerLoss(Exception):
    pass


class FailingSpace(DictSpace):
    """Fails at the n-th write from when `writes_left` was set; values pass through msgpack.

    The row that was put last comes last.
    """

    writes_left = 1 << 60

    def _write(self) -> None:
        if not self.writes_left:
            raise PowerLoss
        self.writes_left -= 1

    def put(self, key: bytes, value: Any) -> None:
        self._write()
        self.rows.pop(key, None)
        super().put(key, msgpack.unpackb(msgpack.packb(value), use_list=False))

    def delete(self, key: bytes) -> None:
        self._write()
        super().delete(key)


class Log:
    """A log of markers only. `model` has (marker, most, least) of each abort that the log still holds."""

    def __init__(self, way: str = "single", bytes_max: int = FIVE_IDS) -> None:
        self.space = FailingSpace()
        self.model: list[tuple[int, int, int]] = []
        self.start = self.end = 0
        self.max_read = 0
        self.restart(way, bytes_max)

    def restart(self, way: str | None = None, bytes_max: int | None = None) -> None:
        """Recovers from the rows alone."""
        old: SnapshotSettings | None = getattr(self, "settings", None)
        way = way or (old.way if old else "single")
        limit = bytes_max or (old.segment_bytes if old else FIVE_IDS)
        whole = 1 << 40 if way == "single" else limit
        self.settings = SnapshotSettings(way, limit, whole)
        self.snapshots = Snapshots(self.space, self.settings)
        aborted = self.recover()
        self.aborted = Aborted() if aborted is None else aborted

    def recover(self) -> Aborted | None:
        return recover(self.space, self.start, self.end)

    def turn(self, work: Callable[[], None], fails_at: int | None = None) -> bool:
        """Does `work`; undoes it if the write number `fails_at` fails. Returns whether it is done."""
        rows, model = dict(self.space.rows), list(self.model)
        bounds = self.start, self.end, self.max_read
        marks = self.aborted.mark(), self.snapshots.mark()
        self.space.writes_left = 1 << 60 if fails_at is None else fails_at
        try:
            work()
        except PowerLoss:
            self.space.rows, self.model = rows, model
            self.start, self.end, self.max_read = bounds
            self.aborted.undo(marks[0])
            self.snapshots.undo(marks[1])
            return False
        finally:
            self.space.writes_left = 1 << 60
        return True

    def end_txn(self, most: int, least: int, *, commit: bool = False, gap: int = 0) -> None:
        """Appends a marker behind `gap` offsets of other entries."""
        at = self.end + gap
        kind = COMMIT if commit else ABORT
        self.space.put(numbered(b"b", at), Entry(0, 0, 1, kind, most, least, "", -1))
        if not commit:
            self.aborted.add(most, least, at)
            self.model.append((at, most, least))
        self.end = at + 1

    def take(self) -> None:
        self.snapshots.take(self.aborted, self.max_read)

    def go_on(self) -> None:
        if self.snapshots.unfinished:
            self.snapshots.go_on(self.aborted, self.max_read)

    def take_whole(self) -> None:
        self.take()
        while self.snapshots.unfinished:
            self.go_on()

    def trim(self, start: int) -> None:
        self.start = start
        for key, _ in self.space.scan(b"b", numbered(b"b", start)):
            self.space.delete(key)
        self.aborted.trim(start)
        self.snapshots.trimmed(start)
        self.model = [entry for entry in self.model if entry[0] >= start]

    def check(self) -> None:
        assert self.aborted.ids() == self.model
        assert len(self.aborted) == len(self.model)
        for marker, most, least in self.model:
            assert self.aborted.contains(most, least, marker - 1)
            assert not self.aborted.contains(most, least, marker)
            assert not self.aborted.contains(most + 1_000, least, marker - 1)
        loaded = self.recover()
        if loaded is not None:
            assert loaded.ids() == self.model
        self.check_rows()

    def check_rows(self) -> None:
        """An index names exactly the segments that are there, and no way leaves rows of another one behind."""
        rows = self.space.rows
        segments = {key for key in rows if key[:1] == b"g"}
        named = rows.get(b"i", (0, 1, (), b""))[2]
        assert segments == {numbered(b"g", number) for number, _ in named}
        assert not (b"i" in rows and b"s" in rows)
