"""From values inside the cores to what a caller gets: one place turns reasons into exceptions.

A reason is (tablet, cause, detail…); its causes:

    position   consumer, expected, actual      a range that no longer follows the committed position
    moved      consumer, expected, actual      a consumer that was moved since it was read: steps of moves
    range      consumer, end, log end          a range beyond the log
    end        expected, actual                a log that a read came to the end of has more
    sequence   producer, first, last known     a producer's number that was published already
    key        key, expected, actual version   a row changed since it was read
    phantom    begin, expected, actual count   a range of rows changed since it was read
    type, overflow   key, …                    an update that the row's value cannot take
    consumer   consumer, asked, actual kind    a cumulative consumer used as an individual one, or so
    gaps       consumer, limit                 an individual consumer with too many ranges
    exists     name                            created already
    gone       kind, name                      altered or dropped, but it is not there any more
    dropped                                    the topic or table ended before this transaction's place
    lost       sent ahead, there               what went ahead of the commit was lost with a host
    full       name, wanted, left              no numbers left for so many tablets
    refused, withdrawn                         ended before it was planned
    space                                      the disk of the tablet's host is full

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
    TooManyGaps,
    Undetermined,
    UnknownName,
)
from ..proto.ids import PARTITION, Place, host_of, kind_of, tx_text
from ..proto.keys import decode_key
from ..proto.messages import Reason

Names = Callable[[int], tuple[str, str, int]]
"""Tablet id → (kind: topic or table, name, partition or shard number)."""


class Commit(NamedTuple):
    """A committed transaction. `details` is what each tablet said: internal, see `published`."""

    tx: bytes
    place: Place
    details: dict[int, Any]
    names: Names | None = None
    epoch: int | None = None
    """Mode "kafka": the producer's epoch that it was written under; there is no place then: (0, None)."""

    @property
    def id(self) -> str:
        """The transaction's id, as in "3-17"."""
        return tx_text(self.tx)

    @property
    def published(self) -> dict[tuple[str, int], tuple[int, int] | None]:
        """(topic, partition) → the offsets [begin, end) that its records got there.

        None for a producer's repeat, which was published before.
        """
        found: dict[tuple[str, int], tuple[int, int] | None] = {}
        for tablet, offsets in self.details.items():
            if kind_of(tablet) == PARTITION and self.names is not None:
                _, name, partition = self.names(tablet)
                found[name, partition] = offsets
        return found

    def __repr__(self) -> str:
        return f"<Commit {self.id} at ({self.place.step}, {self.place.n})>"


class Outcome(NamedTuple):
    """What the store knows of a transaction: `state` is committed, aborted, refused, planned, open,
    unknown or expired."""

    tx: str
    state: str
    place: Place | None
    when_ms: int
    participants: tuple[int, ...]


def _key(data: bytes) -> Any:
    try:
        return decode_key(data)
    except ValueError:
        return data  # a client of the runtime with keys of its own making


def failure(tx: bytes, reason: Reason, names: Names) -> Exception:
    """The exception for a transaction that did not commit."""
    tablet, cause, *detail = reason
    if cause in ("refused", "withdrawn"):
        return Aborted(f"transaction {tx_text(tx)} was {cause} before it was planned")
    if cause == "exists":
        return AlreadyExists(f"{detail[0]!r} exists already; pass exist_ok=True to accept that")
    if cause == "full":
        return Aborted(
            f"{detail[0]!r} needs {detail[1]:,} tablets (partitions or shards), and {detail[2]:,} are "
            "left in this store: begin another store"
        )
    if cause == "gone":
        return UnknownName("topic" if detail[0] == PARTITION else "table", detail[1])
    kind, name, part = names(tablet)
    if cause == "dropped":
        return Dropped(f"{kind} {name!r} was dropped meanwhile; nothing of the transaction counts")
    if cause == "consumer":
        return NotSupported(
            f"topic {name!r}: consumer {detail[0]!r} is {detail[2]}, not {detail[1]}; its kind is "
            "chosen by create_consumer, for ever"
        )
    if cause == "gaps":
        return TooManyGaps(
            f"topic {name!r}, partition {part}: consumer {detail[0]!r} has more than {detail[1]:,} "
            "ranges of consumed records between records that are not; consume those first"
        )
    if cause == "lost":
        return Aborted(
            f"{kind} {name!r}, partition {part}: data sent ahead of the commit is gone, since its host "
            "was restarted; nothing of the transaction counts: run it again"
        )
    if cause == "space":
        return NoSpace(
            f"{kind} {name!r}: the disk of host {host_of(tablet)} is full: free some space (`no_space` in "
            "the log says how much was needed); nothing was written or lost"
        )
    where: dict[str, Any] = {"kind": kind, "name": name, "part": part}
    if cause == "range":
        return OffsetOutOfRange(
            f"consumer {detail[0]!r}: offset {detail[1]} is outside the log of topic {name!r}, "
            f"partition {part}, which ends at {detail[2]}"
        )
    if cause == "position":
        return Conflict(**where, consumer=detail[0], expected=detail[1], actual=detail[2])
    if cause == "end":
        return Conflict(**where, expected=detail[0], actual=detail[1])
    if cause == "moved":
        return Conflict(
            **where, consumer=detail[0], expected=detail[1], actual=detail[2], moved=True
        )
    if cause == "sequence":
        foreign = detail[3]
        return Conflict(
            **where, producer=detail[0], expected=detail[1], actual=detail[2], foreign=foreign
        )
    key = None if cause == "phantom" else _key(detail[0])
    if cause == "overflow":
        return TypeError(
            f"table {name!r}, key {key!r}: the sum, or the row before it, needs more than 64 bits or is no "
            "finite number"
        )
    if cause == "type":
        return TypeError(
            f"table {name!r}, key {key!r}: the row is not a finite number: add, max and min need one"
        )
    return Conflict(**where, key=key, expected=detail[1], actual=detail[2])


def undetermined(tx: bytes, timeout: float | None) -> Undetermined:
    return Undetermined(
        f"transaction {tx_text(tx)} was not answered within {timeout} s; it goes on, and "
        f"outcome({tx_text(tx)!r}) tells how it ended"
    )
