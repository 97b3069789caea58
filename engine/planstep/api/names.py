"""Creates, lists, finds and drops topics and tables by name.

    Engine ──has──▶ Names            names ─▶ Topic, Table          stored names ─▶ runtime/schema.py

Next: topics/topic.py, tables/table.py.
"""

from datetime import timedelta
from typing import Any

from ..errors import AlreadyExists
from ..proto.keys import check_name
from .arguments import shown
from .columns.batch import counted, html_table
from .columns.codecs import Format, check_format
from .context import Context, unknown
from .limits import PARTITIONS_MAX
from .tables.table import Table
from .topics.description import retention_options
from .topics.topic import Topic


class Names:
    """Implements the calls of Engine that concern names."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._runtime = context.runtime

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        format: Format | None = None,
        exist_ok: bool = False,
        retention: timedelta | float | None = None,
        retention_bytes: int | None = None,
    ) -> Topic:
        """See Engine.create_topic."""
        self._context.check_writable()
        check_name(name)
        parts = _count("partitions", 1 if partitions is None else partitions)
        form = check_format("bytes" if format is None else format)
        options = retention_options((), retention, retention_bytes)
        found = self._runtime.names.topics.get(name)
        if found is None:
            try:
                found = self._runtime.schema.create_topic(name, parts, form, options)
            except AlreadyExists:
                found = self._runtime.names.topics.get(name)
                if not exist_ok or found is None:
                    raise
        elif not exist_ok:
            raise _taken("topic", name)
        _same("topic", name, "partitions", len(found.partitions), partitions)
        _same("topic", name, "format", found.format, format)
        return Topic(self._context, name)

    def create_table(
        self,
        name: str,
        shards: int | None = None,
        format: Format | None = None,
        exist_ok: bool = False,
    ) -> Table:
        """See Engine.create_table."""
        self._context.check_writable()
        self._runtime.schema.check_tables()
        check_name(name)
        parts = _count("shards", 4 if shards is None else shards)
        form = check_format("msgpack" if format is None else format)
        found = self._runtime.names.tables.get(name)
        if found is None:
            try:
                found = self._runtime.schema.create_table(name, parts, form)
            except AlreadyExists:
                found = self._runtime.names.tables.get(name)
                if not exist_ok or found is None:
                    raise
        elif not exist_ok:
            raise _taken("table", name)
        _same("table", name, "shards", len(found.shards), shards)
        _same("table", name, "format", found.format, format)
        return Table(self._context, name)

    def drop_topic(self, name: str, missing_ok: bool = False) -> None:
        """See Engine.drop_topic."""
        self._context.check_writable()
        info = self._runtime.names.topics.get(name) if isinstance(name, str) else None
        if info is None:
            if missing_ok:
                return
            raise unknown("topic", name, list(self._runtime.names.topics))
        self._runtime.schema.drop(info)

    def drop_table(self, name: str, missing_ok: bool = False) -> None:
        """See Engine.drop_table."""
        self._context.check_writable()
        info = self._runtime.names.tables.get(name) if isinstance(name, str) else None
        if info is None:
            if missing_ok:
                return
            raise unknown("table", name, list(self._runtime.names.tables))
        self._runtime.schema.drop(info)

    def topics(self) -> dict[str, Topic]:
        """See Engine.topics."""
        self._context.check()
        return {name: Topic(self._context, name) for name in sorted(self._runtime.names.topics)}

    def tables(self) -> dict[str, Table]:
        """See Engine.tables."""
        self._context.check()
        return {name: Table(self._context, name) for name in sorted(self._runtime.names.tables)}

    def topic(self, name: str) -> Topic:
        """See Engine.topic."""
        self._context.check()
        self._context.topic(name)
        return Topic(self._context, name)

    def table(self, name: str) -> Table:
        """See Engine.table."""
        self._context.check()
        self._context.table(name)
        return Table(self._context, name)

    def html(self) -> str:
        """Returns all topics and tables, as a table for a notebook."""
        if self._context.closed:
            return html_table(f"store {self._context.path!r}, closed", (), [], 0)
        rows: list[tuple[str, str, str, str]] = []
        for name, topic in self.topics().items():
            about = topic.describe()
            parts = (
                f"{counted(len(about.partitions), 'partition')}, {counted(about.records, 'record')}"
            )
            rows.append(("topic", name, about.format, parts))
        for name, table in self.tables().items():
            rows.append(("table", name, table.format, counted(table.describe().shards, "shard")))
        columns = ("", "name", "format", "")
        return html_table(
            f"store {self._context.path!r}", columns, rows[:100], len(rows), plain=True
        )


def _taken(kind: str, name: str) -> AlreadyExists:
    return AlreadyExists(f"{kind} {name!r} exists already; pass exist_ok=True to accept that")


def _same(kind: str, name: str, setting: str, stored: Any, asked: Any) -> None:
    if asked is not None and asked != stored:
        raise AlreadyExists(
            f"{kind} {name!r} exists with {setting}={stored!r}, not {shown(asked)}; leave {setting} out "
            "to take it as it is"
        )


def _count(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= PARTITIONS_MAX:
        raise ValueError(f"{what} is a number from 1 to {PARTITIONS_MAX:,}, not {shown(value)}")
    return value
