"""Counts what other processes use, with all their children: CPU, memory, bytes that they caused to be written.

    pids ─▶ family(pids) ─▶ /proc/<pid>/stat, status, io ─▶ Usage

A child that has ended counts too: its parent's own totals have it. Memory that processes share is counted once:
the largest share stands for all. Bytes are those of calls to write, also to a socket. So they tell what goes to the
disk only if a server sends by other calls. What the kernel was made to write tells less: it counts whole folios,
which have up to 2 MB on newer kernels, however little of one changes.

Left out: platforms without /proc, where nothing is known.

Next: run_cell.py.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_MEMORY = "RssAnon", "RssFile", "RssShmem"
_UNREADABLE = OSError, KeyError, IndexError
"""Errors where a process has ended, or its kernel does not tell; each file of a process may be forbidden alone."""


class Usage(NamedTuple):
    """CPU seconds since the processes' starts; the memory that they use now, in bytes.

    Since their starts, too: `call_bytes` passed to calls to write; None where the kernel does not tell them of a
    process that runs.
    """

    cpu_s: float = 0.0
    memory_bytes: int = 0
    call_bytes: int | None = 0


def usage(pids: Sequence[int]) -> Usage:
    """Returns what the processes and their children use. One that has ended meanwhile counts nothing."""
    cpu, calls, told = 0.0, 0, True
    memory: list[tuple[int, ...]] = [(0, 0, 0)]
    for pid in family(pids):
        with suppress(*_UNREADABLE):
            cpu += _cpu_seconds(pid)
        with suppress(*_UNREADABLE):
            memory.append(_memory(pid))
        try:
            calls += _call_bytes(pid)
        except _UNREADABLE:
            told = told and not is_running(pid)
    own, files, shared = zip(*memory, strict=True)
    used = sum(own) + max(files) + max(shared)
    return Usage(cpu, used, calls if told else None)


def family(pids: Sequence[int]) -> list[int]:
    """Returns the processes, their children, and the children of these.

    Children are those that a main thread started. A Java has a hundred threads that start none, and looking at each
    of them several times a second would hold up the threads that are measured.
    """
    members: dict[int, None] = {}
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        if pid in members:
            continue
        members[pid] = None
        try:
            waiting += map(int, _read(pid, f"task/{pid}/children").split())
        except OSError:  # it has ended, or this platform does not tell
            continue
    return list(members)


def is_running(pid: int) -> bool:
    """Returns whether the process runs; one that nobody has waited for yet does not."""
    try:
        return _read(pid, "stat").rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def _read(pid: int, name: str) -> str:
    return (_PROC / str(pid) / name).read_text()


def _cpu_seconds(pid: int) -> float:
    # Its second field is a name, which may have spaces and parentheses.
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> tuple[int, ...]:
    """Returns the bytes of its own, of mapped files, and of shared memory."""
    values = _fields(pid, "status")
    return tuple(int(values[name].split()[0]) << 10 for name in _MEMORY)


def _call_bytes(pid: int) -> int:
    return int(_fields(pid, "io")["wchar"])


def _fields(pid: int, name: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in _read(pid, name).splitlines())
    return {field: value for field, _, value in pairs}
