"""Encodes the root of a shared log: it says which store the log is of, and the first machine writes it, once.

    root   magic 4 | format 4 | store id 16 | length of the mode 4 | mode | crc32 of all before

Next: files_log.py.
"""

import re
from struct import Struct

from ..crc import crc32
from ..errors import Corruption, FormatError
from .shared_log import Root

FORMAT = 1
_HEAD = Struct("<4sI16sI")
_CRC = Struct("<I")
_MAGIC = b"PSR1"
_TEMPORARY = re.compile("check-[0-9a-f]{12}")


def encode_root(root: Root) -> bytes:
    assert len(root.store_id) == 16
    mode = root.mode.encode()
    data = _HEAD.pack(_MAGIC, root.format, root.store_id, len(mode)) + mode
    return data + _CRC.pack(crc32(data))


def is_root(data: bytes) -> bool:
    """Returns whether these bytes are meant to be a root; they may be damaged."""
    return data.startswith(_MAGIC)


def name_temporary(random: bytes) -> str:
    """Names a log that is made inside another one, to check its server, and removed soon."""
    return f"check-{random.hex()}"


def is_temporary(name: str) -> bool:
    return _TEMPORARY.fullmatch(name) is not None


def read_root(data: bytes, where: str) -> Root:
    """Decodes a root. Corruption, which names `where` it was; FormatError if a newer version wrote it."""
    if len(data) < _HEAD.size + _CRC.size or data[:4] != _MAGIC:
        raise Corruption(f"{where} is no root of a shared log")
    if crc32(data[: -_CRC.size]) != _CRC.unpack_from(data, len(data) - _CRC.size)[0]:
        raise Corruption(f"{where} is damaged")
    _, version, store_id, length = _HEAD.unpack_from(data)
    if version > FORMAT:
        raise FormatError(
            f"{where} has format {version}, this version reads up to {FORMAT}: use a newer one"
        )
    mode = data[_HEAD.size : -_CRC.size]
    if len(mode) != length:
        raise Corruption(f"{where} is damaged")
    return Root(store_id, mode.decode(), version)
