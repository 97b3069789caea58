"""Defines the end of a Kafka transaction: its states, errors and marker messages; transactions.py uses it.

    Prepare* ─▶ Marker to each partition ──Marked──▶ Complete*

transactions.py passes `ROWS` to ../logged_rows.py and an `Ends` to ../markers.py, which know no mode by
themselves. As with WriteTxnMarkers, a transaction's markers for one host are one request (proto.kafka.request_of).

Next: groups.py, the coordinator that keeps consumer groups.
"""

from operator import attrgetter

from ...proto.kafka.messages import Marker, Shell
from ..logged_rows import Kind
from .states import (
    APPEND_ERRORS,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    PREPARE_COMMIT,
    PREPARED,
    Transaction,
    check_move,
)

ROWS = Kind(Transaction, check_move, DEAD, "NOT_COORDINATOR", APPEND_ERRORS)


class Ends:
    """Makes the markers and completed rows of one coordinator tablet."""

    __slots__ = ("_shell", "_tablet", "retry_ms")

    prepared = PREPARED
    over = ("", "UNKNOWN_TOPIC_OR_PARTITION")
    """The marker is written; or the partition is dropped, so there is nothing to end."""
    refused = ("INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED")

    about = attrgetter("producer", "epoch", "number")
    """In version 1 many transactions share an epoch; only the number distinguishes them."""

    def __init__(self, tablet: int, shell: Shell) -> None:
        self._tablet = tablet
        self._shell = shell
        self.retry_ms = shell.settings.marker_retry_ms

    def marker(self, name: str, row: Transaction) -> Marker:
        return Marker(
            self._tablet,
            name,
            row.producer,
            row.epoch,
            row.state == PREPARE_COMMIT,
            self._shell.epoch,
            row.version,
            row.number,
        )

    def completed(self, row: Transaction) -> Transaction:
        new = row._replace(
            state=COMPLETE_COMMIT if row.state == PREPARE_COMMIT else COMPLETE_ABORT,
            update_ms=self._shell.now_ms,
            partitions=(),
        )
        if row.next >= 0:
            new = new._replace(producer=row.next, previous=row.producer, epoch=0, next=-1)
        return new
