"""What the face asks of mode "kafka": its hooks, handed to those who know.

    assign, fence, flush … ─▶ producer_sessions.py      join, leave … ─▶ requests.py
    may_send               ─▶ how much is on its way, and for how long it has waited

Next: runtime.py.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import NotSupported
from ...proto.ids import GROUPS, kind_of, tablet_text
from ...proto.kafka.messages import ExpireProducers, SwitchLog
from ...proto.messages import PartitionPart
from ..deferred_signals import room_for_a_turn
from ..mode_hooks import ModeHooks
from .errors import kafka_error
from .identities import Identity, identities, under_way
from .producer_sessions import LOOK_SECONDS
from .producers import Producer, check_identity

if TYPE_CHECKING:
    from .runtime import KafkaRuntime

_EXPIRE_EVERY_MS = 600_000
PLAIN = (b"", 0, 0)
"""In the place of a writer's numbers, of a write by itself: no transaction."""


class KafkaHooks(ModeHooks):
    """Producers, groups and transactional ids, as Kafka's clients have them."""

    mode = "kafka"
    sends_at_once = True
    one_at_a_time = True
    reads_may_wait = True
    has_tables = False
    has_places = False
    ends_by_name = True
    _runtime: "KafkaRuntime"

    def __init__(self, runtime: "KafkaRuntime") -> None:
        super().__init__(runtime)
        self._expire_at = 0

    @property
    def protocol_version(self) -> int:
        return self._runtime.settings.protocol_version

    def check_exact(self) -> None:
        raise NotSupported(
            'mode "kafka" has no conditions: exact=True needs mode "deterministic", which checks at the commit '
            "that there was no more"
        )

    def producer(self, name: str) -> Producer:
        check_identity(name)
        return self._runtime.writing.producer(name)

    def assign(self, tx: bytes, worker: "str | Producer | None") -> None:
        if isinstance(worker, str):
            check_identity(worker)
        room_for_a_turn()
        self._runtime.writing.assign(tx, worker)

    def retire(self, producer: Producer) -> None:
        self._runtime.writing.retire(producer)

    def ready(self, worker: str) -> None:
        check_identity(worker)
        self._runtime.writing.ready(worker)

    def forget(self, tx: bytes) -> None:
        self._runtime.writing.forget(tx)

    def fence(self, tx: bytes, consumer: str, generation: int, member: str) -> None:
        self._runtime.writing.fence(tx, consumer, generation, member)

    def wait_stable(self, tablet: int) -> None:
        """Until the transactions have ended that have written so far: a commit is answered before its markers
        are written. KafkaError after max_block_ms."""
        end = self._runtime.views.whole_log(tablet)[1]
        deadline = time.monotonic() + self._runtime.settings.max_block_ms / 1000
        while self._runtime.views.log_bounds(tablet)[1] < end:
            self._runtime.turns.check_open()
            if time.monotonic() > deadline:
                raise kafka_error("CONCURRENT_TRANSACTIONS", tablet_text(tablet))
            time.sleep(LOOK_SECONDS)

    def flush(self, tx: bytes) -> None:
        room_for_a_turn()
        self._runtime.writing.flush(tx)

    def join(self, consumer: str, name: str) -> tuple[int, str]:
        room_for_a_turn()
        return self._runtime.requests.join(consumer, name)

    def rejoin(self, consumer: str, member: str) -> int:
        room_for_a_turn()
        return self._runtime.requests.rejoin(consumer, member)

    def leave(self, consumer: str, member: str) -> None:
        room_for_a_turn()
        self._runtime.requests.leave(consumer, member)

    def may_send(self, tx: bytes, waiting_bytes: int, outboxes: Mapping[str, Any]) -> bool:
        """Fewer requests are on the way than may be, and batches are full, or have lingered: looked at with each
        write, no timer sends them."""
        settings = self._runtime.settings
        if self._runtime.client.outstanding(tx) >= settings.max_in_flight:
            return False
        if not settings.linger_ms:
            return True
        columns = sum(len(outbox.columns) for outbox in outboxes.values())
        if waiting_bytes >= columns * settings.batch_bytes:
            return True
        now_ms = 1000 * time.monotonic()
        return now_ms - self._runtime.lingering.setdefault(tx, now_ms) >= settings.linger_ms

    def transactional_ids(self, only_open: bool) -> list[Identity]:
        """See identities.py."""
        stores = {n: node.host.store for n, node in enumerate(self._runtime.nodes) if not node.down}
        now_ms = time.time_ns() // 1_000_000
        return (under_way if only_open else identities)(stores, self._runtime.names, now_ms)

    def statement(self, parts: dict[int, Any]) -> dict[int, Any]:
        """A write by itself is a plain one: no transaction."""
        return {
            tablet: part._replace(producer=PLAIN) if isinstance(part, PartitionPart) else part
            for tablet, part in parts.items()
        }

    def switch_log_batching(self, on: bool) -> None:
        for tablet in self._runtime.coordinators():
            self._runtime.tell(tablet, SwitchLog(on))

    def tidy(self, now_ms: int) -> None:
        """Producers that were idle for producer_id_expiration_ms are forgotten; looked at now and then."""
        if 0 < self._expire_at - now_ms <= _EXPIRE_EVERY_MS:  # more: the clock was set back
            return
        self._expire_at = now_ms + _EXPIRE_EVERY_MS
        oldest = ExpireProducers(now_ms - self._runtime.settings.producer_id_expiration_ms)
        for topic in list(self._runtime.names.topics.values()):
            for tablet in topic.partitions:
                self._runtime.tell(tablet, oldest)
        for tablet in self._runtime.coordinators():
            if kind_of(tablet) == GROUPS:
                self._runtime.tell(tablet, oldest)
