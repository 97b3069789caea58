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
from ..disks.modes import MODES
from ..disks.striking import Piece, Strikes, bytecodes, strike
from ..parallel import gather
from .registry import RowOptions, RowResult

STRIKES = 1_600
ALARMS = 400
DEPTHS = 120
"""Room for fewer calls than this: more is enough for any commit."""
_PIECE = 40
_OF_CONTROL = 120
_SECONDS = 120.0


def run(options: RowOptions) -> RowResult:
    return _run(options, tuple(MODES), planted=False)


def control(options: RowOptions) -> RowResult:
    """Defers only SIGINT and does not check stacks: handlers and depths must stop an engine."""
    few = replace(options, runs=options.runs or _OF_CONTROL)
    return _run(few, ("deterministic",), planted=True).planted("the engine stopped", "was raised")


def _run(options: RowOptions, modes: tuple[Mode, ...], planted: bool) -> RowResult:
    pieces, figures = list[Piece](), dict[str, int]()
    for mode in modes:
        ended = apart(bytecodes, Piece("signal", mode, (), options.memory / f"counted-{mode}"))
        if ended.why:
            raise AssertionError(f"the bytecodes of a commit could not be counted: {ended.why}")
        figures[f"bytecodes_{mode}"] = ended.value
        each = max(1, options.of(STRIKES) // len(modes))
        alarms = max(1, options.of(ALARMS) // len(modes))
        for kind, at in (
            (
                "signal",
                [1 + (options.seed + n * ended.value // each) % ended.value for n in range(each)],
            ),
            ("alarm", range(options.seed, options.seed + alarms)),
            ("depth", range(0, DEPTHS, 1 if options.of(DEPTHS) >= DEPTHS else 5)),
        ):
            for n in range(0, len(at), _PIECE):
                folder = options.memory / f"{mode}-{kind}-{n}"
                pieces.append(Piece(kind, mode, tuple(at[n : n + _PIECE]), folder, planted))
    result = gather(options, _strike, pieces)
    result.figures |= figures
    if not planted:
        put_off = result.figures["ends"]["put_off"]
        result.reaches(
            [
                ("strikes of signals", result.faults["signal"], options.of(STRIKES) // 2),
                ("strikes while handlers were put off", put_off, options.of(STRIKES) // 8),
                ("alarms that struck", result.faults["alarm"], options.of(ALARMS) // 20),
            ]
        )
    return result


def _strike(piece: Piece) -> RowResult:
    ended = apart(strike, piece, _SECONDS)
    report: Strikes = ended.value or Strikes(wrong=[f"{piece.mode}, {piece.kind}: {ended.why}"])
    ends = Counter(put_off=report.put_off, raised=report.raised, committed=report.committed)
    strikes = Counter({piece.kind: report.strikes})
    return RowResult(report.runs, faults=strikes, violations=report.wrong, figures={"ends": ends})
