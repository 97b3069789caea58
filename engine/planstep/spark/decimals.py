"""Decodes numbers exactly: 19.99 as a decimal is 19.99, and 2^60 as a double is 2^60.

    19.99 in json ─ Decimal ─┬─ in a place of type decimal ─▶ as it is, if its digits fit
                             ├─ of whole numbers ───────────▶ the number if it is whole; else fitting.py refuses it
                             └─ anywhere else ──────────────▶ the nearest float; 1e400 is an error
    2^60, a whole number ───── in a place of floats ────────▶ the float that equals it, or an error

Python's json reader makes floats, so the digits are gone before Arrow sees them; Arrow refuses all whole numbers
beyond 2^53 as doubles. This way costs more, so it is for types with a decimal, and for what the plain way refuses.

Next: values.py.
"""

import json
import math
import struct
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any

from ..api import optional_packages
from ..api.columns.codecs import decode_value
from .fitting import inner_types

pa = optional_packages.pyarrow()

Decode = Callable[[bytes], Any]
_Convert = Callable[[Any], Any]
_LONGEST = 20
"""The digits of the largest whole number that a type has."""


def has_decimal(kind: Any) -> bool:
    return bool(pa.types.is_decimal(kind)) or any(map(has_decimal, inner_types(kind)))


def decoder(form: str, kind: Any, inferred: bool) -> Decode | None:
    """Returns a function that decodes one value for Arrow type `kind`; None where the plain way is exact.

    The function raises ValueError, OverflowError, RecursionError.
    """
    if form not in ("json", "msgpack") or (inferred and form == "msgpack"):
        return None
    if inferred:
        return lambda data: json.loads(data, parse_float=_finite)
    convert = _fitting(kind)
    if form == "msgpack":
        return lambda data: convert(decode_value(form, data))
    return lambda data: convert(json.loads(data, parse_float=_exact))


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text:.40} is too large for a double")
    return number


def _exact(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text:.40} has too large an exponent") from None


def _fitting(kind: Any) -> _Convert:
    """Returns a function that makes of the numbers in a value what `kind` has in their places."""
    t = pa.types
    if t.is_decimal(kind):
        return _decimal(kind)
    if t.is_integer(kind):
        return _whole
    if t.is_floating(kind):
        return _float(kind)
    if t.is_struct(kind):
        fields = {field.name: _fitting(field.type) for field in kind}
        return lambda value: (
            {name: convert(value.get(name)) for name, convert in fields.items()}
            if isinstance(value, dict)
            else value
        )
    if t.is_list(kind):
        each = _fitting(kind.value_type)
        return lambda value: [each(item) for item in value] if isinstance(value, list) else value
    if t.is_map(kind):
        name, item = _fitting(kind.key_type), _fitting(kind.item_type)
        return lambda value: (
            {name(key): item(one) for key, one in value.items()}
            if isinstance(value, dict)
            else value
        )
    return _nearest


def _decimal(kind: Any) -> _Convert:
    last = Decimal(1).scaleb(-kind.scale)
    context = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])

    def convert(value: Any) -> Any:
        if type(value) is not Decimal:
            return value
        try:  # Arrow itself crashes on 1e-99999999
            return value.quantize(last, context=context)
        except DecimalException:
            raise ValueError(f"{value!s:.40} does not fit {kind}") from None

    return convert


def _whole(value: Any) -> Any:
    if type(value) is not Decimal:
        return value
    if value.adjusted() >= _LONGEST:
        raise ValueError(f"{value!s:.40} is too large for a whole number")
    return int(value) if value == value.to_integral_value() else value


def _float(kind: Any) -> _Convert:
    single = pa.types.is_float32(kind)
    all_exact = 1 << (24 if single else 53)

    def convert(value: Any) -> Any:
        if type(value) is not int or abs(value) <= all_exact:
            return _nearest(value)
        number = float(value)
        if single:
            (number,) = struct.unpack("f", struct.pack("f", number))
        if number != value:
            raise ValueError(f"{value} is no whole number that a {kind} holds exactly")
        return number

    return convert


def _nearest(value: Any) -> Any:
    return _finite(str(value)) if type(value) is Decimal else value
