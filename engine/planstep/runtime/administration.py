"""Defines what an operator sees, and can end, in a mode whose coordinators and partitions keep transactions.

    coordinators ─▶ CoordinatorStats     partitions ─▶ BufferStats     consumers ─▶ PendingAck, PositionState

All of it comes from durable rows, so a read-only process can look too. Hosts that are stopped are left out.

Next: pulsar/administration.py, ../api/administration.py.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..proto.ids import TxnID
from ..proto.log_report import LogReport

if TYPE_CHECKING:
    from .catalog import TopicInfo
    from .open_transactions import OpenTransaction


class CoordinatorStats(NamedTuple):
    """A transaction coordinator: how many transactions are in each state, and which ids it has given.

    `highest` is the highest number it has given, -1 for none. The transactions up to `low_water_mark` have all
    ended. `oldest_seconds` is the age of the oldest open one, None without any.
    """

    coordinator: int
    host: int
    open: int
    committing: int
    aborting: int
    highest: int
    low_water_mark: int
    oldest_seconds: float | None


class BufferStats(NamedTuple):
    """A partition's transaction buffer. Readers stop at `max_read`, the first message of transaction `held_by`.

    `held_by` is None where nothing holds them up; `records_behind` are the messages from there on. `ongoing` and
    `aborted` count transactions. `state` is "NoSnapshot", "Initializing" or "Ready", and "None" until the partition
    is used, so always in a process that only reads. `snapshots` is the way of the stored snapshot of aborted ids,
    None without one; `snapshot_segments` counts its segments or parts. `taken_seconds_ago` is None when this engine
    has taken none. `low_water_marks` are by coordinator.
    """

    partition: int
    state: str
    start: int
    end: int
    max_read: int
    held_by: TxnID | None
    records_behind: int
    ongoing: int
    aborted: int
    snapshots: str | None
    snapshot_max_read: int
    snapshot_bytes: int
    snapshot_segments: int
    taken_seconds_ago: float | None
    low_water_marks: dict[int, int]


class PendingAck(NamedTuple):
    """An open transaction's acknowledgement of the offsets [begin, end) of a partition.

    A cumulative one acknowledges all before `end`, so it begins at the consumer's position.
    """

    partition: int
    txn_id: TxnID
    begin: int
    end: int
    cumulative: bool


class PositionState(NamedTuple):
    """Says of an offset whether it is acknowledged, pending, free or not shown to a consumer.

    `txn_id` is the transaction that has it pending. Markers and aborted messages are not shown, nor is what lies
    behind an open transaction, was trimmed, or is not written yet.
    """

    state: str
    txn_id: TxnID | None = None

    def __str__(self) -> str:
        return self.state if self.txn_id is None else f"{self.state} in {self.txn_id}"


class LogBatches(NamedTuple):
    """One log of a coordinator, or of a subscription of a partition: may a program without batches read it?"""

    logs: str
    """Of "transactions", in mode "kafka" also of "groups", in mode "pulsar" also of "pending acks"."""
    owner: str
    """Its coordinator or subscription, as "coordinator 0" or "clicks[3] for resharder"."""
    report: LogReport


class Administration(Protocol):
    """Looks into a mode's coordinators and partitions, and aborts open transactions there."""

    def open_transactions(self) -> "list[OpenTransaction]":
        """Lists transactions that have not ended, oldest first."""

    def coordinator_stats(self) -> list[CoordinatorStats]: ...
    def buffer_stats(self, topic: "TopicInfo") -> list[BufferStats]: ...
    def buffers(self, tablets: Iterable[int]) -> list[tuple[str, int | None]]:
        """Returns the state of each partition's transaction buffer, and when a snapshot of that was taken, in ms.

        Only the memory of the process that runs the hosts has them.
        """

    def pending_acks(self, topic: "TopicInfo", consumer: str) -> list[PendingAck]: ...
    def position_state(self, tablet: int, consumer: str, offset: int) -> PositionState: ...

    def history(self, txn: TxnID) -> list[tuple[int, str]]:
        """Returns the records of its coordinator's log about an open transaction, as (entry's number, text)."""

    def abort(self, txn: TxnID) -> None:
        """Aborts an open transaction, durably, and waits until every participant has the end."""

    def abort_left_open(self) -> tuple[TxnID, ...]:
        """Aborts the open transactions of earlier processes; returns their ids."""
