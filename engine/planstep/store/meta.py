"""Reads and writes a store's meta.pb: its format, mode, hosts and id, written once, at creation.

Next: owned_folder.py.
"""

import stat
from pathlib import Path
from typing import NamedTuple

from google.protobuf.message import DecodeError

from ..errors import Diverged, FormatError, IoError, NotSupported
from ..proto.records_pb2 import StoreMeta
from .files import Files, typed_errors
from .log.segments import segment_files

FORMAT = 2
"""Format 2 has pages in the tables (tables/pages.py), and digests over seals. An owner of an older store raises its
number, as older versions do not read what it will write."""
REPLICATED = 3
"""The format of a store that is replicated. Versions that would write to its folder alone refuse it."""
_ready = [StoreMeta()]
"""A message made in advance: protobuf ends the process if there is no memory for a new one."""


class Meta(NamedTuple):
    """The fields of `StoreMeta`, as in the file.

    A replicated store has one id, and each of its folders another. The folder that its log began with has that id
    as `first_id`, and the files' own one as `store_id`.
    """

    format: int
    store_id: bytes
    mode: str
    hosts: int
    host: int = 0
    first_id: bytes = b""
    folder_id: bytes = b""

    @property
    def replicated(self) -> bool:
        return self.format == REPLICATED

    @property
    def shared_id(self) -> bytes:
        """The id of the shared log, for a replicated store."""
        return self.first_id or self.store_id


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
    """Reads a store's meta; None if there is no store yet. FormatError if its format is newer, if the file is
    damaged, or if it is missing from a folder that holds a store's files. IoError, also for a link in place of a
    folder.
    """
    check_folders(folder, files)
    path = folder / "meta.pb"
    if files.size_of(path) < 0:
        holds = files.size_of(folder / "table" / "data.mdb") >= 0 or (
            files.size_of(folder) >= 0 and segment_files(folder, files)
        )
        # A new store's meta is written first: if it is still missing, no process is creating the store just now.
        if files.size_of(path) < 0:
            if not holds:
                return None
            raise FormatError(
                f"{path} is missing, but {folder} holds a store's files: restore it from a backup; if the store is "
                "replicated, begin with an empty folder"
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
    if meta.format > REPLICATED:
        raise FormatError(
            f"{folder} has format {meta.format}, this version reads up to {REPLICATED}: use a newer one"
        )
    return meta


def check_folders(folder: Path, files: Files) -> None:
    """IoError for a link in place of a host's folder or of a folder in it. A copy of the store's files would lack
    the link's target; without the target, the store would seem to be new.
    """
    for path in (folder, folder / "table", folder / "leases"):
        status = files.status_of(path)
        if status is not None and stat.S_ISLNK(status.st_mode):
            raise IoError(
                f"{path} is a link in place of a folder: a store's folders are its own; put the folder back, "
                "or restore the store from a backup"
            )


def check_belongs(folder: Path, meta: Meta, first_id: bytes) -> None:
    """FormatError if the host belongs to another store, whose steps have another order."""
    if meta.host and first_id and meta.first_id not in (b"", first_id):
        raise FormatError(
            f"{folder} is a host of another store than host-0 beside it: restore both from one backup"
        )


def check_shared(folder: Path, meta: Meta, shared_id: bytes) -> None:
    """Checks that a folder is replicated to the shared log of that id, b"" for none. NotSupported, Diverged."""
    if meta.replicated and not shared_id:
        raise NotSupported(
            f"{folder} is replicated, and alone it would leave its shared log behind: open it with replicate=URL, "
            "or read_only=True"
        )
    if not meta.replicated and shared_id:
        raise NotSupported(
            f"{folder} is of a store that is not replicated: `planstep replicate STORE URL` makes it so"
        )
    if shared_id not in (b"", meta.shared_id):
        raise Diverged(
            f"{folder} is of another store than the shared log, from turn 1 on: use the log of this store, or "
            "another folder"
        )


def make_folder(folder: Path, files: Files) -> None:
    """Creates the folder and its missing parents. The parents' names are durable on return: a store that cannot be
    found after a power loss holds nothing. `save_meta` syncs the folder itself and its own name.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    with typed_errors(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for made in missing[1:]:
        files.sync_folder(made.parent)


def save_meta(folder: Path, meta: Meta, files: Files) -> None:
    """Writes the meta atomically; it is durable on return."""
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
