"""Readers in other processes keep the files they may want: a flocked file, gone with its process.

    reader   leases/<pid>-<random>: created and locked ─▶ pins LMDB ─▶ names the transaction it pinned
    owner    a file that LMDB names no more since transaction x stays while a live lease has less than x

A lease that names nothing yet keeps everything: what it will pin is not known. Created before the pin,
so a reader whose lease the owner did not see has pinned what came after the owner's own commit.

Next: folder.py.
"""

import fcntl
import os
import secrets
from pathlib import Path


class Lease:
    """A reader's. Where the folder cannot be written to, there is none, and no promise."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "leases" / f"{os.getpid()}-{secrets.token_hex(4)}"
        self._fd = -1
        try:
            self._path.parent.mkdir(exist_ok=True, mode=0o700)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()

    def name(self, transaction: int) -> None:
        """`transaction`: the id of the LMDB transaction that is pinned."""
        if self._fd >= 0:
            os.pwrite(self._fd, b"%020d" % transaction, 0)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._path.unlink(missing_ok=True)
            os.close(fd)


def oldest_lease(folder: Path) -> int | None:
    """The oldest transaction that a living lease names (0: one that names none yet); None without.

    Files of leases whose process is gone are removed.
    """
    oldest: int | None = None
    for path in sorted((folder / "leases").glob("*-*")):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # gone meanwhile
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            text = os.pread(fd, 20, 0)
            named = int(text) if text.isdigit() else 0
            oldest = named if oldest is None else min(oldest, named)
        else:
            # Nobody holds it: its process is gone, or has created it and not locked it yet. That
            # one has pinned nothing, but would believe in a file that is no more.
            if _is_abandoned(path):
                path.unlink(missing_ok=True)
            else:
                oldest = 0
        finally:
            os.close(fd)
    return oldest


def _is_abandoned(path: Path) -> bool:
    try:
        os.kill(int(path.name.split("-")[0]), 0)
    except (ProcessLookupError, ValueError):
        return True
    except OSError:
        return False  # another user's
    return False
