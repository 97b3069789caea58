"""Defines what carries a store's turns to other machines: a log in which each turn is written once.

    owner    ─▶ open ─▶ read … [] ─▶ append BEGIN ─▶ floor ─▶ append, append, … ─▶ Fenced, or close
    follower ─▶ open ─▶ read, read, …

Slot n of the log holds turn n. The first that is appended there stays; another one is refused. Everything above
these methods is common to all logs.

Next: owner.py.
"""

from typing import NamedTuple, Protocol

from ..errors import NoSpace, TransactionTooLarge
from .counts import Counts
from .entry import NO_CHAIN, Entry, Owner


class EntryTooLarge(NoSpace, TransactionTooLarge):
    """The log takes no entry of this size; nothing was done."""


class Root(NamedTuple):
    """The store that a shared log is of: written once, when the first machine opens it."""

    store_id: bytes
    mode: str
    format: int


class Position(NamedTuple):
    """A place in a shared log: the last turn that is known, its chain, and what the log itself keeps about it."""

    turn: int = 0
    chain: bytes = NO_CHAIN
    mark: bytes = b""


class Objects(Protocol):
    """An object store, as far as logs and snapshots go.

    IoError: it failed or gave no answer; a change may happen yet.
    """

    def create(self, name: str, data: bytes) -> bool:
        """Creates an object for ever, if its name is free. NoSpace, Refused: without any effect.

        False: the answer was that the name is taken, which the caller does not believe.
        """

    def get(self, name: str) -> bytes | None:
        """Returns an object's bytes; None if there is none."""

    def sync(self, name: str) -> None:
        """Makes sure that an object stays that `get` returned. LogUnreachable: it may not."""

    def names(self, prefix: str, start: str = "") -> list[str]:
        """Lists all names that begin with a prefix, and come after `start`, in order. A prefix ends at a slash."""

    def sizes(self) -> dict[str, int]:
        """Lists all names, each with its bytes."""

    def remove(self, name: str) -> None:
        """Removes an object, if there is one."""

    def tidy(self) -> None:
        """Removes what killed processes left."""

    def close(self) -> None:
        """Releases what is held; a second call has no effect."""


class SharedLog(Protocol):
    """One store's log. Calls block, and only one thread calls at a time. One append is under way at most."""

    @property
    def objects(self) -> Objects | None:
        """The object store that the log is in, which has room for snapshots beside it; None: it is in none."""

    @property
    def counts(self) -> Counts:
        """Counters of what was asked of the log."""

    def count_into(self, counts: Counts) -> None:
        """Counts in other counters from now on: those that another one has of the same log."""

    @property
    def local_sync(self) -> bool:
        """Tells whether the owner's folder syncs each turn too, since the log may hold it in memory only."""

    @property
    def linger(self) -> float:
        """The least time between two turns of an owner, in seconds, where nobody asked for another one."""

    @property
    def polls(self) -> bool:
        """Tells whether `read` waits by asking again and again: a follower had better rest between two reads."""

    def wait_less(self, timeout: float) -> None:
        """Repeats later calls that fail for `timeout` seconds at most."""

    def open(self, at: Position) -> None:
        """Tells where reading goes on: behind turn `at.turn`."""

    def read(self, limit_bytes: int, wait: float) -> list[Entry]:
        """Returns the next entries in order, one at least, until they have `limit_bytes`, or to the end.

        At the end of the log it waits up to `wait` seconds for one; [] if none came. What it returned stays.

        Corruption for damaged bytes or a hole; Trimmed if the next turn is gone below the floor. LogUnreachable.
        The caller compares store id, chain and owner.
        """

    def append(self, entry: Entry) -> bytes:
        """Appends the entry of the turn behind the last one that was read or appended.

        It returns the entry's mark once the slot holds this entry for ever. Fenced: the slot holds another one,
        which `read` gives next, and this one will never be there. Below the floor it may have been: its slot was
        emptied, and a BEGIN came into it. NoSpace, Refused: there is no room for it, or it may not be written; it
        will never be there, and another entry may be appended. LogUnreachable, Corruption, any other error: none
        of that is known; only the same entry may be appended after it.
        """

    def barrier(self) -> None:
        """Returns if at some moment since the call nobody had begun a newer term. Fenced, LogUnreachable."""

    def floor(self) -> int:
        """Returns the lowest turn that is not trimmed, 1 at first. It never falls. LogUnreachable."""

    def wrote(self, owner: Owner, turn: int) -> bool:
        """Returns whether a turn below the floor is that owner's, as BEGINs tell; True where none are kept.

        LogUnreachable.
        """

    def trim(self, turn: int, mark: bytes = b"") -> None:
        """Removes the turns below `turn`; a whole snapshot of that turn or a later one is there.

        `mark`: that of the entry before, as the owner's row of turn `turn` has it (owner.OwnerRow).
        It may be repeated, and cut short anywhere. BEGINs stay, and so does what cannot be read. LogUnreachable,
        NoSpace.
        """

    def close(self) -> None:
        """Releases what the log holds; a second call has no effect, and no other may follow."""
