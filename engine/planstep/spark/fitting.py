"""Checks that decoded values fit a declared type without a change, column by column.

    Arrow alone   19.99 as bigint ─▶ 19 · 1e300 as float ─▶ inf · true as double ─▶ 1.0 · "ab" as array ─▶ [a, b]
    `checking`    each of them is a ValueError; 19.0 as bigint is 19: nothing is lost

A check first collects the Python types in a column, so a column of plain numbers costs one pass in C. Arrow
itself refuses all other values that do not fit.

Next: values.py.
"""

import math
from collections.abc import Callable
from itertools import chain
from typing import Any

from ..api import optional_packages

pa = optional_packages.pyarrow()

Check = Callable[[list[Any]], None]
_FLOAT_MAX = 3.4028234663852886e38
_NONE = type(None)


def checking(kind: Any) -> Check | None:
    """Returns a check for values of Arrow type `kind`, which raises ValueError; None where Arrow itself refuses."""
    t = pa.types
    if t.is_integer(kind):
        return _whole
    if t.is_floating(kind):
        return _single if t.is_float32(kind) else _number
    if t.is_list(kind):
        return _list(checking(kind.value_type))
    if t.is_map(kind):
        return _map(checking(kind.item_type))
    if t.is_struct(kind):
        return _struct({field.name: check for field in kind if (check := checking(field.type))})
    return None


def inner_types(kind: Any) -> list[Any]:
    """Returns the types within a struct, a list or a map; none for any other type."""
    t = pa.types
    if t.is_struct(kind):
        return [field.type for field in kind]
    if t.is_list(kind):
        return [kind.value_type]
    return [kind.key_type, kind.item_type] if t.is_map(kind) else []


def _whole(values: list[Any]) -> None:
    if float in set(map(type, values)):
        for value in values:
            if type(value) is float and not value.is_integer():
                raise ValueError(f"{value!r} is no whole number")


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


def _map(each: Check | None) -> Check | None:
    if each is None:
        return None

    def check(values: list[Any]) -> None:
        maps = (value.values() for value in values if type(value) is dict)
        each(list(chain.from_iterable(maps)))

    return check


def _struct(fields: dict[str, Check]) -> Check | None:
    if not fields:
        return None

    def check(values: list[Any]) -> None:
        rows = [value for value in values if type(value) is dict]
        for name, each in fields.items():
            each([row.get(name) for row in rows])

    return check
