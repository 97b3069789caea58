"""`planstep stats` shows what a store holds, once or every few seconds. Next: reshard.py."""

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..api.columns.batch import counted
from ..runtime.statistics import disk_bytes, levels
from ..store.files import Files
from .output import Json, Store, existing, print_json, print_rows
from .values import readable

_KINDS = {
    "log": "log on disk",
    "tables": "tables and positions on disk",
    "aside": "reserved on disk",
    "other": "other files on disk",
}


def stats(
    store: Store,
    watch: Annotated[
        float | None, typer.Option(min=0.05, help="Refresh every so many seconds until Ctrl-C.")
    ] = None,
    looks: Annotated[
        int | None, typer.Option(min=1, help="With --watch: stop after so many refreshes.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a store holds: step, topics, consumers' lag, tables, sizes on disk.

    The store may be in use by another process. With --watch it adds rates since
    the last look, does not count rows of tables, and --json prints one object
    for each look.

    JSON: hosts, generation, step, topics (records by name), tables (rows by
    name), consumers (list of topic, consumer, lag, missed), bytes_on_disk (log,
    tables, aside, other); with --watch also time (Unix seconds) and per_second
    (steps, records by topic; null at the first look).

    Example: planstep stats shop.planstep --watch 2
    """
    if watch is None:
        state = _state_of(store, rows=True)
        if as_json:
            print_json(state)
        else:
            print_rows(str(store), ["what", "value"], _lines(state))
        return
    with contextlib.suppress(KeyboardInterrupt), _printer(store, as_json) as show:
        before: dict[str, Any] | None = None
        number = 0
        while True:
            state = _state_of(store, rows=False)
            state["time"] = round(time.time(), 3)
            state["per_second"] = None if before is None else _rates(before, state)
            show(state)
            before = state
            number += 1
            if looks is not None and number >= looks:
                return
            time.sleep(watch)


def _state_of(store: Path, rows: bool) -> dict[str, Any]:
    with existing(store) as db, db.context.open_view() as view:
        info = db.stats()
        topics = levels(db.context.runtime)
        tables: dict[str, int] = {}
        if rows:
            tables = {name: view.count(name) for name in sorted(db.tables())}
    consumers = [
        {"topic": name, "consumer": consumer, "lag": lag, "missed": missed}
        for name, level in topics.items()
        for consumer, (lag, missed) in level.consumers.items()
    ]
    return {
        "hosts": info["hosts"],
        "generation": info["generation"],
        "step": info["step"],
        "topics": {name: level.records for name, level in topics.items()},
        **({"tables": tables} if rows else {}),
        "consumers": consumers,
        "bytes_on_disk": disk_bytes([(Files(), host) for host in store.glob("host-*")]),
    }


def _rates(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    seconds = max(now["time"] - before["time"], 0.001)
    records = {
        name: round((n - before["topics"].get(name, 0)) / seconds, 1)
        for name, n in now["topics"].items()
    }
    return {"steps": round((now["step"] - before["step"]) / seconds, 1), "records": records}


def _lines(state: dict[str, Any]) -> list[list[Any]]:
    per_second = state.get("per_second") or {"steps": None, "records": {}}

    def rate(value: Any) -> str:
        return "" if value is None else f", {value}/s"

    # Each opening to write begins a generation; a restored store's number begins 1,000 further.
    lines = [["hosts", state["hosts"]], ["generation (rises when opened)", state["generation"]]]
    lines.append(["step", f"{state['step']}{rate(per_second['steps'])}"])
    for name, n in state["topics"].items():
        lines.append(
            [f"topic {name}", f"{counted(n, 'record')}{rate(per_second['records'].get(name))}"]
        )
    for c in state["consumers"]:
        missed = f", {c['missed']} missed" if c["missed"] else ""
        lines.append([f"consumer {c['consumer']} of {c['topic']}", f"{c['lag']} behind{missed}"])
    lines += [[f"table {name}", counted(n, "row")] for name, n in state.get("tables", {}).items()]
    lines += [[_KINDS[kind], readable(n)] for kind, n in state["bytes_on_disk"].items()]
    return lines


@contextlib.contextmanager
def _printer(store: Path, as_json: bool) -> Iterator[Any]:
    """Yields a function that shows a look: as a JSON line, a redrawn table on a terminal, or plain lines."""
    if as_json:

        def line(state: dict[str, Any]) -> None:
            print_json(state)
            sys.stdout.flush()

        yield line
    elif sys.stdout.isatty():
        with Live(console=Console(), auto_refresh=False) as live:

            def draw(state: dict[str, Any]) -> None:
                table = Table("what", "value", title=Text(str(store)), title_justify="left")
                for cells in _lines(state):
                    table.add_row(*(Text(str(cell)) for cell in cells))  # names are not markup
                live.update(table, refresh=True)

            yield draw
    else:

        def plain(state: dict[str, Any]) -> None:
            at = time.strftime("%H:%M:%S", time.localtime(state["time"]))
            for what, value in _lines(state):
                print(f"{at}\t{what}\t{value}")
            sys.stdout.flush()

        yield plain
