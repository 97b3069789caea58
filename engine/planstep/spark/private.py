"""Makes private folders for the rows that Spark's tasks read, and removes them when this process ends.

    Spark's own local folder, where it names one ─▶ planstep-<store>-<step>, made or checked here
    else a new folder among the machine's temporary files ─▶ a shell waits for this process's end and removes it

Another user may have made a folder whose name can be guessed, to read the rows or to replace them. So an existing
folder is used only if it belongs to this user, is no link, and no other user may enter it.

Left out: if the shell is killed as well, the folder stays.
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
    """A new folder of mode 0700, removed by `close`, or when the process ends or is killed."""

    def __init__(self, prefix: str, parent: str | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._pid = os.getpid()
        # When this process ends, its pipe closes. A session of its own protects the shell from Ctrl-C.
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
        """Removes the folder, and returns when it is gone. May be called again."""
        self._end()


def _end(watcher: "subprocess.Popen[bytes]", pid: int) -> None:
    if os.getpid() == pid:  # the end of a forked child must not remove the folder
        watcher.communicate()


def make_private(folder: Path) -> None:
    """Makes a folder of mode 0700, or checks that only this user may enter the existing one. IoError; OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        info = folder.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise IoError(
                f"{folder} is not a folder of this user's alone: what is in it cannot be trusted; remove it, "
                "or set spark.local.dir to a folder that others cannot write to"
            ) from None
