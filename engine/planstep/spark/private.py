"""Makes private folders for the rows that Spark's tasks read, and removes them when this process ends.

    a new folder among the machine's temporary files ─▶ a shell waits for this process's end and removes it

If the shell is killed as well, the next load removes the folder: owners.py.

Next: tables.py.
"""

import os
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path

from . import owners

_REMOVE = 'cat >/dev/null; rm -rf -- "$1"'


class PrivateFolder:
    """A new folder of mode 0700, removed by `close`, or when the process ends or is killed."""

    def __init__(self, prefix: str, parent: str | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._pid = os.getpid()
        # When this process ends, its pipe closes. A session of its own protects the shell from Ctrl-C.
        command = ["/bin/sh", "-c", _REMOVE, "planstep", os.fspath(self.path)]
        try:
            owners.register(self.path)
            self._watcher = subprocess.Popen(
                command, stdin=subprocess.PIPE, start_new_session=True, close_fds=True
            )
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise
        self._end = weakref.finalize(self, _end, self._watcher, self._pid)

    def close(self) -> None:
        """Removes the folder, and returns when it is gone. May be called again."""
        self._end()
        owners.forget(self.path)


def _end(watcher: "subprocess.Popen[bytes]", pid: int) -> None:
    if os.getpid() == pid:  # the end of a forked child must not remove the folder
        watcher.communicate()
