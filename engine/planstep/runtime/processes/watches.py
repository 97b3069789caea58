"""Wakes readers of an attached process when the owner publishes: it tells the owner what is waited for.

    watch ─▶ Watch, for tablets that are not watched yet ─▶ owner ─▶ Published ─▶ those that wait look again

What nobody waits for any more stays watched until it publishes again: most readers soon wait for the same again.

Next: link.py.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ...proto import frames
from ..deferred_signals import Uninterrupted
from ..wait_primitives import Wake, Watches
from .link import Link


class LinkWatches(Watches):
    """Watches of an attached runtime. Invariant: what is watched here is watched at the owner, too."""

    def __init__(self, link: Link, before: Watches) -> None:
        super().__init__(before)
        self._before = before
        self._link = link
        self._told: dict[int, None] = {}
        self._telling = threading.Lock()

    @contextmanager
    def watch(self, tablets: Iterable[int], wake: Wake) -> Iterator[None]:
        tablets = tuple(tablets)
        with self._before.watch(tablets, wake):
            with Uninterrupted(), self._telling:
                new = tuple(tablet for tablet in tablets if tablet not in self._told)
                if new:
                    self._told.update(dict.fromkeys(new))
                    self._link.tell(frames.Watch(new))
            yield

    def again(self) -> None:
        """Tells a new owner what is watched; it answers that all of it may have published."""
        with self._telling:
            if self._told:
                self._link.tell(frames.Watch(tuple(self._told)))

    def wake(self, published: Iterable[int]) -> None:
        published = tuple(published)
        super().wake(published)
        with self._telling:
            idle = tuple(t for t in published if t in self._told and t not in self.watched)
            for tablet in idle:
                del self._told[tablet]
            if idle:
                self._link.tell(frames.Unwatch(idle))
