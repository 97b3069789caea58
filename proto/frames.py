"""Defines the frames between a store's owner and the processes that are attached to it.

    attached ──Hello──▶ owner ──Welcome | Refused──▶ attached                   first; which version both speak
    attached ──Commit, Stage, Rollback──▶ owner ──Results, Failures──▶   mode "deterministic"
    attached ──Deliver──▶ owner ──Answers──▶                                    modes "kafka" and "pulsar"
    attached ──Watch, Unwatch──▶ owner ──Published──▶                           wakes readers that wait
    attached ──NewIds──▶ owner ──Ids──▶                                         transaction ids, in blocks
    attached ──Join, Leave, Given, Floor──▶ owner ──Shares──▶                   who reads which partitions
    attached ──Claim, Free──▶ owner ──Claimed──▶                                ranges of individual consumers
    attached ──Call──▶ owner ──Return, CallFailed──▶                   what only the owner can do
    owner ──Stopped──▶ attached                                                 ends the link for ever
    attached ──Bye──▶ owner                                                     nothing is in doubt

A frame is a NamedTuple; the types of its fields say what the decoder checks. A new kind is a class, and a line in
one of the two tables at the end. Codes are never reused.

`Hello` begins alike in all versions, and `Refused` is the same in all of them.
Next: frame_codec.py.
"""

from typing import Annotated, Any, NamedTuple, TypeAlias

from .frame_checks import INT_MAX, By, Within
from .frame_messages import Sent, read_answers, read_requests, write_messages
from .frame_parts import (
    Name,
    Offset,
    Tablet,
    Tx,
    read_ahead,
    read_details,
    read_parts,
    write_ahead,
    write_parts,
)
from .messages import AheadSlices, Detail, Parts

MAGIC = b"PSO1"
VERSIONS = (1, 1)
"""The lowest and the highest version that this program speaks."""

_Id: TypeAlias = Annotated[bytes, Within(16, 16)]
_Generation: TypeAlias = Annotated[int, Within(0, (1 << 32) - 1)]
_Number: TypeAlias = Annotated[int, Within(0, INT_MAX)]
_Word: TypeAlias = Annotated[str, Within(0, 200)]
_Text: TypeAlias = Annotated[str, Within(0, 20_000)]
_Tablets: TypeAlias = Annotated[tuple[Tablet, ...], Within(0, 10_001)]
_Lane: TypeAlias = Annotated[int, Within(0, 9_999)]
_Lanes: TypeAlias = Annotated[tuple[_Lane, ...], Within(0, 10_000)]
_Ranges: TypeAlias = Annotated[tuple[tuple[Offset, Offset], ...], Within(0, 10_000)]
_Settings: TypeAlias = Annotated[tuple[tuple[_Word, Any], ...], Within(0, 200)]
_SOME = Within(1, 100_000)


def common_version(versions: tuple[int, int]) -> int | None:
    """Returns the highest version that the peer speaks too, or None."""
    low, high = max(versions[0], VERSIONS[0]), min(versions[1], VERSIONS[1])
    return high if low <= high else None


# attached ─▶ owner -------------------------------------------------------------------------


class Hello(NamedTuple):
    """Opens a link. `settings` are (name, value) of those that the caller gave to `open`.

    `first`: the generation of the owner with which this engine had its first link, and that one's number.
    """

    versions: tuple[_Generation, _Generation]
    store: _Id
    pid: _Number
    program: _Word
    settings: _Settings = ()
    first: tuple[_Generation, _Number] | None = None


class Commit(NamedTuple):
    """Commits a transaction's parts. `size` counts its bytes as statistics do.

    `again`: it was handed to an owner before, so its outcome is looked for first.
    """

    tx: Tx
    parts: Annotated[Parts, By(read_parts, write_parts)]
    size: _Number
    again: bool = False


class Stage(NamedTuple):
    """Stages slices ahead of a commit."""

    tx: Tx
    slices: Annotated[AheadSlices, By(read_ahead, write_ahead)]
    size: _Number


class Rollback(NamedTuple):
    """Gives up a transaction that has staged slices; nothing answers."""

    tx: Tx


class Deliver(NamedTuple):
    """Delivers one request of a mode's client, or several that one turn takes or undoes together."""

    requests: Annotated[tuple[Sent, ...], By(read_requests, write_messages)]


class Watch(NamedTuple):
    """Asks to be told when these tablets publish."""

    tablets: _Tablets


class Unwatch(NamedTuple):
    tablets: _Tablets


class NewIds(NamedTuple):
    """Asks for a block of transaction ids."""


class Join(NamedTuple):
    """Joins a consumer of a topic with that many readers, or changes their number.

    `lanes` are those that the process has from an owner before. `party` is that of an exclusive consumer. A process
    that does not answer for `lease_ms` loses its lanes.
    """

    topic: Tablet
    consumer: Name
    readers: Annotated[int, _SOME]
    lanes: _Lanes = ()
    party: _Word | None = None
    lease_ms: Annotated[int, Within(1, 1 << 40)] = 30_000


class Leave(NamedTuple):
    topic: Tablet
    consumer: Name


class Given(NamedTuple):
    """Gives lanes back that `Shares` of that epoch has taken away."""

    topic: Tablet
    consumer: Name
    epoch: _Number
    lanes: _Lanes


class Claim(NamedTuple):
    """Asks for ranges of an individual consumer's lane, of at most so many records.

    `ranges` are those that the process has from an owner before; it is answered first which of them it has.
    """

    topic: Tablet
    consumer: Name
    lane: _Lane
    records: _Number
    ranges: _Ranges = ()


class Free(NamedTuple):
    """Frees claimed ranges that were not committed."""

    topic: Tablet
    consumer: Name
    lane: _Lane
    ranges: _Ranges


class Floor(NamedTuple):
    """Tells the lowest offsets that open transactions are about to consume, by tablet."""

    floors: Annotated[tuple[tuple[Tablet, Offset], ...], Within(0, 10_001)]


class Call(NamedTuple):
    """Calls a function of the owner; it names one of a closed table."""

    number: _Number
    name: _Word
    arguments: Annotated[tuple[Any, ...], Within(0, 100)] = ()


class Bye(NamedTuple):
    """Closes the link; nothing of it is in doubt."""


# owner ─▶ attached -------------------------------------------------------------------------


class Welcome(NamedTuple):
    """Accepts a link, in that version; `connection` is its number at this owner.

    `ids` are the first counter and the number of a block of transaction ids of this generation.
    """

    version: _Generation
    generation: _Generation
    connection: _Number
    settings: _Settings
    ids: tuple[_Number, _Number]


class ErrorForm(NamedTuple):
    """An error of the library: the name of its class, its arguments and its attributes."""

    name: _Word
    arguments: Annotated[tuple[Any, ...], Within(0, 100)] = ()
    attributes: Annotated[tuple[tuple[_Word, Any], ...], Within(0, 100)] = ()


class Refused(NamedTuple):
    """Refuses a link, and closes it. `text` says why even to a version that does not know the error."""

    text: _Text
    error: ErrorForm | None = None


class Result(NamedTuple):
    """A committed transaction with its place; step 0: its slices are staged."""

    tx: Tx
    step: _Number
    n: _Number
    details: Annotated[dict[int, Detail], By(read_details)]


class Results(NamedTuple):
    """Tells all that one turn has committed for the link."""

    results: Annotated[tuple[Result, ...], _SOME]


class Failures(NamedTuple):
    """Tells transactions that did not commit, or whose end is not known, each by the error that its caller gets."""

    errors: Annotated[tuple[tuple[Tx, ErrorForm], ...], _SOME]


class Answers(NamedTuple):
    """Answers requests of modes; the targets are the clients."""

    answers: Annotated[tuple[Sent, ...], By(read_answers, write_messages)]


class Published(NamedTuple):
    """Tells which watched tablets may show more by now."""

    tablets: _Tablets


class Ids(NamedTuple):
    """Gives a block of transaction ids of the owner's generation: the first counter, and how many."""

    first: _Number
    number: _Number


class Shares(NamedTuple):
    """Tells which lanes of a consumer the process has now; `Given` of that epoch answers it, with those it lost.

    Epoch 0 answers `Leave`, and a `Join` that an exclusive consumer's process refuses.
    """

    topic: Tablet
    consumer: Name
    epoch: _Number
    lanes: _Lanes


class Claimed(NamedTuple):
    topic: Tablet
    consumer: Name
    lane: _Lane
    ranges: _Ranges


class Return(NamedTuple):
    """Answers a call."""

    number: _Number
    value: Any


class CallFailed(NamedTuple):
    number: _Number
    error: ErrorForm


class Stopped(NamedTuple):
    """Ends the link for ever: the owner does not understand what it was sent."""

    error: ErrorForm


Frame: TypeAlias = tuple[Any, ...]
"""One of the classes above; a receiver first looks at its class."""
Kinds: TypeAlias = dict[int, Any]
"""Classes of frames by their codes."""
HELLO, WELCOME, REFUSED = 1, 65, 66
OPENING = (HELLO, WELCOME, REFUSED)
"""The kinds of a link's first frame in either direction."""
OF_ATTACHED: Kinds = {
    HELLO: Hello,
    2: Commit,
    3: Stage,
    4: Rollback,
    5: Deliver,
    6: Watch,
    7: Unwatch,
    8: NewIds,
    9: Join,
    10: Leave,
    11: Given,
    12: Claim,
    13: Free,
    14: Floor,
    15: Call,
    17: Bye,
}
"""The frames that an attached process sends."""
OF_OWNER: Kinds = {
    WELCOME: Welcome,
    REFUSED: Refused,
    67: Results,
    69: Failures,
    70: Answers,
    71: Published,
    72: Ids,
    73: Shares,
    74: Claimed,
    75: Return,
    76: CallFailed,
    81: Stopped,
}
"""The frames that the owner sends."""
