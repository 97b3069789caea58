"""Decodes stored values for Spark, by a format, to a type that was declared or inferred.

    bytes, utf8       as stored, without a copy where Arrow can use the batch's buffers
    json              ─ in columns, if nothing is in doubt ─▶ one Arrow array        json_columns.py
    json, msgpack     ─ decoded in one go ─▶ one Arrow array
                      ├ if that fails: by the digits of numbers                  decimals.py
                      └ if that fails: one by one, to name the first that does not fit, or to make it null

A declared type may leave fields out. An inferred one must hold all values: no field is dropped silently. Whole
numbers mixed with fractions become floats where that is exact; no other value is changed (fitting.py).

Next: rows.py.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from ..api import optional_packages
from ..api.columns import arrow
from ..api.columns.codecs import decode_value, decode_values
from ..api.transaction.routing import key_of
from ..errors import Corruption, NoCommonType
from . import decimals, json_columns
from .fitting import checking, has_not_null, infinite, lacking
from .kinds import lack

pa = optional_packages.pyarrow()

Convert = Callable[[Any], Any]

_WRONG = (
    *(TypeError, ValueError, OverflowError, pa.ArrowNotImplementedError, Corruption),
    RecursionError,  # text that is nested too deeply
)


class Misfit(Exception):
    """Raised when the value at `index` does not fit; the text says why."""

    def __init__(self, index: int, why: Exception) -> None:
        self.index = index
        super().__init__(str(why).partition("; ")[0])


class Decoder:
    """Decodes raw values to an array of `kind`."""

    def __init__(self, form: str, kind: Any, inferred: bool, permissive: bool) -> None:
        self.form, self.kind = form, kind
        self._inferred, self._permissive = inferred, permissive
        self._prepare = converting(kind, _pairs)
        self._check = checking(kind, inferred, form == "json" and not inferred)
        self._exactly = decimals.decoder(form, kind, inferred)
        self._ways: list[Callable[[list[Any]], list[Any]]] = [partial(decode_values, form)]
        if self._exactly and not inferred:
            by_digits = partial(_each, self._exactly)
            has_decimal = form == "json" and decimals.has_decimal(kind)
            self._ways = [by_digits] if has_decimal else [*self._ways, by_digits]
        self._has_not_null = has_not_null(kind)
        self._in_columns = form == "json" and json_columns.is_readable(kind)
        wanted = {"bytes": "binary", "utf8": "string"}.get(form)
        if wanted is not None and kind != pa.type_for_alias(wanted):
            raise TypeError(
                f"values of format {form} are {wanted}, not {kind}: declare them so, or say how they "
                'are to be read, with .option("format", "json") or "msgpack"'
            )
        lacked = None if wanted else lack(kind, form, reading=True)
        if lacked is not None:
            raise TypeError(f"values of format {form} have no {lacked[0]}: {lacked[1]}")

    def array(self, raw: list[bytes | None]) -> Any:
        """Decodes values. One that does not fit raises Misfit, or becomes null if permissive."""
        if self.form in ("bytes", "utf8"):
            return self._text(pa.array(raw, pa.binary()))
        if self._in_columns:
            array = json_columns.read(raw, self.kind, self._inferred)
            if array is not None:
                return array
        for decoded in self._ways:
            try:
                array = self._typed(decoded(raw))
            except _WRONG:
                continue
            # One by one, json tells 1e400, which is no double, from Infinity.
            return self._one_by_one(raw) if self.form == "json" and infinite(array) else array
        return self._one_by_one(raw)

    def _text(self, column: Any) -> Any:
        if self.form == "bytes":
            return column
        try:
            return column.cast(pa.string())  # checks that it is UTF-8
        except pa.ArrowInvalid:
            return self._one_by_one(column.to_pylist())

    def _typed(self, values: list[Any]) -> Any:
        array = self._converted(values)
        missing = lacking(array) if self._has_not_null else None
        if missing is not None:
            raise ValueError(f"{missing} is null or not there, and is declared NOT NULL")
        return array

    def _converted(self, values: list[Any]) -> Any:
        if self._check is not None:
            self._check(values)
        if self._prepare is not None:
            values = [self._prepare(value) for value in values]
        if not self._inferred:
            return pa.array(values, self.kind)
        array = arrow.typed(values, "values")
        if array.type == self.kind:
            return array
        if arrow.common_type("value", self.kind, array.type, "values") != self.kind:
            raise NoCommonType(f"it is {array.type}")
        return pa.array(values, self.kind)

    def _one_by_one(self, raw: list[bytes | None]) -> Any:
        values = []
        for index, data in enumerate(raw):
            value = None
            if data is not None:
                try:
                    value = decode_value(self.form, data)
                    if self._exactly:
                        value = self._exactly(data)
                    self._typed([value])
                except _WRONG as error:
                    if not self._permissive:
                        raise Misfit(index, error) from error
                    value = None
            values.append(value)
        if self._prepare is not None:
            values = [self._prepare(value) for value in values]
        return pa.array(values, self.kind)


def _each(decode: decimals.Decode, raw: list[bytes | None]) -> list[Any]:
    return [None if data is None else decode(data) for data in raw]


def decode_keys(raw: list[bytes], kind: Any) -> Any:
    """Decodes keys of rows to an array of `kind`, exactly: 1 fits neither text, a boolean nor a float."""
    if not raw:
        return pa.array([], kind)
    keys = list(map(key_of, raw))
    try:
        array = keys_array(keys)
        if array.type != kind:
            raise NoCommonType(f"it is {array.type}")
        return array.cast(kind)
    except _WRONG:
        for index, key in enumerate(keys):
            own = keys_array([key]).type
            if own != kind:
                raise Misfit(index, NoCommonType(f"it is {own}")) from None
        raise


def keys_array(keys: list[Any]) -> Any:
    """Converts keys of one kind to an array, tuples to structs. NoCommonType."""
    return arrow.rows_table("the table", keys, [None] * len(keys))["key"].combine_chunks()


def infer(form: str, raw: list[bytes], where: str) -> Any:
    """Infers the Arrow type that holds all these values. NoCommonType says what to do where there is none."""
    if form in ("bytes", "utf8"):
        return arrow.stored_type(form)
    try:
        return _settled(arrow.typed(decode_values(form, raw), where).type)
    except (NoCommonType, Corruption, RecursionError) as error:
        reason = str(error).partition("; ")[0]
        raise NoCommonType(
            f'{reason}; declare one, as in .schema("value struct<…>"), with '
            '.option("mode", "PERMISSIVE") for null where it does not fit, or read them as stored, with '
            f'.option("format", "{"utf8" if form == "json" else "bytes"}")'
        ) from error


def infer_keys(keys: list[Any], where: str) -> Any:
    try:
        return _settled(keys_array(keys).type)
    except NoCommonType as error:
        reason = str(error).partition("; ")[0].replace("the table", where)
        raise NoCommonType(f'{reason}; .option("keyPrefix", …) reads keys of one kind') from error


def _settled(kind: Any) -> Any:
    """Replaces null by text where only null was seen, as Spark's own json reader does."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            raise NoCommonType("an object without fields is all that was seen")
        return pa.struct([field.with_type(_settled(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    return kind


def _pairs(value: Any, inner: Convert) -> Any:
    """Turns the dict of a map into pairs; leaves any other value to Arrow, which refuses it."""
    if not isinstance(value, dict):
        return value
    return [(key, inner(item)) for key, item in value.items()]


def converting(kind: Any, convert: Callable[[Any, Convert], Any]) -> Convert | None:
    """Returns a function that applies `convert` to the maps within a value; None if `kind` has no map.

    `convert` gets a map as it is, and the function for its items.
    """
    if pa.types.is_map(kind):
        inner = converting(kind.item_type, convert) or _same
        return lambda value: convert(value, inner)
    if pa.types.is_list(kind):
        each = converting(kind.value_type, convert)
        if each is None:
            return None
        return lambda value: [each(item) for item in value] if isinstance(value, list) else value
    if pa.types.is_struct(kind):
        fields = {f.name: converting(f.type, convert) for f in kind}
        changed = {name: prepare for name, prepare in fields.items() if prepare is not None}
        if not changed:
            return None
        return lambda value: (
            value | {name: fit(value[name]) for name, fit in changed.items() if name in value}
            if isinstance(value, dict)
            else value
        )
    return None


def _same(value: Any) -> Any:
    return value
