"""Reads a simulated world: through the engine's own views, and directly from the stored logs.

Next: quiesce.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from .....proto.batch import Batch
from .....proto.ids import PARTITION, host_of, tablet_id, tablet_prefix
from .....runtime.in_place_views import InPlaceBounds, InPlaceViews
from .....runtime.kafka.views import LiveSnapshot as Snapshot
from ...simulator.client_world import ClientWorld
from .anomalies import Entry, History, Logs, Poll

NOW = Snapshot()
EMPTY = InPlaceBounds()


class Broken(AssertionError):
    """An invariant was broken; the text begins with its number."""


def decoded(store: Any, entry: Any) -> Any:
    """Returns an entry's values, none of a marker."""
    data = store.read_payload(entry.address, entry.length) if entry.length else b""
    return Batch.decode(data).values if data else []


def records(views: InPlaceViews, tablet: int, begin: int, most: int) -> list[tuple[int, bytes]]:
    """Reads (offset, value) of at most so many records."""
    pairs: list[tuple[int, bytes]] = []
    for piece in views.read_segments(NOW, tablet, 0, begin, most, 1 << 20):
        values: Any = piece.batch.values[piece.lo : piece.hi]
        pairs += enumerate(values, piece.offset)
    return pairs


class LogWatch(ABC):
    """Reads two input and two output partitions, and checks their bounds after each turn.

    `history` holds each poll, `logs` all entries ever written.
    """

    def __init__(self, world: ClientWorld) -> None:
        self.world = world
        self.history = History()
        hosts = world.hosts
        self.inputs = [tablet_id(PARTITION, i % hosts, 10 + i) for i in range(2)]
        self.outputs = [tablet_id(PARTITION, (i + 2) % hosts, 20 + i) for i in range(2)]
        self.tablets = [*self.inputs, *self.outputs]
        self.views: dict[bool, Any] = {
            True: self.views_of("read_committed"),
            False: self.views_of("read_uncommitted"),
        }
        self._bounds = dict.fromkeys(self.tablets, EMPTY)
        self._stands: dict[tuple[str, int], int] = {}
        self.logs: Logs = {tablet: [] for tablet in self.tablets}
        world.after_turn = self._after_turn

    @abstractmethod
    def views_of(self, isolation: str) -> InPlaceViews:
        """Returns the engine's own views over the world; they follow hosts across restarts."""

    @abstractmethod
    def entries(self, tablet: int, begin: int = 0) -> Iterator[Entry]:
        """Yields the entries of a partition's log from the rows of its host's store."""

    @abstractmethod
    def check_host(self, host: int) -> None:
        """Checks the mode's own rows after a turn; raises Broken."""

    def poll(
        self, reader: str, committed: bool, tablet: int, begin: int, most: int
    ) -> tuple[list[tuple[int, bytes]], int]:
        """Reads records, adds the poll to `history`; returns (records, the offset to go on from)."""
        views = self.views[committed]
        end = max(begin, views.end(tablet))
        batch = records(views, tablet, begin, most)
        if len(batch) >= most:
            *_, (last, _) = batch
            end = last + 1
        at = self.world.now
        self.history.polls.append(Poll(reader, committed, tablet, begin, end, batch, at))
        return batch, end

    def read_on(self, name: str, committed: bool, tablet: int, most: int) -> None:
        begin = self._stands.get((name, tablet), 0)
        _, self._stands[name, tablet] = self.poll(name, committed, tablet, begin, most)

    def _after_turn(self, host: int) -> None:
        """Checks that start <= where readers stop <= end, and that none of them ever falls.

        Keeps new entries, because they may be trimmed later.
        """
        for tablet in self.tablets:
            if host_of(tablet) != host:
                continue
            start, end, stable = now = self.meta(tablet)
            before = self._bounds[tablet]
            text = f"{tablet:#x} has start {start}, last stable offset {stable}, end {end}"
            if not start <= stable <= end:
                raise Broken(f"B26: {text}")
            if not all(a <= b for a, b in zip(before, (start, end, stable), strict=True)):
                raise Broken(f"B24: {text}, after start, end, stable {tuple(before)}")
            if now == before:
                continue
            self._bounds[tablet] = now
            if end > before.end:
                self.logs[tablet] += self.entries(tablet, before.end)
            prefix = tablet_prefix(tablet)
            opened = self.world.stores[host].scan(prefix + b"o", prefix + b"p", limit=1)
            first = min((int.from_bytes(key[-8:], "big") for key, _ in opened), default=end)
            if stable != first:
                raise Broken(f"B24: {text}, and the first open transaction is at {first}")
        self.check_host(host)

    def meta(self, tablet: int) -> InPlaceBounds:
        return InPlaceBounds._make(self.world.read(tablet, b"m") or EMPTY)

    def rows(self, tablet: int, letter: bytes) -> dict[bytes, Any]:
        """Returns a tablet's rows whose keys begin with `letter`."""
        return dict(self.world.rows(tablet, letter))

    def check_logs(self) -> None:
        """Checks that the final logs hold every entry ever written, except the trimmed ones."""
        for tablet, log in self.logs.items():
            start, _, _ = self.meta(tablet)
            untrimmed = [entry for entry in log if entry.offset + entry.records > start]
            stored = list(self.entries(tablet))
            if stored != untrimmed:
                raise Broken(f"B20: {tablet:#x} has {stored}, and {untrimmed} was written")
