"""Decodes json exactly: 19.99 as a decimal is 19.99, and a number that no double holds is an error.

    19.99 ─ Decimal ─┬─ in a place of type decimal ─▶ as it is: Arrow refuses digits that do not fit
                     └─ anywhere else ──────────────▶ the float that Python's own reader gives

Python's reader makes floats, so the digits are gone before Arrow sees them. This way costs more, so only types
with a decimal take it. 1e400, which is inf for Python's reader, is an error here.

Next: values.py.
"""

import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from ..api import optional_packages
from .fitting import inner_types

pa = optional_packages.pyarrow()

Decode = Callable[[bytes], Any]
_Convert = Callable[[Any], Any]


def has_decimal(kind: Any) -> bool:
    return bool(pa.types.is_decimal(kind)) or any(map(has_decimal, inner_types(kind)))


def decoder(kind: Any) -> Decode:
    """Returns a function that decodes one value for Arrow type `kind`. ValueError, RecursionError."""
    if not has_decimal(kind):
        return lambda data: json.loads(data, parse_float=_finite)
    convert = _floats(kind)
    return lambda data: convert(json.loads(data, parse_float=_exact))


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text:.40} is too large for a double")
    return number


def _exact(text: str) -> Decimal:
    _finite(text)
    return Decimal(text)


def _floats(kind: Any) -> _Convert:
    """Returns a function that makes floats of the Decimals in a value, but where `kind` has decimals."""
    t = pa.types
    if t.is_decimal(kind):
        return _same
    if t.is_struct(kind):
        fields = {field.name: _floats(field.type) for field in kind}
        return lambda value: (
            {name: convert(value.get(name)) for name, convert in fields.items()}
            if isinstance(value, dict)
            else value
        )
    if t.is_list(kind):
        each = _floats(kind.value_type)
        return lambda value: [each(item) for item in value] if isinstance(value, list) else value
    if t.is_map(kind):
        item = _floats(kind.item_type)
        return lambda value: (
            {key: item(one) for key, one in value.items()} if isinstance(value, dict) else value
        )
    return lambda value: float(value) if isinstance(value, Decimal) else value


def _same(value: Any) -> Any:
    return value
