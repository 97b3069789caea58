"""Implements Spark's data source: `spark.read.format("planstep")` and `df.write.format("planstep")`.

    load()    DataSource(options) ─ schema() ─▶ a picture of one step ─ pickled ─▶ reader() ─▶ tasks
    save()    DataSource(options) ─ writer() ─▶ tasks stage ─▶ commit() on the driver, once

Spark finds it through engine/pyspark_planstep.py, in processes of its own. Spark makes one object for each
load, pickles it, and asks it for one reader. So the object takes a picture (what a load reads, as of one step), and
all actions of the DataFrame see that step. It takes it at load. If the user gives a schema, it takes it when Spark
plans the first action.

Next: catalog.py.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..api.arguments import brief
from ..errors import NotSupported, PlanstepError
from . import catalog, tables
from .catalog import METADATA
from .options import (
    ReadOptions,
    is_write,
    read_options,
    stream_write_options,
    write_options,
)
from .picture import Picture, take
from .plain_errors import PLAIN, plainly
from .reading import Reader
from .rows import TOPIC_COLUMNS
from .sink import Writer
from .stream_look import looked
from .stream_options import is_stream, refuse_load, stream_options
from .stream_sink import StreamWriter
from .stream_source import RefusedStream, StreamReader
from .tables import TABLE_COLUMNS

_PLACE = StructType([StructField("step", LongType()), StructField("n", LongType())])
_TYPES: dict[str, DataType] = {
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "headers": MapType(StringType(), BinaryType()),
    "place": _PLACE,
}


class Source(DataSource):
    """The data source "planstep": topics and tables of a store. Options: options.py."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options.items())
        self._picture: Picture | None = None
        self._refused: Exception | None = None
        self._inferred = False

    @classmethod
    def name(cls) -> str:
        return "planstep"

    @plainly
    def schema(self) -> StructType:
        """Returns the columns that were asked for, with inferred types, and the step in their metadata."""
        made = catalog.created(self.options)
        texts = self.options if made is None else made
        stream = stream_options(texts) if is_stream(texts) else None
        options = read_options(texts) if stream is None else stream.read
        known = _known(options)
        columns = options.columns or known
        for column in columns:
            if column not in known:
                raise ValueError(
                    f"a {options.kind} has no column {column!r}: choose of {', '.join(known)}"
                )
        keys = ("key",) if options.kind == "table" else ()
        infer = tuple(column for column in (*keys, "value") if column in columns)
        if stream is None:
            picture = self._picture = take(options, infer)
        else:
            with looked(stream) as look:
                picture = look.picture("value" in infer)
        self._inferred = True
        about: dict[str, Any] = {options.kind: options.name, "path": options.path}
        if made is not None:  # each query of a catalog's table has a step of its own
            about["options"] = {**made, "path": options.path}
            tables.release(picture.file)
        elif picture.step is not None:
            about["asOfStep"] = picture.step
            if picture.file and options.snapshot is None:
                about["copy"] = picture.file
        types = ((column, _type(column, picture)) for column in columns)
        return StructType([StructField(*pair, metadata={METADATA: about}) for pair in types])

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        if is_stream(self.options):
            refuse_load(self.options)
        if not catalog.is_named(self.options):
            options = read_options(catalog.for_reading(self.options, schema))
            _check_kept(schema, options)
            return Reader(take(options, ()), schema, inferred=True)
        picture = self._taken()
        if not self._inferred:
            _check(schema, picture.options)
        return Reader(picture, schema, self._inferred)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise NotSupported(
                'use .mode("append"): topics only grow, and rows of a table are put over those of their keys'
            )
        if catalog.is_named(self.options):
            return Writer(write_options(self.options), schema)
        options = write_options(catalog.for_writing(self.options, schema))
        return Writer(options, schema, catalog.FILLED)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        named = catalog.is_named(self.options)
        try:
            texts = self.options if named else catalog.for_reading(self.options, schema)
            options = stream_options(texts)
            if not named:
                _check_kept(schema, options.read)
            elif not self._inferred:
                _check(schema, options.read)
        except (PlanstepError, ValueError) as error:
            return RefusedStream(error)
        return StreamReader(options, schema, self._inferred or not named)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise NotSupported(
                "output mode complete would replace what is there: use mode append; or foreachBatch, with mode "
                "update, and put rows over those of their keys"
            )
        if catalog.is_named(self.options):
            return StreamWriter(stream_write_options(self.options), schema)
        options = stream_write_options(catalog.for_writing(self.options, schema))
        return StreamWriter(options, schema, catalog.FILLED)

    def _taken(self) -> Picture:
        if self._refused is not None:
            raise self._refused
        if self._picture is None:
            self._picture = take(read_options(self.options), ())
        return self._picture

    def __getstate__(self) -> dict[str, Any]:
        """Takes the picture before pickling: with a schema of the user's, Spark does not call `schema`.

        `reader` raises what is wrong: Spark turns errors of pickling into its own, and whether this is a load, a
        stream or a write is known only then.
        """
        if catalog.is_named(self.options) and not (
            is_write(self.options) or is_stream(self.options)
        ):
            try:
                self._taken()
            except PLAIN as error:
                self._refused = error.with_traceback(None)
        return self.__dict__


def _known(options: ReadOptions) -> tuple[str, ...]:
    if options.pattern:
        return ("topic", *TOPIC_COLUMNS)
    return TOPIC_COLUMNS if options.kind == "topic" else TABLE_COLUMNS


def _type(column: str, picture: Picture) -> DataType:
    if column == "key" and picture.options.kind == "topic":
        return BinaryType() if picture.stored == "bytes" else StringType()
    if column in ("key", "value"):
        return from_arrow_type(picture.key_type if column == "key" else picture.value_type)
    return _TYPES[column]


def _check(schema: StructType, options: ReadOptions) -> None:
    """Checks a schema of the user's: known columns only, a value of any type, a topic's key as text or bytes."""
    if options.columns is not None:
        raise ValueError("leave the option columns out: the schema names the columns")
    known = _known(options)
    for field in schema.fields:
        name = field.name
        if name not in known:
            raise ValueError(
                f"a {options.kind} has no column {name!r}: a schema has some of "
                f'{", ".join(known)}; fields of values are declared as in "value struct<…>"'
            )
        if name in _TYPES and field.dataType != _TYPES[name]:
            raise ValueError(f"column {name} is {_TYPES[name].simpleString()}")
        if not field.nullable and name in ("value", "headers", "place"):
            raise ValueError(f"column {name} may be null: declare it without NOT NULL")
        if name == "key" and options.kind == "topic":
            if not field.nullable:
                raise ValueError("a record may have no key: declare the column without NOT NULL")
            if field.dataType not in (StringType(), BinaryType()):
                raise ValueError("the column key of a topic is string or binary")


def _check_kept(schema: StructType, options: ReadOptions) -> None:
    """Checks the columns that a catalog keeps of its table: ALTER TABLE changes them there, not in the store."""
    try:
        _check(schema, options)
    except ValueError as error:
        raise ValueError(
            f"the columns in the catalog are not those of the store: {error}. They are the store's, so "
            "ALTER TABLE does not apply: DROP TABLE, which leaves the store as it is, and CREATE TABLE anew"
        ) from None


def release(df: Any) -> None:
    """Removes the rows that the loads of a DataFrame's tables wrote: its actions are over. Loads of the same step
    share them, so the last one's release removes them. It may be called again; topics have nothing to remove.

    ValueError if no column tells of a load: give the DataFrame as it was loaded, without .schema(…). TypeError.
    """
    about = _about(df, "release")
    if not about:
        raise ValueError(
            "no column tells of a load: give the DataFrame as it was loaded, without .schema(…)"
        )
    for file in sorted({one["copy"] for one in about if "copy" in one}):
        tables.release(file)


def as_of_step(df: Any) -> int:
    """Returns the step that a DataFrame shows. TypeError; ValueError if joined ones differ, or none has a step."""
    steps = {one["asOfStep"] for one in _about(df, "as_of_step") if "asOfStep" in one}
    if len(steps) == 1:
        return int(steps.pop())
    if steps:
        raise ValueError(f"the columns are of several steps: {', '.join(map(str, sorted(steps)))}")
    raise ValueError(
        "no column tells of a step: ask the DataFrame as it was loaded, without .schema(…); mode kafka "
        "has no steps, and a table of Spark's catalog has a newer one at each query"
    )


def _about(df: Any, caller: str) -> list[dict[str, Any]]:
    """Returns what the columns of a DataFrame tell of their loads."""
    schema = getattr(df, "schema", None)
    if not isinstance(schema, StructType):
        raise TypeError(f"{caller} takes a DataFrame of Spark, not {brief(df)}")
    return [field.metadata[METADATA] for field in schema.fields if field.metadata.get(METADATA)]
