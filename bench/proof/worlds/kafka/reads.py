"""Reads a simulated world of mode "kafka": through the engine's own views, and directly from the stored logs.

Next: quiesce.py.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from .....proto.batch import Batch
from .....proto.ids import PARTITION, TRANSACTIONS, host_of, tablet_id, tablet_prefix
from .....proto.kafka.settings import KafkaSettings
from .....runtime.kafka.views import KafkaViews
from .....runtime.kafka.views import LiveSnapshot as Snapshot
from .....tablets.kafka import rows
from ...simulator.hosts import Seat
from ...simulator.kafka_world import KafkaWorld
from .anomalies import Entry, History, Logs, Poll

NOW = Snapshot()


class Broken(AssertionError):
    """An invariant was broken; the text begins with its number."""


def entries(stores: Sequence[Any], tablet: int, begin: int = 0) -> Iterator[Entry]:
    """Yields the entries of a partition's log from the rows of its host's store."""
    store, prefix = stores[host_of(tablet)], tablet_prefix(tablet) + b"b"
    for key, row in store.scan(prefix + begin.to_bytes(8, "big"), prefix + b"\xff" * 9):
        entry = rows.Entry(*row)
        data = store.read_payload(entry.address, entry.length) if entry.length else b""
        values: Any = Batch.decode(data).values if data else []
        offset = int.from_bytes(key[-8:], "big")
        yield Entry(offset, entry.records, entry.producer, entry.kind, values)


def views_of(world: KafkaWorld, isolation: str) -> KafkaViews:
    """Returns the engine's own views over a world; they follow hosts across restarts."""
    seats: Any = [Seat(world, number) for number in range(world.hosts)]
    return KafkaViews(seats, lambda: None, KafkaSettings(isolation=isolation), 0.0)


def records(views: KafkaViews, tablet: int, begin: int, most: int) -> list[tuple[int, bytes]]:
    """Reads (offset, value) of at most so many records."""
    pairs: list[tuple[int, bytes]] = []
    for piece in views.read_segments(NOW, tablet, 0, begin, most, 1 << 20):
        values: Any = piece.batch.values[piece.lo : piece.hi]
        pairs += enumerate(values, piece.offset)
    return pairs


class LogWatch:
    """Reads two input and two output partitions, and checks their bounds after each turn.

    `history` holds each poll, `logs` all entries ever written.
    """

    def __init__(self, world: KafkaWorld) -> None:
        self.world = world
        self.history = History()
        hosts = world.hosts
        self.inputs = [tablet_id(PARTITION, i % hosts, 10 + i) for i in range(2)]
        self.outputs = [tablet_id(PARTITION, (i + 2) % hosts, 20 + i) for i in range(2)]
        self.tablets = [*self.inputs, *self.outputs]
        self.views = {
            True: views_of(world, "read_committed"),
            False: views_of(world, "read_uncommitted"),
        }
        self._bounds = dict.fromkeys(self.tablets, rows.EMPTY)
        self._stands: dict[tuple[str, int], int] = {}
        self._epochs: dict[int, int] = {}
        self.logs: Logs = {tablet: [] for tablet in self.tablets}
        world.after_turn = self._after_turn

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
        """Checks that start <= last stable offset <= end, and that neither these nor epochs ever fall.

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
                self.logs[tablet] += entries(self.world.stores, tablet, before.end)
            prefix = tablet_prefix(tablet)
            opened = self.world.stores[host].scan(prefix + b"o", prefix + b"p", limit=1)
            first = min((int.from_bytes(key[-8:], "big") for key, _ in opened), default=end)
            if stable != first:
                raise Broken(f"B24: {text}, and the first open transaction is at {first}")
        for key, (producer, epoch, *_) in self.rows(tablet_id(TRANSACTIONS, host, 0), b"t").items():
            before_it = self._epochs.get(producer, 0)
            if epoch < before_it:
                raise Broken(f"B25: {key[1:]!r} falls from epoch {before_it} to {epoch}")
            self._epochs[producer] = epoch

    def meta(self, tablet: int) -> rows.Bounds:
        return rows.Bounds._make(self.world.read(tablet, b"m") or rows.EMPTY)

    def rows(self, tablet: int, letter: bytes) -> dict[bytes, Any]:
        """Returns a tablet's rows whose keys begin with `letter`."""
        return dict(self.world.rows(tablet, letter))

    def check_logs(self) -> None:
        """Checks that the final logs hold every entry ever written, except the trimmed ones."""
        for tablet, log in self.logs.items():
            start, _, _ = self.meta(tablet)
            untrimmed = [entry for entry in log if entry.offset + entry.records > start]
            stored = list(entries(self.world.stores, tablet, 0))
            if stored != untrimmed:
                raise Broken(f"B20: {tablet:#x} has {stored}, and {untrimmed} was written")
