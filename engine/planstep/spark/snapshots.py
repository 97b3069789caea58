"""Takes a snapshot that several loads share: tables and topics as of one step.

    with pyspark_planstep.snapshot("shop.planstep", tables=["totals", "users"]) as snap:
        totals = spark.read.format("planstep").options(**snap.options).option("table", "totals").load()
        clicks = spark.read.format("planstep").options(**snap.options).option("topic", "clicks").load()

`snapshot` writes the tables' rows and the topics' bounds to a folder, then closes its view of the store. Records
below an end never change. If one is trimmed before a task reads it, the task fails.

    with pyspark_planstep.snapshot("shop.planstep", tables=["totals"], spark=spark): spark.sql(…)

Spark passes its settings to no source written in Python, nor tells it of the session. So the snapshot that loads
without a step take is named in a folder of this Spark's Java, which driver and planning processes both know.

Next: source.py.
"""

import json
import os
import shutil
import weakref
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import planstep

from ..api.engine import Engine
from ..closing import Closing
from ..errors import NotSupported, SnapshotTooOld
from ..runtime.catalog import TopicInfo
from . import owners, tables
from .options import ReadOptions, check_visible
from .private import PrivateFolder

_CONTENT = "content.json"
_DEFAULTS = "defaults.json"


class Snapshot(Closing):
    """A snapshot as of `step`; load with `.options(**snap.options)`. Closing it ends its tables."""

    def __init__(
        self,
        store: str | os.PathLike[str] | Engine,
        tables: Iterable[str],
        folder: str | None,
        spark: Any,
    ) -> None:
        where = os.path.abspath(store.path if isinstance(store, Engine) else store)
        names = [tables] if isinstance(tables, str) else list(tables)
        check_visible(where, "driver")
        owners.sweep()
        self._defaults = None if spark is None else _Defaults(spark)
        self._folder = PrivateFolder("planstep-snapshot-", folder)
        here = os.fspath(self._folder.path)
        # One that loses its last reference unclosed must not stay the default: its folder goes as well.
        self._end = weakref.finalize(self, _end, self._defaults, here, os.getpid())
        try:
            if isinstance(store, Engine):
                self.step = _write(store, names, self._folder.path)
            else:
                with planstep.open(where, create=False, read_only=True) as db:
                    self.step = _write(db, names, self._folder.path)
            self.options = {
                "path": where,
                "step": str(self.step),
                "snapshot": here,
            }
            if self._defaults is not None:
                self._defaults.add(self.options)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Removes the folder with the tables' rows; loads without a step are of the newest one again."""
        self._end()
        self._folder.close()

    def __repr__(self) -> str:
        return f"<Snapshot of {self.options['path']} as of step {self.step}>"


def snapshot(
    store: str | os.PathLike[str] | Engine,
    tables: Iterable[str] = (),
    folder: str | None = None,
    spark: Any = None,
) -> Snapshot:
    """Takes a snapshot of all topics, and of these tables, as of one step: `snap.step`; load with `snap.options`.

    `store`: its path; in the process that owns it, the engine.
    `folder`: the tables are written there, where the tasks must see them; None: the machine's folder for
    temporary files. They are removed at the end of the `with`, by `close()`, with the last reference to the
    snapshot, or when this process ends or is killed.
    `spark`: a SparkSession. Until the end all loads of this store without a step, and its tables in SQL, are of
    the snapshot, in all sessions of that Spark.
    UnknownName; NotSupported in modes kafka and pulsar, and for `spark` by Spark Connect.
    """
    return Snapshot(store, tables, folder, spark)


class _Defaults:
    """The snapshots that loads without a step take, of one Spark: the last one of a store counts."""

    def __init__(self, spark: Any) -> None:
        """NotSupported by Spark Connect."""
        try:
            java = spark.sparkContext._jvm  # noqa: SLF001 there is no public name
        except Exception as error:  # PySpark's own, of a class that differs between versions
            raise NotSupported(
                "Spark Connect does not tell its process: load with .options(**snap.options)"
            ) from error
        self._pid = int(java.java.lang.ProcessHandle.current().pid())
        self._folder = owners.folder_of(self._pid)

    def add(self, options: dict[str, str]) -> None:
        """IoError; OSError."""
        owners.make_private(self._folder)
        owners.register(self._folder, self._pid)
        self._write([*_defaults(self._folder), options])

    def remove(self, snapshot: str) -> None:
        kept = [one for one in _defaults(self._folder) if one["snapshot"] != snapshot]
        if kept:
            self._write(kept)
        else:
            shutil.rmtree(self._folder, ignore_errors=True)
            owners.forget(self._folder)

    def _write(self, defaults: list[dict[str, str]]) -> None:
        new = self._folder / f"{_DEFAULTS}.new"
        new.write_text(json.dumps(defaults))
        new.replace(self._folder / _DEFAULTS)


def _end(defaults: _Defaults | None, snapshot: str, pid: int) -> None:
    if defaults is not None and os.getpid() == pid:  # not at the end of a forked child
        defaults.remove(snapshot)


def _defaults(folder: Path) -> list[dict[str, str]]:
    try:
        if owners.is_private(folder):
            found: list[dict[str, str]] = json.loads((folder / _DEFAULTS).read_text())
            return found
    except OSError:
        pass
    return []


def with_default(options: ReadOptions) -> ReadOptions:
    """Returns the options, with the snapshot that loads without a step take now, if there is one."""
    if options.step is not None or options.snapshot is not None:
        return options
    for default in reversed(_defaults(owners.folder_of())):
        if default["path"] == options.path:
            return replace(options, step=int(default["step"]), snapshot=default["snapshot"])
    return options


def _write(db: Engine, names: list[str], folder: Path) -> int:
    with db.snapshot() as view:
        store: bytes = db.context.runtime.nodes[0].host.store.store_id
        written: dict[str, Any] = {}
        for name in names:
            table = db.context.table(name)
            file = folder / f"{table.id}.arrow"
            tables.write_rows(view, table, tables.WHOLE, file)
            written[name] = [table.id, table.format, file.name]
        topics = {
            name: [info.id, info.format, info.partitions, list(view.bounds(name).values())]
            for name, info in list(db.context.runtime.names.topics.items())
        }
        content = {"store": store.hex(), "step": view.step, "tables": written, "topics": topics}
        (folder / _CONTENT).write_text(json.dumps(content))
        return view.step


class Content:
    """The content of a snapshot's folder."""

    def __init__(self, folder: str, content: dict[str, Any]) -> None:
        self.store: str = content["store"]
        self.step: int = content["step"]
        self._folder = folder
        self._content = content

    def topic(self, name: str) -> tuple[TopicInfo, list[tuple[int, int]]]:
        """Returns a topic, and (start, end) of each partition's log. SnapshotTooOld."""
        known = self._content["topics"].get(name)
        if known is None:
            raise SnapshotTooOld(
                f"no topic {name!r} as of step {self.step}, of the snapshot; make a snapshot anew for what "
                "was created since"
            )
        number, form, tablets, logs = known
        return TopicInfo(number, name, tuple(tablets), form), [(a, b) for a, b in logs]

    def table(self, name: str) -> tuple[int, str, str]:
        """Returns a table's (id, format, file of its rows). SnapshotTooOld."""
        known = self._content["tables"].get(name)
        if known is None:
            raise SnapshotTooOld(
                f"the snapshot has no table {name!r}: name it, as in "
                f"pyspark_planstep.snapshot(path, tables=[{name!r}, …])"
            )
        number, form, file = known
        return number, form, os.path.join(self._folder, file)


def read(folder: str, step: int | None) -> Content:
    """Reads a snapshot's folder. SnapshotTooOld if it is gone, ValueError if of another step."""
    try:
        content = json.loads(Path(folder, _CONTENT).read_text())
    except OSError as error:
        raise SnapshotTooOld(
            "the snapshot is closed, or on another machine: load within its `with`"
        ) from error
    if content["step"] != step:
        raise ValueError("pass all options of a snapshot: .options(**snap.options)")
    return Content(folder, content)
