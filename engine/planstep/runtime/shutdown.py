"""Shuts an engine down, in steps that the next call repeats where an interrupt has cut them short.

    attached processes are heard no more ─▶ closed: no call begins ─▶ commits under way end ─▶ threads end
         ─▶ inputs that no turn took are refused ─▶ stores closed ─▶ links closed ─▶ futures end

The sockets close behind the stores, so that an attached process which sees the end can own the store.

Next: runtime.py.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import EngineClosed
from ..host.inputs import Rollback
from .deferred_signals import Uninterrupted
from .group_commit import Node

if TYPE_CHECKING:
    from .runtime import Runtime

_ANSWERED_SECONDS = 5.0
"""How long closing waits for answers that come from elsewhere."""


class Shutdown:
    """Shuts one engine down. Invariant: once it has `ended`, each commit is answered, and the store is free."""

    def __init__(self, runtime: "Runtime") -> None:
        self.ended = False
        self.keeps_store = False
        """Leaves the stores open, for whoever goes on with them."""
        self.wait_less: Callable[[], None] | None = None
        """Has a shared log answer soon or never: closing was interrupted."""
        self._runtime = runtime

    def run(self, checkpoint: bool) -> None:
        """Runs all steps, unless they have ended. `checkpoint`: see Runtime.close."""
        if self.ended:
            return
        runtime, turns = self._runtime, self._runtime.turns
        node = runtime.nodes[0]
        interrupted = turns.closed  # an earlier call
        if interrupted and self.wait_less is not None:
            self.wait_less()
        runtime.hooks.close()
        self._leave_processes()
        turns.closed = True
        turns.hurry()
        self._finish_commits(node)
        turns.delays.close()
        self.end_threads(checkpoint and node.host.stopped is None and not interrupted)
        with node.lock:  # inputs that no turn took have no effect: their end is not in doubt
            turns.refuse_all(node)
        turns.stop_everything(EngineClosed("the engine was closed"))
        runtime.replies.answer()
        runtime.maintenance.end()
        if runtime.followed is not None:
            runtime.followed.close()
        for node in runtime.nodes:
            with node.lock:
                node.down = True
                self._end_store(node, checkpoint)
        if runtime.server is not None:
            runtime.server.close()
        if runtime.link is not None:
            runtime.link.release()
        runtime.replies.end_futures()
        self.ended = True

    def _leave_processes(self) -> None:
        """Takes nothing more from attached processes: what is not answered they hand in to the next owner.

        Where this one is attached, it waits for its own answers. Without memory, the ends of the links must do.
        """
        with suppress(MemoryError):
            link = self._runtime.link
            if link is not None:
                link.drain(time.monotonic() + _ANSWERED_SECONDS)
                link.close()
            if self._runtime.server is not None:  # perhaps since the link found no other owner
                self._runtime.server.take_no_more()

    def _finish_commits(self, node: Node) -> None:
        """Runs the turns that commits under way wait for, and withdraws what clients have staged."""
        runtime, turns = self._runtime, self._runtime.turns
        proxy = node.host.proxy
        if proxy is not None and not node.down:
            node.inbox.extend(map(Rollback, list(proxy.staging)))
            node.wake.set()
        deadline = time.monotonic() + _ANSWERED_SECONDS
        while runtime.replies.waiting and not runtime.in_order and time.monotonic() < deadline:
            time.sleep(0.005)
        with Uninterrupted():
            while (
                runtime.hosts == 1 and turns.stopped is None and node.inbox and node.try_lead(None)
            ):
                runtime.threads.lead(node, None)
            while node.linger and node.inbox and turns.stopped is None:  # its leader rests
                with node.lock:
                    turns.turn(node)
                runtime.replies.answer()

    def end_threads(self, in_order: bool = False) -> None:
        """Ends the threads, except that of maintenance, which may be waiting for a commit.

        `in_order`: a last snapshot may be made.
        """
        snapshotter = self._runtime.snapshotter
        if snapshotter is not None:
            snapshotter.end(in_order)
        self._runtime.threads.end()
        if snapshotter is not None:  # joining a thread again after an interrupt may not wait
            snapshotter.ended.wait()

    def _end_store(self, node: Node, checkpoint: bool) -> None:
        if self.keeps_store:
            return
        if checkpoint and node.host.stopped is None:
            node.host.store.close()  # again, if the first call did not reach it
        else:  # what a failed turn left in memory is unreliable, or none was left for a checkpoint
            node.host.store.crash()
