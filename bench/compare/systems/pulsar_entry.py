"""Describes mode pulsar for the comparison: systems that differ in logs and in snapshots, with their wording.

    pulsar             as Pulsar's defaults are, but with deduplication, as who uses transactions sets it
    pulsar-batched     both logs through the buffered writer (PIP-160)
    pulsar-individual  acknowledgements one by one, in place of a position
    pulsar-parts       snapshots of aborted ids in parts, and
    pulsar-segmented   … in segments (PIP-196)

Next: sqlite_entry.py.
"""

from dataclasses import replace
from typing import Any

from planstep import PulsarSettings

from ...judges.python import ALLOWED, IN_PLACE
from ...judges.python.findings import USED_TWICE
from .base import SHARED_ROWS, TABLES, TIME_OUT, Options
from .engine import EngineMode, opens
from .entry import (
    COORDINATOR,
    LANES,
    PARTITION,
    SEPARATE,
    WORKER,
    DurableChanges,
    LineStyle,
    Mode,
    Promises,
    Protocol,
    Step,
    SystemEntry,
)

_ORIGINALS: dict[str, tuple[str, str | int]] = {  # how docs/pulsar.md names them
    "transaction_timeout_ms": ("withTransactionTimeout", 60_000),
    "log_batching": ("transactionLogBatchedWriteEnabled", "false"),
    "log_batch_records": ("transactionLogBatchedWriteMaxRecords", 512),
    "log_batch_delay_ms": ("transactionLogBatchedWriteMaxDelayInMillis", 1),
    "ack_log_batching": ("transactionPendingAckBatchedWriteEnabled", "false"),
    "ack_log_index_min_lag": ("transactionPendingAckLogIndexMinLag", 500),
    "snapshots": ("transactionBufferSegmentedSnapshotEnabled", "false"),
    "snapshot_transactions": ("transactionBufferSnapshotMaxTransactionCount", 1_000),
    "snapshot_interval_ms": ("transactionBufferSnapshotMinTimeInMillis", 5_000),
    "snapshot_segment_bytes": ("transactionBufferSnapshotSegmentSize", 262_144),
    "deduplication": ("brokerDeduplicationEnabled", "false"),
    "isolation": ("subscriptionIsolationLevel", "read_committed"),
    "participant_timeout_ms": ("transactionBufferClientOperationTimeoutInMills", 3_000),
    "operation_timeout_ms": ("operationTimeoutMs", 30_000),
    "batch_messages": ("batchingMaxMessages", 1_000),
    "batch_bytes": ("batchingMaxBytes", 131_072),
}
_MISSING = {
    TABLES: 'mode "pulsar" has no tables: state is kept in changelog topics, one partition a worker',
    SHARED_ROWS: 'mode "pulsar" has no rows that several workers update: a changelog\'s partition is one '
    "worker's",
}


def _engine(own: PulsarSettings, **more: Any) -> EngineMode:
    def settings(options: Options) -> PulsarSettings:
        return replace(
            own,
            transaction_timeout_ms=options.transaction_timeout_ms,
            snapshot_transactions=options.snapshot_transactions,
        )

    return EngineMode("pulsar", _MISSING, (TIME_OUT,), settings, _ORIGINALS, **more)


_PLAIN = PulsarSettings(deduplication=True)
_BATCHED = replace(_PLAIN, log_batching=True, ack_log_batching=True)


def _system(
    name: str,
    own: PulsarSettings,
    label: str,
    line: LineStyle,
    about: str,
    option: str,
    *,
    joins: str = "",
    **more: Any,
) -> SystemEntry:
    return SystemEntry(
        name=name,
        open=opens(name, _engine(own, **more)),
        history=IN_PLACE,
        allowed=(*ALLOWED, USED_TWICE),  # by bare readers with cumulative acknowledgements
        headline=SEPARATE,  # each of Pulsar's brokers is a server of its own
        label=label,
        line_style=line,
        about=about,
        option=option + (f"; joins pulsar in {joins} by itself" if joins else ""),
        joins=(joins,) if joins else (),
        column=line.name,
        narrow=name,
    )


MODE = Mode(
    name="pulsar",
    systems=(
        _system(
            "pulsar",
            _PLAIN,
            "pulsar-style (this engine)",
            LineStyle("#6a3d9a", (0, (7, 1.5, 1, 1.5, 1, 1.5)), "P", "pulsar-style"),
            "this engine following Pulsar's protocol, with deduplication; it is not Pulsar",
            "pulsar-style, with deduplication",
        ),
        _system(
            "pulsar-batched",
            _BATCHED,
            "pulsar-style, batched logs (this engine)",
            LineStyle("#a6611a", (0, (2, 1)), "X", "pulsar-batched"),
            "the same; both its logs collect records for a millisecond into one entry (PIP-160)",
            "both logs batched (PIP-160)",
            joins="log-batching",
        ),
        _system(
            "pulsar-individual",
            _PLAIN,
            "pulsar-style, individual consumers (this engine)",
            LineStyle("#54278f", (0, (3, 1)), "d", "pulsar-individual"),
            "the same; consumers acknowledge records one by one, as Pulsar's shared subscriptions do",
            "consumers acknowledge one by one",
            individual=True,
        ),
        _system(
            "pulsar-parts",
            replace(_PLAIN, snapshots="parts"),
            "pulsar-style, snapshots in parts (this engine)",
            LineStyle("#4d4d4d", (0, (4, 2, 1, 2)), "h", "pulsar-parts"),
            "the same; snapshots of aborted ids are cut into parts (issue #16042)",
            "snapshots of aborted ids in parts (#16042)",
            joins="aborts",
        ),
        _system(
            "pulsar-segmented",
            replace(_PLAIN, snapshots="segmented"),
            "pulsar-style, segmented snapshots (this engine)",
            LineStyle("#1f78b4", (0, (1, 2)), "*", "pulsar-segmented"),
            "the same; snapshots of aborted ids are segments, each written once (PIP-196)",
            "snapshots of aborted ids in segments (PIP-196)",
            joins="aborts",
        ),
        _system(
            "pulsar-ungrouped",
            _PLAIN,
            "pulsar-style, a turn for each input (this engine)",
            LineStyle("#8c6bb1", (0, (1, 1)), "<", "pulsar-ungrouped"),
            "the same without group commit: no two inputs share a sync",
            "without group commit",
            joins="log-batching",
            group_commit=False,
        ),
        _system(
            "pulsar-batched-ungrouped",
            _BATCHED,
            "pulsar-style, batched logs, a turn for each input (this engine)",
            LineStyle("#e08214", (0, (1, 1)), ">", "pulsar-batched-ungrouped"),
            "the same with batched logs and without group commit",
            "batched, without group commit",
            joins="log-batching",
            group_commit=False,
        ),
    ),
    style="pulsar-style",
    title="Pulsar-style",
    short="pulsar",
    in_full="pulsar-style (this engine)",
    original="Pulsar",
    is_not="Pulsar-style is Pulsar's protocol in this engine. A number says something about the protocol, nothing "
    "about Pulsar's brokers and bookies.",
    limit="pulsar-style (this engine) follows Pulsar's protocol, states and client rules in this engine; it is not "
    "Pulsar. It says something about the protocol, nothing about Pulsar's brokers and bookies.",
    time_out="Pulsar's documentation shows a minute",
    commits="Pulsar-style: records go straight into the log, acknowledgements into a log of their own. A "
    "coordinator's decision is sent to all of them, and only when each has it the worker is answered; readers stop "
    "where a transaction is still open.",
    protocol=Protocol(
        "write in place, decide, tell all",
        LANES,
        (
            Step("begin", WORKER, COORDINATOR),
            Step("who takes part", COORDINATOR),
            Step("records", WORKER, PARTITION),
            Step("in the log", PARTITION),
            Step("commit", WORKER, COORDINATOR),
            Step("the decision", COORDINATOR),
            Step("end", COORDINATOR, PARTITION),
            Step("commit marker", PARTITION),
            Step("ended", PARTITION, COORDINATOR),
            Step("all have it", COORDINATOR),
            Step("committed", COORDINATOR, WORKER),
        ),
        7,
        "stop here",
        "past the marker",
    ),
    terms=(
        (
            "max read position",
            "Pulsar-style mode: readers stop before the first message whose transaction is still open, even if "
            "others committed behind it.",
        ),
        (
            "pending acknowledgement",
            "Pulsar-style mode: an acknowledgement of an open transaction, durable in a log of its consumer. "
            "Another transaction that acknowledges the same is refused at once (a conflict).",
        ),
    ),
    durable="of an open transaction",
    promises=Promises(
        durable={
            "full": "the decision is on the disk, and every participant has ended the transaction there",
            "os": "the operating system has the decision and every participant's end; a power loss may take them",
        },
        tables="no tables: state is in changelog topics, which change with the records",
        readers="for every transaction that is open before in the partition, up to its time-out",
        zombie="it commits, unless another one has acknowledged the same: then it is refused",
    ),
    changes=DurableChanges(
        registers_transaction=("transaction coordinator: NewTxn",),
        registers_participants=(
            "transaction coordinator: AddPartitionToTxn",
            "transaction coordinator: AddSubscriptionToTxn",
        ),
        sets_aside=("partition: Send", "partition: Ack"),
        intends=("transaction coordinator: EndTxn",),
        publishes=(
            "partition: EndTxnOnPartition",
            "partition: EndTxnOnSubscription",
            "transaction coordinator: Ended",
        ),
    ),
    reads_late="in the pulsar-style mode for transactions that are open before it",
    shown_late="in the pulsar-style mode only when transactions open before in that partition have ended, too",
    crowded="In the pulsar-style mode readers wait for transactions that are open before a record, as in the "
    "kafka-style one.",
)
