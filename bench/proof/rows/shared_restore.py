"""Row `shared-restore`: restores a replicated store as of many turns, and kills it in snapshots and restores.

    turns   commit, snapshot ─▶ what the store held ─▶ each snapshot, restored elsewhere, holds the same, and with
            the log's tail what the store held at the end
    kills   snapshot, trim ─┐   SIGKILL before the n-th file operation ─▶ all manifests have their parts ─▶ the same
            restore, seed ──┘   machine, and an empty one, open with all that was acknowledged ─▶ further snapshots
                                leave nothing over

A killed restore may leave the copy that it made, or the folder that it replaced, in NAME.incomplete. The next
opening removes it.

Each change of a file through store/files.py is a point, as in row `killpoints`.

The controls write the manifest before its parts, and the floor before the snapshot.

Next: ../disks/snapshots.py.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ....api import open_engine
from ....runtime.seeding import seed
from ....runtime.snapshotting import Snapshotter
from ....shared.files_log import LinkedFiles
from ....shared.manifest import part_of
from ....shared.settings import Replicate
from ....shared.snapshots import SnapshotWriter
from ....store.files import Files
from ....store.verify import verify
from ..disks.engines import stores_of
from ..disks.forked import Child, Say
from ..disks.no_sockets import NO_SOCKETS
from ..disks.snapshots import (
    commit,
    held,
    held_in,
    leftovers,
    open_owner,
    prepare,
    restored,
    shown,
    small_parts,
    snapshot,
    snapshot_to_keep,
    without_parts,
)
from ..parallel import gather
from ..patching import exchange
from .killpoints import OPERATIONS, Points, mark
from .registry import RowOptions, RowResult

TURNS = 500
_PIECE = 25
_TAIL_EACH = 10
"""Every so manieth restored store takes the log's tail, too."""
_POINTS_MAX = 400
_QUICK_EACH = 7
_PARTLY, _TRIMMED = "has not all its parts", "Trimmed"


class _Turns(NamedTuple):
    url: str
    folder: Path
    then: dict[int, str]
    at_the_end: str


class _Kills(NamedTuple):
    """Points of what is killed: every `each`-th of them from the `first`."""

    what: str
    folder: Path
    first: int
    each: int
    plant: str = ""


def run(options: RowOptions) -> RowResult:
    result = _restore_turns(options, options.of(TURNS))
    each = _QUICK_EACH if options.quick else 1
    lanes = max(2, options.workers)
    works = [
        _Kills(what, options.memory / f"{what}-{lane}", lane * each, lanes * each)
        for what in KILLED
        for lane in range(lanes)
    ]
    result.add(gather(options, kill_at_points, works))
    result.seeds = options.seed, options.seed
    for what in KILLED:
        result.must(result.faults[f"kill in a {what}"] > 0, f"no {what} was killed")
    return result


def control(options: RowOptions) -> RowResult:
    """Plants a manifest before its parts, then a floor before its snapshot."""
    result = RowResult(seeds=(options.seed, options.seed))
    for plant, word in (("manifest first", _PARTLY), ("floor first", _TRIMMED)):
        work = _Kills("snapshot", options.memory / plant.replace(" ", "-"), 0, 1, plant)
        one = kill_at_points(work).planted(word)
        if not one.violations:
            return one
        result.add(one)
    return result


def _said(body: Callable[[Say, int], None]) -> list[Any]:
    """Returns what a child says to its end; its failure is the last of it, a text that begins with x."""
    child = Child(body)
    try:
        return child.wait()
    finally:
        child.kill()


# turns -----------------------------------------------------------------------------------------


def _restore_turns(options: RowOptions, turns: int) -> RowResult:
    home = options.memory / "turns"
    home.mkdir(parents=True)
    url = (home / "log").as_uri()
    *_, made = _said(partial(_write, home / "owner", url, turns))
    if not isinstance(made, tuple):
        return RowResult(violations=[f"writing: {made}"])
    then, at_the_end = made
    numbers = sorted(then)
    tasks = [
        _Turns(url, home / f"{at}", {n: then[n] for n in numbers[at : at + _PIECE]}, at_the_end)
        for at in range(0, len(numbers), _PIECE)
    ]
    result = gather(options, _restore, tasks)
    shutil.rmtree(home)
    result.figures["turns_restored"] = result.runs
    result.reaches([("turns restored", result.runs, turns)])
    return result


def _write(folder: Path, url: str, turns: int, say: Say, listen: int) -> None:
    at_turn: dict[int, str] = {}
    then: dict[int, str] = {}
    with open_owner(folder, url) as db:
        prepare(db)
        (store,) = stores_of(db)
        n = 0
        while len(then) < turns:
            for _ in range(2 + n % 3):  # of the turn behind a snapshot there is none
                commit(db, n)
                n += 1
                at_turn[store.last_turn] = held(store)
            turn = snapshot_to_keep(db, url)  # of the last checkpoint, which may be older
            if turn in at_turn:
                then[turn] = at_turn[turn]
            say(turn)
        for _ in range(5):
            commit(db, n)
            n += 1
    say((then, held_in(folder, url)))


def _restore(task: _Turns) -> RowResult:
    result = RowResult()
    for at, (turn, then) in enumerate(task.then.items()):
        folder = task.folder / f"{turn}"
        task.folder.mkdir(exist_ok=True)
        tail = at % _TAIL_EACH == 0
        (found,) = _said(partial(_restored, task.url, turn, folder, tail))
        result.runs += 1
        if not isinstance(found, tuple):
            result.violations.append(f"turn {turn} is not restored: {found}")
            continue
        result.must(found[0] == then, f"turn {turn} is restored with other content")
        if tail:
            result.faults["restored and caught up"] += 1
            result.must(found[1] == task.at_the_end, f"turn {turn} catches up to other content")
        shutil.rmtree(folder)
    return result


def _restored(url: str, turn: int, folder: Path, tail: bool, say: Say, listen: int) -> None:
    say(restored(url, turn, folder, to_the_end=tail))


# kills -----------------------------------------------------------------------------------------


def _base(home: Path, say: Say, listen: int) -> None:
    """Makes a log with two snapshots and a floor, and folders: the owner's, one that is behind the floor, and
    that of an ordinary store with the same content.
    """
    small_parts()
    url = (home / "log").as_uri()
    with open_owner(home / "owner", url) as db:
        prepare(db)
    shutil.copytree(home / "owner", home / "behind", ignore=NO_SOCKETS)
    with open_owner(home / "owner", url) as db:
        for n in range(60):
            commit(db, n)
            if n % 20 == 19:
                snapshot(db, url)
        content = shown(db)
    with open_engine.open(home / "plain") as db:
        prepare(db)
        for n in range(60):
            commit(db, n)
        assert shown(db) == content
    say(content)


def _snapshot(work: _Kills, folder: Path, n: int, say: Say, listen: int) -> None:
    """Makes a snapshot, and trims, with a kill before the n-th operation; says how many there were."""
    PLANTS[work.plant]()
    small_parts()
    url = (folder / "log").as_uri()
    db = open_owner(folder / "owner", url)
    points = _points(n)
    snapshot(db, url)
    say(points.count)


def _restore_folder(name: str, work: _Kills, folder: Path, n: int, say: Say, listen: int) -> None:
    """Opens a folder that begins from a snapshot, with a kill before the n-th operation."""
    points = _points(n)
    open_owner(folder / name, (folder / "log").as_uri())
    say(points.count)


def _seed(work: _Kills, folder: Path, n: int, say: Say, listen: int) -> None:
    """Begins a log with the ordinary store, with a kill before the n-th operation."""
    points = _points(n)
    seed(folder / "plain", Replicate((folder / "seeded").as_uri()))
    say(points.count)


def _seed_again(folder: Path) -> None:
    seed(folder / "plain", Replicate((folder / "seeded").as_uri()))


def _points(n: int) -> Points:
    points = Points(n)
    for owner, names in ((Files, OPERATIONS), (LinkedFiles, ("create", "link"))):
        for name in names:
            exchange(owner, name, mark(points, getattr(owner, name)))
    return points


class _Killed(NamedTuple):
    """Names a program to kill, the folders of its machine and log, and what is repeated after the kill."""

    body: Callable[..., None]
    machine: str
    log: str = "log"
    again: Callable[[Path], object] = lambda folder: None


KILLED: dict[str, _Killed] = {
    "snapshot": _Killed(_snapshot, "owner"),
    "restore": _Killed(partial(_restore_folder, "fresh"), "fresh"),
    "restore in place": _Killed(partial(_restore_folder, "behind"), "behind"),
    "seed": _Killed(_seed, "plain", "seeded", _seed_again),
}


def kill_at_points(work: _Kills) -> RowResult:
    """Kills at each of its points, each time in a copy of the same folders, and looks at what is there."""
    result = RowResult()
    base, folder = work.folder / "base", work.folder / "copy"
    base.mkdir(parents=True)
    (expected,) = _said(partial(_base, base))
    killed = KILLED[work.what]
    for n in range(1 + work.first, _POINTS_MAX, work.each):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(base, folder, ignore=NO_SOCKETS)
        child = Child(partial(killed.body, work, folder, n))
        said = child.wait()
        if child.code == 0:
            result.most["points"] = max(said)
            break
        result.runs += 1
        result.faults[f"kill in a {work.what}"] += 1
        if child.code != -9:
            result.violations.append(f"{work.what}, point {n}: {said}")
            break
        for text in _judge(folder, killed, expected):
            result.violations.append(f"{work.what}, before operation {n}: {text}")
        if result.violations:
            break  # later points would report the same
    else:
        result.violations.append(f"{work.what}: more than {_POINTS_MAX} operations")
    shutil.rmtree(work.folder)
    return result


def _judge(folder: Path, killed: _Killed, expected: Any) -> list[str]:
    texts = _said(partial(_look, folder, killed, expected))
    return [text for text in texts if text]


def _look(folder: Path, killed: _Killed, expected: Any, say: Say, listen: int) -> None:
    """Says what is wrong: at once, on the machine that was killed, on an empty one, and behind more snapshots."""
    url, name = (folder / killed.log).as_uri(), killed.machine
    killed.again(folder)
    for stem in without_parts(url):
        say(f"{stem} {_PARTLY}")
    for at in ("empty", name):
        with open_owner(folder / at, url) as db:
            if shown(db) != expected:
                say(f"folder {at} shows other content")
        for problem in verify(folder / at / "host-0"):
            say(f"folder {at}, verify: {problem}")
    with open_owner(folder / name, url) as db:
        for n in range(3):
            commit(db, 100 + n)
            snapshot(db, url)
        content = shown(db)
    for stem in leftovers(url):
        say(f"parts of snapshot {stem} are left")
    with open_owner(folder / "last", url) as db:
        if shown(db) != content:
            say("a machine with an empty folder shows other content behind three more snapshots")


# planted bugs ----------------------------------------------------------------------------------


def _manifest_first() -> None:
    """Plants the bug: the parts of the tables are written behind the manifest."""
    finish, put = SnapshotWriter.finish, SnapshotWriter.put
    late: list[tuple[str, bytes]] = []

    def put_late(self: SnapshotWriter, name: str, data: bytes) -> Any:
        if "/tables-" not in name:
            return put(self, name, data)
        late.append((name, data))
        return part_of(data)

    def finish_first(self: SnapshotWriter, manifest: Any) -> Any:
        result = finish(self, manifest)
        for name, data in late:
            put(self, name, data)
        return result

    exchange(SnapshotWriter, "put", put_late)
    exchange(SnapshotWriter, "finish", finish_first)


def _floor_first() -> None:
    """Plants the bug: the log is trimmed to the turn of the snapshot that is still to be made."""
    make = Snapshotter.make_now

    def make_now(self: Any, log: Any, snapshots: Any) -> None:
        log.trim(self._store.last_turn)
        make(self, log, snapshots)

    exchange(Snapshotter, "make_now", make_now)


PLANTS: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "manifest first": _manifest_first,
    "floor first": _floor_first,
}
