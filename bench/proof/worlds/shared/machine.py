"""Makes a machine a value: its folder, its ownership in memory, and a program under way with the answers it has.

    Run(answers so far) ─▶ opening · turn · read · trim ─▶ a call without an answer: Paused there
                                                         └▶ ended: an Ownership, or an error

A program calls the real Ownership, which calls the log, and blocks. So a machine that waits is no stack, but a
list of answers. With one more, its program runs again from its start, up to the next call without an answer; it
comes to the same place, since nothing in it draws at random. A machine may pause at every call, for ever.

A put that is under way and has not landed is a machine that pauses before it: nobody can tell these apart.

Next: state.py.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import msgpack

from .....errors import Trimmed
from .....shared.entry import Entry
from .....shared.owner import OwnerRow, Ownership
from .objects import ImpatientLog

STORE = b"the only store.."
OPEN, TURN, READ, TRIM = "open", "turn", "read", "trim"
"""Programs."""
RESTORE, WRITE, MANIFEST, ACKNOWLEDGE = "restore", "write", "manifest", "acknowledge"
"""Calls that are none of the log: get the newest snapshot, write the local log, make a snapshot whole, answer."""


class Folder(NamedTuple):
    """A folder or a snapshot: what was written for each turn, and the owner's row as of the last one."""

    turns: tuple[bytes, ...] = ()
    row: OwnerRow | None = None

    def written(self, changes: bytes, payload: bytes) -> "Folder":
        return Folder((*self.turns, changes + payload), OwnerRow(*msgpack.unpackb(changes)))


class LocalFolder:
    """A folder as an Ownership sees it."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    @property
    def last_turn(self) -> int:
        return len(self.folder.turns)

    def owner_row(self) -> OwnerRow | None:
        return self.folder.row

    def take(self, entry: Entry) -> None:
        self.folder = self.folder.written(entry.changes, entry.payload)


class Call(NamedTuple):
    what: str
    name: str = ""
    data: Any = b""


class Process(NamedTuple):
    """A program under way.

    `content`: the commit of a turn, b"" for a BEGIN; the nonce of an opening. `noted`: the last turn that anybody
    had acknowledged when it began. `call`: where it pauses.
    """

    program: str
    content: bytes = b""
    noted: int = 0
    answers: tuple[Any, ...] = ()
    call: Call = Call("")

    def with_answer(self, answer: Any) -> "Process":
        return self._replace(answers=(*self.answers, answer))


class Machine(NamedTuple):
    """A machine. `folder`: as of the beginning of its program; `now`: as of this moment; `backup`: of once.

    `ownership` has no log between two programs: each one brings its own.
    """

    number: int
    folder: Folder = Folder()
    now: Folder = Folder()
    backup: Folder = Folder()
    opened: int = 0
    ownership: Ownership | None = None
    process: Process | None = None

    @property
    def up(self) -> bool:
        return self.process is not None or self.ownership is not None

    @property
    def key(self) -> tuple[Any, ...]:
        """Identifies the machine: equal ones have equal keys."""
        memory = sorted(vars(self.ownership).items()) if self.ownership is not None else None
        return self.folder, self.now, self.backup, self.opened, memory, self.process

    def with_folder(self, folder: Folder) -> "Machine":
        return self._replace(folder=folder, now=folder)

    def down(self) -> "Machine":
        """Returns the machine after a crash, or when its program gave up."""
        return self._replace(folder=self.now, ownership=None, process=None)


class Paused(BaseException):
    """Ends a run at a call that has no answer yet. No code between may take it for an error."""

    def __init__(self, call: Call) -> None:
        self.call = call


class Run:
    """A run of a program from its start, with the answers that it has got."""

    def __init__(self, process: Process, folder: Folder, ownership: Ownership | None) -> None:
        self.process = process
        self.local = LocalFolder(folder)
        self._ownership = ownership
        self._answers = iter(process.answers)

    def call(self, what: str, name: str = "", data: Any = b"") -> Any:
        for answer in self._answers:
            return answer
        raise Paused(Call(what, name, data))

    def ownership(self) -> Ownership:
        """Returns the machine's ownership as it was when the program began, with a log that calls through this run.

        Behind an append that was decided, a log knows no more than a new one that is opened there.
        """
        assert self._ownership is not None
        ownership = copy(self._ownership)
        ownership.log = ImpatientLog(self)
        ownership.log.open(ownership.last)
        return ownership


def nonce_of(machine: Machine) -> bytes:
    return bytes([machine.number]) * 8 + machine.opened.to_bytes(8, "big")


def opening(run: Run) -> Ownership:
    """Restores a snapshot where it must, catches up, and says that a BEGIN comes next."""
    while True:
        ownership = Ownership(ImpatientLog(run), STORE, run.process.content)
        try:
            ownership.catch_up(run.local)
        except Trimmed as error:
            run.local.folder = run.call(RESTORE)
            assert run.local.last_turn >= error.floor, f"no snapshot of turn {error.floor} is whole"
        else:
            ownership.begin()
            return ownership


def turn(run: Run) -> Ownership:
    """Appends a turn to the shared log, writes it to the folder, answers; an opening's first one is a BEGIN."""
    ownership, content = run.ownership(), run.process.content
    number, changes = ownership.last.turn + 1, msgpack.packb(ownership.row())
    ownership.append(number, 0, changes, b"", [content])
    run.call(WRITE)
    run.local.folder = run.local.folder.written(changes, content)
    if content:
        run.call(ACKNOWLEDGE, str(number), content)
    return ownership


def read(run: Run) -> Ownership:
    """Confirms a read: the owner looks whether anybody has begun behind it."""
    ownership = run.ownership()
    ownership.log.barrier()
    return ownership


def trim(run: Run) -> None:
    """Makes a snapshot of the folder whole, then trims the log below it."""
    run.call(MANIFEST, data=run.local.folder)
    ImpatientLog(run).trim(run.local.last_turn)


PROGRAMS: dict[str, Callable[[Run], Ownership | None]] = {
    OPEN: opening,
    TURN: turn,
    READ: read,
    TRIM: trim,
}


def known(entry: Entry) -> bytes:
    """Returns what a folder has of a turn."""
    return entry.changes + entry.payload
