"""Why a transaction does not commit: a small class for each reason, and the one form in which all are kept.

    check ─▶ NotNext("c", 0, 4) ─ kept_as(tablet, …) ─▶ (tablet, "position", "c", 0, 4) ─ read_reason ─▶ an error

The kept form is what rows, messages and results hold: the tablet that says so, the cause, the class's
fields. Causes are also what statistics count by.

Next: ../tablets/participant.py, and ../engine/planstep/runtime/outcome.py, which makes errors of them.
"""

from typing import Any, NamedTuple, TypeAlias

from .messages import Reason, Version


class NotNext(NamedTuple):
    """A range that no longer follows the committed position."""

    consumer: str
    expected: int
    actual: int


class ConsumerMoved(NamedTuple):
    """A consumer that was moved since it was read: the steps of two moves."""

    consumer: str
    expected: int
    actual: int


class OutsideLog(NamedTuple):
    """A range, a position or a new start that is not in the log."""

    consumer: str
    offset: int
    end: int


class MoreRecords(NamedTuple):
    """A log that a read came to the end of has more."""

    expected: int
    actual: int


class NumberTaken(NamedTuple):
    """A producer's number that was published already; `foreign`: by another session, with other data."""

    producer: bytes
    first: int
    last_known: int
    foreign: bool


class WrongKind(NamedTuple):
    """A cumulative consumer that is used as an individual one, or the other way round."""

    consumer: str
    asked: str
    actual: str


class TooManyRanges(NamedTuple):
    """An individual consumer with more gaps than there may be."""

    consumer: str
    limit: int


class StagedLost(NamedTuple):
    """Of what went ahead of the commit only so many slices are there: a host was restarted."""

    staged: int
    there: int


class RowChanged(NamedTuple):
    """A row that was changed since it was read."""

    key: bytes
    expected: Version
    actual: Version


class RangeChanged(NamedTuple):
    """A range of rows that was changed since it was read: numbers of rows."""

    begin: bytes
    expected: int
    actual: int


class NotANumber(NamedTuple):
    """An update of a row that holds no number."""

    key: bytes
    wanted: str
    actual: str


class SumTooLarge(NamedTuple):
    """An addition whose sum is not stored."""

    key: bytes
    wanted: str
    actual: str


class NameExists(NamedTuple):
    name: str


class NameGone(NamedTuple):
    """What was to be altered or dropped is not there any more; `kind` is PARTITION or SHARD."""

    kind: int
    name: str


class NumbersUsedUp(NamedTuple):
    """No numbers are left for so many tablets."""

    name: str
    wanted: int
    left: int


class TabletDropped(NamedTuple):
    """The topic or table ended before this transaction's place."""


class RefusedUnplanned(NamedTuple):
    """The coordinator was asked about it before anybody asked for its plan."""


class Withdrawn(NamedTuple):
    """Its client gave it up before its plan."""


class DiskFull(NamedTuple):
    """The disk of the tablet's host is full."""


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
}
_CAUSES = {kind: cause for cause, kind in _CLASSES.items()}


def kept_as(tablet: int, why: Why) -> Reason:
    """The form of rows and messages, with the tablet in front that says so."""
    return (tablet, _CAUSES[type(why)], *why)


def read_reason(reason: Reason) -> tuple[int, Why]:
    """(tablet, why), from the kept form."""
    tablet, cause, *detail = reason
    return tablet, _CLASSES[cause](*detail)


def cause_of(reason: Reason) -> str:
    """What statistics count it by."""
    _, cause, *_ = reason
    return str(cause)
