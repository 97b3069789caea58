"""Moves a read-only engine to newer views of a store that another process owns, while a caller waits for records.

    a wait begins ─▶ every 20 ms: the owner's marks ─ unchanged ─▶ nothing
                                                    └ changed ─▶ newer views ─▶ the waiting callers look again

The owner notifies no reader, so a thread polls the marks: a few bytes a host, and only while a caller waits. A new
view reads the turns since the last one, and with several hosts finishes their open work in memory. The catalogue
is read again, too; so the thread rests four times as long as the last view took.

An open snapshot keeps the engine at its step: newer views wait until none is open. Replaced views are closed at
once, so each host has at most two. In mode "kafka" a read counts as a snapshot here.

Next: consistent_cut.py.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import StoreClosed
from ..logs import tried_again
from .consistent_cut import open_views
from .wait_primitives import Signal, Wake, Watches

if TYPE_CHECKING:
    from .runtime import Runtime

_EVERY_SECONDS = 0.02
_AGAIN_SECONDS = 1.0
_REST = 4
_store_of = attrgetter("host.store")


class Following(Watches):
    """Watches of a read-only engine. Invariant: while a partition is watched, the thread polls the marks."""

    def __init__(self, runtime: "Runtime", path: Path, views: list[Any]) -> None:
        super().__init__()
        self._runtime = runtime
        self._path = path
        self._views = views
        self._wanted = Signal()
        self._beginning = threading.Lock()
        self._begun = False
        self._seen: list[bytes] = []  # the marks of the last views; empty before the first wait

    @contextmanager
    def watch(self, tablets: Iterable[int], wake: Wake) -> Iterator[None]:
        with super().watch(tablets, wake):
            with self._beginning:
                if not self._begun:
                    self._runtime.threads.begin_thread("following", self._serve)
                    self._begun = True
            self._wanted.set()
            yield

    def end(self) -> None:
        self._wanted.set()

    def _serve(self) -> None:
        stopping = self._runtime.threads.stopping
        pause = 0.0
        while not stopping.wait(pause):
            if not self.watched:
                self._wanted.wait(_AGAIN_SECONDS)
                pause = 0.0
                continue
            began = time.monotonic()
            try:
                self._go_on()
                pause = max(_EVERY_SECONDS, _REST * (time.monotonic() - began))
            except StoreClosed as error:  # another store has its place
                if not stopping.is_set():
                    self._runtime.turns.stop_everything(error)
                    self.wake(list(self.watched))
                return
            except Exception as error:  # without this thread no waiting caller would wake
                if stopping.is_set():
                    return
                tried_again("a newer look at the store", error)
                pause = _AGAIN_SECONDS

    def _go_on(self) -> None:
        marks = [view.mark_bytes() for view in self._views]
        if marks == self._seen or self._runtime.nodes[0].host.history.pins()[0]:
            return
        views = open_views(self._path, len(self._views), self._views)
        switched = False
        try:
            switched = self._runtime.show(views)
        finally:
            if not switched:  # a snapshot was opened meanwhile
                for view in views:
                    view.close()
        if not switched:
            return
        before, self._views, self._seen = self._views, views, marks
        try:
            for node, view in zip(self._runtime.nodes, before, strict=True):
                view.give_way(partial(_store_of, node))
        finally:
            self.wake(list(self.watched))
