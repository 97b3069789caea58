"""One allocation fails, or a hundred in a row, while the real engine does one thing; then it is looked at.

    child 1   open ─▶ [hook: allocations n … n + count fail] ─▶ commit | read | checkpoint | close | open
              hook off ─▶ a probe: committed, or the engine says that it is closed ─▶ the process ends, no close
    child 2   verify, open: the acknowledged is there, what was under way wholly or not at all,
              and so is all that the living engine showed

CPython's own allocators are meant (`_testcapi.set_nomemory`), in whichever thread it happens; what LMDB and
zlib allocate for themselves is not.

Next: ../oom.py.
"""

import importlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import planstep
from planstep.errors import EngineClosed, PlanstepError, StoreInUse
from planstep.store.disk import DiskStore
from planstep.store.layers import Layer
from planstep.store.verify import verify

from .kept import Contents, contents
from .sample import Sample, quickly

ACTIONS = ("commit", "read", "checkpoint", "close", "open")
_EFFECTS = ("row", "other row", "record", "other record", "position")


@dataclass(frozen=True)
class Position:
    """`n`: the first allocation that fails, counted from the action's begin; `count`: how many do.

    No allocation ever again is left out: CPython 3.11 itself may then spin for ever.
    """

    action: str
    n: int
    count: int = 1

    def __str__(self) -> str:
        return f"{self.action}, {self.count} from allocation {self.n} on"


@dataclass
class Lived:
    """What the first child saw. `acknowledged`: the commit returned; `shown`: its effects, None if it
    could not be asked; `probe`: the second commit returned; `held`: nobody in this process can open the store
    again, after so many failures in a row."""

    acknowledged: bool = False
    raised: str = ""
    shown: list[bool] | None = None
    probe: bool = False
    held: bool = False
    wrong: str = ""


def hooks() -> Any | None:
    """CPython's test module, None where this build is without it."""
    try:
        module = importlib.import_module("_testcapi")
    except ImportError:
        return None
    return module if hasattr(module, "set_nomemory") else None


def live(task: tuple[Sample, Contents, Position, Path, bool]) -> Lived:
    """The first child's work. `early`: the planted bug of the control."""
    sample, whole, position, store, early = task
    quickly()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # threads that end say so there
    if early:
        DiskStore.commit = _installing_first(DiskStore.commit)  # type: ignore[method-assign]
    shutil.rmtree(store, ignore_errors=True)
    sample.planted(store)
    lived = Lived()
    db: planstep.Engine | None = None
    if position.action != "open":
        db = planstep.open(store)
        if position.action in ("checkpoint", "close"):
            _commit(db)
            lived.acknowledged = True
    shown: list[Any] = []
    call = _call(position.action, db, store, shown)
    module = hooks()
    assert module is not None
    begin, end = module.set_nomemory, module.remove_mem_hooks
    first, last = position.n, position.n + position.count
    error: BaseException | None = None
    begin(first, last)
    try:
        call()
    except BaseException as caught:
        error = caught
    finally:
        end()
    if error is None:
        lived.acknowledged |= position.action == "commit"
        if position.action == "read" and shown != [whole]:
            lived.wrong = "the read returned something else than what is there"
    else:
        lived.raised = type(error).__name__
        # CPython says so where a lock or a thread finds no memory.
        of_python = isinstance(error, RuntimeError) and str(error).startswith("can't ")
        if not (of_python or isinstance(error, (MemoryError, PlanstepError))):
            lived.wrong = f"{error!r} was raised: neither MemoryError nor an error of the library's"
    _probe(lived, db, store)
    return lived


def reopened(task: tuple[Sample, Contents, Position, Path, Lived]) -> str:
    """The second child's work: what is wrong, or ""."""
    _, whole, position, store, lived = task
    quickly()
    problems = verify(store / "host-0")
    if problems:
        return f"verify: {problems[0]}"
    with planstep.open(store, create=False) as db:
        now = _effects(db)
        probe = db.table("in-msgpack").get("probe") == 1
        kept = {name: held for name, held in contents(db).items() if name.startswith("topic of-u")}
    if any(now) != all(now):
        return f"torn: {dict(zip(_EFFECTS, now, strict=True))}"
    if lived.acknowledged and not all(now):
        return "an acknowledged commit is gone"
    if lived.shown is not None and lived.shown != now:
        return f"the engine showed {lived.shown}, after reopening it is {now}"
    if lived.probe and not probe:
        return "what was acknowledged after the failure is gone"
    if any(whole[name] != held for name, held in kept.items()):
        return "what nobody touched is different"
    if position.action in ("read", "open") and any(now):
        return "a commit that was never begun is there"
    return ""


def _call(
    action: str, db: planstep.Engine | None, store: Path, shown: list[Any]
) -> Callable[[], None]:
    """The action, with nothing left to import or to look up."""
    if db is None:
        return lambda: planstep.open(store).close()
    nodes = db._runtime.nodes
    return {
        "commit": lambda: _commit(db),
        "read": lambda: shown.append(contents(db)),
        "checkpoint": lambda: [node.host.store.checkpoint() for node in nodes][:0].clear(),
        "close": db.close,
    }[action]


def _commit(db: planstep.Engine) -> None:
    with db.transaction() as tx:
        tx.read("of-json", "oom", max_records=2)
        tx.put("in-msgpack", "oom", {"n": 1})
        tx.put("in-json", "oom", [1])
        tx.write("of-bytes", b"oom", key="oom", partition=0)
        tx.write("of-msgpack", ["oom"], partition=1)


def _effects(db: planstep.Engine) -> list[bool]:
    return [
        db.table("in-msgpack").get("oom") == {"n": 1},
        db.table("in-json").get("oom") == [1],
        b"oom" in db.topic("of-bytes").read(partition=0).values,
        ["oom"] in db.topic("of-msgpack").read(partition=1).values,
        sum(db.topic("of-json").position("oom").values()) > 0,
    ]


def _probe(lived: Lived, db: planstep.Engine | None, store: Path) -> None:
    """Memory is there again: the engine works, or says that it is closed; a path opens again."""
    try:
        if db is None or db.closed:
            db = planstep.open(store)
        lived.shown = _effects(db)
        db.table("in-msgpack").put("probe", 1)
        lived.probe = True
        before, lived.shown = lived.shown, _effects(db)
        if before != lived.shown:
            lived.wrong = f"the engine showed {before}, after the next commit {lived.shown}"
        if any(lived.shown) != all(lived.shown):
            lived.wrong = f"torn in the living engine: {lived.shown}"
    except EngineClosed:
        pass
    except StoreInUse:  # no memory for letting go either: the lock goes with the process
        lived.held = True
    except Exception as error:
        lived.wrong = lived.wrong or f"with memory again, the engine says {error!r}"


def _installing_first(commit: Any) -> Any:
    """The control's bug: rows are shown to readers before they are in the log."""

    def early(store: Any, turn: Any, before_visible: Any = None) -> None:
        with store._mutex:
            ahead = Layer()
            ahead.update(turn.net())
            store._layers[0].update(turn.net())
        _ = [bytes(100 + n) for n in range(1_000)]  # the window, wide enough to be hit
        commit(store, turn, before_visible)

    return early
