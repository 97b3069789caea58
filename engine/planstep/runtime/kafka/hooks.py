"""Implements the hooks of mode "kafka", and passes each to the part that handles it.

    assign, fence, flush … ─▶ producer_sessions.py      join, leave … ─▶ requests.py
    begin, close, may_send ─▶ ../client_hooks.py

Next: transactions.py.
"""

import time
from collections.abc import Iterator
from typing import Any

from ...errors import NotSupported, PlanstepError
from ...proto.ids import GROUPS, TRANSACTIONS, host_of, kind_of, tablet_id
from ...proto.kafka.coordinators import coordinator_of, group_of
from ...proto.kafka.messages import ExpireProducers, Produce, SwitchLog
from ...proto.kafka.request_rules import RULES
from ...proto.kafka.settings import KafkaSettings
from ...proxy.kafka import client as core
from ...proxy.kafka.client import FENCED
from ..client_hooks import ClientHooks, Gathering
from ..core_client import Client
from ..deferred_signals import room_for_a_turn
from ..identity import Identity
from ..mode_hooks import CUMULATIVE
from ..runtime import Runtime
from . import identities
from .errors import kafka_error
from .numbers import Numbers
from .outcomes import KafkaOutcomes
from .producer_sessions import Writing
from .producers import Producer, check_identity, here, pool_names
from .requests import Requests
from .schema import KafkaSchema
from .transactions import KafkaTransactions
from .views import KafkaViews

_EXPIRE_EVERY_MS = 600_000
_LOGS = {TRANSACTIONS: "transactions", GROUPS: "groups"}

_ERRORS = ("UNKNOWN_SERVER_ERROR", "UNKNOWN_TOPIC_OR_PARTITION")
"""Of a request whose tablet raised, and of one whose tablet was dropped."""


class KafkaHooks(ClientHooks):
    """Answers the face with producers, groups and transactional ids, as Kafka's clients have them."""

    mode = "kafka"
    request_rules = RULES
    acks = (CUMULATIVE,)
    by_name = identities
    client_transactions: KafkaTransactions
    in_place_views: KafkaViews
    client: Client[core.Client]
    writing: Writing
    requests: Requests
    numbers: Numbers

    def __init__(self, runtime: Runtime) -> None:
        assert isinstance(runtime.settings, KafkaSettings)
        self.settings = settings = runtime.settings
        gathering = Gathering(settings.batch_bytes, settings.linger_ms, settings.max_in_flight)
        super().__init__(runtime, gathering)
        is_open = runtime.turns.check_open
        self.in_place_views = KafkaViews(runtime.nodes, is_open, settings, runtime.rtt_ms)
        self._expire_at = 0

    # parts of the runtime -------------------------------------------------------------------

    def schema(self) -> KafkaSchema:
        return KafkaSchema(self)

    def transactions(self) -> KafkaTransactions:
        self.client_transactions = KafkaTransactions(self)
        return self.client_transactions

    def outcomes(self) -> KafkaOutcomes:
        return KafkaOutcomes(self)

    def new_client(self) -> Client[core.Client]:
        address = self.runtime.address
        client = core.Client(
            address, self.settings, self.coordinator_of, self.group_of, self.partition_words
        )
        return Client(self.runtime, address, client, Produce, _ERRORS)

    @property
    def pool_names(self) -> str:
        """Returns what the transactional ids of this process's pool begin with."""
        return pool_names(self.runtime.incarnation)

    def make_parts(self) -> None:
        self.writing = Writing(self)
        self.requests = Requests(self)
        self.numbers = Numbers(self)

    def error(self, name: str, where: str = "") -> PlanstepError:
        return kafka_error(name, where)

    def stats(self) -> dict[str, Any]:
        """Returns `coordinator_logs`: the buffered writers' counters (proto/batched_log.py), of
        transaction and of group coordinators, each by host."""
        return {
            "coordinator_logs": {
                name: self.log_counters(t for t in self.coordinators() if kind_of(t) == kind)
                for kind, name in _LOGS.items()
            }
        }

    def logs(self) -> Iterator[tuple[str, str, int, bytes, bool]]:
        for tablet in self.coordinators():
            owner = f"coordinator {host_of(tablet)}"
            yield _LOGS[kind_of(tablet)], owner, tablet, b"", self.settings.log_batching

    def coordinators(self) -> list[int]:
        kinds = (TRANSACTIONS, GROUPS)
        return [
            tablet_id(kind, number, 0) for kind in kinds for number in range(self.runtime.hosts)
        ]

    def untold(self) -> list[int]:
        in_use = (self.in_use(t) for t in self.coordinators() if kind_of(t) == TRANSACTIONS)
        return [part for one in in_use if one is not None for part in one.markers.unmarked]

    def coordinator_of(self, name: str) -> int:
        return coordinator_of(name, self.runtime.hosts)

    def group_of(self, group: str) -> int:
        return group_of(group, self.runtime.hosts)

    # questions of the face ------------------------------------------------------------------

    @property
    def protocol_version(self) -> int:
        return self.settings.protocol_version

    def one_at_a_time(self, individual: bool) -> bool:
        return True  # a producer has one transaction at a time

    def producer(self, name: str) -> Producer:
        check_identity(name)
        return self.writing.producer(name)

    def assign(self, tx: bytes, worker: "str | Producer | None") -> None:
        if isinstance(worker, str):
            check_identity(worker)
        super().assign(tx, worker)

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

    def fence(self, tx: bytes, consumer: str, generation: int, member: str) -> None:
        self.writing.fence(tx, consumer, generation, member)

    def wait_stable(self, tablet: int) -> None:
        """Waits until the transactions that have written so far have ended: a commit is answered before its markers
        are written. Raises KafkaError after max_block_ms."""
        seconds = self.settings.max_block_ms / 1000
        self.wait_until_shown(tablet, seconds, "CONCURRENT_TRANSACTIONS")

    def join(self, consumer: str, name: str) -> tuple[int, str]:
        room_for_a_turn()
        return self.requests.join(consumer, name)

    def rejoin(self, consumer: str, member: str) -> int:
        room_for_a_turn()
        return self.requests.rejoin(consumer, member)

    def leave(self, consumer: str, member: str) -> None:
        room_for_a_turn()
        self.requests.leave(consumer, member)

    def name_here(self, name: str) -> str:
        return f"{name}{here(self.runtime.incarnation)}"

    def client_left(self, incarnation: str) -> None:
        """Takes its members out of their groups, and aborts open transactions of its pool, and of workers that were
        given no name. Those of others end by their time-outs, or with the next worker of the name."""
        self.requests.leave_all(incarnation)
        stores = {n: node.host.store for n, node in enumerate(self.runtime.nodes) if not node.down}
        begin, end = pool_names(incarnation), here(incarnation)
        for name in identities.open_names(stores):
            of, _, number = name.rpartition("-")
            if number.isdigit() and (f"{of}-" == begin or (end and of.endswith(end))):
                self.writing.end_left(name)

    def transactional_ids(self, only_open: bool) -> list[Identity]:
        """Lists transactional ids: identities.py."""
        stores = {n: node.host.store for n, node in enumerate(self.runtime.nodes) if not node.down}
        now_ms = time.time_ns() // 1_000_000
        find = identities.under_way if only_open else identities.identities
        return find(stores, self.runtime.names, now_ms)

    def switch_log_batching(self, on: bool, logs: str) -> None:
        if logs == "pending acks":
            raise NotSupported(
                'mode "kafka" has no logs of pending acknowledgements: mode "pulsar" has them'
            )
        for tablet in self.coordinators():
            if logs == "both" or kind_of(tablet) == TRANSACTIONS:
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
