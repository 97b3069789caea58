"""Row `ioerr`: makes the n-th operation fail, once or for ever, in the middle of an engine's work.

    seed ─▶ what fails: a write, a sync, an allocation, a name, a commit of LMDB; a read, an open of a file; any
            call of a backup, a restore, an export (../disks/copied.py);
            n; EIO or ENOSPC; once, for ever
        └▶ writers and a reader over it (../disks/load.py) ─▶ errors typed? goes on, or closed for good?
              └▶ opened again on a healthy disk ─▶ all that was acknowledged, nothing that was refused

All modes, each variant, hosts 1 and 3. The log's files fail in the engine's own file layer; LMDB's
commits fail by a wrapper around its environment and, if strace is installed, in the system calls themselves.
The seed decides the failure, the scheduler which writer meets it. A single failure may keep a store from
opening, that once. It closes an open store only if LMDB panics: in its own calls, or by the error "panic".

Reads and opens fail on a store with data from an earlier process, killed or closed. Then the open, or a call,
fails with an error that does not report damage; after a single failure, the next try works. This covers
segments and data files; with strace LMDB's file too, as far as it is read by calls.

Left out: pages of LMDB's map that cannot be read, where the system ends the process (SIGBUS). Bytes that are
damaged on the way are row bitflip's.

Next: ../disks/load.py.
"""

import errno
import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from ....api.engine import Engine
from ....api.open_engine import Durability, Mode
from ....errors import IoError, PlanstepError
from ....store.files import Files
from ...children import call
from ..disks import copied, strace
from ..disks.engines import abandon, open_engine, stores_of
from ..disks.failing import FastFiles, FaultyFiles
from ..disks.load import (
    BEGIN,
    Load,
    Log,
    check,
    damage_reports,
    day_before,
    try_open,
)
from ..disks.modes import MODES, variant_of
from ..disks.stores import table_file
from ..disks.tables import ERRORS, break_tables
from ..parallel import gather
from .registry import RowOptions, RowResult

RUNS = 400
SEGMENT_BYTES = 8 << 10
_LIMITS = {
    "write": 60,
    "sync": 3,
    "allocate": 12,
    "rename": 6,
    "remove": 5,
    "sync_folder": 14,
    "shrink": 1,
    "table": 3,
    "read": 90,
    "open": 24,
}
"""Kinds, and about how many of them there are in a run."""
_ANY = 1 << 20
"""Range of a draw among all calls; the calls counted in a run decide which it is."""
_AT_OPENING = {"read": 6, "open": 9}
"""Like `_LIMITS`, before the store is open."""
_OVER_A_STORE = ("read", "open", "shrink", *copied.KINDS)
"""Kinds that strike an existing store."""
_PLACES = [
    (mode, (1, 3)[(number + turn) % 2]) for turn in range(2) for number, mode in enumerate(MODES)
]
_INJECTED = {
    "table": ("pwrite64,writev", "fdatasync"),
    "read": ("pread64", "read"),
    "open": ("openat",),
}
_READING = (*_AT_OPENING, "export")
_CALLS = {"read": 6, "open": 4}
"""About how many calls on LMDB's file there are at an opening."""
_NAMES = {
    "table": "commits of LMDB",
    "read": "read failed",
    "open": "open failed",
    **{kind: f"call of {kind}" for kind in copied.KINDS},
}
_SECONDS = 90
_FOLDERS_MAX = 64


@dataclass(frozen=True)
class Task:
    """One run. `times`: None for ever; `swallows`: the planted bug. `injected`: by strace, into LMDB's own calls;
    or, for a copy, the kind of call.
    """

    seed: int
    mode: Mode
    hosts: int
    durability: Durability
    kind: str
    nth: int
    code: int
    times: int | None
    folder: Path
    error: str = ""
    injected: str = ""
    swallows: bool = False
    variant: str = ""

    def __str__(self) -> str:
        what = self.injected or f"{self.kind} {self.error}".strip()
        often = "for ever" if self.times is None else "once"
        variant = f" {self.variant}" * bool(self.variant)
        return (
            f"seed {self.seed}, mode {self.mode}{variant}, {self.hosts} hosts, {self.durability}: {what} "
            f"{self.nth} fails {often} with {errno.errorcode[self.code]}"
        )


@dataclass
class Outcome:
    """The result. `refused`: the first attempt to open failed; `opened`: the store was open in the end."""

    struck: int = 0
    opened: bool = True
    refused: bool = False
    log: Log = field(default_factory=Log)
    wrong: list[str] = field(default_factory=list)


class Swallowing(FaultyFiles):
    """Plants the bugs: a failed write is taken for a good one, a failed read for the file's end."""

    def write(self, fd: int, buffers: Sequence[bytes], offset: int, sync: bool) -> None:
        with suppress(IoError):
            self.check("write")
            FastFiles.write(self, fd, buffers, offset, sync)

    def read(self, fd: int, offset: int, length: int) -> bytes:
        try:
            return super().read(fd, offset, length)
        except IoError:
            return b""


def run(options: RowOptions) -> RowResult:
    why_not = strace.available()
    tasks = [_task(seed, options.memory, why_not is None) for seed in options.seeds(RUNS, 40)]
    result = _all(tasks, options)
    result.figures["strace"] = why_not or "used"
    return result


def control(options: RowOptions) -> RowResult:
    """Plants an engine that takes a failed write for a good one, or a failed read for the end of the data.

    It also plants a backup that calls an unreadable copy damaged.
    """
    result = RowResult(seeds=(options.seed, options.seed + 3))
    plain = Task(0, "deterministic", 1, "full", "", 0, errno.EIO, 1, options.memory, swallows=True)
    for kind, first, injected in (("write", 12, ""), ("read", 1, ""), ("backup", -6, "pread")):
        tasks = [
            replace(plain, seed=seed, kind=kind, nth=first + seed % 5, injected=injected)
            for seed in range(options.seed, options.seed + 4)
        ]
        swallowed = _all(tasks, options).planted("Corruption(", "verify: ", "as Corruption")
        if not swallowed.violations:
            return swallowed
        result.add(swallowed)
    return result


def _task(seed: int, folder: Path, may_trace: bool) -> Task:
    rng = random.Random(f"ioerr {seed}")
    kinds = [*_LIMITS, "write", "table", "table", "read", *copied.KINDS]
    turn, at = divmod(seed, len(kinds))
    kind, (mode, hosts) = kinds[at], _PLACES[turn % len(_PLACES)]
    number = turn + turn // len(_PLACES) + at
    durability: Durability = (
        "os" if hosts == 1 and (kind == "sync" or rng.random() < 0.3) else "full"
    )
    error = ERRORS[rng.randrange(len(ERRORS))] if kind == "table" else ""
    injected, times = "", None if rng.random() < 0.4 else 1
    limit, below = _LIMITS.get(kind, _ANY), rng.random() < 0.5
    if kind in _AT_OPENING:  # gives each place each of the four combinations in turn
        below, times = bool(number & 1), None if number & 2 else 1
        limit = _AT_OPENING[kind] if rng.random() < 0.5 else limit
    if below and kind in _INJECTED and may_trace and hosts == 1:
        injected, error = rng.choice(_INJECTED[kind]), ""
        limit = _CALLS.get(kind, limit)
    return Task(
        seed,
        mode,
        hosts,
        durability,
        kind,
        rng.randrange(limit),
        errno.EIO if kind in _READING else rng.choice([errno.EIO, errno.EIO, errno.ENOSPC]),
        times,
        folder,
        error,
        injected,
        variant=variant_of(mode, rng.randrange(_ANY)),
    )


def _all(tasks: list[Task], options: RowOptions) -> RowResult:
    result = gather(options, _count, tasks, lambda task: options.again(task.seed))
    result.seeds = tasks[0].seed, tasks[-1].seed
    if result.runs >= 40:
        struck = sum(result.faults.values())
        result.reaches([("runs whose disk failed", struck, result.runs * 3 // 4)])
    if result.runs >= RUNS:
        result.reaches((f"runs of {name}", n, 1) for name, n in sorted(result.faults.items()))
    return result


def _count(task: Task) -> RowResult:
    outcome = play(task)
    log = outcome.log
    return RowResult(
        1,
        len(log.acknowledged) + len(log.refused) + len(log.unknown),
        Counter({_class(task): int(outcome.struck > 0)}),  # 0 for a class that never struck
        [f"{task}: {text}" for text in [*log.wrong, *outcome.wrong]],
        figures={
            "runs_of": Counter([f"{task.mode} {task.variant}".strip()]),
            "acknowledged": len(log.acknowledged),
            "refused": len(log.refused),
            "undetermined": len(log.unknown),
            "engines_closed": int(log.closed),
            "refused_to_open": int(outcome.refused),
            "never_opened": int(not outcome.opened),
            "never_struck": int(not outcome.struck),
            "looks": log.looks,
        },
    )


def _class(task: Task) -> str:
    what = _NAMES.get(task.kind, task.kind)
    if task.injected and task.kind != "table":
        what = f"LMDB's file: {what}"
    return f"{what}, {'once' if task.times else 'for ever'}"


def play(task: Task) -> Outcome:
    root = task.folder / f"ioerr-{task.seed}-{task.kind}-{task.swallows}"
    root.mkdir(parents=True)
    outcome = Outcome()
    try:
        if task.kind in _OVER_A_STORE:
            killed = random.Random(f"ioerr killed {task.seed}").random() < 0.7
            day_before(_open(task, root / "s", FastFiles()), outcome.log, killed)
        if task.kind in copied.KINDS:
            _run_copy(task, root, outcome)
        elif task.injected:
            _run_injected(task, root, outcome)
        else:
            _run_own(task, root, outcome)
        if outcome.log.closed and task.times and not _panics(task):
            outcome.wrong.append("a single failure closed the engine for good")
        if _may_try_again(task) and outcome.log.failed_looks > outcome.struck:
            outcome.wrong.append("the disk failed once, and more than one read failed")
        outcome.wrong += damage_reports(outcome.log)
        outcome.wrong += _afterwards(task, root / "s", outcome.log)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return outcome


def _panics(task: Task) -> bool:
    """Returns whether LMDB may panic: it then refuses everything until it is opened anew."""
    return task.kind == "table" and (bool(task.injected) or task.error == "panic")


def _may_try_again(task: Task) -> bool:
    """Returns whether a call that met the failure must succeed when repeated."""
    return task.kind in _AT_OPENING and task.times is not None


def _open(task: Task, path: Path, files: Files) -> Engine:
    return open_engine(
        path,
        files,
        mode=task.mode,
        hosts=task.hosts,
        durability=task.durability,
        segment_bytes=SEGMENT_BYTES,
        variant=task.variant,
    )


def _load(task: Task, db: Engine, log: Log) -> Load:
    return Load(db, log, BEGIN if task.kind in _OVER_A_STORE else 0)


def _run_own(task: Task, root: Path, outcome: Outcome) -> None:
    """Runs the load on faulty files, or faulty tables, from the first moment on."""
    make = Swallowing if task.swallows else FaultyFiles
    kind = "" if task.kind == "table" else task.kind
    short = random.Random(task.seed).random()
    files = make(
        kind, task.nth, code=task.code, times=task.times, short=lambda size: int(size * short)
    )
    log = outcome.log
    again = _may_try_again(task)
    db, outcome.refused = try_open(lambda: _open(task, root / "s", files), log, again)
    if db is None:
        outcome.opened = False
        outcome.struck = files.failed
        return
    broken = []
    if task.kind == "table":
        broken = [break_tables(store, task.error, task.nth, task.times) for store in stores_of(db)]
    load = _load(task, db, log)
    try:
        if load.create():
            load.work()
        outcome.struck = files.failed + sum(env.failed for env in broken)
        files.kind = ""
        for env in broken:
            env.nth = sys.maxsize
        load.ends()
        load.close()
    finally:
        abandon(db)


def _run_copy(task: Task, root: Path, outcome: Outcome) -> None:
    """Copies a store that no other process has open, while calls fail."""
    _open(task, root / "s", FastFiles()).close()
    fails = copied.Fails(task.nth, task.code, task.times, task.injected)
    reopen = partial(_open, task, files=FastFiles())
    act = copied.KINDS[task.kind](root, outcome.log, reopen)
    outcome.struck, where = act.play(fails, blames=task.swallows)
    outcome.log.wrong = [f"{where}: {text}" for text in outcome.log.wrong]


def _run_injected(task: Task, root: Path, outcome: Outcome) -> None:
    """Runs the load in a process below strace, where system calls on LMDB's file fail."""
    if task.kind == "table":
        db = _open(task, root / "s", FastFiles())
        Load(db, Log()).create()
        db.close()
    path = table_file(root / "s" / "host-0")
    when = f"{task.nth + 1}{'+' if task.times is None else ''}"
    name = errno.errorcode[task.code]
    words = ["strace", "-f", "-qq", "-o", str(root / "calls"), "-P", str(path)]
    for fd in range(_FOLDERS_MAX):  # LMDB opens it through the folder's descriptor
        words += ["-P", f"/proc/self/fd/{fd}/table/{path.name}"]
    words += ["-e", f"trace={task.injected}"]
    words += ["-e", f"inject={task.injected}:error={name}:when={when}"]
    argument = json.dumps({"task": asdict(task), "log": asdict(outcome.log)}, default=str)
    words += call(child, root, argument)
    done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        outcome.wrong.append(f"the process ended with {done.returncode}: {done.stderr[-500:]}")
        return
    report = json.loads(done.stdout)
    outcome.log = Log(**report["log"])
    outcome.opened, outcome.refused = report["opened"], report["refused"]
    outcome.struck = (root / "calls").read_text().count("(INJECTED)")


def child(root: str, argument: str) -> None:
    """Runs the load below strace, continues the given log, and prints it."""
    spec = json.loads(argument)
    task = Task(**{**spec["task"], "folder": Path(root)})
    outcome = Outcome(log=Log(**spec["log"]))
    again = _may_try_again(task)
    db, outcome.refused = try_open(
        lambda: _open(task, Path(root) / "s", FastFiles()), outcome.log, again
    )
    if db is None:
        outcome.opened = False
    else:
        load = _load(task, db, outcome.log)
        if load.create():
            load.work()
        load.close()
        abandon(db)
    print(json.dumps(asdict(outcome)))


def _afterwards(task: Task, path: Path, log: Log) -> list[str]:
    """Checks the content in another process on a healthy disk."""
    try:
        db = _open(task, path, FastFiles())
    except PlanstepError as error:
        return [f"does not open again: {error!r}"]
    try:
        return check(db, log, path)
    except PlanstepError as error:
        return [f"opened again, it cannot be read: {error!r}"]
    finally:
        abandon(db)
