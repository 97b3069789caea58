"""Removes the folders that killed processes left: each names its owner, and each of this user's is listed.

    register   <folder>/.owner: machine, process, start ── listed in <temporary files>/planstep-<user>/
    sweep      each listed folder whose owner is gone is removed, by whichever load comes next

The owner is the Java that started this process, if one did: Spark's Python processes come and go while their
DataFrames stay. A process id counts with the time of its start only, since ids recur. Where it cannot be looked up
(another machine, another container), a folder that no load has marked for a day is taken for left behind.

Next: private.py.
"""

import contextlib
import hashlib
import json
import os
import shutil
import stat
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..errors import IoError

_OWNER = ".owner"
_FORGOTTEN_SECONDS = 86_400
_ANCESTORS = 3
_REMOVABLE = "planstep-"


class _Process(NamedTuple):
    parent: int
    start: str
    name: str


class _Owner(NamedTuple):
    """A process: its machine, its boot and space of process ids, its id and its start."""

    host: str
    boot: str
    space: str
    pid: int
    start: str


def make_private(folder: Path) -> None:
    """Makes a folder of mode 0700, or checks that only this user may enter the existing one. IoError; OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not is_private(folder):
            raise IoError(
                f"{folder} is not a folder of this user's alone: what is in it cannot be trusted; remove it, "
                "or set spark.local.dir and TMPDIR to folders that others cannot write to"
            ) from None


def folder_of(pid: int | None = None) -> Path:
    """Names a folder among the temporary files for a process, or for the owner here; it may not exist."""
    owner = _own() if pid is None else _owner_of(pid)
    name = hashlib.sha256(json.dumps(owner).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"{_REMOVABLE}{name}")


def is_private(folder: Path) -> bool:
    """Returns whether only this user may enter a folder. OSError."""
    info = folder.lstat()
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o077


def mark(folder: Path, pid: int | None = None) -> None:
    """Names a process as the folder's owner: this one's Java, or else itself. OSError."""
    new = folder / f"{_OWNER}.{os.getpid()}"
    new.write_text(json.dumps(_own() if pid is None else _owner_of(pid)))
    new.rename(folder / _OWNER)


def register(folder: Path, pid: int | None = None) -> None:
    """Marks a private folder like `mark`, and lists it for `sweep`. IoError; OSError."""
    mark(folder, pid)
    where = folder.absolute()
    with contextlib.suppress(FileExistsError):
        _link(where).symlink_to(where)


def forget(folder: Path) -> None:
    """Takes a folder, which is removed, from the list. IoError; OSError."""
    _link(folder.absolute()).unlink(missing_ok=True)


def sweep() -> None:
    """Removes this user's listed folders whose owners are gone, where there is a list. A load goes on without."""
    try:
        links = list(_listed().iterdir())
    except (OSError, IoError):
        return
    for link in links:
        with contextlib.suppress(OSError):
            folder = Path(os.readlink(link))
            if not os.path.lexists(folder):
                link.unlink()
            elif folder.name.startswith(_REMOVABLE) and is_private(folder) and is_gone(folder):
                shutil.rmtree(folder, ignore_errors=True)
                if folder.parent.name.startswith("blockmgr-"):  # Spark's, which it left as well
                    folder.parent.rmdir()  # fails unless it is empty


def is_gone(folder: Path) -> bool:
    """Returns whether a folder's owner is gone for sure, or a day has passed where that cannot be known."""
    try:
        owner = _Owner(*json.loads((folder / _OWNER).read_text()))
        age = time.time() - (folder / _OWNER).stat().st_mtime
    except (OSError, ValueError, TypeError):  # killed before it was marked
        return time.time() - folder.stat().st_mtime > _FORGOTTEN_SECONDS
    own = _own()
    if owner[:3] == own[:3]:
        process = _look(owner.pid)
        return process is None or process.start != owner.start
    started_anew = owner.host == own.host and owner.boot != own.boot
    return started_anew or age > _FORGOTTEN_SECONDS


def _link(folder: Path) -> Path:
    return _listed() / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]


def _listed() -> Path:
    folder = Path(tempfile.gettempdir(), f"planstep-{os.geteuid()}")
    make_private(folder)
    return folder


def _own() -> _Owner:
    return _owner_of(os.getpid())


@cache
def _owner_of(pid: int) -> _Owner:
    """Finds the Java above a process, or else takes the process itself."""
    chosen, at = pid, pid
    for _ in range(_ANCESTORS):
        process = _look(at)
        if process is None:
            break
        if os.path.basename(process.name).startswith("java"):
            chosen = at
            break
        at = process.parent
    found = _look(chosen)
    boot, space = Path("/proc/sys/kernel/random/boot_id"), "/proc/self/ns/pid"
    return _Owner(
        os.uname().nodename,
        boot.read_text().strip() if boot.exists() else "",
        os.readlink(space) if os.path.lexists(space) else "",
        chosen,
        "" if found is None else found.start,
    )


def _look(pid: int) -> _Process | None:
    """Looks up a process; None if it has ended."""
    if os.path.exists("/proc/self/stat"):
        try:
            head, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        except OSError:
            return None
        state, parent, *others = rest.split()
        return None if state in "ZX" else _Process(int(parent), others[17], head.partition("(")[2])
    command = ["ps", "-o", "ppid=,lstart=,comm=", "-p", str(pid)]  # macOS has no /proc
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return _Process(int(said[0]), " ".join(said[1:6]), " ".join(said[6:])) if said else None
