"""Defines the reasons why a transaction does not commit: a class for each, and one stored form for all.

    check ─▶ NotNext("c", 0, 4) ─ kept_as(tablet, …) ─▶ (tablet, "position", "c", 0, 4) ─ read_reason ─▶ an error

Rows, messages and results hold the stored form: the tablet that reports it, the cause, the class's fields.
Statistics count by cause.

Next: ../tablets/participant.py, and ../engine/planstep/runtime/outcome.py, which makes errors of them.
"""

from typing import Any, NamedTuple, TypeAlias

from .messages import Reason, Version


class NotNext(NamedTuple):
    """A consumed range does not begin at the committed position."""

    consumer: str
    expected: int
    actual: int


class ConsumerMoved(NamedTuple):
    """A consumer was moved since it was read; the fields are the steps of two moves."""

    consumer: str
    expected: int
    actual: int


class OutsideLog(NamedTuple):
    """A range, a position or a new start is not within the log."""

    consumer: str
    offset: int
    end: int


class MoreRecords(NamedTuple):
    """A log has records behind the end that a read reached."""

    expected: int
    actual: int


class NumberTaken(NamedTuple):
    """A producer's number was published already; `foreign`: by another session, with other data."""

    producer: bytes
    first: int
    last_known: int
    foreign: bool


class WrongKind(NamedTuple):
    """A cumulative consumer is used as an individual one, or the other way round."""

    consumer: str
    used_as: str
    actual: str


class TooManyRanges(NamedTuple):
    """An individual consumer would have more gaps than `limit`."""

    consumer: str
    limit: int


class StagedLost(NamedTuple):
    """Only `there` of the slices staged ahead are left, because a host was restarted."""

    staged: int
    there: int


class RowChanged(NamedTuple):
    """A row was changed since it was read."""

    key: bytes
    expected: Version
    actual: Version


class RangeChanged(NamedTuple):
    """A range of rows was changed since it was read; the fields count rows."""

    begin: bytes
    expected: int
    actual: int


class NotANumber(NamedTuple):
    """An update meets a row that holds no number."""

    key: bytes
    wanted: str
    actual: str


class SumTooLarge(NamedTuple):
    """The sum of an addition is too large to store."""

    key: bytes
    wanted: str
    actual: str


class NameExists(NamedTuple):
    name: str


class NameGone(NamedTuple):
    """The topic or table to alter or drop no longer exists; `kind` is PARTITION or SHARD."""

    kind: int
    name: str


class NumbersUsedUp(NamedTuple):
    """Fewer tablet numbers are left than wanted."""

    name: str
    wanted: int
    remaining: int


class TabletDropped(NamedTuple):
    """The topic or table was dropped before this transaction's place."""


class RefusedUnplanned(NamedTuple):
    """The coordinator was asked about the transaction before its plan request came."""


class Withdrawn(NamedTuple):
    """The client gave the transaction up before its plan."""


class DiskFull(NamedTuple):
    """The disk of the tablet's host is full."""


class OwnerEnded(NamedTuple):
    """It was aborted, or refused; its owner ended before it said why."""


class RecordForgotten(NamedTuple):
    """Its owner ended before it said how it ended, and the record of that is forgotten."""


Why: TypeAlias = (
    NotNext
    | ConsumerMoved
    | OutsideLog
    | MoreRecords
    | NumberTaken
    | WrongKind
    | TooManyRanges
    | StagedLost
    | RowChanged
    | RangeChanged
    | NotANumber
    | SumTooLarge
    | NameExists
    | NameGone
    | NumbersUsedUp
    | TabletDropped
    | RefusedUnplanned
    | Withdrawn
    | DiskFull
    | OwnerEnded
    | RecordForgotten
)

_CLASSES: dict[str, Any] = {
    "position": NotNext,
    "moved": ConsumerMoved,
    "range": OutsideLog,
    "end": MoreRecords,
    "sequence": NumberTaken,
    "consumer": WrongKind,
    "gaps": TooManyRanges,
    "lost": StagedLost,
    "key": RowChanged,
    "phantom": RangeChanged,
    "type": NotANumber,
    "overflow": SumTooLarge,
    "exists": NameExists,
    "gone": NameGone,
    "full": NumbersUsedUp,
    "dropped": TabletDropped,
    "refused": RefusedUnplanned,
    "withdrawn": Withdrawn,
    "space": DiskFull,
    "owner": OwnerEnded,
    "forgotten": RecordForgotten,
}
_CAUSES = {kind: cause for cause, kind in _CLASSES.items()}


def kept_as(tablet: int, why: Why) -> Reason:
    """Returns a reason's stored form, prefixed with the tablet that reports it."""
    return (tablet, _CAUSES[type(why)], *why)


def read_reason(reason: Reason) -> tuple[int, Why]:
    """Returns (tablet, why) from the stored form."""
    tablet, cause, *detail = reason
    return tablet, _CLASSES[cause](*detail)


def cause_of(reason: Reason) -> str:
    """Returns the cause, by which statistics count."""
    _, cause, *_ = reason
    return str(cause)
