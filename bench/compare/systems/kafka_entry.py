"""Describes mode kafka for the comparison: two systems, Kafka's protocol in versions 1 and 2, with their wording.

Next: pulsar_entry.py.
"""

from dataclasses import replace

from planstep import Engine, KafkaSettings

from ...judges.python import ALLOWED, IN_PLACE
from .base import SAME_NAME, SHARED_ROWS, TABLES, TIME_OUT, Options
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

_ORIGINALS: dict[str, tuple[str, str | int]] = {  # how docs/kafka.md names them
    "protocol_version": ("transaction.version", 2),
    "isolation": ("isolation.level", "read_uncommitted"),
    "transaction_timeout_ms": ("transaction.timeout.ms", 60_000),
    "transaction_max_timeout_ms": ("transaction.max.timeout.ms", 900_000),
    "abort_scan_ms": ("transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000),
    "max_in_flight": ("max.in.flight.requests.per.connection", 5),
    "linger_ms": ("linger.ms", "5 (0 before Kafka 4)"),
    "batch_bytes": ("batch.size", 16_384),
    "retry_backoff_ms": ("retry.backoff.ms", 100),
    "concurrent_backoff_ms": ("fixed in the client (KAFKA-5477)", 20),
    "add_partitions_backoff_ms": ("add.partitions.to.txn.retry.backoff.ms", 20),
    "add_partitions_backoff_max_ms": ("add.partitions.to.txn.retry.backoff.max.ms", 100),
    "request_timeout_ms": ("request.timeout.ms", 30_000),
    "delivery_timeout_ms": ("delivery.timeout.ms", 120_000),
    "max_block_ms": ("max.block.ms", 60_000),
}
_MISSING = {
    TABLES: 'mode "kafka" has no tables: state is kept in changelog topics, one partition a worker',
    SHARED_ROWS: 'mode "kafka" has no rows that several workers update: a changelog\'s partition is one '
    "worker's",
}


def _engine(protocol_version: int, log_batching: bool = False) -> EngineMode:
    own = KafkaSettings(protocol_version=protocol_version, log_batching=log_batching)

    def settings(options: Options) -> KafkaSettings:
        time_out_ms = options.transaction_timeout_ms
        # The coordinator scans a few times per time-out, as an operator would set it.
        scan = max(20, min(10_000, time_out_ms // 4))
        return replace(own, transaction_timeout_ms=time_out_ms, abort_scan_ms=scan)

    def has_ends(db: Engine) -> bool:
        ids = db.transactional_ids(only_open=True)
        return any(one.state in ("PrepareCommit", "PrepareAbort") for one in ids)

    return EngineMode(
        *("kafka", _MISSING, (TIME_OUT, SAME_NAME), settings, _ORIGINALS), has_ends=has_ends
    )


MODE = Mode(
    name="kafka",
    systems=(
        SystemEntry(
            name="kafka",
            open=opens("kafka", _engine(2)),
            history=IN_PLACE,
            allowed=ALLOWED,
            headline=SEPARATE,  # each of Kafka's brokers is a server of its own
            label="kafka-style (this engine)",
            line_style=LineStyle("#c25400", (0, (5, 1.6)), "s", "kafka-style"),
            about="this engine following Kafka's protocol, version 2; it is not Kafka",
            option="kafka-style, protocol version 2",
            column="kafka-style",
            narrow="kafka",
        ),
        SystemEntry(
            name="kafka-v1",
            open=opens("kafka-v1", _engine(1)),
            history=IN_PLACE,
            allowed=ALLOWED,
            headline=SEPARATE,
            label="kafka-style v1 (this engine)",
            line_style=LineStyle("#b1538b", (0, (5, 1.5, 1, 1.5)), "D", "kafka-style v1"),
            about="the same with protocol version 1, which Python clients of Kafka speak",
            option="version 1, which Python clients speak",
            column="kafka-style v1",
            narrow="kafka-v1",
        ),
        SystemEntry(
            name="kafka-batched",
            open=opens("kafka-batched", _engine(2, log_batching=True)),
            history=IN_PLACE,
            allowed=ALLOWED,
            headline=SEPARATE,
            label="kafka-style, batched logs (this engine)",
            line_style=LineStyle("#a04000", (0, (2, 1)), "p", "kafka-batched"),
            about="the same as kafka-style; coordinators' logs collect records for a millisecond into one entry",
            option="coordinators' logs batched; joins kafka in log-batching by itself",
            joins=("log-batching",),
            column="kafka-batched",
            narrow="kafka-batched",
        ),
    ),
    style="kafka-style",
    title="Kafka-style",
    short="kafka",
    in_full="kafka-style (this engine)",
    original="Kafka",
    is_not="Kafka-style is Kafka's protocol in this engine. A number says something about the protocol, nothing "
    "about Kafka's brokers.",
    limit="kafka-style (this engine) follows Kafka's protocol, states and client rules in this engine; it is not "
    "Kafka. It says something about the protocol, nothing about Kafka's brokers.",
    time_out="Kafka's default is a minute",
    commits="Kafka-style: records go straight into the log. A coordinator's decision is followed by a marker in "
    "each partition; readers stop where a transaction is still open.",
    protocol=Protocol(
        "write in place, decide, mark",
        LANES,
        (
            Step("records", WORKER, PARTITION),
            Step("who takes part", COORDINATOR),
            Step("in the log", PARTITION),
            Step("commit", WORKER, COORDINATOR),
            Step("the decision", COORDINATOR),
            Step("committed", COORDINATOR, WORKER),
            Step("marker", COORDINATOR, PARTITION),
            Step("commit marker", PARTITION),
        ),
        7,
        "stop here",
        "past the marker",
    ),
    terms=(
        (
            "marker",
            "Kafka-style mode: an entry in the log that says whether what lies before it counts.",
        ),
        (
            "last stable offset",
            "Kafka-style mode: readers of committed records stop before the first record whose transaction is "
            "still open, even if others committed behind it.",
        ),
        (
            "fencing",
            "Kafka-style mode: a new worker of the same name ends what the former one left open. The former one "
            "can commit no more.",
        ),
    ),
    durable="of an open transaction",
    promises=Promises(
        durable={
            "full": "the coordinator's decision is on the disk, and the records before it; markers follow",
            "os": "the operating system has the decision and the records; a power loss may take them",
        },
        tables="no tables: state is in changelog topics, which change with the records",
        readers="for every transaction that is open before in the partition, up to its time-out",
        zombie="it is fenced once another one takes its name; without that both commit",
    ),
    changes=DurableChanges(
        registers_transaction=("transaction coordinator: InitProducer",),
        registers_participants=(
            "transaction coordinator: AddPartitions",
            "transaction coordinator: AddOffsets",
            "transaction coordinator: join",
        ),
        sets_aside=(
            "partition: Produce",
            "partition: Registered",
            "group coordinator: TxnOffsetCommit",
            "group coordinator: Registered",
        ),
        intends=("transaction coordinator: EndTxn",),
        publishes=(
            "partition: Marker",
            "group coordinator: Marker",
            "transaction coordinator: Marked",
        ),
    ),
    reads_late="in the Kafka-style mode for transactions that are open before it",
    shown_late="in the Kafka-style mode only when transactions open before in that partition have ended, too",
    crowded="In the kafka-style mode a reader of committed records waits for transactions that are open before "
    "them. Workers that commit together, or keep to partitions of their own, would show less of that.",
)
