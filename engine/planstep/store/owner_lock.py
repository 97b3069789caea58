"""One process owns a store: a flock that goes with its process, and is not inherited by a fork.

    open the folder ─▶ open its lock ─▶ flock ─▶ are both still at the path? ─ yes ─▶ owner
         ▲                                           └ no: moved or replaced by another store
         └───────────────────────────────────────────┘

Next: owned_folder.py.
"""

import contextlib
import errno
import fcntl
import json
import os
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from ..errors import ForkedProcess, StoreInUse
from .files import io_error, open_file, open_folder

MAKING_SECONDS = 10.0


class OwnerLock:
    """Held from construction to `close`. StoreInUse names the owner; IoError.

    Invariant: `folder` is the descriptor of the folder in which the lock is, whatever it is called by now.
    """

    def __init__(self, path: Path, wait: float = 0) -> None:
        self._fd = self.folder = -1
        self.pid = os.getpid()
        try:
            self._take(path, wait)
            _held.add(self)
            self._name()
        except BaseException:  # nobody has it yet who could close it
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

    def _name(self) -> None:
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        with contextlib.suppress(OSError):  # a courtesy; the disk may be full
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, json.dumps({"pid": self.pid, "since": since}).encode(), 0)

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
                self.close()  # another store is there now, or none
            elif taken:
                return
            elif time.monotonic() < deadline:
                time.sleep(0.01)
            else:
                try:
                    owner = json.loads(os.pread(self._fd, 200, 0))
                except (OSError, ValueError):
                    owner = {}
                raise StoreInUse(owner.get("pid"), owner.get("since")) from None

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

    def is_gone(self) -> bool:
        """The lock was removed, with its folder or alone: somebody else may own what is there now."""
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
        """In a forked child: the lock is the parent's alone; by the folder's number nothing else shall be found."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        """Where it was interrupted before anybody had it who could close it."""
        self.close()

    __hash__ = object.__hash__


@contextlib.contextmanager
def no_other_makes(path: Path) -> Iterator[None]:
    """Whoever makes a store at `path` now is waited for, if it takes no more than MAKING_SECONDS; others wait
    until the end of this. Nothing where there is no folder."""
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
            except OSError:  # a file system without
                break
        yield
    finally:
        os.close(fd)


_held: "weakref.WeakSet[OwnerLock]" = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_held):
        lock.leave()


os.register_at_fork(after_in_child=_after_fork)
