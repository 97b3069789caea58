"""Encodes user keys as bytes that sort in the order of the keys, for rows, scans and routing in the API.

    None < bool < int < float < str < bytes < tuple, then by value

    tag 1  None          2  False       3  True
    4  int   length byte (0x80 + n for positive, 0x7f - n for negative), then n bytes, big endian
    5  float 8 bytes, sign flipped (negative: all bits flipped)
    6  str   content with 00 written as 00 ff, then 00 00
    7  bytes as str
    8  tuple elements, then 00

1, 1.0 and True are three keys. Text sorts by code point (UTF-8 keeps that order); NaN and surrogates are refused,
-0.0 becomes 0.0. No encoding is a prefix of another, so tuples nest. `partition_of` maps encoded keys to
partitions and shards; `check_name` has the rules for names.
"""

import re
import struct
import zlib
from typing import Any, TypeAlias

from ..errors import InvalidKey, InvalidName, KeyTooLong

Key: TypeAlias = "bool | int | float | str | bytes | tuple[Any, ...] | None"
KEY_BYTES_MAX = 480
_DEPTH_MAX = 32
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_NONE, _FALSE, _TRUE, _INT = b"\x01", b"\x02", b"\x03", b"\x04"
_FLOAT, _STR, _BYTES, _TUPLE = b"\x05", b"\x06", b"\x07", b"\x08"
_END = b"\x00"
_CONSTANTS = {_NONE: None, _FALSE: False, _TRUE: True}
_TEXT = re.compile(rb"([^\0]*(?:\0[^\0][^\0]*)*)\0\0")
"""Matches a text's content and terminator, behind its tag."""


def encode_key(key: Key) -> bytes:
    """Encodes a key in at most 480 bytes. Raises KeyTooLong, or InvalidKey for what is no key."""
    data = _encode(key, 0)
    if len(data) > KEY_BYTES_MAX:
        raise KeyTooLong(len(data), KEY_BYTES_MAX)
    return data


def _encode(key: Any, depth: int) -> bytes:
    kind = type(key)
    if kind is str:
        try:
            return bytes(_STR + key.encode().replace(b"\0", b"\0\xff") + b"\0\0")
        except UnicodeEncodeError:
            raise InvalidKey("a key's text must not hold lone surrogates") from None
    if kind is int:
        return _INT + _integer(key)
    if kind is bytes:
        return bytes(_BYTES + key.replace(b"\0", b"\0\xff") + b"\0\0")
    if kind is tuple:
        if depth >= _DEPTH_MAX:
            raise InvalidKey(f"a key nests at most {_DEPTH_MAX} tuples")
        return _TUPLE + b"".join([_encode(part, depth + 1) for part in key]) + _END
    if key is None:
        return _NONE
    if kind is bool:
        return _TRUE if key else _FALSE
    if kind is float:
        return _FLOAT + _float(key)
    raise InvalidKey(
        f"{kind.__name__} is no key; keys are None, bool, int, float, str, bytes and tuples of them"
    )


def _integer(value: int) -> bytes:
    length = (abs(value).bit_length() + 7) // 8
    if length > 120:
        raise KeyTooLong(length, KEY_BYTES_MAX)
    if value >= 0:
        return bytes([0x80 + length]) + value.to_bytes(length, "big")
    return bytes([0x7F - length]) + (value + (1 << 8 * length) - 1).to_bytes(length, "big")


def _float(value: float) -> bytes:
    if value != value:
        raise InvalidKey("NaN has no place in the order of keys")
    bits: int = struct.unpack(">Q", struct.pack(">d", value + 0.0))[0]
    bits ^= 0xFFFFFFFFFFFFFFFF if bits >> 63 else 1 << 63
    return bits.to_bytes(8, "big")


def decode_key(data: bytes) -> Any:
    """Decodes a key. Raises ValueError for bytes that no key encodes to."""
    try:
        key, end = _decode(data, 0, 0)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"not an encoded key: {error}") from None
    if end != len(data):
        raise ValueError("not an encoded key: bytes behind its end")
    return key


def _decode(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    tag = data[at : at + 1]
    at += 1
    if tag in (_STR, _BYTES):
        text = _TEXT.match(data, at)
        if text is None:
            raise ValueError("not an encoded key: text without end")
        raw = text[1].replace(b"\0\xff", b"\0")
        return (raw.decode() if tag == _STR else raw), text.end()
    if tag == _INT:
        length = data[at] - 0x80 if data[at] >= 0x80 else 0x7F - data[at]
        body = data[at + 1 : at + 1 + length]
        value = int.from_bytes(body, "big")
        if data[at] < 0x80:
            value -= (1 << 8 * length) - 1
        return value, at + 1 + length
    if tag == _TUPLE:
        if depth >= _DEPTH_MAX:
            raise ValueError(f"not an encoded key: more than {_DEPTH_MAX} tuples deep")
        parts = []
        while data[at] != 0:
            part, at = _decode(data, at, depth + 1)
            parts.append(part)
        return tuple(parts), at + 1
    if tag == _FLOAT:
        bits = int.from_bytes(data[at : at + 8], "big")
        bits ^= 1 << 63 if bits >> 63 else 0xFFFFFFFFFFFFFFFF
        return struct.unpack(">d", bits.to_bytes(8, "big"))[0], at + 8
    if tag in _CONSTANTS:
        return _CONSTANTS[tag], at
    raise ValueError(f"not an encoded key: tag {tag!r}")


def key_range(begin: Key = None, end: Key = None) -> tuple[bytes, bytes]:
    """Returns the bytes [first, last) of keys with begin <= key < end; None for an open side."""
    return (
        b"" if begin is None else encode_key(begin),
        b"\xff" if end is None else encode_key(end),
    )


def prefix_range(prefix: tuple[Any, ...]) -> tuple[bytes, bytes]:
    """Returns the bytes [first, last) of all tuples that start with the elements of `prefix`."""
    first = encode_key(prefix)[:-1]
    return first, first + b"\xff"


def partition_of(encoded: bytes, parts: int) -> int:
    """Returns a key's partition or shard, the same for ever: crc32 of its bytes modulo `parts`."""
    return zlib.crc32(encoded) % parts


def check_name(name: str) -> str:
    """Returns the name of a topic, table or consumer; raises InvalidName with the rules for names."""
    if not isinstance(name, str):  # the value is not shown: it may be very long
        raise InvalidName(
            f"a name is a text, not {type(name).__name__}: use 1 to 200 of a-z, A-Z, 0-9, dot, underscore "
            "and hyphen"
        )
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidName(
            f"{name!r} is no name: use 1 to 200 of a-z, A-Z, 0-9, dot, underscore and hyphen, "
            "and not '.' or '..'"
        )
    return name
