"""Owns one host's folder for a DiskStore: creates it if needed, locks it, and checks its meta.pb.

    not a link ─▶ lock (owner_lock.py) ─▶ the folder by its descriptor ─▶ meta.pb: read, or written ─▶ as asked?

Next: disk_store.py.
"""

import os
from pathlib import Path

from ..errors import FormatError, StoreClosed, WrongMode
from .files import Files
from .meta import (
    FORMAT,
    REPLICATED,
    Meta,
    check_belongs,
    check_folders,
    check_shared,
    load_meta,
    make_folder,
    save_meta,
)
from .owner_lock import OwnerLock


class OwnedFolder:
    """A locked folder, from `take` to `release`. Invariant: `lock` is that of the folder that `files` has at
    `path`.
    """

    def __init__(self, path: Path, meta: Meta, lock: OwnerLock, files: Files) -> None:
        self.path = path
        self.meta = meta
        self.lock = lock
        self.files = files

    @classmethod
    def take(
        cls,
        path: Path,
        files: Files,
        *,
        create: bool,
        mode: str | None,
        hosts: int | None,
        host: int,
        first_id: bytes,
        shared_id: bytes,
        wait: float,
        share: bool = False,
    ) -> "OwnedFolder":
        """Locks the folder, reads or writes its meta; parameters as in DiskStore.open. StoreInUse, WrongMode,
        FormatError, NotSupported, Diverged, IoError.
        """
        check_folders(path, files)
        if not (path / "meta.pb").exists():
            if not create:
                raise FormatError(f"{path} is not a store; create one with create=True")
            make_folder(path, files)
        lock = OwnerLock(path / "lock", wait, share=share)
        try:
            files.hold(path, lock.folder)
            meta = load_meta(path, files)
            if meta is None:
                if not create:
                    raise FormatError(f"{path} is not a store any more")
                meta = Meta(
                    format=REPLICATED if shared_id else FORMAT,
                    store_id=shared_id or os.urandom(16),
                    mode=mode or "deterministic",
                    hosts=hosts or 1,
                    host=host,
                    first_id=first_id,
                    folder_id=os.urandom(16) if shared_id else b"",
                )
                files.make_folder(path / "table")
                save_meta(path, meta, files)
            files.make_folder(path / "table")  # may be removed: the log may hold everything
            for name, asked in (("mode", mode), ("hosts", hosts), ("host", host)):
                if asked not in (None, getattr(meta, name)):
                    raise WrongMode(name, getattr(meta, name), asked)
            check_belongs(path, meta, first_id)
            check_shared(path, meta, shared_id)
            return cls(path, _upgraded(path, meta, files), lock, files)
        except BaseException:
            _release(path, lock, files)
            raise

    @classmethod
    def keep(cls, path: Path, files: Files, lock: OwnerLock, store_id: bytes) -> "OwnedFolder":
        """Takes a folder whose lock this process has, if that store is there. The lock is released with it, also
        after an error: StoreClosed for another store, FormatError, IoError.
        """
        try:
            files.hold(path, lock.folder)
            meta = load_meta(path, files)
            if meta is None or meta.store_id != store_id:
                raise StoreClosed(f"{path}: another store is there by now, or none: open it again")
            return cls(path, _upgraded(path, meta, files), lock, files)
        except BaseException:
            _release(path, lock, files)
            raise

    def release(self) -> None:
        _release(self.path, self.lock, self.files)


def _upgraded(path: Path, meta: Meta, files: Files) -> Meta:
    if meta.format < FORMAT:
        meta = meta._replace(format=FORMAT)
        save_meta(path, meta, files)
    return meta


def _release(path: Path, lock: OwnerLock, files: Files) -> None:
    try:
        files.release(path)
    finally:
        lock.close()
