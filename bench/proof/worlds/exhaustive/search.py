"""Breadth first through all states of a small world, each judged as it is found.

    first ─▶ moves ─▶ states never seen ─▶ judged ─▶ their moves ─▶ …       until none is new, or `most`
                                            └ wrong: the moves that led there, shortest first

A state is remembered by 16 bytes of a hash, with the state and the move that it came from: enough to tell the
way. Where nothing is on its way and nothing is left to ask for, time alone has to bring everything to its
end: ticks and deliveries without faults, a bounded number of them.

Next: bench/proof/rows/model.py.
"""

from collections import deque
from dataclasses import dataclass, field

from .....coordinator.plan import PLANNED
from .....proto.messages import Body
from .....tablets.participant import TxRecord
from .invariants import judge, outcomes, unresolved
from .scene import Scene
from .world import Move, Small, State

ROUNDS_MAX = 40
"""Of ticks and deliveries until all is resolved: a handful does."""
ABORTS = "a transaction aborts"
SHARED_STEP = "two transactions share a step"
UNHEARD = "a transaction commits that nobody waits for any more"
WAITS = "a planned transaction waits for an earlier one"
EARLY = "a vote comes before the plan"


@dataclass
class Explored:
    """`reached`: what has happened somewhere, by name, and how often; `exhausted`: no state was left."""

    scene: str
    states: int = 0
    transitions: int = 0
    quiet: int = 0
    depth: int = 0
    exhausted: bool = False
    faults: dict[str, int] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


def explore(scene: Scene, most: int, wrong_max: int = 3) -> Explored:
    """States of a scene, `most` of them, or until `wrong_max` are wrong."""
    small = Small(scene)
    found = Explored(scene.name)
    first = small.first()
    came: dict[bytes, tuple[bytes, Move] | None] = {first.key: None}
    todo = deque([(first, first.key, 0)])
    while todo and len(found.violations) < wrong_max and len(came) < most:
        state, key, depth = todo.popleft()
        found.depth = depth
        for move in small.moves(state):
            found.transitions += 1
            try:
                after = small.take(state, move)
            except Exception as error:  # the engine's own assertions, most of all
                found.violations.append(
                    _told(came, key, move, f"B37: the engine ended with {error!r}")
                )
                continue
            found.faults[move.what] = found.faults.get(move.what, 0) + 1
            after_key = after.key
            if after_key in came:
                continue
            came[after_key] = (key, move)
            wrong = judge(scene, after, state)
            if not wrong and not after.left and not small.waiting(after):
                found.quiet += 1
                wrong = _ends(small, after)
            if wrong:
                found.violations.append(_told(came, key, move, *wrong))
                continue
            _note(small, after)
            todo.append((after, after_key, depth + 1))
    found.states = len(came)
    found.exhausted = not todo
    found.reached = small.reached
    return found


def _ends(small: Small, state: State) -> list[str]:
    """No fault any more, and time passes."""
    quiet = state._replace(crashes=0, repeats=0, losses=0)
    reached = dict(small.reached)
    for _ in range(ROUNDS_MAX):
        if not unresolved(small.scene, quiet):
            break
        for host in range(small.scene.hosts):
            quiet = small.take(quiet, Move("tick", host))
            quiet = small.calm(quiet)
    small.reached = reached  # what would happen is not what has
    left = unresolved(small.scene, quiet)
    if left:
        return ["B37: for ever under way: " + ", ".join(left)]
    return judge(small.scene, quiet)


def _note(small: Small, state: State) -> None:
    known = outcomes(state)
    planned = [o for o in known.values() if o.place[0]]
    if len({o.place[0] for o in planned}) < len(planned):
        small.note(SHARED_STEP)
    if any(o.state == PLANNED + 2 for o in known.values()):
        small.note(ABORTS)
    heard = {tx for tx, *_ in state.told}
    opened = state.hosts[0].open
    if any(
        o.state == PLANNED + 1 and tx not in heard and tx not in opened for tx, o in known.items()
    ):
        small.note(UNHEARD)
    for host in state.hosts:
        for key, row in host.values.items():
            if key[4:5] == b"t" and len(key) == 17 and key[0] >> 4 in (3, 4):
                record: TxRecord[Body] = TxRecord._make(row)
                if record.step and record.blockers:
                    small.note(WAITS)
                if not record.step and record.missing:
                    small.note(EARLY)


def _told(came: dict[bytes, tuple[bytes, Move] | None], key: bytes, move: Move, *wrong: str) -> str:
    moves = [move]
    while (step := came[key]) is not None:
        key, earlier = step
        moves.append(earlier)
    lines = [
        f"{n}. host {m.host}: {m.what} {m.kind}".rstrip() for n, m in enumerate(moves[::-1], 1)
    ]
    return "\n".join([*wrong, *lines])
