"""Keeps one server for all cells of a comparison, in a process of its own that ends with its parent.

    python -m planstep.bench.compare.keep_server SPEC      SPEC: JSON {"system": …, "durability": …, "folder": …}

    start ─▶ {"address": …} ─▶ warm ─▶ {"warm_s": …} ─▶ until stdin closes ─▶ {"memory_mb": …} ─▶ stop, remove
    stdin closes early, or SIGTERM ─▶ stop, remove
    the server ends by itself ─▶ {"failed": …} ─▶ remove

Its parent may be killed at any time: then stdin closes, and this process ends the server and removes its folder. If
this process is killed, the kernel kills the server (systems/servers.py).

Next: kept_servers.py, the parent.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from .processes import is_running, usage
from .systems import ENTRIES
from .systems.base import Options

_LOOK_S = 0.1
"""Seconds between two looks whether the server still runs."""


def keep(system: str, durability: str, folder: Path) -> None:
    """Keeps the server of a system until stdin closes; says what happens, as lines of JSON."""
    start = ENTRIES[system].server
    if start is None:
        raise ValueError(f"{system} has no server")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process in its own time
    signal.signal(signal.SIGTERM, _end)
    ready, closed = threading.Event(), threading.Event()
    threading.Thread(target=_watch, args=(ready, closed), daemon=True).start()
    folder.mkdir(parents=True)
    try:
        began = time.monotonic()
        with start(folder, Options(durability)) as server:
            start_s = server.start_s or time.monotonic() - began
            _say(address=server.address, version=server.version, start_s=round(start_s, 2))
            began = time.monotonic()
            server.warm()
            warm_s = server.warm_s or time.monotonic() - began
            _say(warm_s=round(warm_s, 2), warm_transactions=server.warm_transactions)
            ready.set()
            watched = server.pids() if is_running(os.getpid()) else ()  # none where nobody tells
            while not closed.wait(_LOOK_S):
                for pid in watched:
                    if not is_running(pid):
                        _say(failed=f"process {pid} ended by itself{_signal_of(pid)}")
                        return
            _say(memory_mb=round(usage(server.pids()).memory_bytes / 1e6, 1))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _signal_of(pid: int) -> str:
    """Says which signal ended a child that nobody has waited for, and that still can be waited for."""
    if sys.platform == "linux":
        with contextlib.suppress(ChildProcessError):
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None and ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
                return f", by {signal.Signals(ended.si_status).name}"
    return ""


def _end(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one shall not disturb the ending
    sys.exit(1)


def _watch(ready: threading.Event, closed: threading.Event) -> None:
    """Waits until stdin closes, then ends the main thread's wait, its start or its warming."""
    while os.read(0, 1 << 10):
        pass
    closed.set()
    if not ready.is_set():
        os.kill(os.getpid(), signal.SIGTERM)


def _say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    keep(spec["system"], spec["durability"], Path(spec["folder"]))


if __name__ == "__main__":
    main()
