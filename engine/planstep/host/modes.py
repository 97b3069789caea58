"""Defines the modes: which tablets each one runs, and `Shell`, the services of a host for tablets with memory.

    deterministic   partition, shard, and the coordinator that gives places
    kafka           partition with data in place, transaction and group coordinators
    pulsar          partition with data in place and its subscriptions, transaction coordinators

All modes share the catalogue and its coordinator: planned transactions create and drop names. No mode runs
another's tablets.

Next: host.py.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..coordinator import plan
from ..coordinator.kafka import describe as logs_in_words
from ..coordinator.kafka import groups, transactions
from ..coordinator.pulsar import describe as pulsar_logs_in_words
from ..coordinator.pulsar import transactions as pulsar_coordinators
from ..proto.ids import (
    CATALOGUE,
    COORDINATOR,
    GROUPS,
    PARTITION,
    SHARD,
    TRANSACTIONS,
)
from ..proto.kafka import messages as kafka
from ..proto.kafka.settings import KafkaSettings
from ..proto.messages import Cause, Message
from ..proto.mode_settings import ModeSettings
from ..proto.pulsar import messages as pulsar
from ..proto.pulsar.settings import PulsarSettings
from ..proto.shell import Answer
from ..tablets import catalogue, describe, partition, shard
from ..tablets.kafka import describe as entries_in_words
from ..tablets.kafka import partition as kafka_tablets
from ..tablets.pulsar import describe as pulsar_entries_in_words
from ..tablets.pulsar import partition as pulsar_tablets
from .delivery import Delivery, RequestOf

Tell = Callable[[Callable[[int], str], int, bytes, Any], Iterator[str]]
"""(function that names a tablet, tablet, key after the letter, value) → lines for people."""


class Words(NamedTuple):
    """Functions that turn a mode's own rows into words for people (describe.py)."""

    entry_columns: tuple[str, ...]
    """The fields of `entry_fields` that a table shows."""
    entry_fields: Callable[..., dict[str, Any]]
    """Names what a partition's entry holds after address, length and number of records."""
    entry_text: Callable[[dict[str, Any]], str]
    rows: Mapping[tuple[int, bytes], Tell]
    """By a tablet's kind and the first letter of a key."""
    deleted: Mapping[tuple[int, bytes], Tell] = MappingProxyType({})
    """Those of which people look for the deletion."""


class Mode(NamedTuple):
    """Tablets of `planned` are made with (tablet, space, send), those of `others` with (tablet, space, shell)."""

    name: str
    planned: dict[int, Any]
    others: dict[int, Any]
    words: Words
    settings: Callable[[], ModeSettings] = ModeSettings
    """Makes the default settings."""
    begun: tuple[int, ...] = ()
    """Kinds of tablet that begin in the host's first turn: number 0, and each that has rows."""
    no_space: Callable[[Message, int], Answer | None] = lambda message, target: None
    """(message, target), on a full disk: the answer that refuses what would take space; None lets it pass."""
    request_of: RequestOf | None = None


MODES = {
    "deterministic": Mode(
        "deterministic",
        {
            PARTITION: partition.Partition,
            SHARD: shard.Shard,
            CATALOGUE: catalogue.Catalogue,
            COORDINATOR: plan.Coordinator,
        },
        {},
        Words(
            describe.ENTRY_COLUMNS,
            describe.entry_fields,
            describe.entry_text,
            {
                (PARTITION, b"c"): describe.position,
                (PARTITION, b"s"): describe.staged,
                (PARTITION, b"t"): describe.proposal,
                (SHARD, b"t"): describe.proposal,
            },
        ),
    ),
    "kafka": Mode(
        "kafka",
        {CATALOGUE: catalogue.Catalogue, COORDINATOR: plan.Coordinator},
        {
            PARTITION: kafka_tablets.Partition,
            TRANSACTIONS: transactions.Transactions,
            GROUPS: groups.Groups,
        },
        Words(
            entries_in_words.ENTRY_COLUMNS,
            entries_in_words.entry_fields,
            entries_in_words.entry_text,
            {
                (TRANSACTIONS, b"l"): logs_in_words.logged,
                (GROUPS, b"l"): logs_in_words.logged,
                (GROUPS, b"g"): logs_in_words.members,
            },
        ),
        settings=KafkaSettings,
        begun=(TRANSACTIONS, GROUPS),
        no_space=kafka.no_space,
        request_of=kafka.request_of,
    ),
    "pulsar": Mode(
        "pulsar",
        {CATALOGUE: catalogue.Catalogue, COORDINATOR: plan.Coordinator},
        {PARTITION: pulsar_tablets.Partition, TRANSACTIONS: pulsar_coordinators.Transactions},
        Words(
            pulsar_entries_in_words.ENTRY_COLUMNS,
            pulsar_entries_in_words.entry_fields,
            pulsar_entries_in_words.entry_text,
            {
                (TRANSACTIONS, b"l"): pulsar_logs_in_words.logged,
                (PARTITION, b"l"): pulsar_entries_in_words.acknowledged,
                (PARTITION, b"c"): pulsar_entries_in_words.cursor,
            },
            {(TRANSACTIONS, b"t"): pulsar_logs_in_words.ended},
        ),
        settings=PulsarSettings,
        begun=(TRANSACTIONS,),
        no_space=pulsar.no_space,
    ),
}


class Shell:
    """Shows one tablet with memory of its own what it may use of its host (proto.shell.Shell)."""

    __slots__ = ("_delivery", "_tablet", "epoch", "hosts", "send", "settings")

    def __init__(
        self,
        tablet: int,
        delivery: Delivery,
        settings: ModeSettings,
        epoch: int,
        hosts: int,
    ) -> None:
        self._tablet = tablet
        self._delivery = delivery
        self.hosts = hosts
        self.settings = settings
        self.epoch = epoch
        self.send = delivery.send

    @property
    def now_ms(self) -> int:
        return self._delivery.now_ms

    @property
    def on_reserve(self) -> bool:
        return self._delivery.on_reserve

    @property
    def cause(self) -> Cause:
        return self._delivery.cause

    @cause.setter
    def cause(self, cause: Cause) -> None:
        """Sets the cause of resumed work, with at least as many hops as what it waited for."""
        tx, hops = self._delivery.cause
        if cause and cause[0] == tx:
            cause = (tx, max(hops, cause[1]))
        self._delivery.cause = cause

    def after_durable(self, target: int, message: Any) -> None:
        self._delivery.after_durable(target, message)

    def decided(self) -> None:
        self._delivery.spent[self._delivery.cause[0]].decided = True

    def soon(self, message: Any) -> None:
        self._delivery.waiting.append((self._tablet, message, self._delivery.cause))

    def later(self, delay_ms: float, message: Any) -> None:
        self._delivery.wake(delay_ms, self._tablet, message)

    def appended(self, share: float = 1.0, visible: bool = False) -> None:
        """Counts a log record of the tablet, or a share of one, for the running cause."""
        delivery = self._delivery
        tx, hops = delivery.cause
        spent = delivery.spent[tx]
        spent.appends += share
        if hops > spent.hops:
            spent.hops = hops
        delivery.stepped(self._tablet, delivery.handling)
        if visible:
            spent.visible = True
            delivery.visible[self._tablet] = None
