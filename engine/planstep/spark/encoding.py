"""Encodes a DataFrame's columns as the records of a topic or the rows of a table.

    topic   value [key headers partition]     or, without value: all other columns as one object
    table   key value                         or, without value: all other columns as one object

Columns of a wrong name or type are refused before any task runs; a value that does not fit fails its task.
Next: staging.py.
"""

from typing import Any

from pyspark.sql.types import StructType

from ..api import optional_packages
from ..api.columns.codecs import encode_record_keys, encode_values
from ..api.limits import RECORD_BYTES_MAX
from ..api.tables.bulk_load import as_key
from ..api.transaction.topic_writes import pack_headers
from ..errors import RecordTooLarge
from ..proto.keys import encode_key
from .kinds import lack, to_arrow
from .options import Kind
from .staging import SCHEMA
from .values import Convert, converting

pa = optional_packages.pyarrow()
pc = pa.compute

_BESIDE = {"topic": ("key", "headers", "partition"), "table": ("key",)}


class Columns:
    """Checks a DataFrame's schema, then encodes its batches. Pickled into the tasks.

    The columns `filled` are the store's to give, and must be null where there is a column value.
    """

    def __init__(
        self,
        kind: Kind,
        name: str,
        form: str,
        schema: StructType,
        filled: tuple[str, ...] = (),
    ) -> None:
        self.kind, self.form = kind, form
        self.where = f"{kind} {name!r}"
        types = {field.name: field.type for field in to_arrow(schema, self.where, False)}
        if len(types) < len(schema.fields):
            raise ValueError(f"{self.where}: two columns have the same name")
        self.beside = [column for column in _BESIDE[kind] if column in types]
        self.whole = "value" in types
        self.filled = [column for column in filled if self.whole and column in types]
        others = [column for column in types if column not in (*self.beside, *self.filled)]
        if self.whole and len(others) > 1:
            extra = next(column for column in others if column != "value")
            raise ValueError(
                f"{self.where}: column {extra!r} cannot be written together with a column value; leave it out, as "
                f"in .select({', '.join(repr(c) for c in (*self.beside, 'value'))})"
            )
        self.values = others
        number = types.get("value")
        self.numeric = number is not None and (
            pa.types.is_integer(number) or pa.types.is_floating(number)
        )
        self._check_values(types)
        if kind == "table":
            self._check_row_key(types.get("key"))
        else:
            self._check_beside(types)

    def _check_values(self, types: dict[str, Any]) -> None:
        form = self.form
        if not self.values:
            raise ValueError(f"{self.where}: there is no column value, and none to make one of")
        wanted = {"bytes": "binary", "utf8": "string"}.get(form)
        if wanted and not (self.whole and types["value"] == pa.type_for_alias(wanted)):
            raise TypeError(
                f'{self.where} has format="{form}": make a column value of type {wanted}, as in '
                f'.withColumn("value", to_json(struct("*")).cast("{wanted}"))'
            )
        for name in self.values:
            lacked = lack(types[name], form, reading=False)
            if lacked is not None:
                raise TypeError(
                    f"{self.where}: column {name!r} has {lacked[0]}, which {form} cannot represent; {lacked[1]}"
                )

    def _check_row_key(self, key: Any) -> None:
        if key is None:
            raise ValueError(f"{self.where}: name the column of keys key, with .withColumnRenamed")
        if lack(key, "msgpack", reading=False) is not None or pa.types.is_map(key):
            raise TypeError(f"{self.where}: no row has a key of {key}; cast it to string")

    def _check_beside(self, types: dict[str, Any]) -> None:
        """Checks a topic's other columns: key, partition, headers."""
        form, t = self.form, pa.types
        key = types.get("key")
        texts = (pa.string(), pa.binary()) if form == "bytes" else (pa.string(),)
        if key is not None and key not in texts and not t.is_null(key):
            kinds = "string or binary" if form == "bytes" else "string"
            raise TypeError(
                f"{self.where}: keys of its records are {kinds}, and column key is {key}"
            )
        if "partition" in types and not t.is_integer(types["partition"]):
            raise TypeError(f"{self.where}: column partition is an int")
        headers = types.get("headers")
        if headers is not None and not (
            t.is_map(headers)
            and headers.key_type == pa.string()
            and headers.item_type in (pa.string(), pa.binary())
        ):
            raise TypeError(f"{self.where}: column headers is map<string, binary>, not {headers}")

    def check_numbers(self) -> None:
        """Checks that the columns have numbers to add, by key. TypeError, ValueError."""
        if "key" not in self.beside:
            raise ValueError(f"{self.where}: add needs a column key, the numbers are added by key")
        if len(self.beside) > 1:
            raise ValueError(f"{self.where}: add takes the columns key and value only")
        if not (self.whole and self.numeric):
            raise TypeError(f"{self.where}: add needs a column value with numbers, as of count(*)")

    def encode(self, batch: Any) -> Any:
        """Encodes a record batch of Spark's as one of `SCHEMA`."""
        count = batch.num_rows
        for name in self.filled:
            if batch[name].null_count < count:
                raise ValueError(
                    f"{self.where}: leave out the column {name}, which the store gives"
                )
        columns = [self._keys(batch), self._limited(self._encoded(batch))]
        if "headers" in self.beside:
            maps = batch["headers"].to_pylist()
            packed = [pack_headers(None if m is None else dict(m), self.where) for m in maps]
            columns.append(pa.array(packed, pa.binary()))
        else:
            columns.append(pa.nulls(count, pa.binary()))
        if "partition" in self.beside:
            columns.append(self._partitions(batch["partition"]))
        else:
            columns.append(pa.nulls(count, pa.int32()))
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def _keys(self, batch: Any) -> Any:
        if self.kind == "table":
            keys = batch["key"].to_pylist()
            if None in keys:
                raise ValueError(f"{self.where}: a row has no key: column key is null")
            return pa.array([encode_key(as_key(key)) for key in keys], pa.binary())
        if "key" not in self.beside:
            return pa.nulls(batch.num_rows, pa.binary())
        column = batch["key"]
        if pa.types.is_binary(column.type):
            return column
        keys = encode_record_keys(self.form, column.to_pylist(), self.where)
        return pa.array(keys, pa.binary())

    def _partitions(self, column: Any) -> Any:
        try:
            return column.cast(pa.int32())
        except pa.ArrowInvalid as error:
            raise ValueError(f"{self.where}: mend the column partition: {error}") from error

    def _encoded(self, batch: Any) -> Any:
        if self.form in ("bytes", "utf8"):
            column = batch["value"]
            if column.null_count:
                raise TypeError(f"{self.where}: a record has no value: column value is null")
            return column.cast(pa.binary())  # Spark may give large_binary or large_string
        if self.whole:
            values = _plain(batch["value"])
        else:
            names, columns = self.values, [_plain(batch[name]) for name in self.values]
            values = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return pa.array(encode_values(self.form, values, self.where), pa.binary())

    def _limited(self, column: Any) -> Any:
        if (pc.max(pc.binary_length(column)).as_py() or 0) > RECORD_BYTES_MAX:
            raise RecordTooLarge(f"{self.where}: a value has more than {RECORD_BYTES_MAX:,} bytes")
        return column


def _plain(column: Any) -> list[Any]:
    """Returns a column's values, with dicts in place of the pairs of Arrow's maps."""
    values: list[Any] = column.to_pylist()
    convert = converting(column.type, _dict)
    return values if convert is None else list(map(convert, values))


def _dict(pairs: Any, inner: Convert) -> Any:
    return None if pairs is None else {key: inner(item) for key, item in pairs}
