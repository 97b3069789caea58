"""Row `interrupts`: raises from signal handlers at any bytecode of a commit, and exhausts the stack within one.

    positions, spread over a commit's bytecodes ─▶ pieces ─▶ ../disks/striking.py, each in a child of its own
    alarms of the system's, at random moments   ─▶
    room for 0, 1, 2 … calls                    ─▶

The row checks: the turn is finished, or never happened; the exception reaches the caller; the engine goes on,
for other threads too; handlers are unchanged. The control defers only SIGINT and does not check the stack.

Next: ../disks/striking.py.
"""

from collections import Counter
from dataclasses import replace

from ....api.open_engine import Mode
from ..disks.forked import apart
from ..disks.striking import MODES, Piece, Strikes, bytecodes, strike
from ..parallel import gather
from .registry import RowOptions, RowResult

STRIKES = 1_600
ALARMS = 400
DEPTHS = 120
"""Room for fewer calls than this: more is enough for any commit."""
_PIECE = 40
_OF_CONTROL = 120
_SECONDS = 120.0


def run(asked: RowOptions) -> RowResult:
    return _run(asked, MODES, planted=False)


def control(asked: RowOptions) -> RowResult:
    """Defers only SIGINT and does not check stacks: handlers and depths must stop an engine."""
    few = replace(asked, runs=asked.runs or _OF_CONTROL)
    return _run(few, MODES[:1], planted=True).planted("the engine stopped", "was raised")


def _run(asked: RowOptions, modes: tuple[Mode, ...], planted: bool) -> RowResult:
    pieces, figures = list[Piece](), dict[str, int]()
    for mode in modes:
        made = apart(bytecodes, Piece("signal", mode, (), asked.memory / f"counted-{mode}"))
        if made.why:
            raise AssertionError(f"the bytecodes of a commit could not be counted: {made.why}")
        figures[f"bytecodes_{mode}"] = made.value
        each = max(1, asked.of(STRIKES) // len(modes))
        alarms = max(1, asked.of(ALARMS) // len(modes))
        for kind, at in (
            (
                "signal",
                [1 + (asked.seed + n * made.value // each) % made.value for n in range(each)],
            ),
            ("alarm", range(asked.seed, asked.seed + alarms)),
            ("depth", range(0, DEPTHS, 1 if asked.of(DEPTHS) >= DEPTHS else 5)),
        ):
            for n in range(0, len(at), _PIECE):
                folder = asked.memory / f"{mode}-{kind}-{n}"
                pieces.append(Piece(kind, mode, tuple(at[n : n + _PIECE]), folder, planted))
    found = gather(asked, _strike, pieces)
    found.figures |= figures
    if not planted:
        put_off = found.figures["ends"]["put_off"]
        found.reaches(
            [
                ("strikes of signals", found.faults["signal"], asked.of(STRIKES) // 2),
                ("strikes while handlers were put off", put_off, asked.of(STRIKES) // 8),
                ("alarms that struck", found.faults["alarm"], asked.of(ALARMS) // 20),
            ]
        )
    return found


def _strike(piece: Piece) -> RowResult:
    ended = apart(strike, piece, _SECONDS)
    told: Strikes = ended.value or Strikes(wrong=[f"{piece.mode}, {piece.kind}: {ended.why}"])
    ends = Counter(put_off=told.put_off, raised=told.raised, committed=told.committed)
    strikes = Counter({piece.kind: told.strikes})
    return RowResult(told.runs, faults=strikes, violations=told.wrong, figures={"ends": ends})
