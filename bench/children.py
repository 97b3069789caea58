"""Starts child processes, and ends them with everything that they started.

    with Children() as children:
        child = children.start(module("planstep.…", folder))      a process group of its own
        child.wait(patience)
                  the block is left ─▶ SIGTERM, a moment later SIGKILL, to each child's group

Left out: forked children, which proof/disks/forked.py has.

Next: compare/subprocess_runner.py.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from ..closing import Closing

Child: TypeAlias = "subprocess.Popen[Any]"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals: Ctrl-C; `timeout`, or a CI's time limit; a closed terminal."""
_GRACE_S = 2.0
_ROOM_FOR_WORDS = 1 << 16
"""A disk with fewer free bytes may have had no room for what a child said."""


class Children(Closing):
    """Holds the children of one piece of work. Invariant: `close` ends all of them, and all that they started."""

    def __init__(self) -> None:
        self._started: list[Child] = []

    def start(self, words: list[str], **options: Any) -> Child:
        """Starts a process in a group of its own, since this one passes Ctrl-C on. `options` are Popen's."""
        with undivided():  # a signal before the child is listed would lose it
            child = subprocess.Popen(words, **{"env": environment(), "process_group": 0, **options})
            self._started.append(child)
        return child

    def close(self) -> None:
        with undivided():
            for child in self._started:
                end_group(child)


def module(name: str, *arguments: object) -> list[str]:
    """Returns the words that run a module in another Python."""
    return [sys.executable, "-m", name, *map(str, arguments)]


def call(function: Callable[..., object], *arguments: object) -> list[str]:
    """Returns the words that call a module's function in another Python; it gets its arguments as texts."""
    spec = sys.modules[function.__module__].__spec__  # a module that is run has another __name__
    assert spec is not None
    imported = f"from {spec.name} import {function.__name__} as function"
    code = f"import sys; {imported}; function(*sys.argv[1:])"
    return [sys.executable, "-c", code, *map(str, arguments)]


def environment() -> dict[str, str]:
    """Returns an environment that skips the working directory, where a user's random.py may be."""
    if {"", os.getcwd()} & set(sys.path):
        return dict(os.environ)  # this process searches it too: the package may be there
    return {**os.environ, "PYTHONSAFEPATH": "1"}


@contextlib.contextmanager
def handled(
    replaced: Callable[[Any], bool], handler: Callable[[int, Any], object]
) -> Iterator[dict[int, Any]]:
    """Handles those of ENDING whose handler is to be replaced; yields the former ones. Only in the main thread."""
    main = threading.current_thread() is threading.main_thread()
    former: dict[int, Any] = {number: signal.getsignal(number) for number in ENDING if main}
    former = {number: own for number, own in former.items() if replaced(own)}
    for number in former:
        signal.signal(number, handler)
    try:
        yield former
    finally:
        for number, own in former.items():
            signal.signal(number, own)


@contextlib.contextmanager
def undivided() -> Iterator[None]:
    """Delays signal handlers, which may raise, until the block is left."""
    came: list[tuple[int, Any]] = []
    former: dict[int, Any] = {}
    try:
        with handled(callable, lambda *signalled: came.append(signalled)) as former:
            yield
    finally:
        for number, frame in came[:1]:
            former[number](number, frame)


def last_words(output: Path) -> str:
    """Returns the last line that a child wrote to the file. A full disk takes its words away."""
    lines = [line.strip() for line in output.read_text(errors="replace").splitlines()]
    if not any(lines):
        full = shutil.disk_usage(output.parent).free < _ROOM_FOR_WORDS
        return "it said nothing" + ": the disk is full" * full
    return next(line for line in reversed(lines) if line)


def json_lines(path: Path) -> list[Any]:
    """Reads the lines that a child wrote; the last one may be in writing, or cut off by a kill, and is left out."""
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    return [json.loads(line) for line in lines[:-1]]


def end_group(child: Child) -> None:
    """Ends the child's whole group, since it may have started processes and killed some."""
    if child.poll() is None:
        _signal(child, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE_S)
    _signal(child, signal.SIGKILL)
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()


def _signal(child: Child, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)
