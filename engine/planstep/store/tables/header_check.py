"""Checks the tables' file before LMDB maps it, because a map beyond a file's end kills the process.

    two meta pages ─▶ the newer one's last page ─▶ is the file that long? ─ no ─▶ every page is checked

A page that was allocated and freed in one transaction need not be in the file. So a file that is too
short may still be whole; checking it page by page decides that, which takes a while.

Next: page_format.py.
"""

import os
from pathlib import Path
from struct import Struct
from typing import Any

from lmdb import verify as lmdb_verify

from ...errors import Corruption
from ..files import check_own, io_error, open_file, shown

# A page's head, then magic, version, address, map size; page size, …; last page, transaction. This is the layout of
# LMDB 0.9 on 64-bit machines; LMDB judges other files.
_META = Struct("=16xIIQQI92xQQ")
_PIECE_BYTES = 64 << 10
DATA_FILE = "data.mdb"
_verify: Any = lmdb_verify.verify  # its module has no types
MAGIC, VERSION = 0xBEEFC0DE, 1


def check_size(folder: Path) -> None:
    """Raises Corruption if the tables' file is shorter than its header says and pages are missing. IoError."""
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
        return  # LMDB reads these two before it maps anything, and refuses bad ones
    newest = max(first, second, key=lambda meta: meta[2])
    if size < (newest[1] + 1) * page:
        problems = page_problems(folder)
        if problems:
            raise Corruption(f"{shown(path)}: cut off, or damaged: {problems[0]}")


def _meta(data: bytes) -> tuple[int, int, int] | None:
    """Decodes a meta page: (page size, last page, transaction); None if it is not one."""
    if len(data) < _META.size:
        return None
    magic, version, _, _, page, last, transaction = _META.unpack(data)
    if magic != MAGIC or version & 0xFFFF != VERSION or not 256 <= page <= 1 << 16:
        return None
    return page, last, transaction


def is_full(folder: Path) -> bool:
    """Returns whether the disk has less room than LMDB writes in one piece."""
    try:
        free = os.statvfs(folder)
    except OSError:
        return False
    return free.f_bavail * free.f_frsize < _PIECE_BYTES


def page_problems(folder: Path) -> list[str]:
    """Lists the problems of the tables' pages without mapping them; no process may write meanwhile. IoError."""
    try:
        check_own(os.lstat(folder / DATA_FILE))
        found: list[str] = _verify(str(folder))
    except FileNotFoundError:
        return []  # opening the tables reports that
    except OSError as error:
        raise io_error(error, folder / DATA_FILE) from error
    except (lmdb_verify.VerifyError, ArithmeticError, LookupError, ValueError) as error:
        return [str(error)]
    return found
