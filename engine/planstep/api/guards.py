"""What every part of an engine asks first: is it open, is this its process, does it take writes?

    Opened ◀── Naming, Operations ◀── Engine

Next: names.py, admin.py.
"""

import os
from typing import TYPE_CHECKING

from ..errors import EngineClosed, ForkedProcess, NotSupported

if TYPE_CHECKING:
    from ..runtime.runtime import Runtime
    from .open_engine import Settings


class Opened:
    """Invariant: usable only in the process that opened it, until `_closed`."""

    def __init__(self, path: str, runtime: "Runtime", settings: "Settings") -> None:
        self.path = path
        self._runtime = runtime
        self._settings = settings
        self._closed = False
        self._pid = os.getpid()

    @property
    def mode(self) -> str:
        """The commit protocol of the store: "deterministic" or "kafka"."""
        return self._runtime.mode

    @property
    def closed(self) -> bool:
        return self._closed

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ForkedProcess(
                f"{self.path!r} was opened by process {self._pid}, of which this is a fork; open "
                "it here after the parent closed it, or open it in one process only"
            )
        if self._closed:
            raise EngineClosed(f"the engine of {self.path!r} is closed; open it again")

    def _writable(self) -> None:
        self._check()
        if self._settings.read_only:
            raise NotSupported(f"{self.path!r} was opened with read_only=True: it takes no writes")
