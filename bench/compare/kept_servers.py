"""Keeps the servers of peers over all cells of a comparison: one for each kind and durability.

    cell of a system with a server ─▶ placed(cell) ─▶ the same cell with Options.server
                                        └ at first need: keep_server.py in out/servers/, started and warmed once
                                        └ it ended by itself: started anew, once
    stop() after the last cell that needs it, close() ─▶ stdin of its keeper closes ─▶ it stops the server,
                                                          and removes its folder

Systems with the same `server` function share a server. Workload faults kills a server of its own.

Next: keep_server.py, the child.
"""

import json
import os
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...closing import Closing
from ..children import Child, Children, last_words, module
from .cell import Cell
from .systems import ENTRIES
from .systems.entry import ServerRoom

_PATIENCE_S = 300.0
"""Seconds that a server may take to start, and again to become warm, on a busy machine."""
_END_S = 30.0
"""Seconds that all servers may take to stop."""
_FOUND_OUT_S = 1.0
"""Seconds within which a keeper has found out that its server ended."""
_STARTS_MAX = 2
"""Starts of a server that ends by itself, perhaps for want of memory."""
Key = tuple[Callable[..., object], str]


class ServerFailed(Exception):
    """The server of a system did not start, did not become warm, or ended by itself twice."""


def server_of(cell: Cell) -> Key | None:
    """Returns the server that a cell needs: the function that starts it, and the durability; None if none."""
    entry = ENTRIES.get(cell.system)
    if entry is None or entry.server is None:
        return None
    return entry.server, cell.options.durability


def seconds_of_server(cell: Cell) -> float:
    """Estimates the time to start and warm the server that a cell needs; 0 where it needs none."""
    entry = ENTRIES.get(cell.system)
    return 0.0 if entry is None or entry.server is None else entry.start_s + entry.warm_s


def seconds_of_servers(cells: Iterable[Cell]) -> float:
    """Estimates the time to start and warm all servers that the cells need."""
    return sum({server_of(cell): seconds_of_server(cell) for cell in cells}.values())


def room_of_servers(cells: Iterable[Cell]) -> ServerRoom:
    """Returns the memory and the disk, in MB, of all servers that the cells need, as if all ran at once."""
    needed = {server_of(cell): ENTRIES[cell.system].server_mb for cell in cells if server_of(cell)}
    memory, disk = (sum(column) for column in zip(ServerRoom(), *needed.values(), strict=True))
    return ServerRoom(memory, disk)


def keeper_words(spec: Path) -> list[str]:
    """Returns the words that start a keeper."""
    return module("planstep.bench.compare.keep_server", spec)


class KeptServers(Closing):
    """Holds the servers, in subfolders of `folder`. Invariant: `close` ends them all, and removes the folder.

    `tell` is told in words what takes time now. `facts` has a server each, as in the summary.
    """

    def __init__(
        self,
        folder: Path,
        tell: Callable[[str], None] = lambda what: None,
        words: Callable[[Path], list[str]] = keeper_words,
    ) -> None:
        self._folder, self._tell, self._words = folder, tell, words
        self._children = Children()
        self._keepers: dict[Key, list[_Keeper]] = {}  # the last one is in use

    @property
    def facts(self) -> list[dict[str, Any]]:
        return [dict(keeper.facts) for keeper in self._all()]

    def _all(self) -> list["_Keeper"]:
        return [keeper for keepers in self._keepers.values() for keeper in keepers]

    def seconds_until(self, cells: Iterable[Cell]) -> float:
        """Estimates the time until the cells have the servers that have not been started."""
        return seconds_of_servers(c for c in cells if server_of(c) not in self._keepers)

    def placed(self, cell: Cell) -> Cell:
        """Returns the cell with its server's address, if it needs a server. ServerFailed where there is none."""
        key = server_of(cell)
        if key is None:
            return cell
        keepers = self._keepers.setdefault(key, [])
        if not keepers or (keepers[-1].is_lost() and len(keepers) < _STARTS_MAX):
            name = next(name for name, entry in ENTRIES.items() if entry.server is key[0])
            keepers.append(_Keeper(name, cell.options.durability))
            own = self._folder / f"{name}-{cell.options.durability}{'-again' * (len(keepers) - 1)}"
            keepers[-1].start(own, self._children, self._words, self._tell)
        keeper = keepers[-1]
        if keeper.facts["failed"]:
            did = "ended" if keeper.is_lost() else "did not start"
            raise ServerFailed(f"its server {did}: {keeper.facts['failed']}")
        return replace(cell, options=replace(cell.options, server=keeper.facts["address"]))

    def why_lost(self, cell: Cell) -> str:
        """Says why the server of a cell that failed has ended by itself; "" if it runs, or there is none."""
        key = server_of(cell)
        keepers = [] if key is None else self._keepers.get(key, [])
        lost = bool(keepers) and keepers[-1].is_lost(_FOUND_OUT_S)
        return str(keepers[-1].facts["failed"]) if lost else ""

    def stop(self, key: Key) -> None:
        """Stops a server that no cell needs any more; nothing happens if it never started."""
        for keeper in self._keepers.get(key, []):
            self._tell(f"stopping the server of {keeper.facts['name']}")
            keeper.ask_to_end()
            keeper.wait(time.monotonic() + _END_S)

    def close(self) -> None:
        """Asks all servers to stop, waits for them, and kills those that take too long."""
        try:
            if self._keepers:
                self._tell("stopping the servers")
            until = time.monotonic() + _END_S
            for keeper in self._all():
                keeper.ask_to_end()
            for keeper in self._all():
                keeper.wait(until)
        finally:
            self._children.close()
            shutil.rmtree(self._folder, ignore_errors=True)


class _Keeper:
    """A child that keeps one server. `facts` grows with what it says."""

    def __init__(self, system: str, durability: str) -> None:
        self.facts: dict[str, Any] = {
            "name": system,
            "durability": durability,
            "version": "",
            "address": "",
            "start_s": None,
            "warm_s": None,
            "warm_transactions": None,
            "memory_mb": None,
            "failed": "",
        }
        self._child: Child | None = None
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._ended = self._ready = False

    def start(
        self,
        own: Path,
        children: Children,
        words: Callable[[Path], list[str]],
        tell: Callable[[str], None],
    ) -> None:
        """Starts and warms the server; notes a failure."""
        system, durability = self.facts["name"], self.facts["durability"]
        own.parent.mkdir(parents=True, exist_ok=True)
        spec, self._output = own.with_suffix(".json"), own.with_suffix(".txt")
        where = {"system": system, "durability": durability, "folder": os.fspath(own)}
        spec.write_text(json.dumps(where))
        named = f"the server of {system}, durability {durability}"
        tell(f"starting {named}")
        with self._output.open("wb") as errors:
            self._child = children.start(
                words(spec), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        threading.Thread(target=self._listen, daemon=True).start()
        for following in (f"warming {named}", f"{named} is ready"):
            if not self._hear(_PATIENCE_S):
                self.facts["failed"] = (
                    last_words(self._output) if self._ended else "it took too long"
                )
                return
            tell(following)
        self._ready = True

    def is_lost(self, patience_s: float = 0.0) -> bool:
        """Returns whether the server was ready and has ended by itself since; then `facts` say why."""
        while self._ready and not (self._ended or self.facts["failed"]) and self._hear(patience_s):
            pass
        if self._ready and self._ended and not self.facts["failed"]:
            self.facts["failed"] = f"its keeper ended: {last_words(self._output)}"
        return self._ready and bool(self.facts["failed"])

    def _listen(self) -> None:
        assert self._child is not None and self._child.stdout is not None
        for line in self._child.stdout:
            if line.endswith(b"\n"):  # a kill may cut off the last one
                self._lines.put(json.loads(line))
        self._child.wait()
        self._lines.put(None)

    def _hear(self, patience_s: float) -> bool:
        """Takes what the child says next; False if it has ended, or says nothing for so long."""
        try:
            said = self._lines.get(timeout=patience_s)
        except queue.Empty:
            return False
        self._ended = said is None
        self.facts |= said or {}
        return not self._ended

    def ask_to_end(self) -> None:
        self._ready = False
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()

    def wait(self, until: float) -> None:
        """Waits for the child's end, and takes what it says last."""
        while not self._ended and self._hear(max(0.0, until - time.monotonic())):
            pass
