"""Keeps the options of tables of Spark's catalog: CREATE TABLE t USING planstep OPTIONS (…).

    CREATE TABLE     Spark passes its own properties and `option.*` ─ created() ─▶ options ─▶ the columns' metadata
    SELECT, INSERT   Spark passes only WITH (…), and the columns ─ for_…() ─▶ those of both; WITH wins

Spark's catalog keeps the options, but passes them to no source written in Python (Spark 4.3); it does pass the
columns with their metadata. Three gaps remain, each refused with a hint: columns declared in CREATE TABLE have no
metadata, nor have those of CREATE TABLE … AS SELECT, nor those of an INSERT whose columns are exactly those of the
table, for which Spark plans no projection.

Next: picture.py.
"""

from collections.abc import Mapping
from urllib.parse import unquote

from pyspark.sql.types import StructType

METADATA = "planstep"
FILLED = ("offset", "timestamp", "place")
"""Columns that the store gives; an INSERT that does not name them has null in them."""
_OPTION = "option."
_HINT = (
    "Spark passes no options of a catalog's table whose columns were declared, or are exactly those of an "
    "INSERT, nor of CREATE TABLE … AS SELECT: CREATE TABLE first, and name the store in the query, as in t WITH "
    "(path 'shop.planstep', topic 'clicks'), or CREATE TEMPORARY VIEW … USING planstep, which has no such gap"
)


def created(texts: Mapping[str, str]) -> dict[str, str] | None:
    """Finds the options in the properties of a CREATE TABLE; returns None for those of a load."""
    properties = {name.lower(): text for name, text in texts.items()}
    if not {"provider", "owner"} <= properties.keys():
        return None
    options = {
        name.removeprefix(_OPTION): text
        for name, text in properties.items()
        if name.startswith(_OPTION)
    }
    if "path" in properties:
        options["path"] = unquote(properties["path"])  # Spark makes a URI of it
    return options


def is_named(texts: Mapping[str, str]) -> bool:
    """Tells whether the options name a store: those of a catalog's table come with the columns."""
    return any(name.lower() == "path" for name in texts)


def for_reading(texts: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Returns the options of a query, and those of its table that they do not replace. ValueError."""
    return {name: text for name, text in _both(texts, schema).items() if name != "columns"}


def for_writing(texts: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Returns the options of an INSERT, and the table's store and name. ValueError."""
    given = {name.lower() for name in texts}
    kept = given | {"path", "topic", "table"}
    return {name: text for name, text in _both(texts, schema).items() if name in kept}


def _both(texts: Mapping[str, str], schema: StructType) -> dict[str, str]:
    for field in schema.fields:
        about = field.metadata.get(METADATA, {})
        if "options" in about:
            return {**about["options"], **{name.lower(): text for name, text in texts.items()}}
    raise ValueError(_HINT)
