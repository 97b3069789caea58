"""Decodes JSON objects to Arrow columns without a Python object for each value; says None in any doubt.

    stored values ─ joined by newlines ─▶ Arrow's JSON reader, with a declared schema ─▶ struct array
                    └ None: values.py decodes one by one, finds the value that does not fit, and names it

The answer equals that of values.py, or is None. So text goes back that the two readers may take for different
values: whole numbers beyond 2^53 and -0 as double, records that are not one object on one line, text that is no
UTF-8, and very deep nesting. Types that Arrow's reader would convert (decimal, float, binary, map) go back too.

Next: values.py.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

from ..api import optional_packages
from .fitting import inner_types

pa = optional_packages.pyarrow()
pc = pa.compute
reader = import_module("pyarrow.json")  # after `pa`, whose absence has an error of its own

_EXACT = float(2**53)
"""From here on a double does not hold every whole number."""
_MINUS_ZERO = -(2**63)
_FEW = 16
"""So few values are decoded faster one by one."""
_NESTED = 500
"""Objects and lists within one another; Python's own reader takes less than 1000."""


def is_readable(kind: Any) -> bool:
    """Returns whether `read` knows the type: a struct of structs, lists, text, booleans, doubles, integers."""
    return bool(pa.types.is_struct(kind)) and _is_exact(kind)


def _is_exact(kind: Any) -> bool:
    t = pa.types
    if t.is_struct(kind):
        names = [field.name for field in kind]
        if not names or len(set(names)) < len(names):
            return False
        return all(field.nullable and _is_exact(field.type) for field in kind)
    if t.is_list(kind):
        return all(map(_is_exact, inner_types(kind)))
    return bool(
        t.is_string(kind) or t.is_boolean(kind) or t.is_float64(kind) or t.is_signed_integer(kind)
    )


def read(raw: Sequence[bytes | None], kind: Any, strict: bool) -> Any:
    """Decodes one JSON object each to an array of `kind`, or returns None. strict: refuses fields not in `kind`."""
    text = _lines(raw) if len(raw) >= _FEW else None
    if text is None:
        return None
    try:
        table = reader.read_json(
            pa.BufferReader(text),
            reader.ReadOptions(use_threads=False, block_size=len(text) + 1),
            reader.ParseOptions(
                explicit_schema=pa.schema(list(kind)),
                unexpected_field_behavior="error" if strict else "ignore",
            ),
        )
    except (pa.ArrowException, OverflowError):
        return None
    if table.num_rows != len(raw) or table.schema.types != [field.type for field in kind]:
        return None
    columns = [_whole(column) for column in table.columns]
    array = pa.StructArray.from_arrays(columns, fields=list(kind))
    return array if _is_same(array) else None


def _lines(raw: Sequence[bytes | None]) -> bytes | None:
    """Joins the values, if each is one object on one line: text that a neighbour completes must not pass."""
    try:
        text = b"\n".join(cast("Sequence[bytes]", raw))
    except TypeError:  # a record without a value
        return None
    between = len(raw) - 1
    if not text.startswith(b"{") or not text.endswith(b"}"):
        return None
    if text.count(b"\n") != between or text.count(b"}\n{") != between:
        return None
    if not _is_utf8(text) or _is_deep(raw):
        return None
    return text


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_deep(raw: Sequence[bytes | None]) -> bool:
    """Returns whether a value may nest deeper than Python's own reader takes."""
    long = [value for value in raw if value is not None and len(value) > 2 * _NESTED]
    return any(value.count(b"[") + value.count(b"{") > _NESTED for value in long)


def _whole(column: Any) -> Any:
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else column.combine_chunks()


def _is_same(array: Any) -> bool:
    """Checks that Python's reader would make the same of each value of a new array, and of what it holds."""
    kind, t = array.type, pa.types
    if t.is_struct(kind):
        return all(_is_same(array.field(i)) for i in range(kind.num_fields))
    if t.is_list(kind):
        return _is_same(array.values)
    if t.is_float64(kind):
        large = pc.any(pc.greater_equal(pc.abs(array), _EXACT)).as_py()
        minus = pc.any(pc.equal(array.view(pa.int64()), _MINUS_ZERO)).as_py()
        return not large and not minus
    if t.is_string(kind):
        try:
            array.validate(full=True)  # an escape may have made what is no UTF-8
        except pa.ArrowInvalid:
            return False
    return True
