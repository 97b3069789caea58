"""Opens the shared log that a URL names. A log more is a module and a line here.

Next: ../store/disk_store.py.
"""

from collections.abc import Callable

from ..errors import NotSupported
from .files_log import open_files_log
from .objects_log import LOG_TIMEOUT
from .shared_log import Root, SharedLog

OPENERS: dict[str, Callable[[str, Root | None, float], tuple[SharedLog, Root]]] = {
    "file": open_files_log,
}
"""Openers by the scheme of a URL; parameters as in `open_shared_log`."""


def open_shared_log(
    url: str, root: Root | None, timeout: float = LOG_TIMEOUT
) -> tuple[SharedLog, Root]:
    """Opens a log, and returns its root too, which may be another one than was asked for.

    `root`: that of a new log, if there is none; None: there must be one. `timeout`, in seconds, is for calls of the
    open log; this one does not wait. NotSupported, FormatError, Corruption, IoError; ValueError, TypeError.
    """
    if not isinstance(url, str):
        raise TypeError(f"a shared log is named by a URL, as 'file:///disk/shop', not {url!r}")
    scheme, colon, _ = url.partition(":")
    if not colon:
        raise ValueError(f"{url!r} is no URL: a folder's is file:///disk/shop")
    opener = OPENERS.get(scheme.lower())
    if opener is None:
        known = ", ".join(f"{name}:" for name in sorted(OPENERS))
        raise NotSupported(f"there is no shared log by {scheme}: URLs; choose one of {known}")
    return opener(url, root, timeout)
