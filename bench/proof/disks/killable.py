"""Forks children that the parent kills, and reads the lines that they write to a pipe.

    fork(body) ─▶ child: body(say) ─▶ lines ─▶ Child.lines(...)         kill() ─▶ SIGKILL, and the lines so far
                     └ ends by itself ─▶ exit 0; raises ─▶ says so, exit 1

It forks instead of spawning: a forked interpreter has its modules at once, within a millisecond, and a thousand
are needed. So the parent opens no store, and has no other thread that a child could miss.

Next: streams.py.
"""

import ctypes
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ....api import engine
from ....errors import PlanstepError
from ....store import checkpointing, disk_store

WARM = engine.__name__
"""Its import loads everything that an open store needs before the first fork, once for all children."""
Say = Callable[[str], None]
SILENT_SECONDS = 60.0
"""A child without a line for so long hangs."""
_DIES_WITH_PARENT = 1  # prctl: PR_SET_PDEATHSIG
SMALL_BYTES = 1 << 17


class Silent(Exception):
    """A child wrote nothing for SILENT_SECONDS, and was killed."""


class Child:
    """A forked child. Invariant: after `kill` or `wait` there is no process of that number, and no pipe."""

    def __init__(self, pid: int, read: int, tell: int) -> None:
        self.pid = pid
        self._read = read
        self._tell = tell
        self._data = b""
        self.code: int | None = None

    def tell(self) -> None:
        """Tells a listening body to go on."""
        os.write(self._tell, b"g")

    def lines(self, until: float | None = None) -> Iterator[str]:
        """Yields the child's lines as they come; ends at `until`, or with the child. Silent."""
        while True:
            while b"\n" in self._data:
                line, _, self._data = self._data.partition(b"\n")
                yield line.decode()
            left = SILENT_SECONDS if until is None else until - time.monotonic()
            if left <= 0:
                return
            if not select.select([self._read], [], [], left)[0]:
                if until is None:
                    self.kill()
                    raise Silent
                return
            data = os.read(self._read, 1 << 16)
            if not data:
                return
            self._data += data

    def line(self) -> str:
        """Returns the next line, "" if there is none."""
        return next(self.lines(), "")

    def kill(self) -> list[str]:
        """Kills the child with SIGKILL; returns the lines written by then."""
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> list[str]:
        if self.code is not None:
            return []
        said = list(self.lines())
        _, status = os.waitpid(self.pid, 0)
        self.code = os.waitstatus_to_exitcode(status)
        os.close(self._read)
        os.close(self._tell)
        return said


def fork(body: Callable[[Say, int], None]) -> Child:
    """Forks a child that runs `body`, with a function that writes a line and a descriptor for `Child.tell`."""
    read, write = os.pipe()
    listen, tell = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        os.close(listen)
        return Child(pid, read, tell)
    code = 1
    try:
        os.close(read)
        os.close(tell)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
        body(partial(_say, write), listen)
        code = 0
    except BaseException:
        text = traceback.format_exc(limit=-4).replace("\n", " | ")
        _say(write, f"x {text[:3000]}")
    finally:
        os._exit(code)


def _say(fd: int, line: str) -> None:
    os.write(fd, line.encode() + b"\n")  # one short write is atomic, whichever thread calls


def small_steps() -> None:
    """Sets small segments and frequent checkpoints and rewriting in a child, so that kills hit them."""
    disk_store.SEGMENT_BYTES = SMALL_BYTES
    checkpointing.CHECKPOINT_BYTES = SMALL_BYTES // 4


def keep_busy(db: Any) -> None:
    """Runs the service threads' work, more often."""

    def work() -> None:
        while not db.closed:
            for node in db.context.runtime.nodes:
                try:
                    if node.host.store.checkpoint_due(time.monotonic()):
                        node.host.store.checkpoint()
                except PlanstepError:
                    return  # closed meanwhile
            time.sleep(0.005)

    threading.Thread(target=work, daemon=True).start()
