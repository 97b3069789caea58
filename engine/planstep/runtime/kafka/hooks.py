"""Implements the hooks of mode "kafka", and passes each to the part that handles it.

    assign, fence, flush … ─▶ producer_sessions.py      join, leave … ─▶ requests.py
    may_send               ─▶ the batches on their way, and how long data has waited

Next: transactions.py.
"""

import time
from collections.abc import Mapping
from typing import Any

from ...errors import NotSupported
from ...host.inputs import Tick
from ...proto.ids import GROUPS, TRANSACTIONS, host_of, kind_of, tablet_id, tablet_text
from ...proto.kafka.coordinators import coordinator_of, group_of
from ...proto.kafka.messages import ExpireProducers, Produce, SwitchLog
from ...proto.kafka.settings import KafkaSettings
from ...proto.messages import PartitionPart, Parts
from ...proxy.kafka import client as core
from ...proxy.kafka.client import FENCED
from ..core_client import Client
from ..deferred_signals import Uninterrupted, room_for_a_turn
from ..identity import Identity
from ..mode_hooks import ModeHooks
from ..runtime import Runtime
from . import identities
from .errors import kafka_error
from .numbers import Numbers
from .outcomes import KafkaOutcomes
from .producer_sessions import LOOK_SECONDS, Writing
from .producers import Producer, check_identity
from .requests import Requests
from .schema import KafkaSchema
from .transactions import PLAIN, KafkaTransactions
from .views import KafkaViews

_EXPIRE_EVERY_MS = 600_000
_CLOSE_SECONDS = 5.0


class KafkaHooks(ModeHooks):
    """Answers the face with producers, groups and transactional ids, as Kafka's clients have them."""

    mode = "kafka"
    streams_writes = True
    one_at_a_time = True
    reads_may_wait = True
    has_tables = False
    has_places = False
    by_name = identities
    kafka_transactions: KafkaTransactions
    """The runtime's `transactions`, with this mode's type; so is `kafka_views`."""
    client: Client[core.Client]
    writing: Writing
    requests: Requests
    numbers: Numbers

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        assert isinstance(runtime.settings, KafkaSettings)
        self.settings = runtime.settings
        self.writes = not runtime.read_only
        self.lingering: dict[bytes, float] = {}  # tx → since when its writes wait, ms
        is_open = runtime.turns.check_open
        self.kafka_views = KafkaViews(
            runtime.nodes, is_open, self.settings, runtime.rtt_ms, self.writes
        )
        self._expire_at = 0

    # parts of the runtime -------------------------------------------------------------------

    def views(self) -> KafkaViews:
        return self.kafka_views

    def schema(self) -> KafkaSchema:
        return KafkaSchema(self)

    def transactions(self) -> KafkaTransactions:
        self.kafka_transactions = KafkaTransactions(self)
        return self.kafka_transactions

    def outcomes(self) -> KafkaOutcomes:
        return KafkaOutcomes(self)

    def begin(self) -> None:
        runtime = self.runtime
        client = core.Client(
            runtime.proxy, self.settings, self.coordinator_of, self.group_of, self.partition_words
        )
        self.client = Client(runtime, runtime.proxy, client, Produce)
        self.writing = Writing(self)
        self.client.pumped = self.writing.end_flushes
        self.requests = Requests(self)
        self.numbers = Numbers(self)
        runtime.turns.clients = self.client
        if self.writes:
            for node in runtime.nodes:  # its coordinators resume their work
                runtime.turns.put(node, Tick())

    def close(self) -> None:
        """Lets commits under way end, and aborts open transactions, as Kafka's producer does when it is closed.

        Else readers would wait for the time-outs of transactions that no client can end.
        """
        if not self.runtime.turns.closed:
            for tx in list(self.writing.open):
                self.runtime.transactions.rollback(tx)
            deadline = time.monotonic() + _CLOSE_SECONDS
            turns, replies = self.runtime.turns, self.runtime.replies
            while (self.writing.open or replies.waiting) and turns.stopped is None:
                if time.monotonic() > deadline:
                    break
                time.sleep(LOOK_SECONDS)
        with Uninterrupted():
            self.client.close()

    def stats(self) -> dict[str, Any]:
        """Returns `coordinator_logs`: the buffered writers' counters (proto/batched_log.py), of
        transaction and of group coordinators, all hosts together."""
        logs: dict[str, dict[str, Any]] = {"transactions": {}, "groups": {}}
        for tablet in self.coordinators():
            node = self.runtime.nodes[host_of(tablet)]
            counters = None if node.down else node.host.log_counters(tablet)
            total = logs["transactions" if kind_of(tablet) == TRANSACTIONS else "groups"]
            for name, value in (counters or {}).items():
                known = total.get(name)
                if known is None:
                    total[name] = value
                elif isinstance(value, list):
                    total[name] = [a + b for a, b in zip(known, value, strict=True)]
                else:
                    total[name] = known + value
        return {"coordinator_logs": logs}

    def coordinators(self) -> list[int]:
        kinds = (TRANSACTIONS, GROUPS)
        return [
            tablet_id(kind, number, 0) for kind in kinds for number in range(self.runtime.hosts)
        ]

    def coordinator_of(self, name: str) -> int:
        return coordinator_of(name, self.runtime.hosts)

    def group_of(self, group: str) -> int:
        return group_of(group, self.runtime.hosts)

    def partition_words(self, tablet: int) -> str:
        """Names a partition as errors do: "topic 'clicks', partition 3"."""
        kind, name, part = self.runtime.names.of_tablet(tablet)
        known = name != f"{tablet:#x}"
        return f"{kind} {name!r}, partition {part}" if known else tablet_text(tablet)

    # questions of the face ------------------------------------------------------------------

    @property
    def protocol_version(self) -> int:
        return self.settings.protocol_version

    def check_exact(self) -> None:
        raise NotSupported(
            'mode "kafka" has no conditions: exact=True needs mode "deterministic", which checks at the commit '
            "that there was no more"
        )

    def producer(self, name: str) -> Producer:
        check_identity(name)
        return self.writing.producer(name)

    def assign(self, tx: bytes, worker: "str | Producer | None") -> None:
        if isinstance(worker, str):
            check_identity(worker)
        room_for_a_turn()
        self.writing.assign(tx, worker)

    def retire(self, producer: Producer) -> None:
        self.writing.retire(producer)

    def take_over(self, producer: Producer) -> None:
        room_for_a_turn()
        self.writing.take_over(producer)

    def check_producer(self, producer: Producer) -> None:
        if producer.dead is not None and producer.dead[0] == FENCED:
            raise kafka_error(*producer.dead)

    def ready(self, worker: str, alone: bool = False) -> None:
        check_identity(worker)
        self.writing.ready(worker, alone)

    def forget(self, tx: bytes) -> None:
        self.writing.forget(tx)

    def fence(self, tx: bytes, consumer: str, generation: int, member: str) -> None:
        self.writing.fence(tx, consumer, generation, member)

    def wait_stable(self, tablet: int) -> None:
        """Waits until the transactions that have written so far have ended: a commit is answered before its markers
        are written. Raises KafkaError after max_block_ms."""
        end = self.kafka_views.whole_log(tablet)[1]
        deadline = time.monotonic() + self.settings.max_block_ms / 1000
        while self.kafka_views.log_bounds(tablet)[1] < end:
            self.runtime.turns.check_open()
            if time.monotonic() > deadline:
                raise kafka_error("CONCURRENT_TRANSACTIONS", self.partition_words(tablet))
            time.sleep(LOOK_SECONDS)

    def flush(self, tx: bytes) -> None:
        room_for_a_turn()
        self.writing.flush(tx)

    def join(self, consumer: str, name: str) -> tuple[int, str]:
        room_for_a_turn()
        return self.requests.join(consumer, name)

    def rejoin(self, consumer: str, member: str) -> int:
        room_for_a_turn()
        return self.requests.rejoin(consumer, member)

    def leave(self, consumer: str, member: str) -> None:
        room_for_a_turn()
        self.requests.leave(consumer, member)

    def may_send(self, tx: bytes, waiting_bytes: int, outboxes: Mapping[str, Any]) -> bool:
        """Returns whether fewer requests than allowed are on the way, and batches are full or have lingered. Each
        write asks this; no timer sends them."""
        settings = self.settings
        if self.client.outstanding(tx) >= settings.max_in_flight:
            return False
        if not settings.linger_ms:
            return True
        columns = sum(len(outbox.columns) for outbox in outboxes.values())
        if waiting_bytes >= columns * settings.batch_bytes:
            return True
        now_ms = 1000 * time.monotonic()
        return now_ms - self.lingering.setdefault(tx, now_ms) >= settings.linger_ms

    def transactional_ids(self, only_open: bool) -> list[Identity]:
        """Lists transactional ids: identities.py."""
        stores = {n: node.host.store for n, node in enumerate(self.runtime.nodes) if not node.down}
        now_ms = time.time_ns() // 1_000_000
        find = identities.under_way if only_open else identities.identities
        return find(stores, self.runtime.names, now_ms)

    def statement(self, parts: Parts) -> Parts:
        """Marks the parts of a single write as plain: no transaction."""
        return {
            tablet: part._replace(producer=PLAIN) if isinstance(part, PartitionPart) else part
            for tablet, part in parts.items()
        }

    def switch_log_batching(self, on: bool) -> None:
        for tablet in self.coordinators():
            self.runtime.tell(tablet, SwitchLog(on))

    def tidy(self, now_ms: int) -> None:
        """Forgets producers that were idle for producer_id_expiration_ms; checks every ten minutes."""
        if 0 < self._expire_at - now_ms <= _EXPIRE_EVERY_MS:  # later: the clock was set back
            return
        self._expire_at = now_ms + _EXPIRE_EVERY_MS
        oldest = ExpireProducers(now_ms - self.settings.producer_id_expiration_ms)
        for topic in list(self.runtime.names.topics.values()):
            for tablet in topic.partitions:
                self.runtime.tell(tablet, oldest)
        for tablet in self.coordinators():
            if kind_of(tablet) == GROUPS:
                self.runtime.tell(tablet, oldest)
