"""Simulates an engine in mode "pulsar": a transaction coordinator and some partitions on each host.

Any request may be lost, come twice, or arrive long after its transaction's end. Next: ../worlds/pulsar/workload.py.
"""

import random
from dataclasses import replace
from typing import Any

from ....host.host import Host
from ....proto.ids import host_of
from ....proto.pulsar.coordinators import coordinator_tablet
from ....proto.pulsar.messages import EndTxn, SwitchLog
from ....proto.pulsar.settings import SNAPSHOT_WAYS, PulsarSettings
from ....store import MemoryStore
from .client_world import ClientWorld
from .pulsar_clients import Client

QUICK = PulsarSettings(
    transaction_timeout_ms=700,
    timeout_tick_ms=20,
    retry_backoff_ms=10,
    request_timeout_ms=80,
    operation_timeout_ms=900,
    participant_timeout_ms=40,
    end_retry_ms=15,
    log_batch_records=8,
    log_batch_delay_ms=4.0,
    ack_log_batch_records=8,
    ack_log_batch_delay_ms=4.0,
    ack_log_index_min_lag=5,
    snapshot_transactions=7,
    snapshot_interval_ms=300,
    snapshot_segment_bytes=80,
    deduplication=True,
)
"""Time-outs short enough to pass often in a run, and snapshots of few aborted ids."""


class PulsarWorld(ClientWorld):
    """`partitions`: those whose subscriptions' logs are switched as well. `changes`: each life of a host stores
    aborted ids in a way drawn for it, in parts of a size drawn for it."""

    mode = "pulsar"
    late_most = 12.0

    def __init__(
        self,
        *arguments: Any,
        partitions: tuple[int, ...] = (),
        changes: bool = False,
        **named: Any,
    ) -> None:
        self.partitions = partitions
        self.changes = changes
        super().__init__(*arguments, **named)

    def _host(self, number: int, store: MemoryStore) -> Host:
        if not self.changes:
            return super()._host(number, store)
        kept, life = self.settings, self.lives[number]
        draw = random.Random(f"{self.seed}/{number}/{life}")
        way, size = draw.choice((*SNAPSHOT_WAYS, "parts")), draw.choice((64, 80, 160))
        self.settings = replace(kept, snapshots=way, snapshot_segment_bytes=size)
        try:
            return super()._host(number, store)
        finally:
            self.settings = kept

    @property
    def coordinators(self) -> list[int]:
        """The transaction coordinators' tablets, by number."""
        count = self.settings.coordinators or self.hosts
        return [coordinator_tablet(number, self.hosts) for number in range(count)]

    def raise_coordinators(self) -> None:
        """Restarts all hosts with some coordinators more; clients that are there do not know of them."""
        self.faulted["coordinators raised"] += 1
        self.settings = replace(self.settings, coordinators=len(self.coordinators) + 2)
        for number in range(self.hosts):
            self.crash(number)

    def make_client(self, number: int) -> Client:
        return Client(self, number)

    def _ends_late(self, message: Any) -> bool:
        return type(message) is EndTxn

    def _switch_logs(self, number: int, batching: bool) -> None:
        for tablet in (*self.coordinators, *self.partitions):
            if host_of(tablet) == number:
                self.tell(tablet, SwitchLog(batching))
