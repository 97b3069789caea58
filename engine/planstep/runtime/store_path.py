"""Tells whether a store lies at a path, and whether one may be made there, which one process does at a time.

Next: open_stores.py.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from pathlib import Path

from ..errors import FormatError
from ..shared.files_log import check_outside
from ..store.files import Files
from ..store.meta import load_meta, make_folder
from ..store.owner_lock import no_other_makes
from ..store.tables.header_check import DATA_FILE
from .replace_store import left_beside


def is_store(path: Path) -> bool:
    """Returns whether there is a store to open, which may fail all the same."""
    try:
        return (path / "host-0").is_dir()
    except (OSError, ValueError):
        return False


def nearest_store(path: Path) -> str | None:
    """Returns the name of a store next to the path with a similar name, if there is one."""
    try:
        beside = [other.name for other in path.parent.iterdir() if is_store(other)]
    except OSError:
        return None
    close = get_close_matches(path.name, beside, n=1)
    return os.fspath(path.parent / close[0]) if close else None


def check_may_be_made(path: Path, may: bool) -> None:
    """Raises FormatError where there is no store, and none may be made."""
    if (rest := left_beside(path)) is not None:
        raise FormatError(
            f"there is no store at {path}: a restore was killed before it finished, and {rest} is the store "
            "that it was to replace; restore again, or rename that one back"
        )
    if not may:
        close = nearest_store(path)
        hint = (
            f"did you mean {close!r}?"
            if close
            else "open it without read_only and create=False to make one"
        )
        raise FormatError(f"there is no store at {path}; {hint}")
    if path.exists() and any(p.name != "host-0" for p in path.iterdir()):
        raise FormatError(
            f"{path} is neither a store nor an empty folder: choose another one; a shared log lies outside of it"
        )
    check_outside(path)


@contextmanager
def alone_at_unfinished(path: Path, make: bool, files: Files) -> Iterator[None]:
    """Keeps others from making the same store, where there is none or only a part of one.

    Waits for a while for others that are making it; they wait for this one while it makes the store.
    """
    first = path / "host-0"
    meta = load_meta(first, Files())
    if meta is not None and all(
        (path / f"host-{number}" / "table" / DATA_FILE).exists() for number in range(meta.hosts)
    ):
        yield
        return
    if make and not path.exists() and left_beside(path) is None:
        make_folder(path, files)
        files.sync_folder(path.parent)
    with ExitStack() as alone:
        alone.enter_context(no_other_makes(path))
        if not make:
            alone.close()
        yield
