"""Starts the servers of peers, such as a broker or a database, and ends them with the run.

    with_free_port() ─▶ settings with that port ─▶ start(words) ─▶ ready? ─▶ Server: address, processes, times
    close() ─▶ asks it to stop ─▶ SIGKILL if it does not            this process dies ─▶ the kernel kills the server

A server stays in the process group of whoever started it, so ending that group ends the server too. It listens on
127.0.0.1 only.

Next: the peers' own files.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from planstep.closing import Closing

_PR_SET_PDEATHSIG = 1
_TAKEN = b"Address already in use"


class Server(Closing):
    """A running server. `address` is what Options.server takes; times are in seconds."""

    address: str
    version: str = ""
    start_s: float = 0.0
    """From its start to its first answer."""
    warm_s: float = 0.0
    """From then until its latency is level; 0 for a server that needs no warming."""
    warm_transactions: int = 0

    @abstractmethod
    def pids(self) -> Sequence[int]:
        """Returns its processes; their children count as theirs."""

    def warm(self) -> None:
        """Warms it until its latency is level, as real servers are when they are measured."""


def free_port() -> int:
    """Returns a port of 127.0.0.1 that nobody uses now; another process may take it before the caller does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def with_free_port(begin: Callable[[int], None], output: Path) -> None:
    """Calls begin(port), which starts a server; once more, with another port, if that was taken meanwhile.

    The server says so in `output`, in the midst of much else. OSError, that of `begin`.
    """
    before = output.stat().st_size if output.exists() else 0
    try:
        begin(free_port())
    except OSError:
        if not output.exists() or _TAKEN not in output.read_bytes()[before:]:
            raise
        begin(free_port())


def start(
    words: Sequence[str | Path],
    output: Path,
    *,
    user: str | None = None,
    environment: dict[str, str] | None = None,
    descriptors: Sequence[int] = (),
    dying: int = signal.SIGKILL,
) -> "subprocess.Popen[bytes]":
    """Starts a server in this process's group; what it says goes to the file `output`.

    It inherits `descriptors`, and runs as `user`, in that user's group only. OSError if it cannot be started. The
    kernel sends it the signal `dying` when the thread that started it ends, so that must be one that lives as long
    as the server.
    """
    groups: dict[str, Any] = {} if user is None else {"group": user, "extra_groups": []}
    with output.open("ab") as log:
        return subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            user=user,
            **groups,
            pass_fds=descriptors,
            preexec_fn=_die_with(os.getpid(), dying),
        )


def end(server: "subprocess.Popen[bytes]", asked: int, patience_s: float = 10.0) -> None:
    """Sends it the signal `asked`, and kills it if it has not ended after `patience_s` seconds."""
    if server.poll() is None:
        server.send_signal(asked)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(patience_s)
    if server.poll() is None:
        server.kill()
    server.wait()


def _die_with(parent: int, dying: int) -> Callable[[], None] | None:
    """Returns what the child runs first, so that the kernel ends it when `parent` dies; only Linux can."""
    if sys.platform != "linux":
        return None
    # Loaded here, since a forked child must not load libraries.
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def die() -> None:
        prctl(_PR_SET_PDEATHSIG, dying)
        if os.getppid() != parent:  # it died before
            os._exit(1)

    return die
