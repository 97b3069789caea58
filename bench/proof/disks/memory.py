"""Makes allocations fail while the real engine does one action, then checks the engine and its store.

    child 1   open ─▶ [hook: allocations n … n + count fail] ─▶ commit | read | checkpoint | close | open
              hook off ─▶ the caller's own error, before anything was sent: the next commit succeeds
                       ─▶ Undetermined, HostStopped: the engine says that it is closed; close, another open
              ─▶ the process ends, no close
    child 2   verify, open: the acknowledged is there, the refused is not, a commit under way wholly or not
              at all, and so is all that the living engine showed

It fails CPython's own allocators (`_testcapi.set_nomemory`), in whichever thread allocates, but not those of
LMDB and zlib. To count an action's allocations, the hook is set far beyond them, and the rest up to there is
used up one by one.

It never fails all allocations for ever, because that would not test the engine. CPython 3.11, leaving a `with`
or `finally` more than 256 instructions into its function, allocates an int for its position; without memory
it retries for ever (`exception_unwind` in ceval.c: a function of 300 assignments and a `try` shows it, without
planstep). Each retry is a failed allocation, so 100,000 failures in a row have the same effect and end.

Other effects of CPython itself:
- `os.open` and similar calls raise TypeError for a path if looking up __fspath__ found no memory, and
  `os.stat` may fail without a reason (SystemError);
- a thread that finds no memory before it reports its start leaves Thread.start waiting for ever. The stack of
  the hung process shows this; it is counted separately, and child 2 checks the killed process's store;
- its compiler may end the process without memory. So what an opening loads at its first time is loaded before;
- the end of a `with lock` is a call with three arguments, which needs a tuple; without memory the lock stays
  locked. So the store of a stopped engine is released without its locks.

Next: ../rows/oom.py.
"""

import faulthandler
import importlib
import itertools
import operator
import os
import shutil
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import planstep
from planstep.errors import EngineClosed, PlanstepError
from planstep.store.disk_store import DiskStore
from planstep.store.verify import verify

from ..patching import exchange
from .contents import Contents, contents
from .sample import Sample, quickly

for _late in ("open_runtime", "processes.server"):
    importlib.import_module(f"planstep.runtime.{_late}")

_STAGE_OF = {
    "commit": {
        "": "begin",
        "build_parts": "prepare",
        "enqueue": "enqueue",
        "run": "decide",
        "append": "append",
        "_append": "append",
        "_show": "install",
        "release": "install",
        "update": "install",
        "_release": "answer",
        "hand_out": "answer",
    },
    "read": {"": "begin"},
    "checkpoint": {"": "checkpoint", "_commit_frozen": "tables", "_chores": "chores"},
    "close": {
        "": "close",
        "write_close": "closing record",
        "mark_closed": "let go",
        "shrink": "let go",
        "_remove_unneeded": "let go",
    },
    "open": {
        "": "begin",
        "_take": "lock",
        "_name": "lock",
        "open_environment": "tables",
        "make_file": "tables",
        "_note_newest": "tables",
        "resume": "recover",
        "begin_segment": "segment",
        "views": "runtime",
        "_host": "runtime",
        "load": "runtime",
        "begin_thread": "threads",
    },
}
"""Of each action, the stage that begins with the call of a function; "" is the action itself."""
ACTIONS = tuple(_STAGE_OF)
COMMITTED = ("checkpoint", "close")
"""Actions whose engine has an acknowledged commit before."""
STAGES = {action: tuple(dict.fromkeys(stages.values())) for action, stages in _STAGE_OF.items()}
"""Stages of each action, in order: an allocation fails in each."""
_EFFECTS = ("row", "other row", "record", "other record", "position")
_FAR = 4_000_000
HANG_SECONDS = 12.0


@dataclass(frozen=True)
class Position:
    """The allocations to fail: `n`: the first, counted from the action's begin; `count`: how many."""

    action: str
    n: int
    count: int = 1

    def __str__(self) -> str:
        return f"{self.action}, {self.count} from allocation {self.n} on"


@dataclass
class Lived:
    """The first child's observations.

    `acknowledged`: the commit returned. `refused`: it raised an error that means no effect; otherwise it is in
    doubt. `effects`: those seen, None if it could not be asked. `probe`: the second commit returned. `stage`: where
    the action failed.
    """

    acknowledged: bool = False
    refused: bool = False
    raised: str = ""
    stage: str = ""
    effects: list[bool] | None = None
    probe: bool = False
    wrong: str = ""


def hooks() -> Any | None:
    """Returns CPython's test module, or None if this build has none."""
    try:
        module = importlib.import_module("_testcapi")
    except ImportError:
        return None
    return module if hasattr(module, "set_nomemory") else None


class _Action:
    """One action, prepared so that nothing is left to import or look up."""

    def __init__(self, sample: Sample, action: str, store: Path) -> None:
        quickly()
        shutil.rmtree(store, ignore_errors=True)
        sample.planted(store)
        self.reads: list[Contents] = []
        self.db: planstep.Engine | None = None
        if action == "open":
            self.call: Callable[[], object] = partial(self._open, store)
            return
        self.db = db = planstep.open(store)
        if action in COMMITTED:
            _commit(db)
        stores: list[Any] = [node.host.store for node in db.context.runtime.nodes]
        calls: dict[str, Callable[[], object]] = {
            "commit": partial(_commit, db),
            "read": lambda: self.reads.append(contents(db)),
            "checkpoint": lambda: [store.checkpoint() for store in stores],
            "close": db.close,
        }
        self.call = calls[action]

    def _open(self, store: Path) -> None:
        self.db = planstep.open(store)


def allocations(task: tuple[Sample, str, Path]) -> int:
    """Counts the action's allocations, in a child."""
    sample, action, store = task
    ready = _Action(sample, action, store)
    module = hooks()
    assert module is not None
    remaining = itertools.repeat(None, _FAR)
    module.set_nomemory(_FAR, 0)
    try:
        ready.call()
        for _ in remaining:
            object()  # one allocation
    except MemoryError:
        pass
    finally:
        module.remove_mem_hooks()
    return operator.length_hint(remaining)


def live(task: tuple[Sample, Contents, Position, Path, bool]) -> Lived:
    """Does the first child's work. `careless`: the planted bug of the control."""
    sample, whole, position, store, careless = task
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # hides the messages of threads that end
    stacks = hung_in(store).open("w")
    faulthandler.dump_traceback_later(HANG_SECONDS / 2, file=stacks)
    if careless:
        exchange(DiskStore, "commit", _careless_commit(DiskStore.commit))
    ready = _Action(sample, position.action, store)
    lived = Lived(acknowledged=position.action in COMMITTED)
    module = hooks()
    assert module is not None
    call, begin, end = ready.call, module.set_nomemory, module.remove_mem_hooks
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
        if position.action == "read" and ready.reads != [whole]:
            lived.wrong = "the read returned something else than what is there"
    else:
        lived.raised = type(error).__name__
        lived.stage = stage_of(position.action, error)
        lived.refused = position.action == "commit" and (
            lived.raised == "HostStopped"
            or (lived.raised == "MemoryError" and position.count == 1)  # else no memory was left
        )
        if not (_of_python(error) or isinstance(error, (MemoryError, PlanstepError))):
            lived.wrong = f"{error!r} was raised: neither MemoryError nor an error of the library's"
    _probe(lived, ready.db, store)
    faulthandler.cancel_dump_traceback_later()
    return lived


def _of_python(error: BaseException) -> bool:
    """Returns whether the error is one that CPython's C code makes of a failed allocation: see the module."""
    text = str(error)
    return (
        (isinstance(error, TypeError) and "not PosixPath" in text)
        or (isinstance(error, RuntimeError) and text.startswith("can't "))
        or (isinstance(error, SystemError) and text == "error return without exception set")
    )


def hung_in(store: Path) -> Path:
    """Returns the file to which a slow child writes its threads' stacks."""
    return store.with_name(f"{store.name}.hung")


def is_start(stacks: str) -> bool:
    """Returns whether the main thread waits in Thread.start for a new thread."""
    main = stacks.rpartition("Thread 0x")[2]
    return '/threading.py", line' in main and " in start\n" in main


def stage_of(action: str, error: BaseException) -> str:
    """Returns the last of the action's stages in which the error, or one of its causes, was raised."""
    stages = STAGES[action]
    latest = stages[0]
    link: BaseException | None = error
    while link is not None:
        for frame in traceback.extract_tb(link.__traceback__):
            stage = _STAGE_OF[action].get(frame.name, latest)
            if stages.index(stage) > stages.index(latest):
                latest = stage
        link = link.__cause__ or link.__context__
    return latest


def check_reopened(task: tuple[Sample, Contents, Position, Path, Lived]) -> str:
    """Does the second child's work; returns what is wrong, or ""."""
    _, whole, position, store, lived = task
    quickly()
    problems = verify(store / "host-0")
    if problems:
        return f"verify: {problems[0]}"
    with planstep.open(store, create=False) as db:
        now = _effects(db)
        probe = db.table("in-msgpack").get("probe") == 1
        topics = {
            name: rows for name, rows in contents(db).items() if name.startswith("topic of-u")
        }
    if any(now) != all(now):
        return f"torn: {dict(zip(_EFFECTS, now, strict=True))}"
    if lived.acknowledged and not all(now):
        return "an acknowledged commit is gone"
    if lived.refused and any(now):
        return "a refused commit is there"
    if lived.effects is not None and lived.effects != now:
        return f"the engine showed {lived.effects}, after reopening it is {now}"
    if lived.probe and not probe:
        return "what was acknowledged after the failure is gone"
    if any(whole[name] != rows for name, rows in topics.items()):
        return "what nobody touched is different"
    if position.action in ("read", "open") and any(now):
        return "a commit that was never begun is there"
    return ""


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
    """Checks, with memory again, that the engine works, or says that it is closed and its path opens again."""
    try:
        if db is not None:
            try:
                _observe(lived, db)
                if lived.raised in ("HostStopped", "Undetermined"):
                    lived.wrong = lived.wrong or f"{lived.raised}, and the engine goes on"
                return
            except EngineClosed:
                db.close()  # once more, if closing was the call that failed
        before, lived.effects = lived.effects or [False], None
        _observe(lived, planstep.open(store))
        if any(before) and before != lived.effects:  # a commit in doubt may have succeeded
            lived.wrong = f"the engine showed {before} before it stopped, and now {lived.effects}"
    except Exception as error:
        lived.wrong = lived.wrong or f"with memory again, the engine says {error!r}"


def _observe(lived: Lived, db: planstep.Engine) -> None:
    lived.effects = _effects(db)
    db.table("in-msgpack").put("probe", 1)
    lived.probe = True
    before, lived.effects = lived.effects, _effects(db)
    if before != lived.effects:
        lived.wrong = f"the engine showed {before}, after the next commit {lived.effects}"
    if any(lived.effects) != all(lived.effects):
        lived.wrong = f"torn in the living engine: {lived.effects}"


def _careless_commit(commit: Any) -> Any:
    """Plants the control's bug: a turn that found no memory is taken for durable."""

    def careless(store: Any, turn: Any, show: Any = None) -> None:
        with suppress(MemoryError):
            commit(store, turn, show)

    return careless
