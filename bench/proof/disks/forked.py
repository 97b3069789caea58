"""Runs one piece of work in a forked process, so that a crash or a hang is a result too.

    parent, warm, no store open ── fork ──▶ child: work(item) ── pickled result ──▶ value
                                            SIGBUS, SIGSEGV, exit ───────────────▶ why: died
                                            still at it after `seconds` ─────────▶ why: hung, and the stacks

A fork costs some milliseconds; a new interpreter costs a quarter of a second.

Next: sample.py.
"""

import faulthandler
import os
import pickle
import select
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, TypeVar

T = TypeVar("T")
_LAST_WORDS = 4_000
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Apart:
    """The result of the child: `value` if `work` returned, else `why` in words."""

    value: Any = None
    why: str = ""


def apart(work: Callable[[T], Any], item: T, seconds: float = 20.0) -> Apart:
    """Runs `work(item)` in a forked child, for at most `seconds`."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as words:
        pid = os.fork()
        if not pid:
            faulthandler.register(signal.SIGUSR1, file=words)
            _child(work, item, writing)
        os.close(writing)
        data, ended, where = b"", False, ""
        try:
            data, ended = _all_of(reading, seconds)
            if not ended:
                where = _asked(pid, words)
        finally:
            os.close(reading)
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done:
                if not ended:
                    os.kill(pid, signal.SIGKILL)
                status = os.waitpid(pid, 0)[1]
    if not ended:
        return Apart(why=f"hung: no end after {seconds:.0f} s\n{where}")
    if not data:
        code = os.waitstatus_to_exitcode(status)
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Apart(why=f"died: {name}")
    value, error = pickle.loads(data)
    return Apart(value, error)


def _child(work: Callable[[T], Any], item: T, writing: int) -> None:
    """Runs the work and never returns: the parent's exit handlers must not run here."""
    try:
        try:
            told = pickle.dumps((work(item), ""))
        except BaseException as error:
            told = pickle.dumps((None, f"raised: {type(error).__name__}: {error}"))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(told)
    finally:
        os._exit(0)


def _all_of(reading: int, seconds: float) -> tuple[bytes, bool]:
    """Reads the pipe; returns (bytes, whether the pipe ended). A machine that stands still costs one wait only."""
    said = b""
    looks = max(1, round(seconds / _LOOK_SECONDS))
    while looks:
        if not select.select([reading], [], [], _LOOK_SECONDS)[0]:
            looks -= 1
            continue
        more = os.read(reading, 1 << 20)
        if not more:
            return said, True
        said += more
    return b"", False


def _asked(pid: int, words: IO[bytes]) -> str:
    """Returns the stacks of all threads of the child."""
    os.kill(pid, signal.SIGUSR1)
    for _ in range(4):
        time.sleep(_LOOK_SECONDS)
        words.seek(0)
        if where := words.read(_LAST_WORDS):
            return where.decode(errors="replace")
    return "it does not say where"
