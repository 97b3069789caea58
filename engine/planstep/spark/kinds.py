"""Says which of Spark's types a format has, before any task runs.

    Spark's types ─ to_arrow ─▶ Arrow's types      no variant, user-defined type, geometry, interval, char, varchar
                                └ lack(kind, form)  no times; no decimals to write; keys of maps as the format has

A format that lacks a type would give another value of it, or take one: 1700000000000 would be a day of 1970, and
the key 1 of a map would come back as text. Reading knows decimals: from whole numbers, and from json's text.

Next: fitting.py.
"""

from typing import Any

from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructType,
    UserDefinedType,
    VariantType,
)

from ..api import optional_packages
from .fitting import inner_types

pa = optional_packages.pyarrow()

_READING = {
    "variant": 'read text, with .option("format", "utf8"), and parse_json(value)',
    "binary": "declare string, and unbase64(…) where it is base64",
    "keys": "declare map<string, …>",
    "tuples": "declare keys that are no structs, arrays or maps",
    "names": "give each field a name of its own",
    "decimal": "declare double or string",
    "other": "declare string, a number, or a struct of these",
    "time": "declare what they have, bigint or string, and make a time of it in Spark, as in "
    "timestamp_millis(value.at) or timestamp(value.at)",
}
_WRITING = {
    "variant": "make text of it, as in to_json(v)",
    "binary": "cast it to string, as in base64(…)",
    "keys": "cast them to string, as in transform_keys(m, (k, v) -> string(k))",
    "tuples": "cast them to string, as in transform_keys(m, (k, v) -> to_json(k))",
    "names": "give each field a name of its own",
    "decimal": "cast it to string or to a number",
    "other": "cast it to string or to a number, or leave it out",
    "time": "cast it to string or to a number, as in unix_millis(at)",
}


def to_arrow(schema: StructType, where: str, reading: bool) -> Any:
    """Converts Spark's columns to Arrow's. TypeError names a type that Arrow, or any format, lacks."""
    hints = _READING if reading else _WRITING
    for field in schema.fields:
        kind = _foreign(field.dataType)
        if kind is not None:
            hint = hints["variant" if isinstance(kind, VariantType) else "other"]
            what = f"{kind.simpleString()}, which no format has"
            raise TypeError(f"{where}: column {field.name!r} has {what}; {hint}")
    return to_arrow_schema(schema, timezone="UTC")


def lack(kind: Any, form: str, reading: bool) -> tuple[str, str] | None:
    """Finds a type within an Arrow type that json or msgpack lacks: (its name, what to do), or None."""
    found = _lack(kind, form, reading)
    return None if found is None else (found[1], (_READING if reading else _WRITING)[found[0]])


def check_row_keys(kind: Any, where: str) -> None:
    """Checks that keys of rows can be of an Arrow type that was declared. TypeError."""
    t = pa.types
    if t.is_struct(kind):
        if [field.name for field in kind] != [str(i) for i in range(kind.num_fields)]:
            raise TypeError(f"{where}: keys that are tuples have the fields `0`, `1`, …")
        for field in kind:
            check_row_keys(field.type, where)
        return
    if kind not in (pa.string(), pa.binary(), pa.int64(), pa.float64(), pa.bool_(), pa.null()):
        raise TypeError(
            f"{where}: no key of a row is {kind}: declare string, bigint, double, boolean, binary, or a struct "
            "of these for tuples"
        )


def _foreign(kind: DataType) -> DataType | None:
    """Finds a type that Arrow lacks, or carries as another one, which would come back as that."""
    if isinstance(kind, UserDefinedType | VariantType) or kind.typeName() in _PLACES:
        return kind
    parts: list[DataType] = []
    if isinstance(kind, StructType):
        parts = [field.dataType for field in kind.fields]
    elif isinstance(kind, ArrayType):
        parts = [kind.elementType]
    elif isinstance(kind, MapType):
        parts = [kind.keyType, kind.valueType]
    else:
        try:
            to_arrow_type(kind, timezone="UTC")
        except PySparkTypeError:
            return kind
    return next((found for part in parts if (found := _foreign(part)) is not None), None)


_PLACES = ("geometry", "geography")  # types of Spark 4.1 and later


def _lack(kind: Any, form: str, reading: bool) -> tuple[str, str] | None:
    """Finds a type within `kind` that the format lacks: (which hint, its name)."""
    t = pa.types
    if t.is_temporal(kind):
        return "time", str(kind)
    if t.is_decimal(kind) and not reading:
        return "decimal", str(kind)
    if form == "json" and t.is_binary(kind):
        return "binary", str(kind)
    if t.is_map(kind):
        key = kind.key_type
        if t.is_nested(key):
            return "tuples", f"keys of maps that are {key}"
        if form == "json" and key != pa.string():
            return "keys", f"keys of maps that are {key}"
    if t.is_struct(kind):
        names = [field.name for field in kind]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            return "names", f"two fields {twice!r} in one object"
    found = (_lack(part, form, reading) for part in inner_types(kind))
    return next(filter(None, found), None)
