"""One piece of work in a process of its own: what kills it, or never ends, is a result too.

    parent, warm, no store open ── fork ──▶ child: work(item) ── pickled result ──▶ Ended
                                            SIGBUS, SIGSEGV, exit ───────────────▶ Killed by it
                                            still at it after `seconds` ─────────▶ Hung, and where

A fork costs some milliseconds where a new interpreter costs a quarter of a second.

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
from typing import Any, TypeVar

T = TypeVar("T")
_LAST_WORDS = 2_000


@dataclass(frozen=True, slots=True)
class Apart:
    """How it ended: `value` where `work` returned, else `why` in words."""

    value: Any = None
    why: str = ""


def apart(work: Callable[[T], Any], item: T, seconds: float = 20.0) -> Apart:
    """`work(item)` in a forked child, which must not take longer than that."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as words:
        pid = os.fork()
        if not pid:
            # Shortly before its end it says where all its threads are.
            faulthandler.dump_traceback_later(0.95 * seconds, file=words)
            _child(work, item, writing)
        os.close(writing)
        data, ended = b"", False
        try:
            data, ended = _all_of(reading, time.monotonic() + seconds)
        finally:
            os.close(reading)
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done:
                if not ended:
                    os.kill(pid, signal.SIGKILL)
                status = os.waitpid(pid, 0)[1]
        if not ended:
            words.seek(0)
            where = words.read(_LAST_WORDS).decode(errors="replace")
            return Apart(why=f"hung: no end after {seconds:.0f} s\n{where}")
    if not data:
        code = os.waitstatus_to_exitcode(status)
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Apart(why=f"died: {name}")
    value, error = pickle.loads(data)
    return Apart(value, error)


def _child(work: Callable[[T], Any], item: T, writing: int) -> None:
    """Never returns: nothing of the parent's that runs at exit may run here."""
    try:
        try:
            told = pickle.dumps((work(item), ""))
        except BaseException as error:
            told = pickle.dumps((None, f"raised: {type(error).__name__}: {error}"))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(told)
    finally:
        os._exit(0)


def _all_of(reading: int, until: float) -> tuple[bytes, bool]:
    """(what was said, whether it was all)."""
    said = b""
    while (left := until - time.monotonic()) > 0:
        if select.select([reading], [], [], left)[0]:
            more = os.read(reading, 1 << 20)
            if not more:
                return said, True
            said += more
    return b"", False
