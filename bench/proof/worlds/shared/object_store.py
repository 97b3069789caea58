"""Carries out the calls of the machines: a simulated object store, with the faults of its answers.

    PUT   lands, and says so · lands, and no answer comes · lands, and meets its own copy
          does not land, and says that the name is taken · does not land, and no answer comes: it may land later
          lands, and may land again later
    LIST  all names, or it breaks off

An object is created once; what is read is as of that moment.

Next: world.py.
"""

from collections import Counter
from typing import Any

from . import judge
from .machine import ACKNOWLEDGE, MANIFEST, RESTORE, WRITE, Call
from .objects import CREATED, DELETE, EXISTS, GET, LIST, LOG, PUT, UNKNOWN, turn_of
from .state import CONFLICT, CUT, ITS_OWN, REPEATED, STRAY, UNANSWERED, State

_STRAYS_MAX = 6
VOID = "a BEGIN is void"
AGAIN = "a deleted turn is there again"
REMOVED = "an entry is deleted"


class ObjectStore:
    """Answers calls. `reached` counts notable events by name."""

    def __init__(self) -> None:
        self.reached: Counter[str] = Counter()

    def answer(self, state: State, call: Call, kind: str = "") -> tuple[Any, State]:
        """Carries out a call, with a fault of this kind; returns its answer, and the state then."""
        what, name, data = call
        if what == PUT:
            return self._put(state, call, kind)
        if what == DELETE:
            return None, self._deleted(state, name)
        if what == MANIFEST:
            newer = len(data.turns) > len(state.snapshot.turns)
            return None, state._replace(snapshot=data) if newer else state
        if what == ACKNOWLEDGE:
            return None, self._acknowledged(state, int(name), data)
        return self._looked(state, call, kind), state

    def _looked(self, state: State, call: Call, kind: str) -> Any:
        """Answers a call that changes nothing in the store."""
        if call.what == GET:
            return state.objects.get(call.name)
        if call.what == LIST:
            names = [] if kind == CUT else sorted(state.objects)
            return tuple(name for name in names if name.startswith(call.name)), kind != CUT
        if call.what == RESTORE:
            return state.snapshot
        assert call.what == WRITE, call.what
        return None

    def _put(self, state: State, call: Call, kind: str) -> tuple[str, State]:
        if kind == CONFLICT:
            return EXISTS, state
        if kind in (STRAY, REPEATED):
            state = self.astray(state, call)
        if kind == STRAY:
            return UNKNOWN, state
        created, state = self.landed(state, call.name, call.data)
        if kind == UNANSWERED:
            return UNKNOWN, state
        return CREATED if created and kind != ITS_OWN else EXISTS, state

    def landed(self, state: State, name: str, data: bytes) -> tuple[bool, State]:
        """Creates an object, unless there is one."""
        if name in state.objects:
            return False, state
        state = state._replace(objects={**state.objects, name: data})
        if not name.startswith(LOG):
            return True, state
        turn = turn_of(name)
        if turn <= len(state.history):
            self.reached[AGAIN if data == state.history[turn - 1] else VOID] += 1
            return True, state.judged(*judge.created_again(state, turn, data))
        while (following := _slot(state, len(state.history) + 1)) is not None:
            state = state.judged(*judge.decided(state, following))
            state = state._replace(history=(*state.history, following))
        return True, state

    def astray(self, state: State, call: Call) -> State:
        """Keeps a put that may land at any time; the oldest ones are lost."""
        put = call.name, call.data
        strays = (*(other for other in state.strays if other != put), put)
        return state._replace(strays=strays[-_STRAYS_MAX:])

    def _deleted(self, state: State, name: str) -> State:
        self.reached[REMOVED] += name in state.objects
        objects = {other: data for other, data in state.objects.items() if other != name}
        return state._replace(objects=objects)

    def _acknowledged(self, state: State, turn: int, content: bytes) -> State:
        state = state.judged(*judge.acknowledged(state, turn, content))
        return state._replace(acknowledged=max(state.acknowledged, turn))


def _slot(state: State, turn: int) -> bytes | None:
    return state.objects.get(f"{LOG}{turn:020d}")
