"""A store takes the name of another, so that a kill at any moment leaves one of the two under it.

    exchange(made, to) ─▶ nobody reads the earlier one? ─▶ durable ─▶ the earlier one, now at `made`, may go
                     └ the file system cannot ─▶ a note in `to` ─▶ to → to.replaced ─▶ made → to ─▶ to.replaced goes

Without an exchange there is a moment in which nothing has the name. Whoever is killed in it leaves the earlier
store beside it, with the note; opening the name then says so, in place of making an empty store.

Next: backup.py.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..errors import StoreInUse
from ..store.files import Files, io_error
from ..store.readers.reader_lease import readers

NOTE = "replaced.txt"


def replace(made: Path, to: Path) -> None:
    """The folder `made` has the name `to`, durably. What had it is gone, or at `made`. StoreInUse, IoError;
    then all is as it was."""
    files = Files()
    if not files.exchange(made, to):
        _replace_in_two(made, to, files)
        return
    try:
        refuse_readers(made, to)
        files.sync_folder(to.parent)
        files.sync_folder(made.parent)
    except BaseException:
        files.exchange(made, to)
        raise


def refuse_readers(folder: Path, name: Path) -> None:
    """StoreInUse names the processes that read the store in `folder`: its files are opened as they are needed."""
    found = sorted({pid for host in folder.glob("host-*") for pid in readers(host)})
    if found:
        raise StoreInUse(found[0], None, readers=tuple(found), path=os.fspath(name))


def left_beside(path: Path) -> Path | None:
    """The earlier store of this name, where a restore was killed before the new one had the name."""
    to = Path(os.path.realpath(path))
    return next((rest for rest in _rests(to) if (rest / "host-0").is_dir()), None)


def _rests(to: Path) -> Iterator[Path]:
    """Names for what is being replaced, up to the first that is free."""
    number = 1
    while True:
        rest = to.with_name(f"{to.name}.replaced" + (f"-{number}" if number > 1 else ""))
        yield rest
        if not os.path.lexists(rest):
            return
        number += 1


def _replace_in_two(made: Path, to: Path, files: Files) -> None:
    for rest in _rests(to):
        if (rest / NOTE).exists():  # ours; anything else of that name is not touched
            _remove(rest)
            break
    before = rest
    note = to / NOTE
    _write_note(note, to)
    try:
        files.rename(to, before)
    except BaseException:
        note.unlink(missing_ok=True)
        raise
    try:
        files.rename(made, to)
    except BaseException:
        files.rename(before, to)
        note.unlink(missing_ok=True)
        raise
    files.sync_folder(to.parent)
    _remove(before)


def _write_note(note: Path, to: Path) -> None:
    try:
        note.write_text(
            f"A backup was about to replace this store. If there is nothing at\n{to}\nany more, the restore "
            "was killed: rename this folder back to it, or restore again.\n"
        )
    except OSError as error:
        raise io_error(error, note) from error


def _remove(rest: Path) -> None:
    """The note last: what is half removed is known by it. What is behind a link stays."""
    for path in rest.iterdir():
        if path.name != NOTE:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    shutil.rmtree(rest)
