"""Tells scenarios of machines that share a log, for what random walks come to once in thousands.

    Teller: begin · go_on · until(call) · whole ─▶ the world's state, and all that was wrong on the way

Next: planted.py.
"""

from collections.abc import Callable

from .machine import OPEN, TRIM, TURN
from .objects import GET, LIST, PUT
from .state import CRASH, GO, TIDY, UNANSWERED, Move, Scene
from .world import World

_STEPS_MAX = 1_000


class Teller:
    """Moves one machine at a time, and keeps what was wrong."""

    def __init__(self) -> None:
        self.world = World(Scene("a story"))
        self.state = self.world.first()
        self.moves: list[Move] = []
        self.wrong: list[str] = []

    def take(self, move: Move) -> None:
        self.state = self.world.take(self.state, move)
        self.moves.append(move)
        self.wrong += self.state.wrong

    def pauses_at(self, host: int) -> str | None:
        process = self.state.machines[host].process
        return None if process is None else process.call.what

    def until(self, host: int, call: str | None) -> None:
        """Lets a machine go on until it pauses at such a call; None: until its program has ended."""
        for _ in range(_STEPS_MAX):
            if self.pauses_at(host) in (call, None):
                return
            self.take(Move(GO, host))

    def begin(self, host: int, what: str, call: str | None = None) -> None:
        """Begins a program and lets it go on until such a call, or its end."""
        self.take(Move(what, host))
        self.until(host, call)

    def trim(self, host: int) -> None:
        """Makes a snapshot of a machine, and trims the log below it."""
        self.take(Move(TRIM, host))
        self.tidy()

    def tidy(self) -> None:
        """Lets the trims go on to their end."""
        for _ in range(_STEPS_MAX):
            if not self.state.janitors:
                return
            self.take(Move(TIDY))


def sleeping_taker() -> Teller:
    """Tells of a taker that sleeps between its BEGIN and its look at the floor, until the BEGIN is history."""
    tell = Teller()
    tell.begin(0, OPEN)
    tell.begin(0, TURN)
    tell.begin(1, OPEN, PUT)
    tell.until(1, LIST)  # its BEGIN is decided
    tell.begin(0, TURN, PUT)  # the owner before sleeps in the put of that very turn
    tell.begin(2, OPEN)
    tell.begin(2, TURN)
    tell.trim(2)
    tell.until(1, None)
    tell.until(0, None)
    return tell


def sleeping_owner() -> Teller:
    """Tells of an owner whose last turn counts, and is trimmed, and has a late taker's BEGIN in its place."""
    tell = Teller()
    tell.begin(0, OPEN)
    tell.begin(1, OPEN, PUT)  # a taker sleeps before its BEGIN of turn 2
    tell.begin(0, TURN, PUT)
    tell.take(Move(GO, 0, UNANSWERED))  # turn 2 is decided, and its owner sleeps before it looks
    tell.begin(2, OPEN)
    tell.begin(2, TURN)
    tell.trim(2)
    tell.until(1, None)
    assert tell.pauses_at(0) == GET
    tell.until(0, None)
    return tell


def older_store() -> Teller:
    """Tells of a store of objects that is put back to an older state, and written on; then of a folder from before.

    The folder has turns that are not in the history any more. Its machine has to refuse the log.
    """
    tell = Teller()
    tell.begin(0, OPEN)
    older = tell.state
    tell.begin(0, TURN)
    tell.begin(0, TURN)
    tell.take(Move(CRASH, 0))
    tell.state = tell.state._replace(objects=older.objects, history=older.history, acknowledged=1)
    tell.begin(1, OPEN)
    for _ in range(3):
        tell.begin(1, TURN)
    machine, wrong = tell.state.machines[0], [*tell.wrong]
    tell.begin(0, OPEN)
    after, tell.wrong = tell.state.machines[0], wrong  # the judge knows only the new history
    if after.ownership is not None or after.now != machine.now:
        tell.wrong.append("J3: a folder takes turns of another history than its own")
    return tell


STORIES: dict[str, Callable[[], Teller]] = {
    "a taker sleeps behind its BEGIN": sleeping_taker,
    "an owner sleeps behind its put": sleeping_owner,
    "the store is put back": older_store,
}
