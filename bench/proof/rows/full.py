"""Row `full`: fills disks, maps and limits: every refusal is definite, reads go on, freeing makes room.

    kind of fullness ─▶ engine ─▶ filled (disks/filling.py) ─▶ refused ─▶ freed ─▶ goes on ─▶ opened again, verified
      budget   the engine's own file layer has room for so many bytes; at every number of allocations
      tmpfs    a file system in memory of so many bytes      ext4  one of 16 MB in a file: both need root
      map      LMDB's map is full, then larger
      fsize    RLIMIT_FSIZE, in a child                      files RLIMIT_NOFILE, in a child: none left, and
               nothing is refused, because a store reserves the descriptors that it needs

A SIGBUS, from a store to a map for which the file system has no room, would kill the process: that is a
violation too. With several hosts a reply may come only when there is room again: the row waits for it then.

Left out: other threads that take the descriptors which a store closes for a moment; and a limit lowered
below the current size of a segment: writing there fails like a bad disk (row ioerr).

Next: ../disks/filling.py.
"""

import itertools
import os
import random
import resource
import shutil
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ....api.engine import Engine
from ....api.open_engine import Mode
from ....errors import NoSpace, PlanstepError
from ....store.disk_store import SEGMENT_BYTES
from ....store.fd_reserve import DESCRIPTORS_ASIDE
from ....store.files import Files
from ....store.log.segments import Folder
from ..disks.engines import (
    LeftBehind,
    abandon,
    open_engine,
    problems,
    stores_of,
    wait_stable,
)
from ..disks.failing import FastFiles, SmallDisk
from ..disks.filling import Filling, LateLog
from ..disks.forked import apart
from ..disks.modes import MODES, variant_of
from ..parallel import gather
from .registry import RowOptions, RowResult

RUNS = 200
_PLACES = [(mode, hosts) for hosts in (1, 3) for mode in MODES]
_KINDS = (
    *("budget", "budget", "tmpfs", "budget", "map"),
    *("budget", "fsize", "budget", "files", "ext4"),
)
_MOUNTED = ("tmpfs", "ext4")
_SMALL = 16 << 10
_SECONDS = 90
_FEW_WAIT = patch("planstep.store.checkpointing.WAITING_BYTES_MAX", 20_000)


@dataclass(frozen=True)
class Task:
    """One run. `room`: bytes of the disk, or the unit of the kind of limit; `reserve`: False is the planted bug."""

    seed: int
    kind: str
    mode: Mode
    hosts: int
    room: int
    folder: Path
    segment_bytes: int = _SMALL
    size: int = 1500
    reserve: bool = True
    variant: str = ""

    def __str__(self) -> str:
        variant = f" {self.variant}" * bool(self.variant)
        return (
            f"seed {self.seed}, {self.kind} of {self.room:,}, mode {self.mode}{variant}, "
            f"{self.hosts} hosts"
        )


@dataclass
class Outcome:
    full: bool = False
    log: LateLog = field(default_factory=LateLog)
    wrong: list[str] = field(default_factory=list)


def run(options: RowOptions) -> RowResult:
    why_not = _may_mount(options.folder)
    kinds = [kind for kind in _KINDS if why_not is None or kind not in _MOUNTED]
    result = _all([_task(seed, kinds, options) for seed in options.seeds(RUNS, 20)], options)
    result.figures["mounts"] = why_not or "tmpfs, ext4"
    return result


def control(options: RowOptions) -> RowResult:
    """Removes the reserves: then nothing can be freed, nor a segment be opened without a free descriptor."""
    tasks = [
        Task(seed, kind, "deterministic", 1, room, options.memory, reserve=False)
        for seed, (kind, room) in enumerate(
            (*(("budget", _SMALL * n) for n in (4, 5, 6)), ("files", 0)), options.seed
        )
    ]
    return _all(tasks, options).planted("the reserve is switched off")


def _task(seed: int, kinds: list[str], options: RowOptions) -> Task:
    rng = random.Random(f"full {seed}")
    turn, at = divmod(seed, len(kinds))
    kind, (mode, hosts) = kinds[at], _PLACES[(turn + at) % len(_PLACES)]
    folder = options.folder if kind in _MOUNTED else options.memory
    task = Task(seed, kind, mode, hosts, 0, folder)
    if kind == "budget":
        task = replace(task, room=hosts * _SMALL * 3 + rng.randrange(24) * _SMALL // 2)
    elif kind == "tmpfs" and (turn + turn // len(_PLACES)) % 2:
        task = forty_megabytes(seed, mode, hosts, folder)
    elif kind == "tmpfs":
        room = hosts * (1_400 << 10) + rng.randrange(16) * (64 << 10)
        task = replace(task, room=room, segment_bytes=256 << 10, size=12_000)
    elif kind == "ext4":
        task = replace(task, room=16 << 20, segment_bytes=512 << 10, size=60_000)
    elif kind == "map":
        task = replace(task, hosts=1, room=2 + rng.randrange(6))
    elif kind == "fsize":
        task = replace(task, room=rng.choice([_SMALL, *(n << 10 for n in (40, 64, 96, 128))]))
    return replace(task, variant=variant_of(mode, turn // len(_PLACES)))


def forty_megabytes(seed: int, mode: Mode, hosts: int, folder: Path) -> Task:
    """Returns a task on a small file system, with segments of the default size."""
    return Task(seed, "tmpfs", mode, hosts, 40 << 20, folder, SEGMENT_BYTES, 60_000)


def _all(tasks: list[Task], options: RowOptions) -> RowResult:
    result = gather(options, _count, tasks, lambda task: options.again(task.seed))
    result.seeds = tasks[0].seed, tasks[-1].seed
    if result.runs >= 20:
        full = sum(result.faults.values())
        result.reaches([("runs that met fullness", full, result.runs * 3 // 4)])
    return result


def _count(task: Task) -> RowResult:
    outcome = play(task)
    log = outcome.log
    return RowResult(
        1,
        len(log.acknowledged) + len(log.refused) + log.late,
        Counter({task.kind: outcome.full}),
        [f"{task}: {text}" for text in [*log.wrong, *outcome.wrong]],
        figures={
            "runs_of": Counter([f"{task.mode} {task.variant}".strip()]),
            "refused": len(log.refused),
            "acknowledged": len(log.acknowledged),
            "reads": log.looks,
            "late": log.late,
            "freed": log.freed,
            "went_on": int(log.went_on),
        },
    )


def play(task: Task) -> Outcome:
    root = task.folder / f"full-{task.seed}-{task.reserve}"
    root.mkdir(parents=True)
    try:
        if task.kind in ("fsize", "files"):
            ended = apart(partial(_fill_limited, task), root / "s", _SECONDS)
            return ended.value or Outcome(wrong=[f"the process with a limit: {ended.why}"])
        with _mounted(task, root) as place:
            return _fill(task, place / "s")
    except PlanstepError as error:
        trace = "".join(traceback.format_exception(error)[-6:])
        return Outcome(wrong=[f"refused where it should go on: {error!r}\n{trace}"])
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _files(task: Task) -> Files:
    """Returns the engine's own files if the system itself refuses."""
    if task.kind == "budget":
        return SmallDisk()
    return FastFiles() if task.kind == "map" else Files()


def _open(task: Task, path: Path, files: Files) -> Engine:
    return open_engine(
        path,
        files,
        mode=task.mode,
        hosts=task.hosts,
        segment_bytes=task.segment_bytes,
        variant=task.variant,
    )


def _fill(task: Task, path: Path) -> Outcome:
    outcome = Outcome()
    files = _files(task)
    db = _open(task, path, files)
    try:
        filling = Filling(db, task.size)
        outcome.log = filling.log
        filling.create()
        with _fullness(task, db, files), _reserve(task):
            if task.kind == "files":
                outcome.full = filling.without_descriptors()
            else:
                outcome.full = filling.fill()
            if outcome.full and task.kind != "files":
                filling.read("on a full disk")
                filling.free()
                filling.read("after freeing")
                if task.kind in ("budget", *_MOUNTED):
                    filling.go_on()
                    filling.fill_again()
        if outcome.full and not filling.log.went_on and task.reserve:
            filling.go_on()
        if outcome.log.wrong:
            return outcome
        filling.read("afterwards")
        db.close()
        outcome.wrong += _check_reopened(task, path, filling)
        return outcome
    finally:
        abandon(db)


def _fill_limited(task: Task, path: Path) -> Outcome:
    """Fills in a process that has a limit of its own; without `reserve` its stores reserve no descriptors."""
    with patch("planstep.store.fd_reserve.DESCRIPTORS_ASIDE", DESCRIPTORS_ASIDE * task.reserve):
        return _fill(task, path)


def _check_reopened(task: Task, path: Path, filling: Filling) -> list[str]:
    """Opens the store once more, compares and verifies it."""
    db = _open(task, path, FastFiles())
    try:
        filling.db = db
        filling.read("opened again")
        wait_stable(db)
        db.close()
    except (PlanstepError, LeftBehind) as error:
        return [f"does not open again: {error!r}"]
    finally:
        abandon(db)
    return problems(path)


@contextmanager
def _fullness(task: Task, db: Engine, files: Files) -> Iterator[None]:
    """Limits the room to the task's within the context."""
    if isinstance(files, SmallDisk):
        files.room = files.used() + task.room
        yield
        files.room = None
    elif task.kind == "map":
        with _FEW_WAIT:
            for store in stores_of(db):
                store.checkpoint()
                env = store.table.environment
                env.set_mapsize((env.info()["last_pgno"] + task.room) * 4096)
            with _with_checkpoints(db):
                yield
        for store in stores_of(db):
            store.table.environment.set_mapsize(1 << 30)
    elif task.kind == "fsize":
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (task.room, hard))
        try:
            with _FEW_WAIT, _with_checkpoints(db):
                yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    elif task.kind == "files":
        with _no_descriptors(task.room):
            yield
    else:
        yield


@contextmanager
def _no_descriptors(but: int) -> Iterator[None]:
    """Takes all descriptors of the process except `but` of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, highest + 1), hard))
    descriptors: list[int] = []
    try:
        with suppress(OSError):
            while True:
                descriptors.append(os.open(os.devnull, os.O_RDONLY))
        for fd in descriptors[:but]:
            os.close(fd)
        yield
    finally:
        for fd in descriptors[but:]:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _with_checkpoints(db: Engine) -> Any:
    """Runs a checkpoint after each eighth write, as minutes of use would: failing ones fill the memory."""
    write, stores, count = Filling.write, stores_of(db), itertools.count(1)

    def pressed(filling: Filling, size: int | None = None) -> bool:
        if next(count) % 8 == 0:
            for store in stores:
                with suppress(PlanstepError):  # writes are refused once too much waits for one
                    store.checkpoint()
        return write(filling, size)

    return patch.object(Filling, "write", pressed)


def _reserve(task: Task) -> Any:
    def none(self: Folder, name: str, size: int) -> tuple[int, int]:
        raise NoSpace("the reserve is switched off")

    return nullcontext() if task.reserve else patch.object(Folder, "create_from_reserve", none)


# file systems --------------------------------------------------------------------------------


@contextmanager
def _mounted(task: Task, root: Path) -> Iterator[Path]:
    if task.kind not in _MOUNTED:
        yield root
        return
    place = root / "mounted"
    place.mkdir()
    if task.kind == "tmpfs":
        _do("mount", "-t", "tmpfs", "-o", f"size={task.room}", "tmpfs", str(place))
    else:
        image = root / "image"
        with image.open("wb") as file:
            file.truncate(task.room)
        _do("mkfs.ext4", "-q", str(image))
        _do("mount", "-o", "loop", str(image), str(place))
    try:
        yield place
    finally:
        _do("umount", "-l", str(place))


def _may_mount(folder: Path) -> str | None:
    """Returns None if both can be mounted, else why not."""
    if not sys.platform.startswith("linux") or os.geteuid():
        return "not root: budgets only"
    for kind in _MOUNTED:
        root = folder / "may-mount"
        root.mkdir()
        try:
            with _mounted(Task(0, kind, "deterministic", 1, 4 << 20, folder), root):
                pass
        except (OSError, subprocess.CalledProcessError) as error:
            return f"{kind} cannot be mounted ({error}): budgets only"
        finally:
            shutil.rmtree(root, ignore_errors=True)
    return None


def _do(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=_SECONDS)
