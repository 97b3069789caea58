"""Topics and tables by name: create, list, find, drop.

    Naming ◀── Engine                names ─▶ Topic, Table          what is stored ─▶ runtime/schema.py

Next: topics/topic.py, tables/table.py.
"""

from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

from ..errors import AlreadyExists, UnknownName
from ..proto.keys import check_name
from .arguments import shown
from .columns.batch import counted, html_table
from .columns.codecs import Format, check_format
from .guards import Opened
from .limits import PARTITIONS_MAX
from .tables.table import Table
from .topics.topic import Topic, retention_options

if TYPE_CHECKING:
    from ..runtime.catalog import TableInfo, TopicInfo
    from .engine import Engine


class Naming(Opened):
    """What the engine knows of names."""

    @property
    def _engine(self) -> "Engine":
        return cast("Engine", self)

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        format: Format | None = None,
        exist_ok: bool = False,
        retention: timedelta | float | None = None,
        retention_bytes: int | None = None,
    ) -> Topic:
        """Creates a topic of `partitions` logs (1 if not given), for ever.

        format           what a value is: "bytes" (if not given), "utf8", "json", "msgpack"
        exist_ok         accept a topic of that name; AlreadyExists still if it has another number
                         of partitions or another format than given here; its retention stays
        retention        records older than this go: a timedelta, or seconds; None: they stay
        retention_bytes  a partition's oldest batches go while it holds more than this; None: they stay

        Trimming happens in the background, about once a second, in whole batches.
        """
        self._writable()
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
        return Topic(self._engine, name)

    def create_table(
        self,
        name: str,
        shards: int | None = None,
        format: Format | None = None,
        exist_ok: bool = False,
    ) -> Table:
        """Creates a table of `shards` key spaces (4 if not given), for ever.

        format    what a value is: "msgpack" (if not given), "json", "utf8", "bytes"
        exist_ok  as in create_topic
        """
        self._writable()
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
        return Table(self._engine, name)

    def drop_topic(self, name: str, missing_ok: bool = False) -> None:
        """Ends a topic with all its records and positions.

        A transaction on it that gets its place later is Dropped, without effect. Its space comes
        back in the background, once no snapshot is older than the drop. The name is free at once.
        """
        self._writable()
        info = self._runtime.names.topics.get(name) if isinstance(name, str) else None
        if info is None:
            if missing_ok:
                return
            raise _unknown("topic", name, list(self._runtime.names.topics))
        self._runtime.schema.drop(info)

    def drop_table(self, name: str, missing_ok: bool = False) -> None:
        """Ends a table with all its rows; as drop_topic."""
        self._writable()
        info = self._runtime.names.tables.get(name) if isinstance(name, str) else None
        if info is None:
            if missing_ok:
                return
            raise _unknown("table", name, list(self._runtime.names.tables))
        self._runtime.schema.drop(info)

    def topics(self) -> dict[str, Topic]:
        """All topics by name, in order of name."""
        self._check()
        return {name: Topic(self._engine, name) for name in sorted(self._runtime.names.topics)}

    def tables(self) -> dict[str, Table]:
        """All tables by name, in order of name."""
        self._check()
        return {name: Table(self._engine, name) for name in sorted(self._runtime.names.tables)}

    def topic(self, name: str) -> Topic:
        """The topic of that name; UnknownName suggests the nearest."""
        self._check()
        self._topic(name)
        return Topic(self._engine, name)

    def table(self, name: str) -> Table:
        """The table of that name; UnknownName suggests the nearest."""
        self._check()
        self._table(name)
        return Table(self._engine, name)

    def _repr_html_(self) -> str:
        if self.closed:
            return html_table(f"store {self.path!r}, closed", (), [], 0)
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
        return html_table(f"store {self.path!r}", columns, rows[:100], len(rows), plain=True)

    def _topic(self, name: str) -> "TopicInfo":
        topics = self._runtime.names.topics
        found = topics.get(name) if isinstance(name, str) else None
        if found is None:
            raise _unknown("topic", name, list(topics))
        return found

    def _table(self, name: str) -> "TableInfo":
        self._runtime.schema.check_tables()
        tables = self._runtime.names.tables
        found = tables.get(name) if isinstance(name, str) else None
        if found is None:
            raise _unknown("table", name, list(tables))
        return found


def _unknown(kind: str, name: Any, names: list[str]) -> UnknownName | TypeError:
    own = getattr(name, "name", None)
    if isinstance(own, str):
        return TypeError(f"a {kind} is meant by its name: pass {own!r}, not {shown(name)}")
    text = name if isinstance(name, str) else shown(name)
    nearest = get_close_matches(text, names, n=1)
    return UnknownName(kind, text, nearest[0] if nearest else None)


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
