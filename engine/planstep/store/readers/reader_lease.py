"""Readers in other processes keep the files they may want: a flocked file, gone with its process.

    reader   leases/<pid>-<random>: created and locked ─▶ pins LMDB ─▶ names the transaction it pinned
    owner    a file that LMDB names no more since transaction x stays while a live lease has less than x

A lease that names nothing yet keeps everything: what it will pin is not known. Created before the pin,
so a reader whose lease the owner did not see has pinned what came after the owner's own commit.

One that is not locked is nobody's, and the owner removes it. A reader that was about to lock it finds
that it has no name any more, and makes another: no process ids are asked, which recur in containers.

Next: ../log/segments.py.
"""

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

from ..files import io_error, list_folder, open_file


class Lease:
    """A reader's. Where the folder cannot be written to, there is none, and no promise."""

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
                os.fchmod(self._fd, 0o644)  # the owner looks at it, also where this is root
                fcntl.flock(self._fd, fcntl.LOCK_EX)  # the owner holds it while it looks
                if os.fstat(self._fd).st_nlink:
                    break
                self.close()
        except OSError:
            self.close()

    def name(self, transaction: int) -> None:
        """`transaction`: the id of the LMDB transaction that is pinned."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):  # a full disk: unnamed it keeps everything
                os.pwrite(self._fd, b"%020d" % transaction, 0)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                os.unlink(self._path, dir_fd=self._held)
            os.close(fd)


def _leases(folder: Path, held: int | None) -> Path:
    return Path("leases") if held is not None else folder / "leases"


def make_leases(folder: Path, held: int | None = None) -> None:
    """By the owner, if possible: in a folder that root made it could not look at anything."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(_leases(folder, held), 0o700, dir_fd=held)


def oldest_lease(folder: Path, held: int | None = None) -> int | None:
    """The oldest transaction that a living lease names (0: one that names none yet); None without.

    One that cannot be looked at, another user's, or for want of descriptors, counts as alive.
    """
    try:
        return min((named for _, named in _living(folder, held)), default=None)
    except OSError:
        return 0


def readers(folder: Path) -> list[int]:
    """The ids of the processes that living leases name, a process once for each. IoError."""
    try:
        return [int(pid) for pid, _ in _living(folder, None) if pid.isdigit()]
    except OSError as error:
        raise io_error(error, folder / "leases") from error


def _living(folder: Path, held: int | None) -> list[tuple[str, int]]:
    """(process id, transaction) of each. OSError."""
    path = _leases(folder, held)
    try:
        names = sorted(list_folder(path, held))
    except FileNotFoundError:
        return []
    looked = ((name, _look_at(path / name, held)) for name in names)
    return [(name.partition("-")[0], named) for name, named in looked if named is not None]


def _look_at(path: Path, held: int | None) -> int | None:
    """What a lease names; one whose process is gone is removed."""
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
