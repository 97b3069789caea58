"""Adapts the modes whose records lie in the log before they are committed.

    InPlace ─┬─ Kafka ── KafkaTwo       version 2 of the protocol
             └─ Pulsar ── PulsarKept    its coordinators remember ended transactions

They hold clients' requests, their answers, and the ends of transactions. Sent records are written, and ends told
to their participants, before each line runs, except what is held. Next: sides.py.
"""

import dataclasses
import time
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from side import Side, once

import planstep
from planstep.coordinator.kafka.states import ONGOING, PREPARED, Transaction
from planstep.coordinator.pulsar.states import DECIDED, row_of
from planstep.coordinator.pulsar.states import Transaction as PulsarTransaction
from planstep.proto.ids import PARTITION, TRANSACTIONS, host_of, kind_of, tablet_id, tablet_prefix
from planstep.proto.kafka.messages import (
    COMMIT,
    PLAIN,
    TRANSACTIONAL,
    EndTxn,
    InitProducer,
    Marker,
    Produce,
    TrimTo,
)
from planstep.proto.kafka.settings import KafkaSettings
from planstep.proto.pulsar import messages as pulsar
from planstep.proto.pulsar.messages import TxnID
from planstep.proto.shell import Answer
from planstep.runtime.network import HeldLine

QUICK = KafkaSettings(
    marker_retry_ms=60_000, retry_backoff_ms=5, concurrent_backoff_ms=5, max_block_ms=20_000
)


class InPlace(Side):
    """A mode whose clients stand outside of the hosts."""

    commits: ClassVar[type]
    sends: ClassVar[type]
    trims: ClassVar[type]
    """Clients' requests: to end a transaction, to write a batch, to trim a partition."""

    def __init__(self, db: planstep.Engine) -> None:
        super().__init__(db)
        self.hooks = self.runtime.hooks
        self.through = self.hooks.client.line
        self.line: HeldLine | None = None
        self.late = ""
        # Partitions where the ends of transactions are held; None: all.
        self.waiting: tuple[int, ...] | None = ()

    def settle(self) -> None:
        """Waits until sent records are written and decided transactions ended, except what is held back."""
        deadline = time.monotonic() + 60
        while self.is_under_way():
            assert time.monotonic() < deadline, "it does not settle"
            time.sleep(0.0005)

    def is_under_way(self) -> bool:
        return self.late != self.sends.__name__ and (self.is_sending() or self.is_ending())

    @abstractmethod
    def is_sending(self) -> bool: ...

    @abstractmethod
    def is_ending(self) -> bool:
        """Returns whether a transaction has ends under way that are not held back."""

    def submitted(self, tx: str) -> None:
        """Returns at once: the request to commit is already under way."""

    def rows(self) -> list[tuple[bytes, Any]]:
        """Returns the coordinators' rows: of transactional ids, of transactions."""
        return [row for node in self.runtime.nodes for row in self.rows_of(node)]

    def rows_of(self, node: Any) -> list[tuple[bytes, Any]]:
        own = tablet_prefix(tablet_id(TRANSACTIONS, node.host.number, 0))
        return list(node.host.store.scan(own + b"t", own + b"u"))

    # held messages

    def hold_ends(self, tablet: int) -> None:
        self.waiting = (tablet,)
        super().hold_ends(tablet)

    def hold_markers(self) -> str:
        self.waiting = None
        self.held.holds = lambda target, message: isinstance(message, self.ends)
        return "ok"

    def hold_commit(self) -> None:
        is_first = once(lambda message: type(message) is self.commits)
        self.hold_requests(self.commits.__name__, is_first)

    def hold_batch(self) -> None:
        self.hold_requests(self.sends.__name__, lambda message: type(message) is self.sends)

    def hold_answer(self) -> str:
        asked: list[int] = []

        def holds(message: Any) -> bool:
            if type(message) is self.commits and not asked:
                asked.append(message.request)
            if type(message) is not Answer or asked != [message.request]:
                return False
            asked.append(0)
            self.repeat(message.request)
            return True

        self.hold_requests("Answer", holds)
        return "ok"

    def hold_requests(self, late: str, holds: Callable[[Any], bool]) -> None:
        self.late = late
        self.through = self.hooks.client.line
        self.line = self.hooks.client.line = HeldLine(self.through, holds)

    def repeat(self, request: int) -> None:
        """Lets the client ask again soon, as if it had waited for request_timeout_ms."""
        self.runtime.turns.delays.after(1.0, partial(self.waited, request))

    def waited(self, request: int) -> None:
        client = self.hooks.client
        with client.locked():
            client.core.wake(request)
        client.deliver()

    def let_go(self) -> list[str]:
        kinds = super().let_go()
        if self.line is not None:
            kinds += [self.late] * len(self.line.held)
            self.hooks.client.line = self.through
            self.line.let_go()
            self.line, self.late = None, ""
            self.received()
        self.waiting = ()
        return kinds

    def received(self) -> None:
        """Waits until requests that were let go are handled: the answers to later ones prove it."""
        tablet = int(self.runtime.names.topics["a"].partitions[0])
        self.hooks.requests.request(tablet, partial(self.trims, offset=0))


class Kafka(InPlace):
    mode = "kafka"
    version: ClassVar[int] = 1
    numbers = frozenset(field.name for field in dataclasses.fields(KafkaSettings))
    ends = (Marker,)
    commits, sends, trims = EndTxn, Produce, TrimTo

    @classmethod
    def settings(cls, values: dict[str, int]) -> dict[str, KafkaSettings]:
        own = dataclasses.replace(QUICK, protocol_version=cls.version)
        return {"kafka": dataclasses.replace(own, **values)}

    # messages under way

    def is_under_way(self) -> bool:
        return self.waiting is not None and super().is_under_way()

    def is_sending(self) -> bool:
        client = self.hooks.client
        with client.locked():
            for tx, opened in self.hooks.writing.open.items():
                producer = opened.producer
                if opened.ending:
                    return True
                if producer.tx == tx and producer.dead is None:
                    core = client.core._producers.get(producer.handle)
                    running = core is None or core.state.name == "IN_TRANSACTION"
                    if running and client.outstanding(tx):
                        return True
        return False

    def is_ending(self) -> bool:
        return any(map(self.is_marking, self.transactions()))

    def is_marking(self, row: Transaction) -> bool:
        """Returns whether a decided transaction still has messages under way that are not held back."""
        held = set(row.partitions) & set(self.waiting or ())
        others = set(row.partitions) - held
        return row.state in PREPARED and (
            not held or any(self.is_open_at(tablet, row.producer) for tablet in others)
        )

    def is_open_at(self, tablet: int, producer: int) -> bool:
        """Returns whether the partition or group coordinator has not heard of the transaction's end."""
        store, prefix = self.runtime.nodes[host_of(tablet)].host.store, tablet_prefix(tablet)
        if kind_of(tablet) == PARTITION:
            return any(row == producer for _, row in store.scan(prefix + b"o", prefix + b"p"))
        pending = producer.to_bytes(8, "big")
        return any(key.endswith(pending) for key, _ in store.scan(prefix + b"n", prefix + b"o"))

    def transactions(self) -> list[Transaction]:
        return [Transaction(*row) for _, row in self.rows()]

    # held messages, and an operator

    def received(self) -> None:
        make = partial(InitProducer, name="nobody", timeout_ms=60_000)
        self.hooks.requests.request(self.hooks.coordinator_of("w1"), make)
        super().received()

    def abort_open(self) -> int:
        """Fences the producers of open transactions, as Kafka's fenceProducers does."""
        open_now = [
            key[5:].decode() for key, row in self.rows() if Transaction(*row).state == ONGOING
        ]
        for name in open_now:
            make = partial(InitProducer, name=name, timeout_ms=60_000)
            self.hooks.requests.request(self.hooks.coordinator_of(name), make)
        return len(open_now)

    # stored records

    def marker(self, entry: list[Any]) -> str:
        kind = entry[3]
        if kind in (PLAIN, TRANSACTIONAL):
            return ""
        return f"{'commit' if kind == COMMIT else 'abort'}({self.name_of(entry[0])})"

    def writer(self, entry: list[Any]) -> str:
        return f"{self.name_of(entry[0])}:" if entry[3] == TRANSACTIONAL else ""

    def name_of(self, producer: int) -> str:
        return next(key[5:].decode() for key, row in self.rows() if row[0] == producer)


class KafkaTwo(Kafka):
    version = 2
    like = "kafka"


class Pulsar(InPlace):
    mode = "pulsar"
    ends = (pulsar.EndTxnOnPartition, pulsar.EndTxnOnSubscription)
    commits, sends, trims = pulsar.EndTxn, pulsar.Send, pulsar.TrimTo
    ended_kept: ClassVar[int] = 0

    @classmethod
    def settings(cls, values: dict[str, int]) -> dict[str, planstep.PulsarSettings]:
        own = planstep.PulsarSettings(
            retry_backoff_ms=5, end_retry_ms=60_000, ended_kept=cls.ended_kept
        )
        return {"pulsar": own}

    # messages under way

    def is_sending(self) -> bool:
        client = self.hooks.client
        with client.locked():
            return any(client.core.outstanding(tx) for tx in self.hooks.writing.open)

    def is_ending(self) -> bool:
        client = self.hooks.client
        with client.locked():
            opened = self.hooks.writing.open
            mine = [client.core.id(tx) for tx, row in opened.items() if row.ending]
        rows = self.transactions()
        return any(id not in rows for id in mine) or any(
            self.is_told(id, row) for id, row in rows.items() if row.state in DECIDED or id in mine
        )

    def is_told(self, id: TxnID, row: PulsarTransaction) -> bool:
        """Returns whether a transaction is not decided yet, or has ends under way that are not held back."""
        tablets = {tablet for tablet, _ in row.participants}
        held = {tablet for tablet in tablets if self.waiting is None or tablet in self.waiting}
        return (
            row.state not in DECIDED
            or not held
            or any(self.is_open_at(tablet, id) for tablet in tablets - held)
        )

    def is_open_at(self, tablet: int, id: TxnID) -> bool:
        """Returns whether the transaction is ongoing at a partition that it wrote to."""
        store, prefix = self.runtime.nodes[host_of(tablet)].host.store, tablet_prefix(tablet)
        return any(TxnID(*row) == id for _, row in store.scan(prefix + b"o", prefix + b"p"))

    def transactions(self) -> dict[TxnID, PulsarTransaction]:
        # One coordinator a host, under its number.
        return {
            TxnID(number, int.from_bytes(key[-8:], "big")): row_of(value)
            for number, node in enumerate(self.runtime.nodes)
            for key, value in self.rows_of(node)
        }

    # held messages, and an operator

    def hold_requests(self, late: str, holds: Callable[[Any], bool]) -> None:
        def is_held(message: Any) -> bool:
            held = holds(message)
            if held and type(message) is self.commits:
                self.repeat(message.request)
            return held

        super().hold_requests(late, is_held)

    def abort_open(self) -> int:
        open_now = [one.tx for one in self.db.open_transactions() if one.state == "OPEN"]
        for txn in open_now:
            self.db.abort_transaction(txn)
        return len(open_now)

    # stored records

    def marker(self, entry: list[Any]) -> str:
        kind = entry[0]
        return "" if kind in (PLAIN, TRANSACTIONAL) else "commit" if kind == COMMIT else "abort"


class PulsarKept(Pulsar):
    only_where_told = True
    ended_kept = 100
