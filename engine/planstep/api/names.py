"""Creates, lists, finds and drops topics and tables by name.

    Engine ──has──▶ Names            names ─▶ Topic, Table          stored names ─▶ runtime/schema.py

Next: topics/topic.py, tables/table.py.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from ..errors import AlreadyExists, UnknownName
from ..proto.ids import PARTITION, SHARD
from ..proto.keys import check_name
from ..runtime.catalog import Name
from .arguments import brief
from .columns.batch import counted, html_table
from .columns.codecs import Format, check_format
from .context import Context, unknown
from .limits import CREATE_TRIES, PARTITIONS_MAX
from .tables.table import Table
from .topics.description import retention_options
from .topics.topic import Topic


class Names:
    """Implements the calls of Engine that concern names; each is described there."""

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
        self._context.check_writable()
        check_name(name)
        count = _count("partitions", 1 if partitions is None else partitions)
        form = check_format("bytes" if format is None else format)
        options = retention_options((), retention, retention_bytes)
        create = partial(self._runtime.schema.create_topic, name, count, form, options)
        info = self._created("topic", name, create, exist_ok)
        _same("topic", name, "partitions", len(info.partitions), partitions)
        _same("topic", name, "format", info.format, format)
        return Topic(self._context, name)

    def create_table(
        self,
        name: str,
        shards: int | None = None,
        format: Format | None = None,
        exist_ok: bool = False,
    ) -> Table:
        self._context.check_writable()
        self._runtime.schema.check_tables()
        check_name(name)
        count = _count("shards", 4 if shards is None else shards)
        form = check_format("msgpack" if format is None else format)
        create = partial(self._runtime.schema.create_table, name, count, form)
        info = self._created("table", name, create, exist_ok)
        _same("table", name, "shards", len(info.shards), shards)
        _same("table", name, "format", info.format, format)
        return Table(self._context, name)

    def drop_topic(self, name: str, missing_ok: bool = False) -> None:
        self._drop("topic", name, missing_ok)

    def drop_table(self, name: str, missing_ok: bool = False) -> None:
        self._drop("table", name, missing_ok)

    def _known(self, kind: str) -> Any:
        """Returns the topics or the tables as of now: another process may have made some."""
        self._context.look()
        names = self._runtime.names
        return names.topics if kind == "topic" else names.tables

    def _created(self, kind: str, name: str, create: Callable[[], Any], exist_ok: bool) -> Any:
        """Returns the topic or table of that name, which it creates unless it is there and `exist_ok`."""
        for left in reversed(range(CREATE_TRIES)):
            info = self._known(kind).get(name)
            if info is not None and exist_ok:
                return info
            if info is not None:
                raise AlreadyExists(
                    f"{kind} {name!r} exists already; pass exist_ok=True to accept that"
                )
            try:
                return create()
            except AlreadyExists:  # by another one, who may have dropped it by now
                if not (exist_ok and left):
                    raise
                # An owner hears of it with the answer to its creator, which may not have been sent.
                self._runtime.names.reload(Name(PARTITION if kind == "topic" else SHARD, name, 0))
        raise AssertionError("the last try has an end")

    def _drop(self, kind: str, name: str, missing_ok: bool) -> None:
        self._context.check_writable()
        known = self._known(kind)
        info = known.get(name) if isinstance(name, str) else None
        if info is None:
            if not missing_ok:
                raise unknown(kind, name, known)
            return
        try:
            self._runtime.schema.drop(info)
        except UnknownName:  # another one has dropped it meanwhile
            if not missing_ok:
                raise

    def topics(self) -> dict[str, Topic]:
        self._context.look()
        return {name: Topic(self._context, name) for name in sorted(self._runtime.names.topics)}

    def tables(self) -> dict[str, Table]:
        self._context.look()
        return {name: Table(self._context, name) for name in sorted(self._runtime.names.tables)}

    def topic(self, name: str) -> Topic:
        self._context.look()
        self._context.topic(name)
        return Topic(self._context, name)

    def table(self, name: str) -> Table:
        self._context.look()
        self._context.table(name)
        return Table(self._context, name)

    def html(self) -> str:
        """Returns all topics and tables, as a table for a notebook."""
        if self._context.closed:
            return html_table(f"store {self._context.path!r}, closed", (), [], 0)
        rows: list[tuple[str, str, str, str]] = []
        for name, topic in self.topics().items():
            about = topic.describe()
            size = counted(len(about.partitions), "partition")
            rows.append(
                ("topic", name, about.format, f"{size}, {counted(about.records, 'record')}")
            )
        for name, table in self.tables().items():
            rows.append(("table", name, table.format, counted(table.describe().shards, "shard")))
        title, columns = f"store {self._context.path!r}", ("", "name", "format", "")
        return html_table(title, columns, rows[:100], len(rows), plain=True)


def _same(kind: str, name: str, setting: str, stored: Any, wanted: Any) -> None:
    if wanted is not None and wanted != stored:
        raise AlreadyExists(
            f"{kind} {name!r} exists with {setting}={stored!r}, not {brief(wanted)}; leave {setting} out "
            "to take it as it is"
        )


def _count(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= PARTITIONS_MAX:
        raise ValueError(f"{what} is a number from 1 to {PARTITIONS_MAX:,}, not {brief(value)}")
    return value
