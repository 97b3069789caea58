"""Checks that decoded values fit a declared type without a change, column by column.

    Arrow alone   19.99 as bigint ─▶ 19 · 1e300 as float ─▶ inf · true as double ─▶ 1.0 · "ab" as array ─▶ [a, b]
    `checking`    each of them is a ValueError; 19.0 as bigint is 19: nothing is lost
    `infinite`    1e400 in json is inf for Python
    `lacking`     null where a type was declared NOT NULL, which Spark reads as 0

A check first collects the Python types in a column, so a column of plain numbers costs one pass in C. Arrow
itself refuses all other values that do not fit.

Next: values.py.
"""

import math
from collections.abc import Callable
from decimal import Decimal
from itertools import chain
from typing import Any

from ..api import optional_packages

pa = optional_packages.pyarrow()
pc = pa.compute

Check = Callable[[list[Any]], None]
_FLOAT_MAX = 3.4028234663852886e38
_NONE = type(None)


def checking(kind: Any, inferred: bool, by_digits: bool = False) -> Check | None:
    """Returns a check for values of Arrow type `kind`, which raises ValueError; None where Arrow itself refuses.

    An inferred binary holds text as well, where a topic has both. by_digits: a float is no whole number, because
    json's text may have had digits that the float has lost; decimals.py reads them.
    """
    t = pa.types
    if t.is_string(kind) or t.is_binary(kind):
        return None if inferred else _text if t.is_string(kind) else _bytes
    if t.is_integer(kind):
        return _integer if by_digits else _whole
    if t.is_floating(kind):
        return _single if t.is_float32(kind) else _number
    if t.is_list(kind):
        return _list(checking(kind.value_type, inferred, by_digits))
    if t.is_map(kind):
        return _map(
            checking(kind.key_type, inferred, by_digits),
            checking(kind.item_type, inferred, by_digits),
        )
    if t.is_struct(kind):
        checks = {field.name: checking(field.type, inferred, by_digits) for field in kind}
        return _struct({name: check for name, check in checks.items() if check is not None})
    return None


def infinite(array: Any) -> bool:
    """Tells whether an infinite number is in an array, or within its values."""
    if pa.types.is_floating(array.type):
        return bool(pc.any(pc.is_inf(array)).as_py())
    return any(map(infinite, _inner(array)))


def lacking(array: Any) -> str | None:
    """Names a field that is null within a value of an array, though its type has no null; None if there is none."""
    t, kind = pa.types, array.type
    for field, inner in zip(_fields(kind), _inner(array), strict=True):
        if not field.nullable and inner.null_count:
            empty = inner.is_null()
            if t.is_struct(kind):  # of a struct that is null itself, the fields are null as well
                empty = pc.and_(empty, array.is_valid())
            if pc.any(empty).as_py():
                return str(field.name)
        found = lacking(inner)
        if found is not None:
            return found
    return None


def has_not_null(kind: Any) -> bool:
    """Tells whether something within a type has no null; keys of maps never have, and are checked by Arrow."""
    return any(not field.nullable or has_not_null(field.type) for field in _fields(kind))


def _fields(kind: Any) -> list[Any]:
    t = pa.types
    if t.is_struct(kind):
        return list(kind)
    if t.is_list(kind):
        return [kind.value_field]
    return [kind.item_field] if t.is_map(kind) else []


def _inner(array: Any) -> list[Any]:
    """Returns the arrays within an array, in the order of `_fields`."""
    t, kind = pa.types, array.type
    if t.is_struct(kind):
        return [array.field(i) for i in range(kind.num_fields)]
    if t.is_list(kind):
        return [array.values]
    return [array.items] if t.is_map(kind) else []


def inner_types(kind: Any) -> list[Any]:
    """Returns the types within a struct, a list or a map; none for any other type."""
    t = pa.types
    if t.is_struct(kind):
        return [field.type for field in kind]
    if t.is_list(kind):
        return [kind.value_type]
    return [kind.key_type, kind.item_type] if t.is_map(kind) else []


def _text(values: list[Any]) -> None:
    if bytes in set(map(type, values)):
        raise ValueError("bytes are no text")


def _bytes(values: list[Any]) -> None:
    if str in set(map(type, values)):
        raise ValueError("text is no bytes")


def _whole(values: list[Any]) -> None:
    if float in set(map(type, values)):
        for value in values:
            if type(value) is float and not value.is_integer():
                raise ValueError(f"{value!r} is no whole number")


def _integer(values: list[Any]) -> None:
    if not {float, Decimal}.isdisjoint(map(type, values)):
        for value in values:
            if type(value) in (float, Decimal):
                raise ValueError(f"{value!s:.40} is no whole number")


def _number(values: list[Any]) -> None:
    if bool in set(map(type, values)):
        raise ValueError("true and false are no numbers")


def _single(values: list[Any]) -> None:
    _number(values)
    for value in values:
        if type(value) is float and abs(value) > _FLOAT_MAX and math.isfinite(value):
            raise ValueError(f"{value!r} is too large for a float")


def _list(each: Check | None) -> Check:
    def check(values: list[Any]) -> None:
        for other in set(map(type, values)) - {list, tuple, _NONE}:
            raise ValueError(f"a value of type {other.__name__} is no list")
        if each is not None:
            each(list(chain.from_iterable(filter(None, values))))

    return check


def _map(keys: Check | None, items: Check | None) -> Check:
    def check(values: list[Any]) -> None:
        maps = _objects(values)
        if keys is not None:
            keys(list(chain.from_iterable(maps)))
        if items is not None:
            items(list(chain.from_iterable(value.values() for value in maps)))

    return check


def _struct(fields: dict[str, Check]) -> Check:
    def check(values: list[Any]) -> None:
        rows = _objects(values)
        for name, each in fields.items():
            each([row.get(name) for row in rows])

    return check


def _objects(values: list[Any]) -> list[dict[Any, Any]]:
    for other in set(map(type, values)) - {dict, _NONE}:
        raise ValueError(f"a value of type {other.__name__} is no object")
    return list(filter(None, values))
