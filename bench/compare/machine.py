"""Describes the machine of a comparison, without which its figures mean nothing.

    facts(folder) ─▶ processors, memory, file system of the folder, versions, times of a bare durable append,
                     and the load of other work in the second before (pressure.py)

Left out: clock rates, power settings. The append is timed in the same run, on the same
file system, because every commit waits for it.

Next: summary.py.
"""

import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import planstep

from .measure import Latencies
from .pressure import watch

_APPEND = b"\xa5" * 4096
_APPENDS, _SECONDS_MAX = 200, 1.0
IN_MEMORY = ("tmpfs", "ramfs")


def facts(folder: Path) -> dict[str, Any]:
    """Returns the facts; `folder` is where the stores will be. Takes two seconds at most."""
    system, before = os.uname(), watch(1.0)
    return {
        "cpus": cpus(),
        "cpu_model": _cpu_model(),
        "memory_mb": memory_bytes() // 10**6,
        "filesystem": filesystem(folder),
        "busy_cores": before["busy_cores"],
        "load": {"before": before},
        "disk_sync_ms": disk_sync_ms(folder),
        "kernel": f"{system.sysname} {system.release}",
        "architecture": system.machine,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "planstep": planstep.__version__,
    }


def disk_sync_ms(folder: Path) -> dict[str, float] | None:
    """Times appends of 4 KiB to a preallocated file, each on the disk before the next."""
    path = folder / "append"
    latencies = Latencies()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.pwrite(fd, bytes(len(_APPEND) * _APPENDS), 0)
        os.fsync(fd)
        end = time.monotonic() + _SECONDS_MAX
        for n in range(_APPENDS):
            begin = time.monotonic_ns()
            os.pwrite(fd, _APPEND, n * len(_APPEND))
            _sync(fd)
            latencies.add(time.monotonic_ns() - begin)
            if time.monotonic() > end:
                break
    finally:
        os.close(fd)
        path.unlink()
    return latencies.summary()


def _sync(fd: int) -> None:
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync alone leaves it in the drive's cache there
    else:
        os.fdatasync(fd)


def filesystem(folder: Path) -> str | None:
    """Returns the type of the folder's file system, as in "ext4"; None where the platform does not report it."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return None
    real = os.path.realpath(folder)
    mounts: list[tuple[int, int, str]] = []
    for line in lines:
        _, mount, kind, *_ = line.split()
        mount = mount.replace("\\040", " ")
        if mount == "/" or (real + "/").startswith(mount + "/"):
            mounts.append((len(mount), len(mounts), kind))
    return max(mounts)[2] if mounts else None  # the innermost, of these the latest


def cpus() -> int:
    """Returns the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def memory_bytes() -> int:
    """Returns the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
