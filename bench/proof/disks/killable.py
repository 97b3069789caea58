"""Children that are meant to die: forked, with one line back to the parent, and killed when it says so.

    fork(body) ─▶ child: body(say) ─▶ lines ─▶ Child.lines(...)         kill() ─▶ SIGKILL, and what was said
                     └ ends by itself ─▶ exit 0; raises ─▶ says so, exit 1

Forked and not spawned: an interpreter that has its modules is there in a millisecond, and a thousand are
wanted. So the parent opens no store, and has no thread of its own that a child could miss.

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
"""What an open store needs is imported before a child is forked, once for all of them."""
Say = Callable[[str], None]
SILENT_SECONDS = 60.0
"""A child that says nothing for so long hangs."""
_DIES_WITH_PARENT = 1  # prctl: PR_SET_PDEATHSIG
SMALL_BYTES = 1 << 17


class Silent(Exception):
    """A child has said nothing for SILENT_SECONDS, and was killed."""


class Child:
    """Invariant: after `kill` or `wait` there is no process of that number, and no pipe."""

    def __init__(self, pid: int, read: int, tell: int) -> None:
        self.pid = pid
        self._read = read
        self._tell = tell
        self._data = b""
        self.code: int | None = None

    def tell(self) -> None:
        """What a body that listens waits for."""
        os.write(self._tell, b"g")

    def lines(self, until: float | None = None) -> Iterator[str]:
        """What it says, as it comes; ends at the time given, or with the child. Silent."""
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
        """The next one, "" when there will be none."""
        return next(self.lines(), "")

    def kill(self) -> list[str]:
        """SIGKILL; what it had said by then."""
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
    """`body` gets what says a line, and a descriptor that is readable when it is told to go on."""
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
    os.write(fd, line.encode() + b"\n")  # whole, whichever thread speaks: it is short


def small_steps() -> None:
    """In a child: small segments, and checkpoints and rewriting all the time, so that a kill meets them."""
    disk_store.SEGMENT_BYTES = SMALL_BYTES
    checkpointing.CHECKPOINT_BYTES = SMALL_BYTES // 4


def keep_busy(db: Any) -> None:
    """What the service threads do, and more often."""

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
