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

from .api.columns.batch import ReadBatch, Record, Rows
from .api.engine import Engine
from .api.open_engine import open
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
from .errors import (
    Aborted,
    AlreadyExists,
    Conflict,
    Corruption,
    Dropped,
    EngineClosed,
    ForkedProcess,
    FormatError,
    HostStopped,
    InvalidKey,
    InvalidName,
    IoError,
    KafkaError,
    KeyTooLong,
    LeaseLost,
    MissingExtra,
    NoCommonType,
    NoSpace,
    NotSupported,
    OffsetOutOfRange,
    OutcomeExpired,
    Overloaded,
    PlanstepError,
    ProcessingError,
    ProducerFenced,
    ProtocolError,
    RecordTooLarge,
    SequenceError,
    SnapshotTooOld,
    StoreClosed,
    StoreInUse,
    TooManyGaps,
    TooManyReaders,
    TransactionClosed,
    TransactionTooLarge,
    Undetermined,
    UnknownName,
    WrongMode,
)
from .proto.ids import Place
from .proto.kafka.settings import KafkaSettings
from .runtime.ledger import Costs, Phases
from .runtime.outcome import Commit, Outcome

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
    from .runtime.backup import Backup, restore
    from .runtime.identity import Identity, Waiting
    from .runtime.open_transactions import Held, OpenTransaction

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
    "Changelog",
    "Commit",
    "CommitHandle",
    "Conflict",
    "ConsumerDescription",
    "ConsumerPosition",
    "Corruption",
    "Costs",
    "Dropped",
    "Engine",
    "EngineClosed",
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
    "LeaseLost",
    "Leased",
    "MissingExtra",
    "NoCommonType",
    "NoSpace",
    "NotSupported",
    "OffsetOutOfRange",
    "OpenTransaction",
    "Outcome",
    "OutcomeExpired",
    "Overloaded",
    "PartitionBounds",
    "Phases",
    "Place",
    "PlanstepError",
    "ProcessingError",
    "ProducerFenced",
    "Progress",
    "ProtocolError",
    "ReadBatch",
    "Reader",
    "Record",
    "RecordTooLarge",
    "Rows",
    "SequenceError",
    "SnapshotTooOld",
    "SnapshotView",
    "StoreClosed",
    "StoreInUse",
    "Table",
    "TableDescription",
    "TooManyGaps",
    "TooManyReaders",
    "Topic",
    "TopicDescription",
    "Transaction",
    "TransactionClosed",
    "TransactionTooLarge",
    "Undetermined",
    "UnknownName",
    "Waiting",
    "Writer",
    "Written",
    "WrongMode",
    "__version__",
    "metrics",
    "open",
    "open_async",
    "restore",
    "testing",
]


_LATER = {
    "Backup": "runtime.backup",
    "Held": "runtime.open_transactions",
    "Identity": "runtime.identity",
    "OpenTransaction": "runtime.open_transactions",
    "metrics": "",
    "open_async": "aio",
    "restore": "runtime.backup",
    "testing": "",
    "Waiting": "runtime.identity",
}


def __getattr__(name: str) -> Any:
    """Imports at first use what few programs need: the asyncio classes, backups, metrics, testing."""
    home = "aio" if name.startswith("Async") and name in __all__ else _LATER.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{home or name}", __name__)
    return getattr(module, name) if home else module
