"""Row `powerloss`: cuts the power at every point of recorded runs; each image must open with all acknowledged work.

    seed ─▶ a run ─▶ trace ─▶ points ─▶ images ─▶ opened, compared, opened again, verified
             │ bare     a DiskStore whose turns fail in all ways; the log by its own file layer, LMDB by the
             │          difference that each of its commits made              two seeds of three
             │ face     topics, tables, positions through transactions; hosts 1 and 2; recorded likewise
             │          each mode that has data in place in its variants: a worker's transactions over two topics
             └ traced   the same in a child below strace, with LMDB's own calls, if strace is installed

One seed is a hundred images: `--seed S --runs 100` repeats those of one. The seed alone decides a bare run; in
the others, threads of the engine's own decide where exactly the power goes.

Left out: disks that ignore syncs (the negative control is one), that tear a sector of 512 bytes, or that
damage sectors they were not writing (row bitflip).

Next: ../disks/recorder.py.
"""

import random
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ....api.engine import Engine
from ....api.open_engine import Durability, Mode
from ....errors import PlanstepError
from ....runtime.open_stores import HOOKS
from ....store.files import Files
from ..disks import bare, strace
from ..disks.engines import (
    LeftBehind,
    abandon,
    content_of,
    end_what_was_open,
    open_engine,
    problems,
    stores_of,
)
from ..disks.failing import FastFiles
from ..disks.images import Allowed, Disk, is_of_workload
from ..disks.modes import MODES, variant_of
from ..disks.recorder import Recorder, Trace, watch_mark, watch_tables
from ..disks.scripts import story
from ..disks.steps import Player
from ..parallel import gather
from .registry import RowOptions, RowResult

IMAGES = 20_000
EACH = 100
"""Images of one seed."""
_WHOLE: list[tuple[str, Mode]] = [
    ("face", "deterministic"),
    ("traced", "deterministic"),
    *(("face", mode) for mode in MODES if not HOOKS[mode].has_tables),
]
"""What a run of a whole engine is: (kind, mode), in turn."""


@dataclass(frozen=True)
class Task:
    """One run. `judged`: the durability whose rule is applied; `lies`: the disk's syncs do nothing. `every_point`:
    an image of each point, however few `images` are asked for.
    """

    seed: int
    kind: str
    durability: Durability
    hosts: int
    images: int
    folder: Path
    judged: Durability
    lies: bool = False
    every_point: bool = False
    mode: Mode = "deterministic"
    variant: str = ""

    def __str__(self) -> str:
        hosts = "" if self.hosts == 1 else f", {self.hosts} hosts"
        return f"seed {self.seed}, {self.what}, durability {self.durability}{hosts}"

    @property
    def what(self) -> str:
        words = self.kind, *([self.mode, self.variant] if self.variant else [])
        return " ".join(words)


def run(options: RowOptions) -> RowResult:
    why_not = strace.available()
    images = options.of(IMAGES)
    tasks = [
        _task(options.seed + n, min(EACH, images - n * EACH), options.memory, why_not is None)
        for n in range(-(-images // EACH))
    ]
    result = _all(tasks, options)
    result.figures["strace"] = why_not or "used"
    return result


def control(options: RowOptions) -> RowResult:
    """Judges durability "os" by the rule of "full", and a disk whose syncs do nothing."""
    kinds: tuple[tuple[Durability, bool], ...] = (("os", False), ("full", True))
    tasks = [
        Task(seed, "bare", durability, 1, EACH, options.memory, judged="full", lies=lies)
        for seed in range(options.seed, options.seed + 4)
        for durability, lies in kinds
    ]
    return _all(tasks, options).planted("acknowledged turns are lost, or something is torn")


def _task(seed: int, images: int, folder: Path, may_trace: bool) -> Task:
    durability: Durability = "os" if seed % 2 else "full"
    if seed % 3:
        return Task(seed, "bare", durability, 1, images, folder, durability)
    turn, at = divmod(seed // 3, len(_WHOLE))
    kind, mode = _WHOLE[at]
    kind = kind if may_trace else "face"
    hosts = 2 if turn % 2 else 1
    variant = variant_of(mode, turn // 2)
    durability = "os" if hosts == 1 and not variant and turn // 2 % 2 else "full"
    return Task(
        seed, kind, durability, hosts, images, folder, durability, mode=mode, variant=variant
    )


def _all(tasks: list[Task], options: RowOptions) -> RowResult:
    result = gather(options, images_of, tasks, lambda task: options.again(task.seed, EACH))
    result.seeds = tasks[0].seed, tasks[-1].seed
    result.figures = dict(sorted(result.figures.items()))
    return result


def images_of(task: Task) -> RowResult:
    """Records one run, and judges its images; `events`: its points."""
    root = task.folder / f"{task.kind}-{task.mode}-{task.seed}-{task.durability}-{task.lies}"
    try:
        trace = _record(task, root / "run")
        return _draw(task, trace, root / "image")
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _open(task: Task, path: Path, files: Files) -> Engine:
    return open_engine(
        path,
        files,
        mode=task.mode,
        hosts=task.hosts,
        durability=task.durability,
        variant=task.variant,
    )


def _record(task: Task, root: Path) -> Trace:
    if task.kind == "traced":
        return strace.record(root, task.seed, task.durability, task.hosts)
    root.mkdir(parents=True)
    if task.kind == "bare":
        return bare.Run(root, task.seed, task.durability).trace
    files = Recorder(root)

    def opened() -> Engine:
        db = _open(task, root / "s", files)
        for store in stores_of(db):
            watch_tables(store, files)
            watch_mark(store, files)
        return db

    player = Player(root / "s", opened, files.trace.append)
    player.play(story(task.seed, task.mode))
    return files.trace


def _draw(task: Task, trace: Trace, folder: Path) -> RowResult:
    rng = random.Random(f"images {task.seed} {task.durability}")
    points = [at for at, event in enumerate(trace) if not is_of_workload(event)] + [len(trace)]
    chosen = Counter(points if task.every_point else ())
    while sum(chosen.values()) < task.images:
        rng.shuffle(points)
        chosen.update(points[: task.images - sum(chosen.values())])
    disk, allowed = Disk(task.lies), Allowed(task.judged, {})
    runs = sum(chosen.values())
    result = RowResult(runs, len(points), figures={"images": Counter({task.what: runs})})
    faults: Counter[str] = Counter()
    for at, event in enumerate([*trace, None]):
        for _ in range(chosen[at]):
            disk.image(folder, rng, faults)
            if task.kind == "bare":
                wrong = bare.judge(folder, allowed, task.durability, rng)
            else:
                wrong = _judge(folder, allowed, task, rng)
            before = ("end",) if event is None else event[:2]
            result.must(not wrong, f"{task}, before event {at} {before}: {wrong}")
        if event is not None:
            disk.step(event)
            allowed.step(event)
    result.faults.update({"power lost": runs}, **faults if task.kind == "bare" else {})
    return result


def _judge(root: Path, allowed: Allowed, task: Task, rng: random.Random) -> str:
    """Judges an image like bare.judge, through the whole engine."""
    path = root / "s"
    engines: list[Engine] = []

    def opened() -> Engine:
        engines.append(_open(task, path, FastFiles()))
        end_what_was_open(engines[-1])
        return engines[-1]

    try:
        db = opened()
        content = content_of(db)
        if wrong := allowed.judge(content):
            return wrong
        abandon(db)
        db = opened()
        if content_of(db) != content:
            return "opened a second time, it shows something else"
        if rng.random() < 0.3:
            db.create_topic("after", exist_ok=True)
            db.write("after", b"the power is back")
            db.close()
            return "".join(problems(path)[:1])
        return ""
    except (PlanstepError, LeftBehind) as error:
        return f"it does not open, or cannot be read: {error!r}"
    finally:
        if engines:
            abandon(engines[-1])
        shutil.rmtree(root, ignore_errors=True)
