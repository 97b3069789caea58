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

import json
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
from dataclasses import asdict, dataclass, field, replace
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
from ..disks.engines import abandon, open_engine, stores_of, verified
from ..disks.failing import FastFiles, SmallDisk
from ..disks.filling import Filling, Told
from ..disks.load import VERSIONS, kafka_settings
from ..parallel import Died, in_order
from .registry import Asked, Found

RUNS = 200
_PLACES: list[tuple[Mode, int]] = [
    ("deterministic", 1),
    ("kafka", 1),
    ("deterministic", 3),
    ("kafka", 3),
]
_KINDS = (
    "budget",
    "budget",
    "tmpfs",
    "budget",
    "map",
    "budget",
    "fsize",
    "budget",
    "files",
    "ext4",
)
_MOUNTED = ("tmpfs", "ext4")
_SMALL = 16 << 10
_SECONDS = 90


@dataclass(frozen=True)
class Task:
    """One run. `room`: bytes of the disk, or the unit of the kind of limit; `reserve`: False is the planted bug;
    `version`: of mode kafka's protocol.
    """

    seed: int
    kind: str
    mode: Mode
    hosts: int
    room: int
    folder: Path
    segment_bytes: int = _SMALL
    size: int = 1500
    reserve: bool = True
    version: int = 2

    def __str__(self) -> str:
        version = f" {self.version}" if self.mode == "kafka" else ""
        return (
            f"seed {self.seed}, {self.kind} of {self.room:,}, mode {self.mode}{version}, "
            f"{self.hosts} hosts"
        )


@dataclass
class Seen:
    full: bool = False
    told: Told = field(default_factory=Told)
    wrong: list[str] = field(default_factory=list)


def run(asked: Asked) -> Found:
    why_not = _may_mount(asked.folder)
    kinds = [kind for kind in _KINDS if why_not is None or kind not in _MOUNTED]
    tasks = []
    for seed in asked.seeds(RUNS, 20):
        version = VERSIONS[seed // len(kinds) // len(_PLACES) % len(VERSIONS)]
        tasks.append(replace(_task(seed, kinds, asked), version=version))
    found = _all(tasks, asked)
    found.figures["mounts"] = why_not or "tmpfs, ext4"
    return found


def control(asked: Asked) -> Found:
    """Removes the reserves: then nothing can be freed, nor a segment be opened without a free descriptor."""
    tasks = []
    for seed in range(asked.seed, asked.seed + 3):
        room, folder = _SMALL * (4 + seed % 3), asked.memory
        tasks.append(Task(seed, "budget", "deterministic", 1, room, folder, reserve=False))
    tasks.append(Task(asked.seed + 3, "files", "deterministic", 1, 0, folder, reserve=False))
    return _all(tasks, asked).planted("the reserve is switched off")


def _task(seed: int, kinds: list[str], asked: Asked) -> Task:
    rng = random.Random(f"full {seed}")
    kind = kinds[seed % len(kinds)]
    turn = seed // len(kinds)
    mode, hosts = _PLACES[turn % len(_PLACES)]
    if kind == "budget":
        room = hosts * _SMALL * 3 + rng.randrange(24) * _SMALL // 2
        return Task(seed, kind, mode, hosts, room, asked.memory)
    if kind == "tmpfs" and (turn + turn // len(_PLACES)) % 2:
        return forty_megabytes(seed, mode, hosts, asked.folder)
    if kind == "tmpfs":
        room = hosts * (1_400 << 10) + rng.randrange(16) * (64 << 10)
        return Task(seed, kind, mode, hosts, room, asked.folder, 256 << 10, 12_000)
    if kind == "ext4":
        return Task(seed, kind, mode, hosts, 16 << 20, asked.folder, 512 << 10, 60_000)
    if kind == "map":
        return Task(seed, kind, mode, 1, 2 + rng.randrange(6), asked.memory)
    if kind == "fsize":
        room = rng.choice([_SMALL, 40 << 10, 64 << 10, 96 << 10, 128 << 10])
        return Task(seed, kind, mode, hosts, room, asked.memory)
    return Task(seed, kind, mode, hosts, 0, asked.memory)


def forty_megabytes(seed: int, mode: Mode, hosts: int, folder: Path) -> Task:
    """Returns a task on a small file system, with segments of the default size."""
    return Task(seed, "tmpfs", mode, hosts, 40 << 20, folder, SEGMENT_BYTES, 60_000)


def _all(tasks: list[Task], asked: Asked) -> Found:
    found = Found(seeds=(tasks[0].seed, tasks[-1].seed))
    told: Counter[str] = Counter()
    try:
        for task, seen in in_order(play, tasks, asked.workers, asked.tell):
            log = seen.told
            found.runs += 1
            found.events += len(log.acknowledged) + len(log.refused) + log.late
            found.faults[task.kind] += seen.full
            told[f"kafka_version_{task.version}"] += task.mode == "kafka"
            told["refused"] += len(log.refused)
            told["acknowledged"] += len(log.acknowledged)
            told["reads"] += log.looks
            for name in ("late", "freed", "went_on"):
                told[name] += getattr(log, name)
            again = asked.again(task.seed)
            found.violations += [f"{task}: {text}\n{again}" for text in [*log.wrong, *seen.wrong]]
    except Died as error:
        found.violations.append(f"a full disk killed the process: {error}")
    found.figures |= dict(told)
    if found.runs >= 20:
        found.reaches([("runs that met fullness", sum(found.faults.values()), found.runs * 3 // 4)])
    return found


def play(task: Task) -> Seen:
    root = task.folder / f"full-{task.seed}-{task.reserve}"
    root.mkdir(parents=True)
    try:
        if task.kind in ("fsize", "files"):
            return _in_child(task, root)
        with _mounted(task, root) as place:
            return _fill(task, place / "s")
    except PlanstepError as error:
        trace = "".join(traceback.format_exception(error)[-6:])
        return Seen(wrong=[f"refused where it should go on: {error!r}\n{trace}"])
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
        kafka=kafka_settings(task.version),
    )


def _fill(task: Task, path: Path) -> Seen:
    seen = Seen()
    files = _files(task)
    db = _open(task, path, files)
    try:
        filling = Filling(db, task.mode, task.size)
        seen.told = filling.told
        filling.create()
        with _fullness(task, db, files), _reserve(task):
            if task.kind == "files":
                seen.full = filling.without_descriptors()
            else:
                seen.full = filling.fill()
            if seen.full and task.kind != "files":
                filling.read("on a full disk")
                filling.free()
                filling.read("after freeing")
                if task.kind in ("budget", *_MOUNTED):
                    filling.go_on()
                    filling.again()
        if seen.full and not filling.told.went_on and task.reserve:
            filling.go_on()
        if seen.told.wrong:
            return seen
        filling.read("afterwards")
        db.close()
        seen.wrong += _again(task, path, filling)
        return seen
    finally:
        abandon(db)


def _again(task: Task, path: Path, filling: Filling) -> list[str]:
    """Opens the store once more, compares and verifies it."""
    db = _open(task, path, FastFiles())
    try:
        filling.db = db
        filling.read("opened again")
        db.close()
    except PlanstepError as error:
        return [f"does not open again: {error!r}"]
    finally:
        abandon(db)
    return verified(path)


@contextmanager
def _fullness(task: Task, db: Engine, files: Files) -> Iterator[None]:
    """Limits the room to the task's within the context."""
    if isinstance(files, SmallDisk):
        files.room = files.used() + task.room
        yield
        files.room = None
    elif task.kind == "map":
        with patch("planstep.store.checkpointing.WAITING_BYTES_MAX", 20_000):
            for store in stores_of(db):
                store.checkpoint()
                env = store.table.environment
                env.set_mapsize((env.info()["last_pgno"] + task.room) * 4096)
            checkpoint = _Pressed(db)
            with patch.object(Filling, "write", checkpoint.write):
                yield
        for store in stores_of(db):
            store.table.environment.set_mapsize(1 << 30)
    elif task.kind == "fsize":
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (task.room, hard))
        try:
            with patch("planstep.store.checkpointing.WAITING_BYTES_MAX", 20_000):
                checkpoint = _Pressed(db)
                with patch.object(Filling, "write", checkpoint.write):
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
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for fd in taken[:but]:
            os.close(fd)
        yield
    finally:
        for fd in taken[but:]:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class _Pressed:
    """Runs a checkpoint after each eighth write, as minutes of use would: failing ones fill the memory."""

    def __init__(self, db: Engine) -> None:
        self._write = Filling.write
        self._stores = stores_of(db)
        self._count = 0

    @property
    def write(self) -> Any:
        def write(filling: Filling, size: int | None = None) -> bool:
            self._count += 1
            if self._count % 8 == 0:
                for store in self._stores:
                    try:
                        store.checkpoint()
                    except PlanstepError:
                        pass  # writes are refused once too much waits for a checkpoint
            return self._write(filling, size)

        return write


def _reserve(task: Task) -> Any:
    if task.reserve:
        return nullcontext()

    def none(self: Folder, name: str, size: int) -> tuple[int, int]:
        raise NoSpace("the reserve is switched off")

    return patch.object(Folder, "create_from_reserve", none)


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


def _in_child(task: Task, root: Path) -> Seen:
    code = "import sys; from planstep.bench.proof.rows.full import child; child(*sys.argv[1:])"
    words = [sys.executable, "-c", code, str(root), json.dumps(asdict(task), default=str)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        return Seen(wrong=[f"the process ended with {done.returncode}: {done.stderr[-500:]}"])
    said = json.loads(done.stdout)
    return Seen(said["full"], Told(**said["told"]), said["wrong"])


def child(root: str, said: str) -> None:
    """Runs the task in a process with a limit of its own, and prints the result."""
    task = Task(**{**json.loads(said), "folder": Path(root)})
    with patch("planstep.store.fd_reserve.DESCRIPTORS_ASIDE", DESCRIPTORS_ASIDE * task.reserve):
        print(json.dumps(asdict(_fill(task, task.folder / "s"))))
