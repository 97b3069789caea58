"""Opens the shared log that a URL names. A log more is a module and a line in each table.

Next: settings.py.
"""

from collections.abc import Callable

from ..errors import Diverged, NotSupported
from .bucket_log import (
    SCHEMES,
    erase_bucket_log,
    make_bucket_place,
    normal_bucket_url,
    open_bucket_log,
)
from .files_log import erase_files_log, make_files_place, normal_files_url, open_files_log
from .kafka_topic import erase_kafka_log, open_kafka_log
from .patient import LOG_TIMEOUT
from .shared_log import Objects, Root, SharedLog

OPENERS: dict[str, Callable[[str, Root | None, float], tuple[SharedLog, Root]]] = {
    "file": open_files_log,
    **dict.fromkeys(SCHEMES, open_bucket_log),
    "kafka": open_kafka_log,
}
"""Openers by the scheme of a URL; parameters as in `open_shared_log`."""
PLACES: dict[str, Callable[[str], Objects]] = {
    "file": make_files_place,
    **dict.fromkeys(SCHEMES, make_bucket_place),
}
"""Functions that make the place for a log without a root, by the scheme of its URL."""
ERASERS: dict[str, Callable[[str], None]] = {
    "file": erase_files_log,
    **dict.fromkeys(SCHEMES, erase_bucket_log),
    "kafka": erase_kafka_log,
}
"""Functions that remove a log with all that it has, by the scheme of its URL."""
NORMAL: dict[str, Callable[[str], str]] = {
    "file": normal_files_url,
    **dict.fromkeys(SCHEMES, normal_bucket_url),
}
"""Functions that return the one URL of a log that may be written in several ways, by its scheme."""

ONLY_BESIDE = ("kafka",)
"""Schemes of logs that have no place within for another one: it lies beside them."""


def open_shared_log(
    url: str, root: Root | None, timeout: float = LOG_TIMEOUT
) -> tuple[SharedLog, Root]:
    """Opens a log, and returns its root too, which may be another one than was asked for.

    `root`: that of a new log, if there is none; None: there must be one. `timeout`, in seconds, is for calls of the
    open log; this one waits for seconds at most. LogUnreachable, NotSupported, FormatError, Corruption, IoError;
    ValueError, TypeError.
    """
    return OPENERS[scheme_of(url)](url, root, timeout)


def open_objects(url: str, root: Root | None, timeout: float = LOG_TIMEOUT) -> Objects:
    """Opens the object store at a URL, for the snapshots of a store whose log is in none.

    Parameters as in `open_shared_log`. NotSupported: that URL is of no object store; Diverged: it is of another
    store; further errors as `open_shared_log`.
    """
    log, there = open_shared_log(url, root, timeout)
    if log.objects is not None and (root is None or root.store_id == there.store_id):
        return log.objects
    log.close()
    if log.objects is not None:
        raise Diverged(
            "the place for snapshots has those of another store: give each store its own"
        )
    raise NotSupported(
        "snapshots go to an object store: file:///disk/shop, s3://bucket/shop or the like"
    )


def make_place(url: str) -> Objects:
    """Makes the place for the log of a store that has turns. NotSupported as `check_begins_anywhere`."""
    check_begins_anywhere(url)
    return PLACES[scheme_of(url)](url)


def check_begins_anywhere(url: str) -> None:
    """NotSupported where a log begins with turn 1."""
    scheme = scheme_of(url)
    if scheme not in PLACES:
        raise NotSupported(
            f"a log by {scheme}: URLs begins with a store's first turn: begin with an empty folder"
        )


def erase_shared_log(url: str) -> None:
    """Removes a log for good: one that was made for a test. IoError; further ones as `open_shared_log`."""
    ERASERS[scheme_of(url)](url)


def normal_url(url: str) -> str:
    """Returns the one URL of a log, however it is spelled; a link in its path makes it another one. Errors as
    `scheme_of`; ValueError.
    """
    scheme = scheme_of(url)
    return NORMAL.get(scheme, str)(scheme + url[len(scheme) :])


def scheme_of(url: str) -> str:
    """Returns the scheme of a shared log's URL. NotSupported if there is none by it; ValueError, TypeError."""
    if not isinstance(url, str):
        raise TypeError(f"a shared log is named by a URL, as 'file:///disk/shop', not {url!r}")
    scheme, colon, _ = url.partition(":")
    if not colon:
        raise ValueError(f"{url!r} is no URL: a folder's is file:///disk/shop")
    if scheme.lower() not in OPENERS:
        known = ", ".join(f"{name}:" for name in sorted(OPENERS))
        raise NotSupported(f"there is no shared log by {scheme}: URLs; choose one of {known}")
    return scheme.lower()
