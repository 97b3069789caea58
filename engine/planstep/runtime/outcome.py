"""Turns values of the cores into results and exceptions for the caller; this is the one place that does.

The reasons are classes in proto/reasons.py; `failure` maps each to an error.

Next: runtime.py.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import (
    Aborted,
    AlreadyExists,
    Conflict,
    Dropped,
    NoSpace,
    NotSupported,
    OffsetOutOfRange,
    ProtocolError,
    TooManyGaps,
    Undetermined,
    UnknownName,
)
from ..proto.ids import PARTITION, Place, TxnID, host_of, kind_of, tx_text
from ..proto.keys import decode_key
from ..proto.messages import Reason
from ..proto.reasons import (
    ConsumerMoved,
    DiskFull,
    MoreRecords,
    NameExists,
    NameGone,
    NotANumber,
    NotNext,
    NumbersUsedUp,
    NumberTaken,
    OutsideLog,
    OwnerEnded,
    RangeChanged,
    RecordForgotten,
    RefusedUnplanned,
    RowChanged,
    StagedLost,
    SumTooLarge,
    TabletDropped,
    TooManyRanges,
    Withdrawn,
    WrongKind,
    cause_of,
    read_reason,
)

Names = Callable[[int], tuple[str, str, int]]
"""Tablet id → (kind: topic or table, name, partition or shard number)."""


class Commit(NamedTuple):
    """A committed transaction. `details` holds each tablet's answer: internal, see `published`."""

    tx: bytes
    place: Place
    details: dict[int, Any]
    names: Names | None = None
    epoch: int | None = None
    """Mode "kafka": the producer's epoch at the write. The place is (0, None) then, for there is none."""
    txn_id: TxnID | None = None
    """Mode "pulsar": the id that its coordinator gave; None for one that wrote and consumed nothing."""

    @property
    def id(self) -> str:
        """The transaction's id, as in "3-17"."""
        return tx_text(self.tx)

    @property
    def published(self) -> dict[tuple[str, int], tuple[int, int] | None]:
        """The offsets of the transaction's records: (topic, partition) → [begin, end).

        None for a producer's repeat, whose records were published before; also where the store's owner ended before
        it answered, and records of the transaction may be trimmed by now.
        """
        published: dict[tuple[str, int], tuple[int, int] | None] = {}
        for tablet, offsets in self.details.items():
            if kind_of(tablet) == PARTITION and self.names is not None:
                _, name, partition = self.names(tablet)
                published[name, partition] = offsets
        return published

    def __repr__(self) -> str:
        return f"<Commit {self.id} at ({self.place.step}, {self.place.n})>"


class Outcome(NamedTuple):
    """The store's knowledge of a transaction. `state` is committed, aborted, refused, planned, open, unknown or
    expired; in modes "kafka" and "pulsar" also undetermined, for ever: its client has given up."""

    tx: str
    state: str
    place: Place | None
    when_ms: int
    participants: tuple[int, ...]


def _key(data: bytes) -> Any:
    try:
        return decode_key(data)
    except ValueError:
        return data  # the key of a client of the runtime that encodes its own keys


def failure(tx: bytes, reason: Reason, names: Names) -> Exception:  # noqa: C901 a flat table
    """Makes the exception for a transaction that did not commit."""
    tablet, why = read_reason(reason)
    match why:
        case RefusedUnplanned():
            return Aborted(
                f"transaction {tx_text(tx)} was {cause_of(reason)} before it was planned"
            )
        case Withdrawn():  # by an owner that closes: the next one does it
            return ProtocolError(
                f"transaction {tx_text(tx)} was {cause_of(reason)} before it was planned: run it again "
                "(db.run does)",
                name="Withdrawn",
                retryable=True,
            )
        case OwnerEnded():
            return ProtocolError(
                f"transaction {tx_text(tx)} was aborted, and the process that owned the store ended before it said "
                "why: run it again (db.run does)",
                name="OwnerEnded",
                retryable=True,
            )
        case RecordForgotten():
            return Undetermined(
                f"transaction {tx_text(tx)} was sent to a process that owned the store and has ended, and "
                "is too old for a record of how it ended: look for its effects"
            )
        case NameExists(name):
            return AlreadyExists(f"{name!r} exists already; pass exist_ok=True to accept that")
        case NumbersUsedUp(name, wanted, remaining):
            return Aborted(
                f"{name!r} needs {wanted:,} tablets (partitions or shards), and {remaining:,} are "
                "left in this store: begin another store"
            )
        case NameGone(kind_id, name):
            return UnknownName("topic" if kind_id == PARTITION else "table", name)
    kind, name, part = names(tablet)
    where: dict[str, Any] = {"kind": kind, "name": name, "part": part}
    match why:
        case TabletDropped():
            what = "a topic or table of it" if kind == "tablet" else f"{kind} {name!r}"
            return Dropped(f"{what} was dropped meanwhile; nothing of the transaction counts")
        case WrongKind(consumer, used_as, is_kind):
            return NotSupported(
                f"topic {name!r}: consumer {consumer!r} is {is_kind}, not {used_as}; its kind is "
                "chosen by create_consumer, for ever"
            )
        case TooManyRanges(consumer, limit):
            return TooManyGaps(
                f"topic {name!r}, partition {part}: consumer {consumer!r} has more than {limit:,} "
                "gaps: unconsumed records between consumed ones; consume the oldest of those first"
            )
        case StagedLost():
            return ProtocolError(
                f"{kind} {name!r}, partition {part}: data sent ahead of the commit is gone, since its "
                "host was restarted; nothing of the transaction counts: run it again (db.run does)",
                name="StagedLost",
                retryable=True,
            )
        case DiskFull():
            return NoSpace(
                f"{kind} {name!r}: the disk of host {host_of(tablet)} is full: free some space "
                "(`no_space` in the log says how much was needed); nothing was written or lost"
            )
        case OutsideLog(consumer, offset, end):
            return OffsetOutOfRange(
                f"consumer {consumer!r}: offset {offset} is outside the log of topic {name!r}, "
                f"partition {part}, which ends at {end}"
            )
        case NotNext(consumer, expected, actual):
            return Conflict(**where, consumer=consumer, expected=expected, actual=actual)
        case MoreRecords(expected, actual):
            return Conflict(**where, expected=expected, actual=actual)
        case ConsumerMoved(consumer, expected, actual):
            return Conflict(
                **where, consumer=consumer, expected=expected, actual=actual, moved=True
            )
        case NumberTaken(producer, first, last, foreign):
            return Conflict(
                **where, producer=producer, expected=first, actual=last, foreign=foreign
            )
        case SumTooLarge(key):
            return TypeError(
                f"table {name!r}, key {_key(key)!r}: the sum, or the row before it, needs more than 64 "
                "bits or is no finite number"
            )
        case NotANumber(key):
            return TypeError(
                f"table {name!r}, key {_key(key)!r}: the row is not a finite number: add, max and min "
                "need one"
            )
        case RangeChanged(_, count, counted):
            return Conflict(**where, key=None, expected=count, actual=counted)
        case RowChanged(key, version, actual):
            return Conflict(**where, key=_key(key), expected=version, actual=actual)


def undetermined(
    tx: bytes, timeout: float | None, more: str = "", *, told: bool = True
) -> Undetermined:
    """Makes the error of a commit that was not answered in time; `more` says why, where that is known. `told`:
    False where its client has given up, and learns nothing more."""
    because = f" ({more})" if more else ""
    within = "" if timeout is None else f" within {timeout} s"
    goes_on = f"outcome({tx_text(tx)!r}) tells how it ended"
    if not told:
        goes_on = "its client has given up: look for its effects before it runs again"
    return Undetermined(
        f"transaction {tx_text(tx)} was not answered{within}{because}; it goes on, and {goes_on}"
    )
