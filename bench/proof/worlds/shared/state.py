"""Defines a state of the machines that share a log, as a value, and the moves that lead to others.

    State   machines · objects: name ─▶ bytes · snapshot · strays · janitors
            history: the first entry of each slot

A stray is a put that may land at any time, again and again. A janitor is a trim under way, whoever began it.

Next: object_store.py, judge.py.
"""

from hashlib import blake2b
from typing import Any, NamedTuple

from .machine import Folder, Machine
from .objects import FLOOR, LIST, PUT, chain, turn_of

GO, LAND, TIDY, CUT_SHORT = "go on", "a put lands late", "go on trimming", "cut the trim short"
CRASH, EMPTY, BACK_UP, PUT_BACK = "crash", "empty the folder", "back up", "put the backup back"
UNANSWERED, ITS_OWN, CONFLICT = "unanswered", "met its own copy", "409, not landed"
STRAY, REPEATED, CUT, LEFT = (
    "not landed, unanswered",
    "repeated later",
    "the list breaks off",
    "leaving its put",
)
DOUBTS = {PUT: (UNANSWERED, ITS_OWN, CONFLICT, STRAY, REPEATED), LIST: (CUT,)}
"""Faults of answers, by call."""
MANY = 1 << 30


class Move(NamedTuple):
    """One event: of machine `host`, or, where that is -1, of the stray or janitor at index `item`."""

    what: str
    host: int = -1
    kind: str = ""
    item: int = 0


class Left(NamedTuple):
    """The number of each event that is still to come at most. `doubts`: of answers; `folders`: lost or old."""

    opens: int = MANY
    commits: int = MANY
    reads: int = MANY
    trims: int = MANY
    doubts: int = MANY
    crashes: int = MANY
    folders: int = MANY

    def without(self, *names: str) -> "Left":
        return self._replace(**{name: getattr(self, name) - 1 for name in names})


class Scene(NamedTuple):
    """A world to begin with. `doubts`: the faults of each call; `story`: moves that lead to the first state."""

    name: str
    machines: int = 3
    left: Left = Left()
    doubts: dict[str, tuple[str, ...]] = DOUBTS
    story: tuple[Move, ...] = ()


class State(NamedTuple):
    """The world at a moment. `fenced`: commits that were told to have no effect; `acknowledged`: the last turn that
    was; `wrong`: what the judge says since the move before."""

    machines: tuple[Machine, ...]
    left: Left
    objects: dict[str, bytes]
    snapshot: Folder = Folder()
    strays: tuple[tuple[str, bytes], ...] = ()
    janitors: tuple[Machine, ...] = ()
    history: tuple[bytes, ...] = ()
    fenced: tuple[bytes, ...] = ()
    acknowledged: int = 0
    wrong: tuple[str, ...] = ()

    @property
    def key(self) -> bytes:
        whole: list[Any] = [
            sorted((name, chain(data)) for name, data in self.objects.items()),
            sorted((name, chain(data)) for name, data in self.strays),
            [machine.key for machine in self.machines],
            sorted(repr(janitor.key) for janitor in self.janitors),
            (len(self.history), self.history[-1:]),
            *(self.left, self.snapshot, sorted(self.fenced), self.acknowledged),
        ]
        return blake2b(repr(whole).encode(), digest_size=16).digest()

    @property
    def floor(self) -> int:
        return max((turn_of(name) for name in self.objects if name.startswith(FLOOR)), default=1)

    def with_machine(self, machine: Machine) -> "State":
        machines = list(self.machines)
        machines[machine.number] = machine
        return self._replace(machines=tuple(machines))

    def without(self, *names: str) -> "State":
        """Takes one off what is left of each of these."""
        return self._replace(left=self.left.without(*names))

    def judged(self, *wrong: str) -> "State":
        return self._replace(wrong=(*self.wrong, *wrong)) if wrong else self
