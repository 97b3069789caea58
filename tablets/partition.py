"""The topic partition tablet: keeps a log of published records, consumers' positions and producers' numbers.

Keys, behind the tablet's prefix (the talk's table, with places):

    b<offset 8>     `Entry`                               one slice, published at that offset
    c<consumer>     (step, n, position, missed)           committed by a cumulative consumer
                    (step, n, position, missed, ranges)   … an individual one: intervals.py
                    (step, n, position, missed, ranges or None, moved)   … one that was moved: `Standing`
    f               (step, n)                             the last time a consumer was forgotten here
    p<producer id>  `Numbers`                             published at most once
    s<tx>           (proxy, (address, length, records)…)  staged ahead of the proposal, in order
    m               `Bounds`

Publishing moves no bytes: the slice was appended to the host's log when it was staged, and now gets
the next offset. Offsets are contiguous, so readers need no filter. Trimming raises the log's start,
a bounded number of slices at a time; trimmed records that a consumer had not consumed count as missed.

A position alone does not show a reader that its consumer was moved back and has read up to it again. So the
row also keeps the step of the consumer's last move, and a transaction that consumes names the move it knows.

Next: intervals.py, shard.py.
"""

from typing import Any, NamedTuple, TypeAlias

from ..proto.messages import (
    Detail,
    Message,
    PartitionPart,
    Slice,
    Slices,
    Stage,
    Staged,
    StagedSlice,
)
from ..proto.reasons import (
    ConsumerMoved,
    MoreRecords,
    NotNext,
    NumberTaken,
    OutsideLog,
    StagedLost,
    TooManyRanges,
    Why,
    WrongKind,
)
from ..proto.stored import AnyRow
from .intervals import RANGES_MAX, Ranges, consumed, overlap_end, raised
from .participant import DROPPED, Participant

META = b"m"
TRIM_SLICES_MAX = 2_000
"""The most slices that one transaction trims; the caller asks again for the rest."""
FORGOTTEN = b"f"


class Bounds(NamedTuple):
    """The log is [start, end); (step, n) is the place of the transaction that last changed either."""

    step: int = 0
    n: int = 0
    start: int = 0
    end: int = 0


BoundsRow: TypeAlias = tuple[int, int, int, int]
"""A `Bounds` as the store returns it."""
EMPTY = Bounds()
"""The bounds of a log before its first publication."""


class Entry(NamedTuple):
    """A slice of `records` records: `length` bytes at `address` of the host's log, published at (step, n)."""

    address: int
    length: int
    records: int
    step: int
    n: int


EntryRow: TypeAlias = tuple[int, int, int, int, int]
"""An `Entry` as the store returns it."""


class Numbers(NamedTuple):
    """The last number that a producer has published, its step, and the writer's session."""

    last: int
    step: int
    session: bytes | None


NumbersRow: TypeAlias = tuple[int, int, bytes | None]
"""A `Numbers` as the store returns it."""
SentPart: TypeAlias = PartitionPart[Slice] | PartitionPart[StagedSlice]
"""A part as it is sent, with its slices, or the body that `stage` made of it."""


class Standing(NamedTuple):
    """A consumer's row: a cumulative one has no `ranges`; `moved` is the step that created or last moved it.

    Without a row, `moved` is the step that last forgot a consumer here: a consumer created anew is not
    mistaken for the one before.
    """

    step: int = 0
    n: int = 0
    position: int = 0
    missed: int = 0
    ranges: Ranges | None = None
    moved: int = 0

    def row(self) -> "StandingRow":
        """Returns the tuple to store, without trailing fields it does not need (older versions had no `moved`)."""
        if self.moved:
            return self[:]
        return self[:4] if self.ranges is None else self[:5]


StandingRow: TypeAlias = (
    tuple[int, int, int, int]
    | tuple[int, int, int, int, Ranges | None]
    | tuple[int, int, int, int, Ranges | None, int]
)
"""A `Standing` as the store returns it: trailing fields may be absent."""


def standing(row: StandingRow | None, forgotten: tuple[int, int] | None) -> Standing:
    """Makes a `Standing` from a consumer's row, or, without one, from the partition's row `f`."""
    if row is not None:
        return Standing(*row)
    step, _ = forgotten or (0, 0)
    return Standing(moved=step)


def _check_gaps(held: dict[str, tuple[int, Ranges]]) -> Why | None:
    for consumer, (_, ranges) in held.items():
        if len(ranges) > RANGES_MAX:
            return TooManyRanges(consumer, RANGES_MAX)
    return None


def _check_offsets(body: SentPart, start: int, end: int) -> Why | None:
    """Checks, at the place, that each seek's target and the trim's lie within the log."""
    for consumer, offset, _ in body.seeks:
        if offset is not None and not start <= offset <= end:
            return OutsideLog(consumer, offset, end)
    if body.trim is not None and body.trim > end:
        return OutsideLog("trim", body.trim, end)
    return None


def _check_repeat(body: SentPart, known: Numbers) -> Why | None:
    """Returns None for a repeat that may be ignored; called if the first number is not beyond the last known."""
    assert body.producer is not None
    producer, first, last = body.producer
    foreign = body.session is not None and body.session != known.session
    if foreign or not body.dedupe or last > known.last:
        return NumberTaken(producer, first, known.last, foreign)
    return None


class Partition(Participant[PartitionPart[Slice], PartitionPart[StagedSlice]]):
    """Invariants: entries tile [log start, log end); only a seek lowers a position."""

    __slots__ = ()

    def check(self, body: SentPart, early: bool) -> Why | None:
        body = body if type(body) is PartitionPart else PartitionPart(*body)
        space = self.space
        bounds: BoundsRow = space.get(META) or EMPTY
        _, _, start, end = bounds
        held: dict[str, tuple[int, Ranges]] = {}
        if body.ranges and (why := self._check_ranges(body, start, end, early)) is not None:
            return why
        if body.acks and (why := self._check_acks(body, start, end, early, held)) is not None:
            return why
        if body.fences and (why := self._check_fences(body)) is not None:
            return why
        if body.end is not None and (end > body.end or (not early and end != body.end)):
            return MoreRecords(body.end, end)
        if held and (why := _check_gaps(held)) is not None:
            return why
        if not early and (body.seeks or body.trim is not None):
            why = _check_offsets(body, start, end)
            if why is not None:
                return why
        if body.producer is not None:
            producer, first, _ = body.producer
            row: NumbersRow | None = space.get(b"p" + producer)
            known = None if row is None else tuple.__new__(Numbers, row)
            if known is not None and first <= known.last:
                return _check_repeat(body, known)
        return None

    def _check_ranges(self, body: SentPart, start: int, end: int, early: bool) -> Why | None:
        fences = dict(body.fences)
        for consumer, begin, stop in body.ranges:
            at = self._standing(consumer)
            if at.ranges is not None:
                return WrongKind(consumer, "cumulative", "individual")
            actual = max(at.position, start)
            # Before its plan, a range further on may still become the next one; a range behind never will.
            if begin < actual or (not early and begin != actual):
                return NotNext(consumer, begin, actual)
            if at.moved != fences.get(consumer, 0):
                return ConsumerMoved(consumer, fences.get(consumer, 0), at.moved)
            if not early and not begin <= stop <= end:
                return OutsideLog(consumer, stop, end)
        return None

    def _check_acks(
        self,
        body: SentPart,
        start: int,
        end: int,
        early: bool,
        held: dict[str, tuple[int, Ranges]],
    ) -> Why | None:
        """Checks acknowledgements; stores in `held` each consumer's (position, ranges) after them."""
        fences = dict(body.fences)
        for consumer, begin, stop in body.acks:
            if consumer not in held:
                at = self._standing(consumer)
                if at.ranges is None:
                    return WrongKind(consumer, "individual", "cumulative")
                if at.moved != fences.get(consumer, 0):
                    return ConsumerMoved(consumer, fences.get(consumer, 0), at.moved)
                held[consumer] = raised(at.position, at.ranges, start)[:2]
            blocked = overlap_end(*held[consumer], begin, stop)
            if blocked is not None:
                return NotNext(consumer, begin, blocked)
            if not early and not begin <= stop <= end:
                return OutsideLog(consumer, stop, end)
            held[consumer] = consumed(*held[consumer], begin, stop)
        return None

    def _check_fences(self, body: SentPart) -> Why | None:
        for consumer, fence in body.fences:
            moved = self._standing(consumer).moved
            if moved != fence:
                return ConsumerMoved(consumer, fence, moved)
        return None

    def _standing(self, consumer: str) -> Standing:
        row: StandingRow | None = self.space.get(b"c" + consumer.encode())
        return Standing(*row) if row is not None else standing(None, self.space.get(FORGOTTEN))

    def _stand(self, consumer: str, at: Standing, new: Standing) -> None:
        row = at.row() if at.step else None
        self.space.put_version(b"c" + consumer.encode(), row, new.row(), new.step)

    def take(self, message: Message) -> None:
        if type(message) is not Stage:
            super().take(message)
        tx = message.tx
        if self.space.get(b"t" + tx) is not None:
            return  # a late repeat: the proposal is here already
        held = self._ahead(tx)
        if message.first == len(held):
            held = (*held, *self._append(message.slices))
            self.space.put(b"s" + tx, (message.proxy, *held))
        # Slices beyond a gap get no reply: the proxy sends the missing ones again. A repeat that arrives
        # after the transaction's end is stored; the proxy no longer knows it and withdraws it.
        if message.first <= len(held):
            self.send(message.proxy, Staged(tx, self.id, len(held)))

    def ask_about(self, tx: bytes) -> None:
        """Also repeats `Staged` to the proxy, which withdraws slices of a transaction it no longer knows."""
        held: tuple[Any, ...] | None = self.space.get(b"s" + tx)
        if held is not None:
            proxy, *slices = held
            self.send(proxy, Staged(tx, self.id, len(slices)))
        super().ask_about(tx)

    def _ahead(self, tx: bytes) -> tuple[StagedSlice, ...]:
        held: tuple[Any, ...] | None = self.space.get(b"s" + tx)
        return () if held is None else held[1:]

    def _append(self, slices: Slices) -> tuple[StagedSlice, ...]:
        append = self.space.append_payload
        return tuple((append(data), len(data), count) for data, count in slices)

    def stage(self, tx: bytes, part: PartitionPart[Slice]) -> PartitionPart[StagedSlice]:
        if not part.slices and not part.staged:
            none: PartitionPart[Any] = part  # without slices both types are the same
            return none
        ahead: tuple[StagedSlice, ...] = ()
        if part.staged and self.missing_staged(tx, part) is None:
            ahead = self._ahead(tx)
            self.space.delete(b"s" + tx)
            part = part._replace(staged=0)
        slices = (*ahead, *self._append(part.slices))
        # part._replace(slices=…) without the cost of its calls: every publishing commit runs this.
        return tuple.__new__(PartitionPart, (part.ranges, slices, *part[2:]))

    def missing_staged(self, tx: bytes, part: SentPart) -> Why | None:
        staged = PartitionPart(*part).staged
        held = len(self._ahead(tx)) if staged else 0
        return None if held == staged else StagedLost(staged, held)

    def unstage(self, tx: bytes) -> None:
        held = self._ahead(tx)
        if held:
            for address, length, _ in held:
                self.space.drop_payload(address, length)
            self.space.delete(b"s" + tx)

    def discard(self, body: PartitionPart[StagedSlice]) -> None:
        for address, length, _ in PartitionPart(*body).slices:
            self.space.drop_payload(address, length)

    def apply(self, body: PartitionPart[StagedSlice], step: int, n: int) -> Detail:
        body = body if type(body) is PartitionPart else PartitionPart(*body)
        space = self.space
        for consumer, begin, stop in body.ranges:
            at = self._standing(consumer)
            # The range begins at the position, or at the log's start if that was trimmed beyond it.
            missed = at.missed + begin - at.position if at.step else 0
            self._stand(consumer, at, Standing(step, n, stop, missed, None, at.moved))
        if body.acks:
            self._acknowledge(body.acks, step, n)
        if body.seeks:
            self._seek(body.seeks, step, n)
        if body.trim is not None:
            self._trim(body.trim, step, n)
        if body.producer is not None:
            producer, _, last = body.producer
            key = b"p" + producer
            row: NumbersRow | None = space.get(key)
            if row is not None and last <= tuple.__new__(Numbers, row).last:
                self.discard(body)  # a repeat of published numbers: accepted, without effect
                return None
            space.put(key, (last, step, body.session))
        if body.drop:
            space.put(DROPPED, step)
        if not body.slices:
            return None
        old: BoundsRow | None = space.get(META)
        _, _, start, begin = old or EMPTY
        end = begin
        for address, length, count in body.slices:
            space.put(b"b" + end.to_bytes(8, "big"), (address, length, count, step, n))
            end += count
        space.put_version(META, old, (step, n, start, end), step)
        return (begin, end)

    def _acknowledge(self, acks: tuple[tuple[str, int, int], ...], step: int, n: int) -> None:
        space = self.space
        bounds: BoundsRow = space.get(META) or EMPTY
        _, _, start, _ = bounds
        for consumer, begin, stop in acks:
            at = self._standing(consumer)
            position, ranges, missed = raised(at.position, at.ranges or (), start)
            position, ranges = consumed(position, ranges, begin, stop)
            new = Standing(step, n, position, at.missed + missed, ranges, at.moved)
            self._stand(consumer, at, new)

    def _seek(self, seeks: tuple[tuple[str, int | None, bool], ...], step: int, n: int) -> None:
        space = self.space
        for consumer, offset, individual in seeks:
            at = self._standing(consumer)
            if offset is not None:
                ranges = () if individual else None
                self._stand(consumer, at, Standing(step, n, offset, at.missed, ranges, step))
            elif at.step:
                space.put_version(b"c" + consumer.encode(), at.row(), None, step)
                space.put_version(FORGOTTEN, space.get(FORGOTTEN), (step, n), step)

    def _trim(self, offset: int, step: int, n: int) -> None:
        """Trims the log to begin at `offset`, or earlier if that would be more than `TRIM_SLICES_MAX` slices."""
        space = self.space
        old: BoundsRow | None = space.get(META)
        _, _, start, end = old or EMPTY
        if offset <= start:
            return
        # The slice that holds the start may begin before it.
        slices: list[tuple[bytes, EntryRow]] = space.scan(
            b"b", b"b" + offset.to_bytes(8, "big"), limit=TRIM_SLICES_MAX
        )
        for key, (address, length, count, _, _) in slices:
            behind = int.from_bytes(key[1:], "big") + count
            if behind > offset:
                break
            space.delete(key)
            space.drop_payload(address, length)
        if len(slices) == TRIM_SLICES_MAX:
            offset = min(offset, behind)
        space.put_version(META, old, (step, n, offset, end), step)

    def must_wait_for(
        self, earlier: PartitionPart[StagedSlice], later: PartitionPart[StagedSlice]
    ) -> bool:
        a, b = PartitionPart(*earlier), PartitionPart(*later)
        if a.drop or b.drop:
            return True
        if (a.slices or a.trim is not None) and (b.slices or b.trim is not None):
            return True  # publishing is ordered per partition; trimming moves the bounds too
        if a.slices and self._reaches_beyond(b):
            return True  # it has read what `a` publishes, where another process knows the end of that already
        if (a.trim is not None and (b.ranges or b.acks or b.seeks)) or (
            b.trim is not None and (a.ranges or a.acks or a.seeks)
        ):
            return True
        if (a.end is not None and (b.slices or b.seeks)) or (
            b.end is not None and (a.slices or a.seeks)
        ):
            return True  # the condition "there was no more" depends on the topic's end
        if a.producer is not None and b.producer is not None and a.producer[0] == b.producer[0]:
            return True
        mine, theirs = a.ranges + a.acks + a.seeks, b.ranges + b.acks + b.seeks
        if not mine or not theirs:
            return False
        if any(offset is None for _, offset, _ in a.seeks + b.seeks):
            return True  # forgetting a consumer changes `moved` of every consumer without a row
        consumers = {consumer: None for consumer, _, _ in mine}
        return any(consumer in consumers for consumer, _, _ in theirs)

    def _reaches_beyond(self, body: PartitionPart[StagedSlice]) -> bool:
        """Returns whether a part consumes or seeks behind the log's end as it is now."""
        if not (body.ranges or body.acks or body.seeks):
            return False
        reached = [stop for _, _, stop in body.ranges + body.acks]
        reached += [offset or 0 for _, offset, _ in body.seeks]
        bounds: BoundsRow = self.space.get(META) or EMPTY
        return max(reached) > bounds[3]

    def removed(self, key: bytes, value: AnyRow) -> None:
        if key[:1] == b"b":
            entry = Entry._make(value)
            self.space.drop_payload(entry.address, entry.length)
