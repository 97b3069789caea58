"""Searches all states of a small world, breadth first, and judges each new one.

    first ─▶ moves ─▶ states never seen ─▶ judged ─▶ their moves ─▶ …       until none is new, or `most`
                                            └ wrong: the moves that led there, shortest first

A state is remembered as a 16-byte hash, with the state and the move before it, which is enough to print the path.
When no message is under way and no transaction is left to submit, a bounded number of ticks and deliveries
without faults must finish everything.

Next: bench/proof/rows/model.py.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from .....coordinator.plan import ABORTED, COMMITTED
from .....proto.messages import Body
from .....tablets.participant import TxRecord
from .invariants import judge, outcomes, unresolved
from .scene import Scene
from .world import Move, Small, State

ROUNDS_MAX = 40
"""The number of rounds of ticks and deliveries in which everything must be resolved: a few suffice."""
ABORTS = "a transaction aborts"
SHARED_STEP = "two transactions share a step"
UNHEARD = "a transaction commits that nobody waits for any more"
WAITS = "a planned transaction waits for an earlier one"
EARLY = "a vote comes before the plan"


@dataclass
class Explored:
    """The result of a search. `reached`: a count of notable events by name; `exhausted`: no state was left."""

    scene: str
    states: int = 0
    transitions: int = 0
    quiet: int = 0
    exhausted: bool = False
    faults: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


class _Judged(Small):
    """The small world of mode "deterministic", as `search` needs it."""

    def judge(self, state: State, before: State | None = None) -> list[str]:
        return judge(self.scene, state, before)

    def is_quiet(self, state: State) -> bool:
        return not state.pending and not self.waiting(state)

    def ends(self, state: State) -> list[str]:
        return _ends(self, state)

    def note(self, state: State) -> None:
        _note(self, state)


def explore(scene: Scene, most: int, wrong_max: int = 3) -> Explored:
    """Searches at most `most` states of a scene; stops after `wrong_max` violations."""
    return search(_Judged(scene), most, wrong_max)


def search(small: Any, most: int, wrong_max: int = 3) -> Explored:
    """Searches a small world: its `first` state, `moves` and what they lead to (`take`), judged by `judge`.

    Where it `is_quiet`, `ends` says what never finishes. `note` counts what is reached.
    """
    explored = Explored(small.scene.name)
    first = small.first()
    previous: dict[bytes, tuple[bytes, Move] | None] = {first.key: None}
    todo = deque([(first, first.key)])
    while todo and len(explored.violations) < wrong_max and len(previous) < most:
        state, key = todo.popleft()
        for move in small.moves(state):
            explored.transitions += 1
            try:
                after = small.take(state, move)
            except Exception as error:  # mostly the engine's own assertions
                explored.violations.append(
                    _path(previous, key, move, f"B37: the engine ended with {error!r}")
                )
                continue
            explored.faults[move.what] += 1
            after_key = after.key
            if after_key in previous:
                continue
            previous[after_key] = (key, move)
            wrong = small.judge(after, state)
            if not wrong and small.is_quiet(after):
                explored.quiet += 1
                wrong = small.ends(after)
            if wrong:
                explored.violations.append(_path(previous, key, move, *wrong))
                continue
            small.note(after)
            todo.append((after, after_key))
    explored.states = len(previous)
    explored.exhausted = not todo
    explored.reached = small.reached
    return explored


def _ends(small: Small, state: State) -> list[str]:
    """Lets time pass without faults; returns what is never resolved, or is wrong then."""
    quiet = state._replace(crashes=0, repeats=0, losses=0)
    reached = small.reached.copy()
    for _ in range(ROUNDS_MAX):
        if not unresolved(small.scene, quiet):
            break
        for host in range(small.scene.hosts):
            quiet = small.take(quiet, Move("tick", host))
            quiet = small.calm(quiet)
    small.reached = reached  # events of this trial do not count
    unfinished = unresolved(small.scene, quiet)
    if unfinished:
        return ["B37: for ever under way: " + ", ".join(unfinished)]
    return judge(small.scene, quiet)


def _note(small: Small, state: State) -> None:
    known = outcomes(state)
    planned = [o for o in known.values() if o.place[0]]
    if len({o.place[0] for o in planned}) < len(planned):
        small.reached[SHARED_STEP] += 1
    if any(o.state == ABORTED for o in known.values()):
        small.reached[ABORTS] += 1
    heard = {tx for tx, *_ in state.answers}
    opened = state.hosts[0].open
    if any(
        o.state == COMMITTED and tx not in heard and tx not in opened for tx, o in known.items()
    ):
        small.reached[UNHEARD] += 1
    for host in state.hosts:
        for key, row in host.values.items():
            if key[4:5] == b"t" and len(key) == 17 and key[0] >> 4 in (3, 4):
                record: TxRecord[Body] = TxRecord._make(row)
                if record.step and record.blockers:
                    small.reached[WAITS] += 1
                if not record.step and record.missing:
                    small.reached[EARLY] += 1


def _path(
    previous: dict[bytes, tuple[bytes, Move] | None], key: bytes, move: Move, *wrong: str
) -> str:
    moves = [move]
    while (step := previous[key]) is not None:
        key, earlier = step
        moves.append(earlier)
    lines = [
        f"{n}. host {m.host}: {m.what} {m.kind}".rstrip() for n, m in enumerate(moves[::-1], 1)
    ]
    return "\n".join([*wrong, *lines])
