"""Makes the n-th system call of a kind fail, on any file below one folder, whichever code calls it.

    failing_calls(root, call, n)        os.open, os.pread, os.stat, mmap, open … ─ the n-th ─▶ OSError
    failing_calls(root)                 nothing fails; `counts` says how many there are of each

failing.py replaces only the engine's own file layer. This replaces Python's functions, so it also reaches code
that lists a folder, maps a mark (store/readers/released_mark.py) or reads a table's pages directly. A write may
be short instead of failing. LMDB's own calls do not go through Python: strace makes those fail
(../rows/ioerr.py).

Next: copied.py.
"""

import builtins
import errno
import fcntl
import io
import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

_DESCRIPTORS = "/proc/self/fd/"
_WRITES = ("pwrite", "pwritev")
BY_PATH = ("open", "stat", "listdir", "scandir", "mkdir", "rename", "unlink", "link", "rmdir")
BY_FD = (*_WRITES, "pread", "fsync", "fdatasync", "ftruncate", "posix_fallocate", "fstat")


def _half(data: Any) -> Any:
    """Returns the first half of a buffer, or of a list of buffers: not empty if there are two or more bytes."""
    if isinstance(data, list | tuple):
        whole = b"".join(data)
        return [whole[: len(whole) // 2]]
    return data[: len(data) // 2]


class Calls:
    """Counts calls. From the `nth` on, counted from 0, `call` fails `times` times, or for ever with None."""

    def __init__(self, root: Path, call: str, nth: int, code: int, times: int | None) -> None:
        self.root = os.fspath(root)
        self.call, self.nth, self.code, self.times = call, nth, code, times
        self.counts: Counter[str] = Counter()
        self.struck = 0
        self._opened: set[int] = set()

    def _below(self, what: Any) -> bool:
        if isinstance(what, int):
            return what in self._opened
        try:
            path = os.fspath(what)
        except TypeError:
            return False
        if path.startswith(_DESCRIPTORS):
            number = path.removeprefix(_DESCRIPTORS).partition("/")[0]
            return number.isdigit() and int(number) in self._opened
        return f"{path}/".startswith(f"{self.root}/")

    def _strikes(self, call: str, what: Any) -> bool:
        if not self._below(what):
            return False
        at = self.counts[call]
        self.counts[call] += 1
        over = self.times is not None and self.struck >= self.times
        if call != self.call or at < self.nth or over:
            return False
        self.struck += 1
        return True

    def check(self, call: str, what: Any) -> None:
        if self._strikes(call, what):
            raise OSError(self.code, os.strerror(self.code))

    def around(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def called(what: Any, *args: Any, **more: Any) -> Any:
            folder = more.get("dir_fd", more.get("src_dir_fd"))
            where = what if folder is None else folder
            self.check(call, where)
            if call in _WRITES and self._strikes(f"short {call}", where):
                args = (_half(args[0]), *args[1:])
            result = real(what, *args, **more)
            if call == "open" and self._below(where):
                self._opened.add(result)
            return result

        return called

    def close(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def called(fd: int) -> None:
            self._opened.discard(fd)
            real(fd)

        return called

    def around_open(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def called(what: Any, *args: Any, **more: Any) -> Any:
            self.check("io.open", what)
            file = real(what, *args, **more)
            if self._below(what):
                read = file.read

                def counted(*size: int) -> Any:
                    self.check("io.read", what)
                    return read(*size)

                file.read = counted
            return file

        return called


@contextmanager
def failing_calls(
    root: Path, call: str = "", nth: int = 0, code: int = errno.EIO, times: int | None = 1
) -> Iterator[Calls]:
    """Replaces Python's file functions in this context. `call` is a name as in `Calls.counts`."""
    calls = Calls(root, call, nth, code, times)
    with ExitStack() as stack:
        for name in (*BY_PATH, *BY_FD):
            stack.enter_context(patch.object(os, name, calls.around(name, getattr(os, name))))
        stack.enter_context(patch.object(os, "close", calls.close(os.close)))
        stack.enter_context(patch.object(fcntl, "flock", calls.around("flock", fcntl.flock)))
        stack.enter_context(patch.object(mmap, "mmap", calls.around("mmap", mmap.mmap)))
        for module in (io, builtins):
            stack.enter_context(patch.object(module, "open", calls.around_open(io.open)))
        yield calls
