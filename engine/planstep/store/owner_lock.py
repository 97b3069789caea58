"""Locks a store for one process, with a flock that ends with the process and is not inherited by a fork.

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
    """A store's lock, held from construction to `close`. StoreInUse names the owner; IoError.

    Invariant: `folder` is the descriptor of the folder that contains the lock, whatever the folder's name is by
    now.
    """

    def __init__(self, path: Path, wait: float = 0) -> None:
        self._fd = self.folder = -1
        self.pid = os.getpid()
        try:
            self._take(path, wait)
            _held.add(self)
            self._name()
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

    def _name(self) -> None:
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        with contextlib.suppress(OSError):  # the owner's name is a courtesy; the disk may be full
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
                self.close()  # the path now leads to another store, or to none
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
