"""Starts the command `planstep`: a typer application, or a hint to install it where typer is missing.

Next: app.py.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NoReturn


def main() -> None:
    """Runs the command line; exits 2 with the pip line when the extra `cli` is not installed."""
    _fill_streams()
    try:
        with _ended_by_signals(sys.argv[1:2] in (["follow"], ["own"])):
            _run()
    except KeyboardInterrupt:  # before a command began, or after it ended
        raise SystemExit(130) from None


@contextmanager
def _ended_by_signals(well: bool) -> Iterator[None]:
    """Exits with 0 on SIGINT and SIGTERM, if a command ends `well` so: while it is loaded, too, for a second."""
    numbers = [signal.SIGINT, signal.SIGTERM] if well else []
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _exit)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(*_: Any) -> NoReturn:
    raise SystemExit(0)


def _run() -> None:
    if find_spec("typer") is None or find_spec("rich") is None:
        print('the command line needs: pip install "planstep[cli]"', file=sys.stderr)
        raise SystemExit(2)
    from .app import run

    run()


def _fill_streams() -> None:
    """Opens the null device for those of descriptors 0, 1 and 2 that the caller closed.

    Otherwise the store's files would get these numbers, and output meant for stdout would go into them.
    `sys.stdin` stays None where it was closed: see writing.py.
    """
    fd = os.open(os.devnull, os.O_RDWR)
    while fd <= 2:
        fd = os.dup(fd)
    os.close(fd)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")
