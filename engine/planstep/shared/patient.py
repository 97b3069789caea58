"""Repeats calls to an object store while they fail, and creates objects by what their names hold then.

    put   create ─ done ───────────▶ decided
             └ any other answer ─▶ get ─ bytes ─▶ they are what the name holds for ever
                                    └ nothing ─▶ create again … until the time-out: LogUnreachable

Next: runs.py.
"""

from collections.abc import Callable
from functools import partial
from time import monotonic, sleep
from typing import TypeVar

from ..errors import IoError, LogUnreachable, NoSpace, Refused, reason
from .shared_log import Objects

LOG_TIMEOUT = 60.0
"""Seconds for which a call to the shared log waits."""
PAUSE = 0.02
_PAUSE_MAX = 1.0
_T = TypeVar("_T")


class PatientObjects:
    """An object store whose calls are repeated. `_sent` has names that were sent, and whose content is not known.

    For one thread. LogUnreachable once a call's time-out is over.
    """

    def __init__(
        self,
        objects: Objects,
        where: str,
        timeout: float = LOG_TIMEOUT,
        pause: float = PAUSE,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """`timeout`, in seconds: how long a call is repeated that fails; `pause`: the first wait, which doubles.

        `check` is called before each wait, and raises to end it.
        """
        self.objects = objects
        self.where = where
        self.timeout = timeout
        self._pause = pause
        self._check = check
        self.doubted = False
        self._sent: set[str] = set()

    def get(self, name: str) -> bytes | None:
        return self._patiently(partial(self.objects.get, name))

    def sync(self, name: str) -> None:
        self._patiently(partial(self.objects.sync, name))

    def names(self, prefix: str, start: str = "") -> list[str]:
        return self._patiently(partial(self.objects.names, prefix, start))

    def remove(self, name: str) -> None:
        self._patiently(partial(self.objects.remove, name))

    def put(self, name: str, data: bytes) -> bytes:
        """Creates an object unless there is one; returns what the name holds for ever. NoSpace, Refused: without
        effect.

        `doubted` tells then whether any answer was another one than "done".
        """
        self.doubted = False
        found = self._patiently(partial(self._try_put, name, data))
        if isinstance(found, IoError):
            raise type(found)(f"{self.where}: {reason(found)}") from found
        return found

    def _try_put(self, name: str, data: bytes) -> bytes | NoSpace | Refused:
        """Does this once. IoError: what the name holds is not known; one that has no effect is returned."""
        doubt = name in self._sent
        self._sent.add(name)
        failure = IoError(f"{name} is said to be there, but it is not")
        try:
            if self.objects.create(name, data):
                self._sent.discard(name)
                return data
        except (NoSpace, Refused) as error:
            if not doubt:
                self._sent.discard(name)
                return error
            failure = error
        except IoError as error:
            failure = error
        self.doubted = True
        found = self.objects.get(name)
        if found is None:
            raise failure
        self.objects.sync(name)
        self._sent.discard(name)
        return found

    def _patiently(self, attempt: Callable[[], _T]) -> _T:
        return patiently(attempt, self.where, self.timeout, self._pause, self._check)


def patiently(
    attempt: Callable[[], _T],
    where: str,
    timeout: float,
    pause: float = PAUSE,
    check: Callable[[], object] = lambda: None,
) -> _T:
    """Repeats an attempt while it fails with an IoError. LogUnreachable once `timeout` seconds are over."""
    deadline = monotonic() + timeout
    while True:
        try:
            return attempt()
        except IoError as error:
            rest = deadline - monotonic()
            if rest <= 0:
                raise LogUnreachable(
                    f"the shared log {where} was not reached for {timeout:g} seconds "
                    f"({reason(error)}); reopen the store once it can be"
                ) from error
        check()
        sleep(min(pause, rest))
        pause = min(2 * pause, _PAUSE_MAX)
