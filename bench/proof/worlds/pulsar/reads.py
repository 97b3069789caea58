"""Reads the rows of a simulated world of mode "pulsar", and what of its transactions is left at its end.

Next: turn_checks.py.
"""

from collections.abc import Iterator
from typing import Any

from .....coordinator.pulsar import invariants
from .....coordinator.pulsar.states import OPEN
from .....proto.ids import host_of, tablet_prefix
from .....proto.pulsar.settings import PulsarSettings
from .....runtime.in_place_views import DurableRows
from .....runtime.pulsar.views import PulsarViews
from .....tablets.pulsar import rows
from ...simulator.client_world import ClientWorld
from ...simulator.hosts import Seat
from ..in_place.anomalies import Entry
from ..in_place.quiesce import GROUP, SLACK_MS, Ends
from ..in_place.reads import NOW, decoded

LEFT = {b"o": "ongoing", b"n": "ongoing", b"y": "pending", b"k": "pending", b"j": "pending"}
"""Rows that go as their transaction ends, by letter."""


def views_of(world: ClientWorld, isolation: str) -> PulsarViews:
    """Returns the engine's own views over a world; they follow hosts across restarts."""
    seats: Any = [Seat(world, number) for number in range(world.hosts)]
    return PulsarViews(seats, lambda: None, PulsarSettings(isolation=isolation), 0.0)


class PulsarReads(Ends):
    """Reads the rows of partitions, their subscriptions and transaction coordinators."""

    def __init__(self, world: ClientWorld, settings: Any) -> None:
        super().__init__(world, settings)
        self._producers: dict[str, int] = {}

    def views_of(self, isolation: str) -> PulsarViews:
        return views_of(self.world, isolation)

    def space(self, tablet: int) -> DurableRows:
        return DurableRows(self.world.stores[host_of(tablet)], tablet)

    def entries(self, tablet: int, begin: int = 0) -> Iterator[Entry]:
        store, prefix = self.world.stores[host_of(tablet)], tablet_prefix(tablet) + b"b"
        for key, row in store.scan(prefix + begin.to_bytes(8, "big"), prefix + b"\xff" * 9):
            entry = rows.Entry(*row)
            producer = self._producers.setdefault(entry.producer, len(self._producers))
            values, txn = decoded(store, entry), entry.most << 64 | entry.least
            offset = int.from_bytes(key[-8:], "big")
            yield Entry(offset, entry.records, producer, entry.kind, values, txn)

    def cursor(self, tablet: int) -> rows.Cursor | None:
        cursor: rows.Cursor | None = self.views[True].cursor(tablet, GROUP)
        return cursor

    def position(self, tablet: int) -> int:
        cursor = self.cursor(tablet)
        return 0 if cursor is None else cursor.position

    # the end -----------------------------------------------------------------------------------

    def used(self, tablet: int) -> bool:
        cursor, (_, end, stable) = self.cursor(tablet), self.meta(tablet)
        if cursor is None or stable < end or self.rows(tablet, b"y"):
            return False
        return not self.views[True].read_segments(NOW, tablet, 0, cursor.position, 1, 1)

    def open_too_long(self) -> Iterator[str]:
        world: Any
        world, faults = self.world, self.settings.faults
        late_ms = 2 * faults.jump_ms + world.settings.transaction_timeout_ms
        if faults.jump and world.now < self._healed_at + late_ms:
            return  # a timer may still wait that was set by a clock set back
        for tablet in world.coordinators:
            now = world.clock(host_of(tablet))
            for least, row in invariants.live_rows(self.space(tablet)).items():
                if row.state == OPEN and now > row.deadline_ms + SLACK_MS:
                    yield f"({tablet:#x}, {least}) is open since {row.start_ms}, now is {now}"

    def left(self, tablet: int) -> Iterator[str]:
        for letter, what in LEFT.items():
            for key in self.rows(tablet, letter):
                yield f"{key!r} in {tablet:#x} is {what}"
        if tablet in self.inputs and not self.used(tablet):
            yield f"{tablet:#x} is not used up: {self.cursor(tablet)}, {self.meta(tablet)}"

    def left_at_host(self, number: int) -> Iterator[str]:
        world: Any = self.world
        for tablet in world.coordinators:
            if host_of(tablet) == number:
                for least, row in invariants.live_rows(self.space(tablet)).items():
                    yield f"transaction {least} of {tablet:#x} is {row}"
                if self.rows(tablet, b"l"):
                    yield f"the log of {tablet:#x} is not empty"
