"""One process owns a store: a flock that goes with its process, and is not inherited by a fork.

Next: disk.py.
"""

import contextlib
import errno
import fcntl
import json
import os
import time
import weakref
from pathlib import Path

from ..errors import ForkedProcess, StoreInUse
from .files import io_error


class OwnerLock:
    """Held from construction to `close`. StoreInUse names the owner; IoError."""

    def __init__(self, path: Path, wait: float = 0) -> None:
        self._fd = -1
        self.pid = os.getpid()
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            refusal = io_error(error, path)
            if error.errno == errno.EROFS:
                refusal.args = (f"{refusal}; read_only=True opens it to look at",)
            raise refusal from error
        try:
            self._take(path, wait)
            _held.add(self)
            self._name()
        except BaseException:  # nobody has it yet who could close it
            self.close()
            raise

    def _name(self) -> None:
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        with contextlib.suppress(OSError):  # a courtesy; the disk may be full
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, json.dumps({"pid": self.pid, "since": since}).encode(), 0)

    def _take(self, path: Path, wait: float) -> None:
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(0.01)
                    continue
                try:
                    owner = json.loads(os.pread(self._fd, 200, 0))
                except (OSError, ValueError):
                    owner = {}
                raise StoreInUse(owner.get("pid"), owner.get("since")) from None
            except OSError as error:
                raise io_error(error, path) from error

    def check(self) -> None:
        if os.getpid() != self.pid:
            raise ForkedProcess(
                f"this store was opened by process {self.pid}; after a fork, open it anew "
                "(read_only=True while the parent has it)"
            )

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        """Where there was no memory to close it."""
        self.close()

    __hash__ = object.__hash__


_held: "weakref.WeakSet[OwnerLock]" = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_held):
        lock.close()


os.register_at_fork(after_in_child=_after_fork)
