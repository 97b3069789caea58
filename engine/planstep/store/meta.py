"""What a store says of itself: format, mode, hosts. Written once, at creation.

Next: disk.py.
"""

from pathlib import Path

from ..errors import FormatError
from ..proto.records_pb2 import StoreMeta
from .files import Files

FORMAT = 1


def load_meta(folder: Path, files: Files) -> StoreMeta | None:
    """What is stored; None where there is no store yet. FormatError for a newer one, or a damaged file."""
    path = folder / "meta.pb"
    if not path.exists():
        return None
    fd = files.open(path, write=False)
    try:
        data = files.read(fd, 0, 1 << 16)
    finally:
        files.close(fd)
    meta = StoreMeta()
    try:
        meta.ParseFromString(data)
    except Exception as error:
        raise FormatError(f"{path} is damaged: {error}") from error
    if len(meta.store_id) != 16 or meta.format < 1:
        raise FormatError(f"{path} is damaged, or not a store's")
    if meta.format > FORMAT:
        raise FormatError(
            f"{folder} has format {meta.format}, this version reads up to {FORMAT}: use a newer one"
        )
    return meta


def save_meta(folder: Path, meta: StoreMeta, files: Files) -> None:
    """Durable on return, whole or not there."""
    data = meta.SerializeToString()
    new = folder / "meta.new"
    new.unlink(missing_ok=True)
    files.allocate(new, len(data))
    fd = files.open(new, write=True)
    try:
        files.write(fd, [data], 0, True)
    finally:
        files.close(fd)
    files.rename(new, folder / "meta.pb")
    files.sync_folder(folder)
    files.sync_folder(folder.parent)
