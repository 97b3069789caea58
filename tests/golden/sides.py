"""Adapts each mode to the scripts: opens it, waits for it, holds messages back, reads its stored records.

    Side ─┬─ Deterministic   holds proposals, plans, votes
          ├─ Kafka           holds clients' requests, markers; sent records are written before each line runs
          │   └─ KafkaTwo    version 2 of the protocol
          └─ Pulsar          holds nothing; sent records are written before each line runs

A further mode is one more class, in SIDES under the name of its files of answers. Next: spoken.py.
"""

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from scripted import HeldMessages

import planstep
from planstep.coordinator.kafka.states import PREPARED, Transaction
from planstep.proto.batch import Batch
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
from planstep.proto.messages import Plan, Propose, ReadSet
from planstep.proto.pulsar.messages import EndTxnOnPartition
from planstep.runtime.network import HeldLine

QUICK = KafkaSettings(
    marker_retry_ms=60_000, retry_backoff_ms=5, concurrent_backoff_ms=5, max_block_ms=20_000
)


class Side(ABC):
    """One open store in one mode."""

    mode: ClassVar[str]
    like: ClassVar[str] = ""
    """The side whose answers are expected if this one has no file of its own."""
    only_where_told: ClassVar[bool] = False
    """Whether the side runs only the scripts for which it has a file of answers."""
    numbers: ClassVar[frozenset[str]] = frozenset()
    """Settings of the mode that a script may name."""
    has_tables: ClassVar[bool] = False
    ends: ClassVar[tuple[type, ...]]
    """Messages that end a transaction at a partition."""

    def __init__(self, db: planstep.Engine) -> None:
        self.db = db
        self.runtime: Any = db._runtime
        self.held = HeldMessages(self.runtime)

    @classmethod
    def settings(cls, values: dict[str, int]) -> dict[str, Any]:
        """Returns the mode's arguments for `planstep.open` from a script's settings."""
        return {}

    @abstractmethod
    def settle(self) -> None:
        """Waits until only held-back messages are under way."""

    @abstractmethod
    def submitted(self, tx: str) -> None:
        """Waits until the transaction can no longer be withdrawn."""

    def hold_ends(self, tablet: int) -> None:
        self.held.holds = lambda target, message: (
            isinstance(message, self.ends) and target == tablet
        )

    def hold_markers(self) -> str:
        return "there are none"

    @abstractmethod
    def hold_commit(self) -> None: ...

    @abstractmethod
    def hold_batch(self) -> None: ...

    def let_go(self) -> list[str]:
        """Lets all held messages go; returns their kinds."""
        return self.held.let_go()

    def stored(self, tablet: int) -> list[str]:
        """Returns a partition's stored records and markers, in order."""
        store = self.runtime.views._nodes[host_of(tablet)].host.store
        prefix = tablet_prefix(tablet) + b"b"
        texts = []
        for key, (address, length, _, *entry) in store.scan(prefix, prefix + b"\xff" * 9):
            first = int.from_bytes(key[-8:], "big")
            marker = self.marker(entry)
            if marker:
                texts.append(f"{marker}@{first}")
                continue
            values = Batch.decode(store.read_payload(address, length)).values
            for number, value in enumerate(values):
                texts.append(f"{self.writer(entry)}{(value or b'').decode()}@{first + number}")
        return texts

    def marker(self, entry: list[Any]) -> str:
        """Returns a marker's text, "" for records."""
        return ""

    def writer(self, entry: list[Any]) -> str:
        """Returns the prefix that names a record's writer, in modes that store it."""
        return ""


class Deterministic(Side):
    mode = "deterministic"
    has_tables = True
    ends = (Plan, ReadSet)

    def settle(self) -> None:
        """Returns at once: this mode writes and marks nothing in the background."""

    def submitted(self, tx: str) -> None:
        while self.db.outcome(tx).state == "open":
            time.sleep(0.0005)

    def hold_commit(self) -> None:
        is_first = _once(lambda message: type(message) is Propose)
        self.held.holds = lambda target, message: kind_of(target) == PARTITION and is_first(message)

    def hold_batch(self) -> None:
        self.hold_commit()  # written records go with the proposal


class Kafka(Side):
    mode = "kafka"
    version: ClassVar[int] = 1
    numbers = frozenset(field.name for field in dataclasses.fields(KafkaSettings))
    ends = (Marker,)

    def __init__(self, db: planstep.Engine) -> None:
        super().__init__(db)
        self.hooks = self.runtime.hooks
        self.through = self.hooks.client.line
        self.line: HeldLine | None = None
        self.late: type = EndTxn
        # Partitions where the ends of transactions are held; None: all.
        self.waiting: tuple[int, ...] | None = ()

    @classmethod
    def settings(cls, values: dict[str, int]) -> dict[str, KafkaSettings]:
        own = dataclasses.replace(QUICK, protocol_version=cls.version)
        return {"kafka": dataclasses.replace(own, **values)}

    # messages under way

    def settle(self) -> None:
        """Waits until sent records are written and decided transactions marked, except held-back ones."""
        deadline = time.monotonic() + 60
        while self.is_under_way():
            assert time.monotonic() < deadline, "it does not settle"
            time.sleep(0.0005)

    def is_under_way(self) -> bool:
        if self.waiting is None or (self.line is not None and self.late is Produce):
            return False
        return self.is_sending() or any(map(self.is_marking, self.transactions()))

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
        return [Transaction(*row) for _, row in self.coordinators()]

    def coordinators(self) -> list[tuple[bytes, Any]]:
        """Returns the coordinators' rows of transactional ids."""
        rows = []
        for node in self.runtime.nodes:
            own = tablet_prefix(tablet_id(TRANSACTIONS, node.host.number, 0))
            rows += list(node.host.store.scan(own + b"t", own + b"u"))
        return rows

    def submitted(self, tx: str) -> None:
        """Returns at once: the request to commit is already under way."""

    # held messages

    def hold_ends(self, tablet: int) -> None:
        self.waiting = (tablet,)
        super().hold_ends(tablet)

    def hold_markers(self) -> str:
        self.waiting = None
        self.held.holds = lambda target, message: isinstance(message, Marker)
        return "ok"

    def hold_commit(self) -> None:
        self.hold_requests(EndTxn, _once(lambda message: type(message) is EndTxn))

    def hold_batch(self) -> None:
        self.hold_requests(Produce, lambda message: type(message) is Produce)

    def hold_requests(self, late: type, holds: Callable[[Any], bool]) -> None:
        self.late = late
        self.through = self.hooks.client.line
        self.line = self.hooks.client.line = HeldLine(self.through, holds)

    def let_go(self) -> list[str]:
        kinds = super().let_go()
        if self.line is not None:
            kinds += [self.late.__name__] * len(self.line.held)
            self.hooks.client.line = self.through
            self.line.let_go()
            self.line = None
            # The answer to one more request proves that the held one was received.
            make = partial(InitProducer, name="nobody", timeout_ms=60_000)
            self.hooks.requests.request(self.hooks.coordinator_of("w1"), make)
            tablet = int(self.runtime.names.topics["a"].partitions[0])
            self.hooks.requests.request(tablet, partial(TrimTo, offset=0))
        self.waiting = ()
        return kinds

    # stored records

    def marker(self, entry: list[Any]) -> str:
        kind = entry[3]
        if kind in (PLAIN, TRANSACTIONAL):
            return ""
        return f"{'commit' if kind == COMMIT else 'abort'}({self.name_of(entry[0])})"

    def writer(self, entry: list[Any]) -> str:
        return f"{self.name_of(entry[0])}:" if entry[3] == TRANSACTIONAL else ""

    def name_of(self, producer: int) -> str:
        return next(key[5:].decode() for key, row in self.coordinators() if row[0] == producer)


class KafkaTwo(Kafka):
    version = 2
    like = "kafka"


class Pulsar(Side):
    mode = "pulsar"
    only_where_told = True
    numbers = frozenset(field.name for field in dataclasses.fields(planstep.PulsarSettings))
    ends = (EndTxnOnPartition,)

    @classmethod
    def settings(cls, values: dict[str, int]) -> dict[str, planstep.PulsarSettings]:
        own = planstep.PulsarSettings(retry_backoff_ms=5, end_retry_ms=60_000)
        return {"pulsar": dataclasses.replace(own, **values)}

    def settle(self) -> None:
        """Waits until sent records are written, and what was rolled back has its end."""
        client, deadline = self.runtime.hooks.client, time.monotonic() + 60
        while True:
            with client.locked():
                opened = self.runtime.hooks.writing.open
                if not any(row.ending or client.outstanding(tx) for tx, row in opened.items()):
                    return
            assert time.monotonic() < deadline, "it does not settle"
            time.sleep(0.0005)

    def submitted(self, tx: str) -> None:
        """Returns at once: the request to commit is already under way."""

    def hold_commit(self) -> None:
        raise NotImplementedError

    def hold_batch(self) -> None:
        raise NotImplementedError

    def marker(self, entry: list[Any]) -> str:
        kind = entry[0]
        return "" if kind in (PLAIN, TRANSACTIONAL) else "commit" if kind == COMMIT else "abort"


SIDES: dict[str, type[Side]] = {
    "deterministic": Deterministic,
    "kafka": Kafka,
    "kafka-2": KafkaTwo,
    "pulsar": Pulsar,
}


def _once(wanted: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Returns a condition that holds for the first wanted message, not for its repeats."""
    matches: list[Any] = []

    def is_first(message: Any) -> bool:
        if not matches and wanted(message):
            matches.append(message)
            return True
        return False

    return is_first
