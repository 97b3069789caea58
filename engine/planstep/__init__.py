"""Planstep commits topics and tables together, in one order, inside your process.

    db = planstep.open("shop.planstep")
    db.create_topic("clicks", partitions=16, exist_ok=True)
    db.create_table("totals", exist_ok=True)
    with db.transaction() as tx:
        tx.write("clicks", b"…", key="u1")
        tx.add("totals", "u1", 1)

Next: api/__init__.py.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .api.open_engine import open
from .errors import (
    Aborted,
    AlreadyExists,
    Conflict,
    Corruption,
    Diverged,
    Dropped,
    EngineClosed,
    Fenced,
    ForeignPeer,
    ForkedProcess,
    FormatError,
    HostStopped,
    InvalidKey,
    InvalidName,
    IoError,
    KafkaError,
    KeyTooLong,
    LeaseLost,
    LogUnreachable,
    MissingExtra,
    NoCommonType,
    NoSpace,
    NotSupported,
    OffsetOutOfRange,
    OutcomeExpired,
    Overloaded,
    OwnedElsewhere,
    OwnerSilent,
    PlanstepError,
    ProcessingError,
    ProducerFenced,
    ProtocolError,
    PulsarError,
    RecordTooLarge,
    Refused,
    SequenceError,
    SnapshotTooOld,
    StoreClosed,
    StoreInUse,
    TooManyGaps,
    TooManyOpen,
    TooManyReaders,
    TooManyTakeovers,
    TransactionClosed,
    TransactionTooLarge,
    Trimmed,
    Undetermined,
    UnknownName,
    WrongMode,
)

if TYPE_CHECKING:
    from . import metrics, testing
    from .aio import (
        AsyncCommitHandle,
        AsyncEngine,
        AsyncLeased,
        AsyncReader,
        AsyncSnapshotView,
        AsyncTable,
        AsyncTopic,
        AsyncTransaction,
        AsyncWriter,
        open_async,
    )
    from .api.columns.batch import ReadBatch, Record, Rows
    from .api.engine import Engine
    from .api.follower import Follower, follow
    from .api.snapshot import SnapshotView
    from .api.tables.table import Table, TableDescription
    from .api.topics.changelog import Changelog
    from .api.topics.description import (
        ConsumerDescription,
        ConsumerPosition,
        PartitionBounds,
        TopicDescription,
        Written,
    )
    from .api.topics.leased_transaction import Leased
    from .api.topics.process_policy import Progress
    from .api.topics.reader import Reader
    from .api.topics.topic import Topic
    from .api.topics.writer import Writer
    from .api.transaction.lifecycle import CommitHandle
    from .api.transaction.transaction import Transaction
    from .proto.ids import Place
    from .proto.kafka.settings import KafkaSettings
    from .proto.log_report import LogReport
    from .proto.pulsar.messages import TxnID
    from .proto.pulsar.settings import PulsarSettings
    from .runtime.administration import (
        BufferStats,
        CoordinatorStats,
        LogBatches,
        PendingAck,
        PositionState,
    )
    from .runtime.backup import Backup, restore
    from .runtime.follower import Lag
    from .runtime.identity import Identity, Waiting
    from .runtime.ledger import Costs, Phases
    from .runtime.open_transactions import Held, OpenTransaction
    from .runtime.outcome import Commit, Outcome
    from .shared.settings import Replicate

__version__ = "0.1.0"

__all__ = [
    "Aborted",
    "AlreadyExists",
    "AsyncCommitHandle",
    "AsyncEngine",
    "AsyncLeased",
    "AsyncReader",
    "AsyncSnapshotView",
    "AsyncTable",
    "AsyncTopic",
    "AsyncTransaction",
    "AsyncWriter",
    "Backup",
    "BufferStats",
    "Changelog",
    "Commit",
    "CommitHandle",
    "Conflict",
    "ConsumerDescription",
    "ConsumerPosition",
    "CoordinatorStats",
    "Corruption",
    "Costs",
    "Diverged",
    "Dropped",
    "Engine",
    "EngineClosed",
    "Fenced",
    "Follower",
    "ForeignPeer",
    "ForkedProcess",
    "FormatError",
    "Held",
    "HostStopped",
    "Identity",
    "InvalidKey",
    "InvalidName",
    "IoError",
    "KafkaError",
    "KafkaSettings",
    "KeyTooLong",
    "Lag",
    "LeaseLost",
    "Leased",
    "LogBatches",
    "LogReport",
    "LogUnreachable",
    "MissingExtra",
    "NoCommonType",
    "NoSpace",
    "NotSupported",
    "OffsetOutOfRange",
    "OpenTransaction",
    "Outcome",
    "OutcomeExpired",
    "Overloaded",
    "OwnedElsewhere",
    "OwnerSilent",
    "PartitionBounds",
    "PendingAck",
    "Phases",
    "Place",
    "PlanstepError",
    "PositionState",
    "ProcessingError",
    "ProducerFenced",
    "Progress",
    "ProtocolError",
    "PulsarError",
    "PulsarSettings",
    "ReadBatch",
    "Reader",
    "Record",
    "RecordTooLarge",
    "Refused",
    "Replicate",
    "Rows",
    "SequenceError",
    "SnapshotTooOld",
    "SnapshotView",
    "StoreClosed",
    "StoreInUse",
    "Table",
    "TableDescription",
    "TooManyGaps",
    "TooManyOpen",
    "TooManyReaders",
    "TooManyTakeovers",
    "Topic",
    "TopicDescription",
    "Transaction",
    "TransactionClosed",
    "TransactionTooLarge",
    "Trimmed",
    "TxnID",
    "Undetermined",
    "UnknownName",
    "Waiting",
    "Writer",
    "Written",
    "WrongMode",
    "__version__",
    "follow",
    "metrics",
    "open",
    "open_async",
    "restore",
    "testing",
]


_HOMES = {
    "": "metrics testing",
    "aio": (
        "AsyncCommitHandle AsyncEngine AsyncLeased AsyncReader AsyncSnapshotView "
        "AsyncTable AsyncTopic AsyncTransaction AsyncWriter open_async"
    ),
    "api.columns.batch": "ReadBatch Record Rows",
    "api.engine": "Engine",
    "api.follower": "Follower follow",
    "api.snapshot": "SnapshotView",
    "api.tables.table": "Table TableDescription",
    "api.topics.changelog": "Changelog",
    "api.topics.description": (
        "ConsumerDescription ConsumerPosition PartitionBounds TopicDescription Written "
    ),
    "api.topics.leased_transaction": "Leased",
    "api.topics.process_policy": "Progress",
    "api.topics.reader": "Reader",
    "api.topics.topic": "Topic",
    "api.topics.writer": "Writer",
    "api.transaction.lifecycle": "CommitHandle",
    "api.transaction.transaction": "Transaction",
    "proto.ids": "Place",
    "proto.kafka.settings": "KafkaSettings",
    "proto.log_report": "LogReport",
    "proto.pulsar.messages": "TxnID",
    "proto.pulsar.settings": "PulsarSettings",
    "runtime.administration": "BufferStats CoordinatorStats LogBatches PendingAck PositionState",
    "runtime.backup": "Backup restore",
    "runtime.follower": "Lag",
    "runtime.identity": "Identity Waiting",
    "runtime.ledger": "Costs Phases",
    "runtime.open_transactions": "Held OpenTransaction",
    "runtime.outcome": "Commit Outcome",
    "shared.settings": "Replicate",
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Imports at its first use whatever a program can do without until it opens a store."""
    home = _MODULE_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{home or name}", __name__)
    value = getattr(module, name) if home else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
