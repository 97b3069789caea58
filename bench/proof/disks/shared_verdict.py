"""Makes shared logs to damage, opens a damaged one as a machine would, and judges what that shows or says.

    make     machine a writes, closes ─▶ b writes, dies ─▶ a takes over, writes, closes
             "whole": all of that; "trimmed": what is left of it above a floor, and the BEGINs;
             "snapshots": a log with two of them, its floor, and runs
    judge    a machine with its folder (empty, of yesterday, up to date) opens the log
             ─▶ refused, harmless, or wrong

Next: ../rows/shared_flip.py.
"""

import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from ....api import open_engine
from ....api.engine import Engine
from ....errors import PlanstepError
from ....runtime import open_runtime, replication
from ....shared import runs
from ....shared.registry import open_shared_log
from ....store.verify import verify
from .no_sockets import NO_SOCKETS
from .shared_damage import ROW, Damage, Objects
from .snapshots import snapshot

WARM = open_runtime.__name__, replication.__name__
"""They are imported once, before the first fork."""
_COMMITS, _OLD_COMMITS, _RUN_TURNS = 6, 10, 5
EMPTY, OLD, RECENT = "empty", "of yesterday", "up to date"


class Sample(NamedTuple):
    """A shared log to damage. `folders`: of machines, by how far they are; None for an empty one.

    `shown`: what each of them shows of the whole log.
    """

    name: str
    objects: Objects
    folders: dict[str, Path | None]
    shown: Any = None


class Verdict(NamedTuple):
    """`end`: "refused", "harmless" or "wrong"; `why` says what is wrong."""

    end: str
    why: str = ""


def _open(folder: Path, log: Path) -> Engine:
    return open_engine.open(folder, replicate=log.as_uri(), takeover=True)


def _write(db: Engine, first: int, count: int) -> None:
    topic = db.create_topic("log", format="utf8", exist_ok=True)
    table = db.create_table("rows", exist_ok=True)
    for n in range(first, first + count):
        with db.transaction() as tx:
            tx.write(topic.name, f"record {n} " * (1 + n % 5), partition=0)
            tx.put(table.name, n, f"{ROW.decode()}{n}")
            tx.commit()


def make(folder: Path) -> list[Sample]:
    """Makes the logs in a folder."""
    log, a, b = folder / "log", folder / "a", folder / "b"
    folder.mkdir(parents=True)
    with _open(a, log) as db:
        _write(db, 0, _OLD_COMMITS)
    shutil.copytree(a, folder / "old", ignore=NO_SOCKETS)
    db = _open(b, log)
    _write(db, 10, _COMMITS)
    shutil.copytree(log, folder / "unfinished")
    db.close()
    shutil.rmtree(log)
    (folder / "unfinished").rename(log)
    with _open(a, log) as db:
        _write(db, 20, _COMMITS)
    folders: dict[str, Path | None] = {OLD: folder / "old", RECENT: a}
    whole = Sample("whole", _objects(log), {EMPTY: None, **folders})
    shared, _ = open_shared_log(log.as_uri(), None)
    shared.trim(_OLD_COMMITS // 2)
    shared.close()
    samples = [whole, Sample("trimmed", _objects(log), folders), _with_snapshots(folder)]
    return [_shown(sample, folder / f"shown {sample.name}") for sample in samples]


def _with_snapshots(folder: Path) -> Sample:
    log, machine, old = folder / "long-log", folder / "long", folder / "long-old"
    with mock.patch.object(runs, "RUN_TURNS", _RUN_TURNS):
        with _open(machine, log) as db:
            _write(db, 0, _OLD_COMMITS)
        shutil.copytree(machine, old, ignore=NO_SOCKETS)
        with _open(machine, log) as db:
            for n in range(2):
                _write(db, 10 * (1 + n), _COMMITS)
                snapshot(db, log.as_uri())
            _write(db, 40, _COMMITS)
    return Sample("snapshots", _objects(log), {EMPTY: None, OLD: old, RECENT: machine})


def _shown(sample: Sample, folder: Path) -> Sample:
    """Adds what all machines show of the whole log."""
    shown = []
    for which in sample.folders:
        shown.append(content(*_planted(folder / which, sample, which, None)))
    assert all(one == shown[0] for one in shown), f"{sample.name}: machines show other content"
    return sample._replace(shown=shown[0])


def _objects(log: Path) -> Objects:
    return {
        path.relative_to(log).as_posix(): path.read_bytes()
        for path in sorted(log.rglob("*"))
        if path.is_file()
    }


def content(log: Path, folder: Path) -> tuple[Any, ...]:
    """Returns everything that a machine shows of a log, after it has opened it. PlanstepError."""
    with _open(folder, log) as db:
        records = db.topic("log").read(0, 0, max_records=1000).values
        rows = dict(db.table("rows").scan())
        return records, rows


def _planted(folder: Path, sample: Sample, which: str, damage: Damage | None) -> tuple[Path, Path]:
    """Writes a log, damaged or not, and copies a machine's folder; returns both."""
    log, machine = folder / "log", folder / "machine"
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("log", "floor", "new"):
        (log / name).mkdir(parents=True)
    for name, data in {**sample.objects, **(damage.objects if damage else {})}.items():
        if data is not None:
            (log / name).parent.mkdir(exist_ok=True, parents=True)
            (log / name).write_bytes(data)
    if (kept := sample.folders[which]) is not None:
        shutil.copytree(kept, machine, ignore=NO_SOCKETS)
    return log, machine


def judge(folder: Path, sample: Sample, which: str, damage: Damage) -> Verdict:
    """Opens a damaged log in a copy of a machine's folder."""
    log, machine = _planted(folder, sample, which, damage)
    try:
        found = content(log, machine)
    except PlanstepError as error:
        return _judge_error(damage, error)
    except Exception as error:
        return Verdict("wrong", f"an untyped error: {error!r}")
    if found != sample.shown:
        return Verdict("wrong", "it shows other content")
    problems = verify(machine / "host-0")
    return Verdict("wrong", f"verify: {problems[0]}") if problems else Verdict("harmless")


def _judge_error(damage: Damage, error: PlanstepError) -> Verdict:
    """Checks that an error names where the damage is."""
    text = str(error)
    named = {int(number) for number in re.findall(r"(?:turn |log/)0*(\d+)", text)}
    if damage.turns:
        names_it = bool(named & {*damage.turns})
    else:
        names_it = bool(re.search(r"\bstore\b|is no shared log|root|snapshot", text))
    return (
        Verdict("refused")
        if names_it
        else Verdict("wrong", f"an error without the place: {error!r}")
    )
