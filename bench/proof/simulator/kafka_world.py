"""Simulates an engine in mode "kafka".

In version 1 a request must not be older than its time-out when it is executed (ARCHITECTURE.md). Older requests
are dropped, as if their connection had closed, unless the faults allow `late` requests.

Next: ../worlds/kafka/workload.py.
"""

from typing import Any

from ....proto.ids import GROUPS, TRANSACTIONS, tablet_id
from ....proto.kafka.messages import EndTxn, InitProducer, SwitchLog
from ....proto.kafka.settings import KafkaSettings
from .client_world import ClientWorld
from .kafka_clients import Client

QUICK = KafkaSettings(
    transaction_timeout_ms=700,
    abort_scan_ms=70,
    retry_backoff_ms=10,
    concurrent_backoff_ms=3,
    add_partitions_backoff_ms=3,
    add_partitions_backoff_max_ms=9,
    request_timeout_ms=80,
    delivery_timeout_ms=400,
    max_block_ms=900,
    marker_retry_ms=15,
    log_batch_records=8,
    log_batch_delay_ms=4.0,
)
"""Time-outs short enough to pass often in a run."""


class KafkaWorld(ClientWorld):
    mode = "kafka"

    def make_client(self, number: int) -> Client:
        return Client(self, number)

    def _ends_late(self, message: Any) -> bool:
        return type(message) is EndTxn

    def _connection(self, message: Any) -> tuple[bool, bool]:
        # Version 1 has many transactions in an epoch: it relies on connections that repeat no request.
        first = self.settings.protocol_version == 1
        return first and type(message) is not InitProducer, first and not self._late

    def _switch_logs(self, number: int, batching: bool) -> None:
        for kind in (TRANSACTIONS, GROUPS):
            self.tell(tablet_id(kind, number, 0), SwitchLog(batching))
