"""Locks a store for one process, with a flock that ends with the process and is not inherited by a fork.

    open the folder ─▶ open its lock ─▶ flock ─▶ are both still at the path? ─ yes ─▶ owner
         ▲                                           └ no: moved or replaced by another store
         └───────────────────────────────────────────┘

The owner writes into the lock file who it is, and how other processes reach it. That is for texts, and for those
that are about to connect. It may be out of date, cut off or another version's: only the flock decides.

Next: process_socket.py.
"""

import contextlib
import errno
import fcntl
import json
import os
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

from ..errors import ForkedProcess, StoreInUse
from .files import io_error, open_file, open_folder

MAKING_SECONDS = 10.0
_HOLDER_BYTES = 4096
_WORD_LENGTH = 200
_NUMBER_MAX = (1 << 63) - 1


class Holder(NamedTuple):
    """Describes a lock's owner in the owner's own words; None where it does not say."""

    pid: int | None = None
    since: str | None = None
    boot: str | None = None
    """The boot of the owner's machine: one of another boot is on another machine, or gone."""
    program: str | None = None
    version: str | None = None
    """Planstep's."""
    share: bool | None = None
    """True if other processes may attach. An older version does not say."""
    socket: str | None = None
    """The path of the socket on which it listens; "" for one in the lock's folder, None for none yet."""
    generation: int | None = None

    @property
    def is_here(self) -> bool:
        """Returns whether the owner may run on this machine: it does unless the boots are known and differ."""
        return None in (self.boot, boot_id()) or self.boot == boot_id()


class OwnerLock:
    """A store's lock, held from construction to `close`. StoreInUse names the owner; IoError.

    `share`: says from the start that other processes may attach, before there is a socket.
    Invariant: `folder` is the descriptor of the folder that contains the lock, whatever the folder's name is by
    now.
    """

    def __init__(self, path: Path, wait: float = 0, *, share: bool = False) -> None:
        self._fd = self.folder = -1
        self.pid = os.getpid()
        self.holder = Holder(self.pid, None, boot_id(), program_name(), _version(), share)
        try:
            self._take(path, wait)
            _held.add(self)
            self.describe(since=time.strftime("%Y-%m-%d %H:%M:%S"))
        except BaseException:  # the caller has no object yet to close
            self.close()
            raise

    def _open(self, path: Path) -> None:
        try:
            self.folder = open_folder(path.parent)
            self._fd = open_file(Path(path.name), os.O_RDWR | os.O_CREAT, self.folder)
        except OSError as error:
            refusal = io_error(error, path)
            if error.errno == errno.EROFS:
                refusal.args = (f"{refusal}; read_only=True opens it to look at",)
            raise refusal from error

    def describe(self, **changes: Any) -> None:
        """Writes the owner's description, with changed fields of `Holder`, for other processes to read."""
        self.holder = self.holder._replace(**changes)
        known = {key: field for key, field in self.holder._asdict().items() if field is not None}
        text = json.dumps(known, separators=(",", ":"))  # version 0.1.0 reads 200 bytes
        data = text.encode() + b"\n"
        with contextlib.suppress(OSError):  # the owner's name is a courtesy; the disk may be full
            os.pwrite(
                self._fd, data, 0
            )  # over the former one: who reads between sees a line in any case
            os.ftruncate(self._fd, len(data))

    def _take(self, path: Path, wait: float) -> None:
        deadline = time.monotonic() + wait
        while True:
            if self._fd < 0:
                self._open(path)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                taken = True
            except BlockingIOError:
                taken = False
            except OSError as error:
                raise io_error(error, path) from error
            if not self._is_at(path):
                self.close()  # the path now leads to another store, or to none
            elif taken:
                return
            elif time.monotonic() < deadline:
                time.sleep(0.01)
            else:
                owner = self._owner()
                raise StoreInUse(owner.pid, owner.since, shares=owner.share is True) from None

    def _owner(self) -> Holder:
        """Returns who has the lock, as far as that is known.

        This process's number may stand there though another has the lock: this one had it, and the next has not
        written yet. Or the owner has the same number in another container.
        """
        owner = _read(self._fd)
        if owner.pid == os.getpid() and not any(lock.is_of(self._fd) for lock in list(_held)):
            return owner._replace(pid=None)
        return owner

    def is_of(self, fd: int) -> bool:
        """Returns whether this process has the lock of an open file."""
        return self.held and os.path.samestat(os.fstat(fd), os.fstat(self._fd))

    def _is_at(self, path: Path) -> bool:
        try:
            folder = os.stat(path.parent)
            file = os.stat(path.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise io_error(error, path) from error
        return os.path.samestat(folder, os.fstat(self.folder)) and os.path.samestat(
            file, os.fstat(self._fd)
        )

    @property
    def held(self) -> bool:
        """Returns whether this process has the lock."""
        return self._fd >= 0 and os.getpid() == self.pid

    def is_gone(self) -> bool:
        """Returns whether the lock file was removed, alone or with its folder: another owner may be there now."""
        return os.fstat(self._fd).st_nlink == 0

    def check(self) -> None:
        if os.getpid() != self.pid:
            raise ForkedProcess(
                f"this store was opened by process {self.pid}; after a fork, open it anew "
                "(read_only=True while the parent has it)"
            )

    def close(self) -> None:
        self.leave()
        if self.folder >= 0:
            folder, self.folder = self.folder, -1
            os.close(folder)

    def leave(self) -> None:
        """Gives up the descriptor in a forked child: the lock stays with the parent. `folder` stays open, so that
        its number is not reused for another file.
        """
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        """Closes the descriptors after an interrupt that came before any caller had the object."""
        self.close()

    __hash__ = object.__hash__


def read_holder(path: Path, folder: int | None = None) -> Holder:
    """Reads what the lock's owner, or its last one, says of itself; a `Holder` of nothing for what is unreadable.

    `folder`: the descriptor of the lock's folder, in which a relative path is found.
    """
    try:
        fd = open_file(path, os.O_RDONLY, folder)
    except OSError:
        return Holder()
    try:
        return _read(fd)
    finally:
        os.close(fd)


def _read(fd: int) -> Holder:
    try:
        line = os.pread(fd, _HOLDER_BYTES, 0).partition(b"\n")[0]
        said = json.loads(line)
    except (OSError, ValueError, RecursionError):
        return Holder()
    if not isinstance(said, dict):
        return Holder()
    return Holder(**{name: _field(said.get(name), kind) for name, kind in _FIELDS.items()})


_FIELDS = {name: get_args(kind)[0] for name, kind in get_type_hints(Holder).items()}


def _field(value: Any, kind: type) -> Any:
    """Returns the value if it is of the kind, and fit to be shown and used; else None."""
    fits = type(value) is kind
    if isinstance(value, str):
        fits = fits and value.isprintable()
    elif isinstance(value, int):
        fits = fits and 0 <= value <= _NUMBER_MAX
    return value if fits else None


def boot_id() -> str | None:
    """Returns the id of this machine's boot; None if the system has none, or keeps it to itself."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() or None
    except OSError:
        return None


def program_name() -> str:
    """Returns the name by which a person knows this process, fit to be shown."""
    name = os.path.basename((sys.argv or [""])[0]) or os.path.basename(sys.executable)
    shown = "".join(sign if sign.isprintable() else "?" for sign in name[:_WORD_LENGTH])
    return shown or "python"


def _version() -> str | None:
    package = sys.modules.get(__name__.partition(".")[0])
    version = getattr(package, "__version__", None)
    return version if isinstance(version, str) else None


@contextlib.contextmanager
def no_other_makes(path: Path) -> Iterator[None]:
    """Keeps other processes from creating a store at `path` until the context ends. Waits up to MAKING_SECONDS for
    one that is creating it now; does nothing if there is no folder.
    """
    try:
        fd = open_folder(path)
    except OSError:
        yield
        return
    try:
        deadline = time.monotonic() + MAKING_SECONDS
        while time.monotonic() < deadline:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:  # the file system has no flock
                break
        yield
    finally:
        os.close(fd)


_held: "weakref.WeakSet[OwnerLock]" = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_held):
        lock.leave()


os.register_at_fork(after_in_child=_after_fork)
