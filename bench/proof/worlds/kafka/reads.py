"""Reads a simulated world of mode "kafka" for the checks of ../in_place/reads.py. Next: workload.py."""

from collections.abc import Iterator, Sequence
from typing import Any

from .....proto.ids import TRANSACTIONS, host_of, tablet_id, tablet_prefix
from .....proto.kafka.settings import KafkaSettings
from .....runtime.kafka.views import KafkaViews
from .....tablets.kafka import rows
from ...simulator.client_world import ClientWorld
from ...simulator.hosts import Seat
from ..in_place.anomalies import Entry
from ..in_place.quiesce import Ends
from ..in_place.reads import Broken, decoded


def entries(stores: Sequence[Any], tablet: int, begin: int = 0) -> Iterator[Entry]:
    """Yields the entries of a partition's log from the rows of its host's store."""
    store, prefix = stores[host_of(tablet)], tablet_prefix(tablet) + b"b"
    for key, row in store.scan(prefix + begin.to_bytes(8, "big"), prefix + b"\xff" * 9):
        entry = rows.Entry(*row)
        offset = int.from_bytes(key[-8:], "big")
        yield Entry(offset, entry.records, entry.producer, entry.kind, decoded(store, entry))


def views_of(world: ClientWorld, isolation: str) -> KafkaViews:
    """Returns the engine's own views over a world; they follow hosts across restarts."""
    seats: Any = [Seat(world, number) for number in range(world.hosts)]
    return KafkaViews(seats, lambda: None, KafkaSettings(isolation=isolation), 0.0)


class KafkaReads(Ends):
    """Reads the rows of partitions and transaction coordinators."""

    def __init__(self, world: ClientWorld, settings: Any) -> None:
        super().__init__(world, settings)
        self._epochs: dict[int, int] = {}

    def views_of(self, isolation: str) -> KafkaViews:
        return views_of(self.world, isolation)

    def entries(self, tablet: int, begin: int = 0) -> Iterator[Entry]:
        return entries(self.world.stores, tablet, begin)

    def check_host(self, host: int) -> None:
        """Checks that no epoch falls."""
        for key, (producer, epoch, *_) in self.rows(tablet_id(TRANSACTIONS, host, 0), b"t").items():
            before_it = self._epochs.get(producer, 0)
            if epoch < before_it:
                raise Broken(f"B25: {key[1:]!r} falls from epoch {before_it} to {epoch}")
            self._epochs[producer] = epoch
