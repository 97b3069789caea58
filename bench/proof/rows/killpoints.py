"""Row `killpoints`: kills short plays before each file operation, then before each of LMDB's own.

    play ─▶ its N operations ─▶ for n = 1 … N: fork, play, SIGKILL before the n-th
        └─▶ fork: open, compare with what had been acknowledged, play on to the end, compare, verify

All changes of the log's files go through store/files.py: each of its methods that changes something is a
point; so are both sides of each commit of LMDB. LMDB's own writes and syncs are hit through strace, if it is
installed and may trace, on plays that checkpoint; otherwise the figures say so. The removals at the end of a
backup or restore are done file by file, each a point.

Next: ../disks/scripts.py.
"""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from ....api import open_engine
from ....runtime import backup, open_stores, replace_store, unfinished
from ....store import disk_store
from ....store.files import Files
from ....store.tables.table import Table
from ...children import Children
from ..disks.engines import content_of, problems
from ..disks.forked import Child, Say, Silent, small_steps
from ..disks.scripts import PLAYS, Play
from ..disks.steps import Player, states
from ..parallel import gather
from ..patching import exchange
from .registry import SHARE, RowOptions, RowResult

POINTS = 300
_POINTS_MAX = 2_000
_CALLS = ("pwrite64", "pwritev", "writev", "write", "fdatasync", "fsync", "msync")
"""Each separately, because strace counts each call by itself."""
OPERATIONS = (
    *("allocate", "write", "shrink", "sync", "sync_folder"),
    *("rename", "exchange", "remove"),
)
_TRACED = ("consume, produce, table", "trim, seek, segments go", "rewriting")
_TRACED_MAX = 200
_TRACED_OF = 4
_KILL_OF_LMDB = "kill before a call of LMDB"
_BY_NAME = {play.name: play for play in PLAYS}


class Work(NamedTuple):
    """Points of a play: `share` in `of` of them. `traced`: LMDB's, through strace. `only`: these file operations,
    and no other points.
    """

    play: str
    folder: Path
    share: int = 0
    of: int = 1
    traced: bool = False
    kind: type[Files] = Files
    only: tuple[str, ...] = ()


class Points:
    """Counts the process's operations, and kills it before the `n`-th. 0: never."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.count = 0
        self._lock = threading.Lock()

    def pass_by(self) -> None:
        with self._lock:
            self.count += 1
            if self.count == self.n:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)  # the signal is on its way


def mark(points: Points, method: Callable[..., Any], after: bool = False) -> Callable[..., Any]:
    """Returns the method with a point before each call, and with `after` another one behind it."""

    def operation(self: Any, *args: Any) -> Any:
        points.pass_by()
        result = method(self, *args)
        if after:
            points.pass_by()
        return result

    return operation


def _mark_removals(points: Points) -> None:
    """Makes each file that backup and restore remove a point."""

    def rmtree(path: Path, ignore_errors: bool = False) -> None:
        for root, _, names in os.walk(path, topdown=False):
            for name in names:
                points.pass_by()
                os.unlink(os.path.join(root, name))
            os.rmdir(root)

    exchange(unfinished, "shutil", SimpleNamespace(rmtree=rmtree))


class HeldFiles(Files):
    """Plants the bug: a write waits for the next one, and is acknowledged all the same."""

    held: tuple[int, list[bytes], int, bool] | None = None

    def write(self, fd: int, buffers: Sequence[bytes], offset: int, sync: bool) -> None:
        last, self.held = self.held, None
        if last is not None:
            super().write(*last)
        if offset:
            self.held = fd, [b"".join(buffers)], offset, sync
        else:
            super().write(fd, buffers, offset, sync)


class RenamingFiles(Files):
    """Plants the bug: while two names are exchanged, one of them is missing for a moment."""

    def exchange(self, one: Path, other: Path) -> bool:
        spare = other.with_name("aside")
        self.rename(other, spare)
        self.rename(one, other)
        self.rename(spare, one)
        return True


# children --------------------------------------------------------------------------------------


def _play(work: Work, folder: Path, n: int, say: Say, listen: int) -> None:
    """Plays from the first step on; reports each step that returned, and finally the number of points."""
    play, points = _BY_NAME[work.play], Points(n)
    if work.traced:
        os.read(listen, 1)  # until a tracer is attached
    else:
        _mark_points(work, points)
    small_steps()
    player = _player(play, folder)
    say("s")
    for step in play.steps:
        player.carry_out(step)
        say("s")
        if not n and not work.traced:
            player.check()
    player.db.close()
    say(f"e {points.count}")


def _mark_points(work: Work, points: Points) -> None:
    """Makes points of file operations, of both sides of LMDB's commits, and of removals."""
    kind = work.kind if points.n or work.only else Files
    operations = {name: mark(points, getattr(kind, name)) for name in work.only or OPERATIONS}
    for module in (open_stores, disk_store, backup, replace_store):
        exchange(module, "Files", type("Killing", (kind,), operations))
    if not work.only:
        for name in ("checkpoint", "move", "mark_closed"):
            exchange(Table, name, mark(points, getattr(Table, name), after=True))
        _mark_removals(points)


def _player(play: Play, folder: Path) -> Player:
    return Player(folder, lambda: open_engine.open(folder, **play.settings))


def _go_on(play: Play, folder: Path, done: int, say: Say, listen: int) -> None:
    """Checks the content after a kill behind `done` states, and plays on from it."""
    small_steps()
    player, known = _player(play, folder), states(play.steps)
    content = content_of(player.db)
    at = max(done - 1, 0)
    good = known[at : at + 2] if done else known[:1]
    if content not in good:
        earlier = known.index(content) if content in known else None
        say(f"x {done} states were acknowledged, and what is there is state {earlier} of them")
        return
    at += good.index(content)
    player.held = content
    for step in play.steps[at:]:
        player.carry_out(step)
    if content_of(player.db) != known[-1]:
        say(f"x the play went on from state {at}, and does not end as it should")
    player.db.close()


# the parent's ----------------------------------------------------------------------------------


def _listen(child: Child, complaints: list[str]) -> tuple[int, str]:
    """Returns (states acknowledged, the last line); complaints go to `complaints`."""
    done, last = 0, ""
    for line in child.wait():
        last = line
        done += line == "s"
        if line.startswith("x"):
            complaints.append(line[2:])
    return done, last


def _point(work: Work, where: str, begin: Callable[[Path], Child]) -> tuple[RowResult, bool]:
    """Kills once, and checks what follows; returns False if the play ended alive."""
    play = _BY_NAME[work.play]
    result = RowResult()
    folder = _clear(work)
    wrong: list[str] = []
    child = begin(folder)
    done, last = _listen(child, wrong)
    killed = child.code == -signal.SIGKILL
    if not killed and not last.startswith("e"):
        wrong.append(f"the play ended with exit code {child.code}")
    again = Child(partial(_go_on, play, folder, done))
    _listen(again, wrong)
    if again.code != 0 and not wrong:
        wrong.append(f"going on ended with exit code {again.code}")
    if not wrong:
        wrong += problems(folder)
    result.runs += killed
    result.events += done
    result.violations += [f"{work.play}, {where}: {text}" for text in wrong]
    return result, killed


def _clear(work: Work) -> Path:
    """Clears the folder, and returns the path for the store."""
    shutil.rmtree(work.folder, ignore_errors=True)
    work.folder.mkdir(parents=True)
    return work.folder / "store"


def kill_at_points(work: Work) -> RowResult:
    result = RowResult()
    try:
        lines = Child(partial(_play, work._replace(traced=False), _clear(work), 0)).wait()
        last = lines[-1] if lines else "nothing was said"
        if not last.startswith("e"):
            result.violations.append(f"{work.play}, without a kill: {last}")
        elif work.traced:
            result.add(_trace(work))
        else:
            count = int(last[2:])
            for n in range(1 + work.share, min(count, _POINTS_MAX) + 1, work.of):
                begin = partial(_begin, work, n)
                one, killed = _point(work, f"operation {n} of {count}", begin)
                result.add(one)
                result.faults["kill before a file operation"] += killed
    except Silent as silent:
        result.violations.append(f"{work.play}: {silent}")
    finally:
        shutil.rmtree(work.folder, ignore_errors=True)
    return result


def _begin(work: Work, n: int, folder: Path) -> Child:
    return Child(partial(_play, work, folder, n))


# LMDB's own ------------------------------------------------------------------------------------


def _trace(work: Work) -> RowResult:
    """Kills before each call until the play ends alive; a figure says why strace may not trace."""
    result = RowResult()
    for call in _CALLS:
        for n in range(1 + work.share, _TRACED_MAX, work.of):
            try:
                one, killed = _kill_traced(work, call, n)
            except _NotTraced as error:
                result.figures["lmdb_calls"] = [str(error)]
                return result
            result.add(one)
            result.faults[_KILL_OF_LMDB] += killed
            if not killed:
                break
    return result


def _kill_traced(work: Work, call: str, n: int) -> tuple[RowResult, bool]:
    with Children() as tracers:

        def begin(folder: Path) -> Child:
            child = _begin(work, 0, folder)
            try:
                _attach(tracers, child, folder / "host-0" / "table" / "data.mdb", call, n)
            except _NotTraced:
                child.kill()
                raise
            child.tell()
            return child

        return _point(work, f"LMDB's {call} {n}", begin)


class _NotTraced(Exception):
    """strace is not installed, or may not trace."""


def _attach(tracers: Children, child: Child, path: Path, call: str, n: int) -> None:
    """Attaches a tracer that kills the child before its n-th such call on the file."""
    strace = shutil.which("strace")
    if strace is None:
        raise _NotTraced("strace is not installed")
    words = [strace, "-f", "-o", os.devnull, "-P", os.fspath(path), "-e", f"trace={call}"]
    words += ["-e", f"inject={call}:signal=KILL:when={n}", "-p", str(child.pid)]
    tracer = tracers.start(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert tracer.stdout is not None
    answer = tracer.stdout.readline().decode(errors="replace")
    if "attached" not in answer:
        raise _NotTraced(f"strace may not trace: {answer.strip()}")


# the row ---------------------------------------------------------------------------------------


def run(options: RowOptions) -> RowResult:
    """Kills at each play's points, in shares, so that both processes have work to the end."""
    of = SHARE if options.quick else 2
    if options.runs is not None:
        of = max(1, len(PLAYS) * 40 // options.runs)
    shares = [options.seed % of] if options.quick or options.runs is not None else range(of)
    works = [
        Work(play.name, options.memory / f"points-{number}-{share}", share, of)
        for number, play in enumerate(PLAYS)
        for share in shares
    ]
    of = min(of, _TRACED_OF)
    works += [
        Work(name, options.memory / f"traced-{number}-{share}", share, of, traced=True)
        for number, name in enumerate(_TRACED)
        for share in sorted({share % of for share in shares})
    ]
    result = gather(options, kill_at_points, works)
    why_not = result.figures.get("lmdb_calls")
    result.figures = {"plays": len(PLAYS), "acknowledged": result.events}
    result.figures["lmdb_calls"] = why_not[-1] if why_not else result.faults[_KILL_OF_LMDB]
    if options.runs is None:
        result.reaches([("points", result.runs, POINTS // (SHARE if options.quick else 1))])
    return result


def control(options: RowOptions) -> RowResult:
    """Plants files that keep a write back until the next one, and a restore that leaves its name missing once."""
    late = Work("one partition", options.memory / "held", kind=HeldFiles)
    result = kill_at_points(late).planted("states were acknowledged", "were synced, says the file")
    if result.violations:
        renamed = kill_at_points(
            Work("restored", options.memory / "named", kind=RenamingFiles, only=("rename",))
        ).planted("what is there is state 0 of them")
        if not renamed.violations:
            return renamed
        result.add(renamed)
    return result
