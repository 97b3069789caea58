"""Implements the hooks of mode "pulsar", and passes each to the part that handles it.

    begin, close, may_send ─▶ ../client_hooks.py      assign, flush … ─▶ writing.py

Next: writing.py, views.py.
"""

from collections.abc import Iterator
from functools import partial
from math import inf
from typing import Any

from ...coordinator.pulsar.invariants import violations as coordinator_violations
from ...errors import NotSupported, PlanstepError
from ...host.describe import part_name
from ...host.tablet_space import stored_tablets
from ...proto.batched_log import added
from ...proto.ids import TRANSACTIONS, host_of, parse_txn, tx_parse
from ...proto.pulsar.coordinators import coordinator_number, coordinator_tablet
from ...proto.pulsar.messages import Send, SwitchLog, TxnID
from ...proto.pulsar.request_rules import RULES
from ...proto.pulsar.settings import PulsarSettings
from ...proxy.pulsar import client as core
from ...tablets.pulsar.ack_log import LOG
from ...tablets.pulsar.invariants import violations as subscription_violations
from ...tablets.pulsar.rows import of_name
from ..client_hooks import ClientHooks, Gathering
from ..client_outcomes import ClientOutcomes
from ..core_client import Client
from ..mode_hooks import Redelivery
from ..open_transactions import OpenTransaction
from ..outcome import Outcome
from ..runtime import Runtime
from .administration import PulsarAdministration
from .errors import pulsar_error
from .numbers import Numbers
from .requests import Requests
from .schema import PulsarSchema
from .transactions import PulsarTransactions
from .views import PulsarViews
from .writing import Writing

_IN_FLIGHT = 64
"""The batches of a transaction that are sent before an answer has come; a producer's go one after the other."""


class PulsarOutcomes(ClientOutcomes):
    """Knows how the transactions of this process ended; open ones it finds at their coordinators."""

    def __init__(self, mode: "PulsarHooks") -> None:
        super().__init__(mode)
        self._pulsar = mode

    def of(self, tx: bytes | str) -> Outcome:
        if isinstance(tx, str) and tx.startswith("("):
            return self._of_txn(parse_txn(tx))
        outcome = super().of(tx)
        if outcome.state == "open" and self._pulsar.writing.is_aborted(tx_parse(outcome.tx)):
            return outcome._replace(state="aborted")
        return outcome

    def _of_txn(self, id: TxnID) -> Outcome:
        tx = self._pulsar.writing.tx_of(id)
        if tx is not None:
            return self.of(tx)
        is_open = any(one.tx == str(id) for one in self.under_way())
        return Outcome(str(id), "open" if is_open else "unknown", None, 0, ())

    def newest(self, limit: int = 100) -> list[Outcome]:
        raise NotSupported(
            'in mode "pulsar" coordinators know Pulsar\'s ids: db.open_transactions() lists what is live'
        )

    def under_way(self) -> list[OpenTransaction]:
        return self._pulsar.administration.open_transactions()

    def resolve(self, tx: bytes | str) -> Outcome:
        """Aborts a transaction of this engine that is open, or by a coordinator's id anyone's. PulsarError if its
        commit is decided already."""
        outcome = self.of(tx)
        if outcome.state != "open":
            return outcome
        if outcome.tx.startswith("("):  # an earlier process's
            self._pulsar.administration.abort(parse_txn(outcome.tx))
            return outcome._replace(state="aborted")
        id = self._pulsar.writing.txn_id(tx_parse(outcome.tx))
        if id is not None:
            self._pulsar.administration.abort(id)
        return self.of(tx)


_ERRORS = ("UnknownError", "TopicNotFound")
"""Of a request whose tablet raised, and of one whose tablet was dropped."""


class PulsarHooks(ClientHooks):
    """Answers the face as Pulsar's clients do: no identities, no groups."""

    mode = "pulsar"
    request_rules = RULES
    by_txn_id = True
    client_transactions: PulsarTransactions
    in_place_views: PulsarViews
    client: Client[core.Client]
    writing: Writing
    requests: Requests
    numbers: Numbers

    def __init__(self, runtime: Runtime) -> None:
        assert isinstance(runtime.settings, PulsarSettings)
        self.settings = settings = runtime.settings
        super().__init__(runtime, Gathering(settings.batch_bytes, 0.0, _IN_FLIGHT))
        timeout = settings.ack_timeout_ms / 1000 or inf
        self.redelivery = Redelivery(settings.nack_redelivery_delay_ms / 1000, timeout)
        is_open = runtime.turns.check_open
        self.in_place_views = PulsarViews(runtime.nodes, is_open, settings, runtime.rtt_ms)

    # parts of the runtime -------------------------------------------------------------------

    def schema(self) -> PulsarSchema:
        return PulsarSchema(self)

    def transactions(self) -> PulsarTransactions:
        self.client_transactions = PulsarTransactions(self)
        return self.client_transactions

    def outcomes(self) -> PulsarOutcomes:
        return PulsarOutcomes(self)

    def new_client(self) -> Client[core.Client]:
        address, words = self.runtime.address, self.partition_words
        client = core.Client(address, self.settings, self.coordinators(), words)
        return Client(self.runtime, address, client, Send, _ERRORS)

    def make_parts(self) -> None:
        self.writing = Writing(self)
        self.requests = Requests(self)
        self.numbers = Numbers(self)
        self._administration = PulsarAdministration(self)

    def error(self, name: str, where: str = "") -> PlanstepError:
        return pulsar_error(name, where)

    def stats(self) -> dict[str, Any]:
        """Returns `coordinator_logs`: the buffered writers' counters (proto/batched_log.py), of transactions by
        coordinator, of pending acknowledgements by host."""
        pending: dict[int, list[dict[str, Any]]] = {}
        for tablet in self.partitions():
            partition = self.in_use(tablet)
            counters = None if partition is None else partition.subscriptions.logs.counters()
            if counters:
                pending.setdefault(host_of(tablet), []).append(counters)
        return {
            "coordinator_logs": {
                "transactions": self.log_counters(self.coordinators()),
                "pending_acks": {host: added(several) for host, several in pending.items()},
            }
        }

    def partitions(self) -> list[int]:
        topics = list(self.runtime.names.topics.values())
        return [tablet for topic in topics for tablet in topic.partitions]

    def logs(self) -> Iterator[tuple[str, str, int, bytes, bool]]:
        settings, names = self.settings, self.runtime.names
        for number, tablet in enumerate(self.coordinators()):
            yield "transactions", f"coordinator {number}", tablet, b"", settings.log_batching
        for tablet in filter(self.up, self.partitions()):
            for consumer in self.in_place_views.consumers(tablet):
                owner, prefix = f"{part_name(names, tablet)} for {consumer}", of_name(LOG, consumer)
                yield "pending acks", owner, tablet, prefix, settings.ack_log_batching

    def coordinators(self) -> list[int]:
        """Returns the transaction coordinators' tablets, by number: those asked for, and all that have rows."""
        hosts = self.runtime.hosts
        stored = (
            coordinator_number(int.from_bytes(prefix, "big"), hosts) + 1
            for node in self.runtime.nodes
            if not node.down
            for prefix in stored_tablets(node.host.store, node.host.number, (TRANSACTIONS,))
        )
        count = max(self.settings.coordinators or hosts, *stored, 0)
        return [coordinator_tablet(number, hosts) for number in range(count)]

    @property
    def administration(self) -> PulsarAdministration:
        return self._administration

    # questions of the face ------------------------------------------------------------------

    def one_at_a_time(self, individual: bool) -> bool:
        return (
            not individual
        )  # a second cumulative acknowledgement conflicts with one that is pending

    def check_ack_each(self, individual: bool) -> None:
        if not individual:
            raise NotSupported(
                'ack="each": a cumulative consumer acknowledges a position; kind="individual" has records'
            )

    def acknowledge_each(self, tx: bytes, tablet: int, consumer: str, offsets: list[int]) -> None:
        self.writing.acknowledge_each(tx, tablet, consumer, offsets)

    def check_exclusive(self, busy: str = "") -> None:
        if busy:
            raise pulsar_error("ConsumerBusy", busy)

    def txn_id(self, tx: bytes) -> TxnID | None:
        return self.writing.txn_id(tx)

    def producer(self, name: str) -> str:
        return name

    def made_up(self, producer: bytes) -> None:
        self.numbers.made_up(producer)

    def wait_stable(self, tablet: int) -> None:
        """Waits until the transactions that have written so far have ended: what an earlier process left open is
        aborted after its time-out. PulsarError if it takes longer."""
        milliseconds = self.settings.transaction_timeout_ms + self.settings.operation_timeout_ms
        self.wait_until_shown(tablet, milliseconds / 1000, "Timeout")

    def problems(self) -> Iterator[tuple[str, str]]:
        names, rows = self.runtime.names, self.in_place_views.rows
        for number, tablet in enumerate(self.coordinators()):
            for text in coordinator_violations(rows(tablet)):
                yield f"transaction coordinator {number}", text
        for tablet in self.partitions():
            for text in subscription_violations(rows(tablet)):
                yield part_name(names, tablet), text

    def switch_log_batching(self, on: bool, logs: str) -> None:
        if logs != "pending acks":
            self.switch_logs(self.coordinators(), on)
        if logs != "transactions":
            note = partial(SwitchLog, on, pending_acks=True)
            self.requests.request(self.coordinators()[0], note)
            self.switch_logs(self.partitions(), on)

    def switch_logs(self, tablets: list[int], on: bool) -> None:
        for tablet in tablets:
            self.requests.request(tablet, lambda client, number: SwitchLog(on, client, number))
