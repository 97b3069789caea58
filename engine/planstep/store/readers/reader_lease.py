"""Keeps the files that readers in other processes may need, by a lease: a file that each reader locks.

    reader   leases/<pid>-<random>: created and locked ─▶ pins LMDB ─▶ names the transaction it pinned
    owner    a file that LMDB names no more since transaction x stays while a live lease has less than x

A lease that names no transaction yet keeps everything: its pin is not known. It is created before the pin,
so a reader whose lease the owner did not see has pinned a state after the owner's own commit. A reader that has
pinned nothing, and may pin later, keeps a lease that keeps no file: its store is not replaced under it.

An unlocked lease has no reader any more, and the owner removes it. A reader that was about to lock it notices
that its file has no name any more, and creates another. Process ids are not checked: they recur in containers.

Next: ../log/segments.py.
"""

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

from ..files import list_folder, make_folder, open_file, typed_errors

KEEPS_NOTHING = 1 << 63
"""Stands for a transaction later than all: no file is kept for it."""


class Lease:
    """A reader's lease. If the folder cannot be written to, there is none, and nothing is kept for this reader."""

    def __init__(self, folder: Path, held: int | None = None) -> None:
        """`held`: the folder's descriptor, through which it is then found."""
        self._fd, self._held = -1, held
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        try:
            make_leases(folder, held)
            while True:
                name = f"{os.getpid()}-{secrets.token_hex(4)}"
                self._path = _leases(folder, held) / name
                self._fd = open_file(self._path, flags, held, 0o644)
                os.fchmod(self._fd, 0o644)  # the owner must be able to open it, even a root's
                fcntl.flock(self._fd, fcntl.LOCK_EX)  # the owner holds it while it checks the lease
                if os.fstat(self._fd).st_nlink:
                    break
                self.close()
        except OSError:
            self.close()

    def name(self, transaction: int) -> None:
        """Records the id of the pinned LMDB transaction."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):  # on a full disk: unnamed, it keeps everything
                os.pwrite(self._fd, b"%020d" % transaction, 0)

    def keep_nothing(self) -> None:
        """Records that nothing is pinned."""
        self.name(KEEPS_NOTHING)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                os.unlink(self._path, dir_fd=self._held)
            os.close(fd)


def _leases(folder: Path, held: int | None) -> Path:
    return Path("leases") if held is not None else folder / "leases"


def make_leases(folder: Path, held: int | None = None) -> None:
    """Creates the leases folder, by the owner if possible: it could not read one that root created."""
    with contextlib.suppress(FileExistsError):
        make_folder(_leases(folder, held), held)


def oldest_lease(folder: Path, held: int | None = None) -> int | None:
    """Returns the oldest transaction that a live lease names (0: one names none yet; `KEEPS_NOTHING`); None without
    leases.

    A lease that cannot be read, because of its user or for lack of descriptors, counts as alive.
    """
    try:
        return min((named for _, named in _living(folder, held)), default=None)
    except OSError:
        return 0


def readers(folder: Path, held: int | None = None) -> list[int]:
    """Lists the process ids of live leases, once for each lease, and removes the others. IoError."""
    with typed_errors(folder / "leases"):
        return [int(pid) for pid, _ in _living(folder, held) if pid.isdigit()]


def _living(folder: Path, held: int | None) -> list[tuple[str, int]]:
    """Lists (process id, transaction) of each live lease. OSError."""
    path = _leases(folder, held)
    try:
        names = sorted(list_folder(path, held))
    except FileNotFoundError:
        return []
    looked = ((name, _look_at(path / name, held)) for name in names)
    return [(name.partition("-")[0], named) for name, named in looked if named is not None]


def _look_at(path: Path, held: int | None) -> int | None:
    """Returns the transaction that a lease names; removes a lease whose process is gone, and returns None."""
    try:
        fd = open_file(path, os.O_RDONLY, held)
    except FileNotFoundError:
        return None
    except OSError:
        return 0
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path, dir_fd=held)
        return None
    except BlockingIOError:
        text = os.pread(fd, 20, 0)
        return int(text) if text.isdigit() else 0
    except OSError:
        return 0
    finally:
        os.close(fd)
