"""Row `shared-history`: takes a replicated store over, again and again, and judges all owners' work as one history.

    machine 0 ── kill -9     machine 1 ── frozen ─────── wakes: fenced     machine 2 ── kill -9     machine 0 …
                  └ takeover ─┘             └ takeover ──┘                               └ takeover ─┘
    two other processes read the folders of machines 0 and 1
                              ▼
    the history, as row `history` judges it: strictly serializable, in real time too, over all owners

What a fenced owner was told has no effect must have none; what it was told is there must stay. A machine with an
empty folder reads the end.

Left out: Spark, which judges the same kind of history in row `history`.

Next: ../histories/run.py.
"""

from ...judges.python.findings import REAL_TIME, STALE_READ
from ..histories.run import make
from ..histories.schema import World
from ..histories.tapes import Plan
from .history import judge_history
from .registry import RowOptions, RowResult

FIGURE, TAKEOVERS = 100_000, 50
_MACHINES, _FEW = 3, 6
_WORLD = World(accounts=400, ring=200, lists=100)


def run(options: RowOptions) -> RowResult:
    total = options.of(FIGURE, 2_000)
    takeovers = _FEW if options.runs is not None else options.of(TAKEOVERS, _FEW)
    plan = Plan("machines", 1, total, takeovers, _WORLD, machines=_MACHINES)
    history = make(options, plan)
    result = judge_history(history)
    result.seeds = options.seed, options.seed
    result.figures["writes_a_second"] = round(result.runs / history.writing_s)
    result.figures["checker_seconds"] = round(result.figures["checker_seconds"], 1)
    result.must(history.frozen > 0, "no owner was frozen")
    result.reaches([("transactions", result.runs, total)])
    return result


def control(options: RowOptions) -> RowResult:
    """Lets owners look without asking the shared log whether they still are the owners."""
    plan = Plan("local", 1, options.runs or 6_000, _FEW, _WORLD, machines=_MACHINES, reads="local")
    return judge_history(make(options, plan)).planted(REAL_TIME, STALE_READ)
