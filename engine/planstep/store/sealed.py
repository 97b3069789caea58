"""Values in LMDB, each with the sum of what it is and of the key that it lies under.

    value (msgpack) · crc32 over key and value (4 bytes, little endian)

LMDB's engine 0.9 has no checksums of its own: a bit that flipped in a page would be read as if it had been written.
The key is in the sum, so that what lies under another's key is noticed as well. What no sum of single values can
show, an older page in place of the newer one, `planstep verify` finds by the tablets' digests.

Next: extents.py.
"""

from typing import Any
from zlib import crc32

import msgpack

from ..errors import Corruption
from .dump import describe_key

SEAL_BYTES = 4
FOREIGN = (TypeError, ValueError)
"""What reading bytes that nobody wrote raises, msgpack's own errors included."""


def seal(key: bytes, value: Any) -> bytes:
    data: bytes = msgpack.packb(value, use_bin_type=True)
    return data + crc32(data, crc32(key)).to_bytes(SEAL_BYTES, "little")


def unseal(key: bytes, sealed: bytes) -> Any:
    """The value; Corruption names what is damaged."""
    data = sealed[:-SEAL_BYTES]
    if crc32(data, crc32(key)).to_bytes(SEAL_BYTES, "little") != sealed[-SEAL_BYTES:]:
        raise Corruption(f"the tables are damaged: {entry_text(key)} is not what was written")
    try:
        return msgpack.unpackb(data, use_list=False)
    except FOREIGN as error:
        raise Corruption(
            f"the tables are damaged: {entry_text(key)} is not readable: {error}"
        ) from error


def entry_text(key: bytes) -> str:
    return describe_key(key[1:]) if key[:1] == b"k" else f"entry {key.hex(' ')}"
