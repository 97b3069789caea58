"""Makes a machine the owner of a store: it takes all turns of the shared log, begins a term, and appends its own.

    catch_up   own last turn: the same there? ─▶ take the turns behind it … to the end
    begin      BEGIN in the next slot ─▶ floor still below it? ─▶ owner
    append     each turn in the shared log first, then in the folder ─▶ Fenced once another BEGIN is there

The rules that make a store safe with any number of machines that hold themselves to be its owner:

    a slot is written once, and its bytes decide, not the answer to a put             (the log)
    after a doubt only the same bytes are sent (by the log); one append is under way  append
    nothing is appended before one's own BEGIN is decided and checked                 begin
    nothing is acknowledged or shown before it is decided; the folder is behind       append, LocalStore
    a BEGIN is never removed; a floor is written before anything below it goes        (the log)
    who finds the floor above its BEGIN has begun in a slot that was emptied:         begin
        it starts over, and leaves the BEGIN where it is
    who finds another entry in its slot looks at the floor after that: above it, its  append
        turn may have been decided and trimmed, and a void BEGIN stands there
    a reader that meets a BEGIN looks at the floor after that                         catch_up
    a folder below the floor makes room for a snapshot if its last turn is history:   find
        BEGINs stay, and tell whose each turn was

Left out: hosts beyond the first. A shared log carries the turns of one host.

Next: memory_log.py.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeAlias

from ..errors import Corruption, Diverged, Fenced, NoSpace, Refused, Trimmed
from .entry import BEGIN, TURN, Entry, Owner, seal
from .shared_log import Position, SharedLog

_READ_BYTES = 8 << 20
_ENDS_BEFORE = (
    "the shared log ends before turn {}, where this folder is: use the log of this store; if it was put back to an "
    "older state, `planstep replicate STORE URL --reseed` gives it what it lost"
)
Rest: TypeAlias = Callable[[int], Iterable[tuple[bytes, int, int, bytes, bytes, bytes]]]
"""Reads the turns behind one: (chain before, turn, address, changes, dropped, payload) each."""


class OwnerRow(NamedTuple):
    """A row of the store that each turn writes: the turn's owner, and the place of the entry before it."""

    term: int
    nonce: bytes
    before: bytes
    mark: bytes


class LocalStore(Protocol):
    """A folder, as far as the shared log goes."""

    @property
    def last_turn(self) -> int: ...

    def owner_row(self) -> OwnerRow | None:
        """Returns the row as of the last turn; None if there was none yet."""

    def take(self, entry: Entry) -> None:
        """Takes over the turn behind the last one, as its owner wrote it. Corruption if it does not fit."""


class Ownership:
    """One opening of a store on its shared log. Invariant: `last` is decided, and the folder has at most that."""

    def __init__(self, log: SharedLog, store_id: bytes, nonce: bytes) -> None:
        """`nonce`: 16 random bytes of this opening."""
        self.log = log
        self.last = Position()
        self.last_owner = Owner(0, b"")
        self.owner = Owner(0, nonce)
        self.end = 0
        """The last turn that was read."""
        self.at_end = False
        """The last read took all that was there when it began."""
        self._store_id = store_id
        self._kind = BEGIN
        self._sent: Entry | None = None  # its append is under way, or has failed

    @property
    def term(self) -> int:
        return self.owner.term

    def catch_up(self, local: LocalStore) -> None:
        """Takes all turns that the folder lacks. Diverged, Trimmed, Corruption, LogUnreachable."""
        self.find(local)
        while self.take_next(local):
            pass
        self._look_at_floor(self.last.turn + 1)

    def take_next(self, local: LocalStore, wait: float = 0) -> int:
        """Takes the next turns that the folder lacks; returns their number, 0 if none came within `wait` seconds.

        Errors as in `catch_up`, and those of the folder; after any, `find` comes first.
        """
        entries = self.log.read(_READ_BYTES, wait)
        self.end = entries[-1].turn if entries else self.last.turn
        for entry in entries:
            self._check(entry)
            self._check_owner(entry)
            local.take(entry)
            self._pass(entry)
        self.at_end = sum(len(entry.data) for entry in entries) < _READ_BYTES
        return len(entries)

    def once_more(self, nonce: bytes, local: LocalStore) -> "Ownership":
        """Returns another opening, which has taken the turns that fenced this one. Errors as `catch_up`.

        This one has listed the log. A list takes longer than a turn of an owner that goes on writing, so none is
        made again; a BEGIN that is decided looks at the floor.
        """
        again = Ownership(self.log, self._store_id, nonce)
        again.last, again.last_owner = self.last, self.last_owner
        again.take_next(local)
        return again

    def find(self, local: LocalStore) -> None:
        """Finds the folder's last turn in the shared log."""
        turn, row = local.last_turn, local.owner_row()
        if row is None:
            if turn and self.log.floor() <= turn:  # not a seed either, behind which the log begins
                raise Diverged(
                    f"the folder has {turn} turns that were never in a shared log: seed one with it"
                )
            self.last, self.last_owner = Position(turn), Owner(0, b"")
            self.log.open(self.last)
            return
        self.last = Position(turn - 1, row.before, row.mark)
        self.log.open(self.last)
        try:
            entry = self._own_last(turn)
        except Trimmed:
            if self.log.wrote(Owner(row.term, row.nonce), turn):
                raise
            raise Diverged(
                f"turn {turn} of the folder is not that of the shared log, which is trimmed by now: keep the "
                "folder if its last turns matter, and use an empty one"
            ) from None
        if entry.owner != (row.term, row.nonce):
            raise Diverged(f"turn {turn} of the folder is not that of the shared log")
        self._pass(entry)

    def _own_last(self, turn: int) -> Entry:
        """Reads the entry in the slot of the folder's last turn."""
        entries = self.log.read(1, 0)
        if not entries:
            self._look_at_floor(turn)
            raise Diverged(_ENDS_BEFORE.format(turn))
        self._check(entries[0])
        return entries[0]

    def _check(self, entry: Entry) -> None:
        """Checks that an entry is the next one of this store."""
        turn = self.last.turn + 1
        if entry.store_id != self._store_id:
            raise Diverged(f"turn {turn} of the shared log is of another store")
        if entry.turn != turn:
            raise Corruption(f"the shared log has turn {entry.turn} in place of {turn}")
        if entry.before != self.last.chain:
            raise Diverged(f"turn {turn} of the shared log does not follow the turns before it")
        if entry.kind == BEGIN:
            self._look_at_floor(turn)

    def _check_owner(self, entry: Entry) -> None:
        """Checks that a turn is of the owner that began last, and a BEGIN of a later term. Corruption."""
        if entry.kind == BEGIN:
            fits = entry.owner.term > self.last_owner.term
        else:
            fits = entry.owner == self.last_owner
        if not fits:
            raise Corruption(
                f"turn {entry.turn} of the shared log is of term {entry.owner.term}, behind one of term "
                f"{self.last_owner.term}: no owner writes that"
            )

    def _look_at_floor(self, turn: int) -> None:
        floor = self.log.floor()
        if floor > turn:
            raise Trimmed(floor)

    def _pass(self, entry: Entry) -> None:
        self.last = Position(entry.turn, entry.chain, entry.mark)
        self.last_owner = entry.owner

    # as the owner --------------------------------------------------------------------------

    def begin(self, above: int = 0) -> None:
        """Says that the next turn is a BEGIN, of a term above the last one and above `above`."""
        self.owner = Owner(max(self.last_owner.term, above) + 1, self.owner.nonce)
        self._kind = BEGIN

    def row(self) -> OwnerRow:
        """Returns the row that the next turn writes."""
        return OwnerRow(*self.owner, self.last.chain, self.last.mark)

    def append(
        self, turn: int, address: int, changes: bytes, dropped: bytes, payloads: list[bytes]
    ) -> Entry:
        """Appends the next turn, and returns its entry; it is decided when this returns.

        Fenced: it has no effect, unless that is `in_doubt`, and no later one has any. NoSpace, Refused: it has
        none, and another one may follow. LogUnreachable: it may be decided. Trimmed, for a BEGIN alone: it is void,
        and the folder is older than the shared log's floor. After any other error nothing may follow.
        """
        assert self._sent is None, "nothing is sent behind an append that failed"
        return self.send(
            self.seal(turn, self.last.chain, address, changes, dropped, payloads, kind=self._kind)
        )

    def seal(
        self,
        turn: int,
        before: bytes,
        address: int,
        changes: bytes,
        dropped: bytes,
        payloads: Sequence[bytes],
        *,
        kind: int = TURN,
    ) -> Entry:
        """Encodes a turn of this owner; `before`: the chain of the turn before."""
        return seal(
            *(kind, self._store_id, self.owner, turn, before, address),
            changes=changes,
            dropped=dropped,
            payloads=payloads,
        )

    def send(self, entry: Entry) -> Entry:
        """Appends an entry as `append` does; after LogUnreachable the same one may be sent again."""
        turn, kind = entry.turn, entry.kind
        assert self.owner.term and turn == self.last.turn + 1
        assert self._sent in (None, entry)
        self._sent = entry
        try:
            entry = entry._replace(mark=self.log.append(entry))
        except (NoSpace, Refused):
            self._sent = None
            raise
        except Fenced as error:
            if kind == TURN:
                error.in_doubt = error.in_doubt or self.log.floor() > turn
            raise
        if kind == BEGIN:
            self._look_at_floor(turn)
            self._kind = TURN
        self._pass(entry)
        self._sent = None
        return entry

    # as an owner of before, whose folder has more than the log -------------------------------

    def append_rest(self, owner: Owner, at: Position, end: int, rest: Rest) -> Owner:
        """Appends what a folder has behind the log's end, as it was; returns whose turn follows `last`.

        `owner` began the folder's last term, `at` is the place before a turn of it that the log has, `end` the
        folder's last turn. Then `last` is the last turn that both have, and `owner` is returned if that is `end`.
        Trimmed, Diverged, Corruption, LogUnreachable, NoSpace.
        """
        self.owner, self.last, self.last_owner, self._kind = owner, at, owner, TURN
        self.log.open(at)
        other = self._pass_own(end, rest)
        if other is not None:
            return other
        if self.last == at:
            raise Diverged(_ENDS_BEFORE.format(at.turn + 1))
        if self.last.turn >= end:
            return owner
        for before, turn, address, changes, dropped, payload in rest(self.last.turn):
            if before != self.last.chain:
                raise Diverged(f"turn {turn} of the folder does not follow the shared log")
            try:
                self.send(self.seal(turn, before, address, changes, dropped, [payload]))
            except Fenced as error:
                if error.in_doubt:
                    raise Trimmed(self.log.floor()) from error
                return Owner(error.term, b"")
        return owner

    def _pass_own(self, end: int, rest: Rest) -> Owner | None:
        """Passes this owner's turns in the log, up to `end`; returns another owner, if one begins before that."""
        while self.last.turn < end and (entries := self.log.read(_READ_BYTES, 0)):
            for entry in entries:
                self._check(entry)
                if entry.owner != self.owner:
                    return entry.owner
                self._pass(entry)
                if entry.turn == end:
                    self._check_same(entry, rest)
        return None

    def _check_same(self, entry: Entry, rest: Rest) -> None:
        """Checks that the folder's last turn is the log's, as far as the folder's log still has it. Diverged.

        A machine that went on from an image of its memory writes other turns of the same owner.
        """
        turns = []
        with suppress(Corruption):
            turns = list(rest(entry.turn - 1))
        for before, turn, address, changes, dropped, payload in turns:
            same = self.seal(turn, before, address, changes, dropped, [payload])
            if same.data != entry.data:
                raise Diverged(
                    f"turn {turn} of the folder is not that of the shared log, though its owner is: did a machine "
                    "go on from an image of its memory? Keep the folder if its last turns matter, and use an empty "
                    "one"
                )
