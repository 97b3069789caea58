"""Folders for rows that Spark's tasks read: nobody else's, and gone when this process is.

    Spark's own local folder, where it names one ─▶ planstep-<store>-<step>, made or checked here
    else a new folder beside the machine's temporary files ─▶ a shell waits for this process's end and removes it

A folder whose name can be guessed may have been made by somebody else, to be read from or written through. So
one that exists counts only if it belongs to this user, is no link, and nobody else may enter it.

Left out: who kills the shell as well leaves the folder.
Next: tables.py.
"""

import os
import stat
import subprocess
import tempfile
import weakref
from pathlib import Path

from ..errors import IoError

_REMOVE = 'cat >/dev/null; rm -rf -- "$1"'


class PrivateFolder:
    """A new folder of mode 0700. It is removed by `close`, or when the process ends or is killed."""

    def __init__(self, prefix: str, parent: str | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._pid = os.getpid()
        # The end of this process closes the pipe; a session of its own keeps Ctrl-C from the shell.
        command = ["/bin/sh", "-c", _REMOVE, "planstep", os.fspath(self.path)]
        try:
            self._watcher = subprocess.Popen(
                command, stdin=subprocess.PIPE, start_new_session=True, close_fds=True
            )
        except BaseException:
            self.path.rmdir()
            raise
        self._end = weakref.finalize(self, _end, self._watcher, self._pid)

    def close(self) -> None:
        """Returns when it is gone. May be called again."""
        self._end()


def _end(watcher: "subprocess.Popen[bytes]", pid: int) -> None:
    if os.getpid() == pid:  # a forked child's end is not the folder's
        watcher.communicate()


def make_private(folder: Path) -> None:
    """Makes a folder, or checks that the one that is there is nobody else's. IoError; OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise IoError(
                f"{folder} is not a folder of this user's alone: what is in it cannot be trusted; remove it, "
                "or set spark.local.dir to a folder that others cannot write to"
            ) from None
