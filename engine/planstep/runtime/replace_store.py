"""Replaces a store by another under the same name; a kill at any moment leaves one of the two under it.

    exchange(made, to) ─▶ does nobody read the earlier one? ─▶ durable ─▶ the earlier one, now at `made`, may go
                     │                    └ or may it be read? ─▶ its mark says that it was replaced
                     └ the file system cannot ─▶ a note in `to` ─▶ to → to.replaced ─▶ made → to ─▶ to.replaced goes

Without an exchange there is a moment in which nothing has the name. A kill in that moment leaves the earlier
store next to it, with the note; opening the name then says so, instead of making an empty store.

Next: backup.py.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..errors import StoreInUse
from ..store.files import Files, typed_errors
from ..store.readers.reader_lease import readers
from ..store.readers.released_mark import say_replaced

NOTE = "replaced.txt"


def replace(copy: Path, to: Path, under_readers: bool = False) -> None:
    """Gives the folder `copy` the name `to`, durably. The earlier folder is gone, or at `copy`. Raises StoreInUse
    or IoError; then nothing has changed.

    `under_readers`: others may read the earlier folder, which stays at `copy` for them, unless the file system
    cannot exchange names.
    """
    files = Files()
    if not files.exchange(copy, to):
        refuse_readers(to, to)
        _replace_in_two(copy, to, files)
        return
    try:
        if not under_readers:
            refuse_readers(copy, to)
        files.sync_folder(to.parent)
        files.sync_folder(copy.parent)
    except BaseException:
        files.exchange(copy, to)
        raise
    for host in copy.glob("host-*"):
        say_replaced(host / "released")


def refuse_readers(folder: Path, name: Path) -> None:
    """Raises StoreInUse if processes read the store in `folder`, and names them: they open its files as needed."""
    pids = sorted({pid for host in folder.glob("host-*") for pid in readers(host)})
    if pids:
        raise StoreInUse(pids[0], None, readers=tuple(pids), path=os.fspath(name))


def left_beside(path: Path) -> Path | None:
    """Returns the earlier store of this name, left by a restore that was killed before it gave the name."""
    to = Path(os.path.realpath(path))
    return next((rest for rest in _rests(to) if (rest / "host-0").is_dir()), None)


def _rests(to: Path) -> Iterator[Path]:
    """Yields the names for a store that is being replaced, up to the first free one."""
    number = 1
    while True:
        rest = to.with_name(f"{to.name}.replaced" + (f"-{number}" if number > 1 else ""))
        yield rest
        if not os.path.lexists(rest):
            return
        number += 1


def _replace_in_two(copy: Path, to: Path, files: Files) -> None:
    for rest in _rests(to):
        if (rest / NOTE).exists():  # ours; other folders of that name are not touched
            _remove(rest)
            break
    before = rest
    note = to / NOTE
    with typed_errors(note):
        note.write_text(
            f"A backup was about to replace this store. If there is nothing at\n{to}\nany more, the restore "
            "was killed: rename this folder back to it, or restore again.\n"
        )
    try:
        files.rename(to, before)
    except BaseException:
        note.unlink(missing_ok=True)
        raise
    try:
        files.rename(copy, to)
    except BaseException:
        files.rename(before, to)
        note.unlink(missing_ok=True)
        raise
    files.sync_folder(to.parent)
    _remove(before)


def _remove(rest: Path) -> None:
    """Removes a replaced store, the note last: a half removed store is known by it. Targets of links stay."""
    for path in rest.iterdir():
        if path.name != NOTE:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    shutil.rmtree(rest)
