"""Runs work in forked processes, so that a crash, a hang or a kill is a result too.

    apart(work, item)   child: work(item) ── pickled result ──▶ value
                           SIGBUS, SIGSEGV, exit ─────────────▶ why: died
                           still at it after `seconds` ───────▶ why: hung, and the stacks

    Child(body)         child: body(say, listen) ─▶ lines ─▶ Child.lines     kill() ─▶ SIGKILL, and the lines so far
                           ends by itself ─▶ exit 0; raises ─▶ says so, exit 1

It forks instead of spawning: a forked interpreter has its modules at once, within a millisecond, a new one costs a
quarter of a second, and thousands are needed. So the parent opens no store, and has no other thread that a child
could miss.

Next: sample.py, streams.py.
"""

import ctypes
import faulthandler
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import IO, Any, TypeVar

from ....api import engine
from ....errors import PlanstepError
from ....store import checkpointing, disk_store

WARM = engine.__name__
"""Its import loads everything that an open store needs before the first fork, once for all children."""
T = TypeVar("T")
Say = Callable[[Any], None]
SILENT_SECONDS = 60.0
"""A child without a line for so long hangs."""
_FORK = multiprocessing.get_context("fork")
_DIES_WITH_PARENT = 1  # prctl: PR_SET_PDEATHSIG
_LAST_WORDS = 4_000
_LOOK_SECONDS = 0.25
SMALL_BYTES = 1 << 17


class Silent(Exception):
    """A child wrote nothing for SILENT_SECONDS, and was killed. The text has its stacks."""


class Child:
    """A forked child that runs `body`, with a function that sends a line and a descriptor for `Child.tell`.

    Invariant: after `kill` or `wait` there is no process of that number, and no pipe.
    """

    def __init__(self, body: Callable[[Say, int], None]) -> None:
        self._lines, say = _FORK.Pipe(duplex=False)
        listen, self._tell = os.pipe()
        self._words = tempfile.TemporaryFile()
        work = (body, say, listen, self._tell, self._words)
        self._process = _FORK.Process(target=_run, args=work)
        self._process.start()
        say.close()
        os.close(listen)
        self.pid = self._process.pid or 0
        self.code: int | None = None

    def tell(self, letter: bytes = b"g") -> None:
        """Tells a listening body to go on."""
        os.write(self._tell, letter)

    def has_spoken(self, seconds: float) -> bool:
        """Waits for the next line, or the child's end; returns False if neither comes in time."""
        return self._lines.poll(seconds)

    def lines(self, until: float | None = None) -> Iterator[Any]:
        """Yields the child's lines as they come; ends at `until`, or with the child. Silent."""
        while True:
            remaining = SILENT_SECONDS if until is None else until - time.monotonic()
            if remaining <= 0 or not self.has_spoken(remaining):
                if until is not None:
                    return
                where = self.stacks()
                self.kill()
                raise Silent(f"a child has said nothing for a minute\n{where}")
            try:
                yield self._lines.recv()
            except (EOFError, OSError):  # OSError: it died within a long line
                return

    def line(self) -> str:
        """Returns the next line, "" if there is none."""
        return next(self.lines(), "")

    def kill(self) -> list[Any]:
        """Kills the child with SIGKILL; returns the lines written by then."""
        if self.code is None:
            self._process.kill()
        return self.wait()

    def wait(self) -> list[Any]:
        if self.code is not None:
            return []
        lines = list(self.lines())
        self._process.join()
        self.code = self._process.exitcode
        self._lines.close()
        self._words.close()
        os.close(self._tell)
        return lines

    def stacks(self) -> str:
        """Returns the stacks of all threads of the child, as far as they fit."""
        os.kill(self.pid, signal.SIGUSR1)
        for _ in range(4):
            time.sleep(_LOOK_SECONDS)
            self._words.seek(0)
            if where := self._words.read(_LAST_WORDS):
                return where.decode(errors="replace")
        return "it does not say where"


def _run(
    body: Callable[[Say, int], None],
    say: "Connection[Any, Any]",
    listen: int,
    tell: int,
    words: IO[bytes],
) -> None:
    """Runs the body and never returns: the parent's exit handlers must not run here."""
    code = 1
    try:
        os.close(tell)
        faulthandler.register(signal.SIGUSR1, file=words)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
        body(say.send, listen)  # one short write is atomic, whichever thread calls
        code = 0
    except BaseException:
        text = traceback.format_exc(limit=-4).replace("\n", " | ")
        say.send(f"x {text[:3000]}")
    finally:
        os._exit(code)


@dataclass(frozen=True, slots=True)
class Apart:
    """The result of the child: `value` if `work` returned, else `why` in words."""

    value: Any = None
    why: str = ""


def apart(work: Callable[[T], Any], item: T, seconds: float = 20.0) -> Apart:
    """Runs `work(item)` in a forked child, for at most `seconds`."""
    waits = max(1, round(seconds / _LOOK_SECONDS))
    child = Child(partial(_answer, work, item))
    try:
        # A machine that stands still costs one of the short waits only.
        if not any(child.has_spoken(_LOOK_SECONDS) for _ in range(waits)):
            return Apart(why=f"hung: no end after {seconds:.0f} s\n{child.stacks()}")
        answers = child.wait()
    finally:
        child.kill()
    if answers:
        return Apart(*answers[0])
    code = child.code or 0
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return Apart(why=f"died: {name}")


def _answer(work: Callable[[T], Any], item: T, say: Say, listen: int) -> None:
    try:
        say((work(item), ""))
    except BaseException as error:
        say((None, f"raised: {type(error).__name__}: {error}"))


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
