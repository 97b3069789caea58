"""Row `ioerr`: the n-th operation fails, once and for ever, in the middle of an engine's day.

    seed ─▶ what fails: a write, a sync, an allocation, a name, a commit of LMDB; n; EIO or ENOSPC; once, for ever
        └▶ writers and a reader over it (disks/shift.py) ─▶ errors typed? goes on, or closed for good?
              └▶ opened again on a disk that is well ─▶ all that was acknowledged, nothing that was refused

Modes deterministic and kafka, hosts 1 and 3. The log's files fail in the engine's own file layer; LMDB's
commits by a wrapper around its environment, and, where strace is there, in the system calls themselves.
What fails is the seed's; which of the writers meets it, the scheduler's. A single failure may keep a store
from opening, that once; it closes an open one only where LMDB panics: its own calls, or the error "panic".

It leaves out reads that fail: what is damaged on the way back is row bitflip's.

Next: disks/shift.py.
"""

import errno
import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ...api.opening import Durability, Mode
from ...errors import HostStopped, PlanstepError
from .disks import traced
from .disks.engines import abandon, open_engine, stores_of
from .disks.failing import FastFiles, FaultyFiles
from .disks.shift import KAFKA, Log, Shift, check
from .disks.stores import table_file
from .disks.tables import ERRORS, break_tables
from .rows import Asked, Found
from .spread import Died, spread

RUNS = 400
SEGMENT_BYTES = 8 << 10
_LIMITS = {
    "write": 60,
    "sync": 3,
    "allocate": 12,
    "rename": 6,
    "remove": 5,
    "sync_folder": 14,
    "shrink": 2,
    "table": 3,
}
"""Kinds, and about how many of them there are in a run."""
_PLACES: list[tuple[Mode, int]] = [
    ("deterministic", 1),
    ("deterministic", 3),
    ("kafka", 1),
    ("kafka", 3),
]
_INJECTED = ("pwrite64,writev", "fdatasync")
_SECONDS = 90


@dataclass(frozen=True)
class Task:
    """`times`: None for ever; `swallows`: the planted bug; `injected`: by strace, into LMDB's own calls."""

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

    def __str__(self) -> str:
        what = self.injected or f"{self.kind} {self.error}".strip()
        often = "for ever" if self.times is None else "once"
        return (
            f"seed {self.seed}, mode {self.mode}, {self.hosts} hosts, {self.durability}: {what} "
            f"{self.nth} fails {often} with {errno.errorcode[self.code]}"
        )


@dataclass
class Seen:
    struck: int = 0
    opened: bool = True
    log: Log = field(default_factory=Log)
    wrong: list[str] = field(default_factory=list)


class Swallowing(FaultyFiles):
    """The planted bug: a write that fails is taken for one that did not."""

    def write(self, fd: int, buffers: object, offset: int, sync: bool) -> None:
        if self._error("write") is None:
            FastFiles.write(self, fd, buffers, offset, sync)  # type: ignore[arg-type]


def run(asked: Asked) -> Found:
    why_not = traced.available()
    tasks = [_task(seed, asked.memory, why_not is None) for seed in asked.seeds(RUNS, 40)]
    found = _all(tasks, asked)
    found.figures["strace"] = why_not or "used"
    return found


def control(asked: Asked) -> Found:
    """An engine whose append takes a failed write for a good one."""
    tasks = [
        Task(
            seed,
            "deterministic",
            1,
            "full",
            "write",
            12 + seed % 5,
            errno.EIO,
            1,
            asked.memory,
            swallows=True,
        )
        for seed in range(asked.seed, asked.seed + 4)
    ]
    return _all(tasks, asked)


def _task(seed: int, folder: Path, may_trace: bool) -> Task:
    rng = random.Random(f"ioerr {seed}")
    kinds = [*_LIMITS, "write", "table", "table"]
    kind = kinds[seed % len(kinds)]
    mode, hosts = _PLACES[seed // len(kinds) % len(_PLACES)]
    durability: Durability = (
        "os" if hosts == 1 and (kind == "sync" or rng.random() < 0.3) else "full"
    )
    error = ERRORS[rng.randrange(len(ERRORS))] if kind == "table" else ""
    injected = ""
    if kind == "table" and may_trace and hosts == 1 and rng.random() < 0.5:
        injected, error = rng.choice(_INJECTED), ""
    return Task(
        seed,
        mode,
        hosts,
        durability,
        kind,
        rng.randrange(_LIMITS[kind]),
        rng.choice([errno.EIO, errno.EIO, errno.ENOSPC]),
        None if rng.random() < 0.4 else 1,
        folder,
        error,
        injected,
    )


def _all(tasks: list[Task], asked: Asked) -> Found:
    found = Found(seeds=(tasks[0].seed, tasks[-1].seed))
    done: dict[int, Seen] = {}
    told: Counter[str] = Counter()
    try:
        for task, seen in spread(play, tasks, asked.workers):
            done[tasks.index(task)] = seen
            found.runs += 1
            asked.tell(f"{found.runs} runs of {len(tasks)}")
    except Died as error:
        found.violations.append(f"a failing disk killed the process: {error}")
    for at, seen in sorted(done.items()):
        task, log = tasks[at], seen.log
        found.events += len(log.acknowledged) + len(log.refused) + len(log.unknown)
        if seen.struck:
            what = "commits of LMDB" if task.kind == "table" else task.kind
            found.faults[f"{what}, {'once' if task.times else 'for ever'}"] += 1
        told["acknowledged"] += len(log.acknowledged)
        told["refused"] += len(log.refused)
        told["undetermined"] += len(log.unknown)
        told["engines_closed"] += log.closed
        told["never_opened"] += not seen.opened
        told["never_struck"] += not seen.struck
        told["looks"] += log.looks
        found.violations += [f"{task}: {wrong}" for wrong in [*log.wrong, *seen.wrong]]
    found.figures |= dict(told)
    if found.runs >= 40:
        struck = sum(found.faults.values())
        found.reaches([("runs whose disk failed", struck, found.runs * 3 // 4)])
    return found


def play(task: Task) -> Seen:
    root = task.folder / f"ioerr-{task.seed}-{task.swallows}"
    root.mkdir(parents=True)
    seen = Seen()
    try:
        if task.injected:
            _injected(task, root, seen)
        else:
            _own(task, root, seen)
        if seen.log.closed and task.times and not _panics(task):
            seen.wrong.append("a single failure closed the engine for good")
        seen.wrong += _afterwards(task, root / "s", seen.log)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return seen


def _panics(task: Task) -> bool:
    """Whether LMDB may: it then refuses everything until it is opened anew."""
    return bool(task.injected) or task.error == "panic"


def _own(task: Task, root: Path, seen: Seen) -> None:
    """Below faulty files, or faulty tables, from the first moment on."""
    make = Swallowing if task.swallows else FaultyFiles
    kind = "" if task.kind == "table" else task.kind
    short = random.Random(task.seed).random()
    files = make(
        kind, task.nth, code=task.code, times=task.times, short=lambda size: int(size * short)
    )
    log = seen.log
    try:
        db = open_engine(
            root / "s",
            files,
            mode=task.mode,
            hosts=task.hosts,
            durability=task.durability,
            segment_bytes=SEGMENT_BYTES,
            kafka=KAFKA,
        )
    except HostStopped as error:
        log.wrong.append(f"the engine met a bug of its own: {error!r}")
        return
    except PlanstepError as error:  # it does not open on such a disk, and says so
        log.saw(error)
        seen.opened = False
        seen.struck = files.failed
        return
    broken = []
    if task.kind == "table":
        broken = [break_tables(store, task.error, task.nth, task.times) for store in stores_of(db)]
    shift = Shift(db, task.mode, log)
    try:
        if shift.create():
            shift.work()
        seen.struck = files.failed + sum(env.failed for env in broken)
        files.kind = ""
        for env in broken:
            env.nth = sys.maxsize
        shift.ends()
        shift._may_fail(db.close)
    finally:
        abandon(db)


def _injected(task: Task, root: Path, seen: Seen) -> None:
    """In a process below strace, whose system calls on LMDB's file fail."""
    db = open_engine(
        root / "s", FastFiles(), mode=task.mode, segment_bytes=SEGMENT_BYTES, kafka=KAFKA
    )
    Shift(db, task.mode, Log()).create()
    db.close()
    path = table_file(root / "s" / "host-0")
    when = f"{task.nth + 1}{'+' if task.times is None else ''}"
    name = errno.errorcode[task.code]
    words = ["strace", "-f", "-qq", "-o", str(root / "calls"), "-P", str(path)]
    words += [
        "-e",
        f"trace={task.injected}",
        "-e",
        f"inject={task.injected}:error={name}:when={when}",
    ]
    code = "import sys; from planstep.bench.proof.ioerr import child; child(*sys.argv[1:])"
    words += [sys.executable, "-c", code, str(root), task.mode, task.durability]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        seen.wrong.append(f"the process ended with {done.returncode}: {done.stderr[-500:]}")
        return
    seen.log = Log(**json.loads(done.stdout))
    seen.struck = (root / "calls").read_text().count("(INJECTED)")


def child(root: str, mode: Mode, durability: Durability) -> None:
    """What runs below strace: tells its log."""
    log = Log()
    db = open_engine(
        Path(root) / "s",
        FastFiles(),
        mode=mode,
        durability=durability,
        segment_bytes=SEGMENT_BYTES,
        kafka=KAFKA,
    )
    shift = Shift(db, mode, log)
    if shift.create():
        shift.work()
    shift._may_fail(db.close)
    abandon(db)
    print(json.dumps(asdict(log)))


def _afterwards(task: Task, path: Path, log: Log) -> list[str]:
    """The disk is well, the process another: what is there?"""
    try:
        db = open_engine(
            path,
            FastFiles(),
            mode=task.mode,
            hosts=task.hosts,
            segment_bytes=SEGMENT_BYTES,
            kafka=KAFKA,
        )
    except PlanstepError as error:
        return [f"does not open again: {error!r}"]
    try:
        return check(db, task.mode, log, path)
    except PlanstepError as error:
        return [f"opened again, it cannot be read: {error!r}"]
    finally:
        abandon(db)
