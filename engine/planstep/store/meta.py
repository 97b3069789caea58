"""What a store says of itself: format, mode, hosts. Written once, at creation.

Next: owned_folder.py.
"""

import stat
from pathlib import Path
from typing import NamedTuple

from google.protobuf.message import DecodeError

from ..errors import FormatError, IoError
from ..proto.records_pb2 import StoreMeta
from .files import Files, io_error
from .log.segments import segment_files

FORMAT = 1
_ready = [StoreMeta()]
"""Made beforehand: protobuf ends the process where there is no memory for a message."""


class Meta(NamedTuple):
    """As `StoreMeta` has it in the file."""

    format: int
    store_id: bytes
    mode: str
    hosts: int
    host: int = 0
    first_id: bytes = b""


def _parsed(data: bytes) -> Meta:
    try:
        message = _ready.pop()
    except IndexError:  # another thread has it
        message = StoreMeta()
    try:
        message.ParseFromString(data)
        return Meta(*(getattr(message, name) for name in Meta._fields))
    finally:
        _ready.append(message)


def load_meta(folder: Path, files: Files) -> Meta | None:
    """What is stored; None where there is no store yet. FormatError for a newer one, or a damaged file,
    or where it is missing beside what a store holds. IoError, also where a folder is a link."""
    check_folders(folder, files)
    path = folder / "meta.pb"
    if files.size_of(path) < 0:
        holds = files.size_of(folder / "table" / "data.mdb") >= 0 or (
            files.size_of(folder) >= 0 and segment_files(folder, files)
        )
        # It is written before all others: where it is still not there, nobody is making the store just now.
        if files.size_of(path) < 0:
            if not holds:
                return None
            raise FormatError(
                f"{path} is missing, but {folder} holds a store's files: restore it from a backup"
            )
    fd = files.open(path, write=False)
    try:
        data = files.read(fd, 0, 1 << 16)
    finally:
        files.close(fd)
    try:
        meta = _parsed(data)
    except DecodeError as error:
        raise FormatError(f"{path} is damaged: {error}") from error
    if len(meta.store_id) != 16 or meta.format < 1:
        raise FormatError(f"{path} is damaged, or not a store's")
    if meta.format > FORMAT:
        raise FormatError(
            f"{folder} has format {meta.format}, this version reads up to {FORMAT}: use a newer one"
        )
    return meta


def check_folders(folder: Path, files: Files) -> None:
    """IoError for a link in place of a host's folder, or of one in it: a copy of the store's files would not have
    what is behind it, and where that is not there, the store would seem to be new."""
    for path in (folder, folder / "table", folder / "leases"):
        status = files.status_of(path)
        if status is not None and stat.S_ISLNK(status.st_mode):
            raise IoError(
                f"{path} is a link in place of a folder: a store's folders are its own; put the folder back, "
                "or restore the store from a backup"
            )


def check_belongs(folder: Path, meta: Meta, first_id: bytes) -> None:
    """FormatError for a host of another store: its steps are of another order."""
    if meta.first_id and first_id and meta.first_id != first_id:
        raise FormatError(
            f"{folder} is a host of another store than host-0 beside it: restore both from one backup"
        )


def make_folder(folder: Path, files: Files) -> None:
    """With all that lead to it. `save_meta` syncs what is in the folder and beside it; the names further up
    are durable on return: a store that nobody finds after a power loss holds nothing."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise io_error(error, folder) from error
    for made in missing[1:]:
        files.sync_folder(made.parent)


def save_meta(folder: Path, meta: Meta, files: Files) -> None:
    """Durable on return, whole or not there."""
    data = StoreMeta(**meta._asdict()).SerializeToString()
    new = folder / "meta.new"
    files.remove(new)
    files.allocate(new, len(data))
    fd = files.open(new, write=True)
    try:
        files.write(fd, [data], 0, True)
    finally:
        files.close(fd)
    files.rename(new, folder / "meta.pb")
    files.sync_folder(folder)
    files.sync_folder(folder.parent)
