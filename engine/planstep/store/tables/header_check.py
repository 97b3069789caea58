"""The tables' file looked at from outside, before LMDB maps it: a map beyond a file's end kills the process.

    two meta pages ─▶ the newer one's last page ─▶ is the file that long? ─ no ─▶ every page is looked at

A page that was allocated and freed in one transaction need not be in the file. So a file that is too
short is not yet damaged; that is then found out page by page, which takes a while.

Next: page_check.py.
"""

import os
from pathlib import Path
from struct import Struct
from typing import Any

from lmdb import verify as lmdb_verify

from ...errors import Corruption
from ..files import check_own, io_error, open_file, shown

# A page's head, then magic, version, address, map size; page size, …; last page, transaction. As LMDB 0.9
# has it on machines of 64 bits; other files are LMDB's to judge.
_META = Struct("=16xIIQQI92xQQ")
_PIECE_BYTES = 64 << 10
DATA_FILE = "data.mdb"
_verify: Any = lmdb_verify.verify  # its module has no types
MAGIC, VERSION = 0xBEEFC0DE, 1


def check_size(folder: Path) -> None:
    """Corruption when the tables' file is too short for what its own head says. IoError."""
    path = folder / DATA_FILE
    try:
        with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            first = _meta(file.read(_META.size))
            page = first[0] if first is not None else 0
            file.seek(page)
            second = _meta(file.read(_META.size)) if page else None
    except FileNotFoundError:
        return
    except OSError as error:
        raise io_error(error, path) from error
    if first is None or second is None:
        return  # LMDB reads these two before it maps anything, and refuses what they are
    newest = max(first, second, key=lambda meta: meta[2])
    if size < (newest[1] + 1) * page:
        problems = page_problems(folder)
        if problems:
            raise Corruption(f"{shown(path)}: cut off, or damaged: {problems[0]}")


def _meta(data: bytes) -> tuple[int, int, int] | None:
    """(page size, last page, transaction) of a meta page."""
    if len(data) < _META.size:
        return None
    magic, version, _, _, page, last, transaction = _META.unpack(data)
    if magic != MAGIC or version & 0xFFFF != VERSION or not 256 <= page <= 1 << 16:
        return None
    return page, last, transaction


def is_full(folder: Path) -> bool:
    """Whether the disk has no more than LMDB writes in one piece."""
    try:
        free = os.statvfs(folder)
    except OSError:
        return False
    return free.f_bavail * free.f_frsize < _PIECE_BYTES


def page_problems(folder: Path) -> list[str]:
    """Whatever is wrong with the tables' pages, without mapping them; nobody may write meanwhile. IoError."""
    try:
        check_own(os.lstat(folder / DATA_FILE))
        found: list[str] = _verify(str(folder))
    except FileNotFoundError:
        return []  # whoever opens the tables says so
    except OSError as error:
        raise io_error(error, folder / DATA_FILE) from error
    except (lmdb_verify.VerifyError, ArithmeticError, LookupError, ValueError) as error:
        return [str(error)]
    return found
