"""Encodes Python values to stored bytes and decodes them, by the `format=` of a topic or table.

    bytes     bytes, bytearray, memoryview            as they are; the default of topics
    utf8      str
    json      all that `json` can write               tuples come back as lists, keys as str
    msgpack   None, bool, int of 64 bits, float,      the default of tables; tuples come back as lists
              str, bytes, list, tuple, dict

A value is encoded when it is written and decoded when it is read, also by the transaction that wrote it. So a read
never returns the caller's own object. A value that does not fit raises TypeError, which names the topic or table
and the format that would take it.

Keys of topic records are bytes or str; str is stored as UTF-8. Topics of format bytes return keys as bytes, all
others as str (and take only str).

Next: ../transaction/routing.py.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgpack

from ...errors import Corruption
from ..arguments import brief

JSON_DEPTH_MAX = 511
"""The depth to which a json value may nest: decoding uses the reader's stack, which Python limits to 1000."""
_MSGPACK_DEPTH_MAX = 1024  # msgpack cannot decode more, though it encodes more
Format: TypeAlias = Literal["bytes", "utf8", "json", "msgpack"]
FORMATS: tuple[Format, ...] = get_args(Format)
_TEXT = frozenset((str,))
_RAW = frozenset((bytes,))
_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def check_format(name: str) -> Format:
    if name not in FORMATS:
        raise ValueError(f"unknown format {brief(name)}: choose one of {', '.join(FORMATS)}")
    return name


def _refusal(where: str, format_name: str, value: object) -> TypeError:
    kind = type(value).__name__
    if isinstance(value, (bytes, bytearray, memoryview)):
        fits = 'format="bytes" or format="msgpack"'
    elif isinstance(value, str):
        fits = 'format="utf8", or encode the value'
    else:
        fits = 'format="json" or format="msgpack"'
    return TypeError(
        f'{where} has format="{format_name}" and cannot hold {kind}; create it with {fits}'
    )


def _encode_bytes(value: object, where: str) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise _refusal(where, "bytes", value)


def _encode_utf8(value: object, where: str) -> bytes:
    if not isinstance(value, str):
        raise _refusal(where, "utf8", value)
    return encode_text(value, where)


def encode_text(text: str, where: str) -> bytes:
    """Encodes text as UTF-8. TypeError for lone surrogates, often undecodable bytes of the system."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise TypeError(
            f"{where} cannot hold text with lone surrogates: it has no UTF-8; write it as bytes"
        ) from None


def _encode_json(value: object, where: str) -> bytes:
    try:
        data = _dumps(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f'{where} has format="json": {error}{_advice(error)}') from error
    if data.count(b"[") + data.count(b"{") > JSON_DEPTH_MAX and _depth(value) > JSON_DEPTH_MAX:
        raise TypeError(
            f'{where} has format="json": the value nests more than {JSON_DEPTH_MAX} lists and dicts, which '
            "not every reader could decode"
        )
    return data


def _advice(error: Exception) -> str:
    """Advises what to do with a value of a type that the encoder does not know; "" for other errors."""
    if not (isinstance(error, TypeError) and "serializ" in str(error)):
        return ""
    return "; pass dates as .isoformat(), NumPy values as .item() or .tolist(), others as text"


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, (dict, list, tuple))]:
        depth += 1
        level = [
            item for held in level for item in (held.values() if isinstance(held, dict) else held)
        ]
    return depth


def _encode_msgpack(value: object, where: str) -> bytes:
    try:
        data: bytes = msgpack.packb(value)
        if len(data) > _MSGPACK_DEPTH_MAX and not isinstance(value, (str, bytes)):
            unpacker = msgpack.Unpacker(max_buffer_size=0)
            unpacker.feed(data)
            unpacker.skip()
    except msgpack.StackError:
        raise TypeError(
            f'{where} has format="msgpack": the value nests more than {_MSGPACK_DEPTH_MAX} lists and '
            "dicts, which msgpack could not decode"
        ) from None
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f'{where} has format="msgpack": {error}{_advice(error)}') from error
    return data


def _decode_msgpack(data: bytes) -> Any:
    try:
        return msgpack.unpackb(data, strict_map_key=False)
    except TypeError:  # a dict with a tuple as a key was written; a list cannot be a key
        return msgpack.unpackb(data, strict_map_key=False, use_list=False)


_ENCODE: dict[str, Callable[[object, str], bytes]] = {
    "bytes": _encode_bytes,
    "utf8": _encode_utf8,
    "json": _encode_json,
    "msgpack": _encode_msgpack,
}
_DECODE: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "utf8": bytes.decode,
    "json": json.loads,
    "msgpack": _decode_msgpack,
}


def encode_value(format_name: str, value: object, where: str) -> bytes:
    """Encodes one value to its stored bytes. TypeError names `where`, as in "topic 'clicks'"."""
    return _ENCODE[format_name](value, where)


def encode_values(format_name: str, values: Sequence[Any], where: str) -> Sequence[bytes]:
    """Encodes a column of values; a column of bytes for format bytes is returned as it is."""
    if format_name == "bytes" and set(map(type, values)) <= _RAW:
        return values
    if format_name == "utf8" and set(map(type, values)) <= _TEXT:
        try:
            return [value.encode() for value in values]
        except UnicodeEncodeError:
            pass  # raised below, with `where`
    encode = _ENCODE[format_name]
    return [encode(value, where) for value in values]


def decode_value(format_name: str, data: bytes) -> Any:
    """Decodes one stored value. Corruption for bytes that the format did not write."""
    try:
        return _DECODE[format_name](data)
    except (TypeError, ValueError, RecursionError) as error:
        raise Corruption(f"a stored value is no {format_name}: {error}") from error


def decode_values(format_name: str, column: list[bytes]) -> list[Any]:
    if format_name == "bytes":
        return column
    try:
        return list(map(_DECODE[format_name], column))
    except (TypeError, ValueError, RecursionError) as error:
        raise Corruption(f"a stored value is no {format_name}: {error}") from error


def encode_record_key(format_name: str, key: object, where: str) -> bytes | None:
    if key is None:
        return None
    if isinstance(key, str):
        return encode_text(key, f"a record's key in {where}")
    if format_name == "bytes" and isinstance(key, (bytes, bytearray, memoryview)):
        return bytes(key)
    kinds = "bytes, str or None" if format_name == "bytes" else "str or None"
    raise TypeError(
        f'{where} has format="{format_name}": keys of its records are {kinds}, '
        f"not {type(key).__name__}"
    )


def encode_record_keys(format_name: str, keys: Sequence[Any], where: str) -> Sequence[bytes | None]:
    """Encodes a column of record keys. TypeError names `where`."""
    kinds = set(map(type, keys))
    if kinds <= _TEXT:
        try:
            return [key.encode() for key in keys]
        except UnicodeEncodeError:
            pass  # raised below, with `where`
    if format_name == "bytes" and kinds <= {bytes, type(None)}:
        return keys
    return [encode_record_key(format_name, key, where) for key in keys]


def decode_record_keys(format_name: str, column: Sequence[bytes | None]) -> list[Any]:
    if format_name == "bytes":
        return list(column)
    return [None if key is None else key.decode() for key in column]
