"""Simulates an engine in mode "pulsar": a transaction coordinator and some partitions on each host.

Any request may be lost, come twice, or arrive long after its transaction's end. Next: ../worlds/pulsar/workload.py.
"""

from typing import Any

from ....proto.ids import host_of
from ....proto.pulsar.coordinators import coordinator_tablet
from ....proto.pulsar.messages import EndTxn, SwitchLog
from ....proto.pulsar.settings import PulsarSettings
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
    mode = "pulsar"

    @property
    def coordinators(self) -> list[int]:
        """The transaction coordinators' tablets, by number."""
        return [coordinator_tablet(number, self.hosts) for number in range(self.hosts)]

    def make_client(self, number: int) -> Client:
        return Client(self, number)

    def _ends_late(self, message: Any) -> bool:
        return type(message) is EndTxn

    def _switch_logs(self, number: int, batching: bool) -> None:
        for tablet in self.coordinators:
            if host_of(tablet) == number:
                self.tell(tablet, SwitchLog(batching))
