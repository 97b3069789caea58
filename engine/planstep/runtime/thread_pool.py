"""Who runs turns: with one host the threads that commit, with several one of each host's.

    commit ─▶ leads, or waits for who does (group_commit.py) ─┐
    a host's thread, woken by its inbox ──────────────┼─▶ a turn ─▶ answers handed out
    service: what nobody waits for, ticks ────────────┘
    checkpoints · answers: futures ended, under no lock

With several hosts only frames of bytes travel between them (network.py), and a thread of its own ends futures, so
that their callbacks hold up no host.

Next: mode_hooks.py.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ..errors import of_memory
from ..host.inputs import Tick
from ..logs import tried_again
from .deferred_signals import Uninterrupted
from .group_commit import Node, Waiter
from .network import Network
from .turn_loop import Turns
from .wait_primitives import Latch

_TICK_SECONDS = 0.02
_RETRY_SECONDS = 1.0
_CHECKPOINT_LOOK_SECONDS = 0.1


class Threads(Turns):
    """Invariant: while it is open, what is in an inbox is taken by somebody."""

    def __init__(self, hosts: int, network: Network | None, rtt_ms: float = 0.0) -> None:
        super().__init__(hosts, network, rtt_ms)
        self._stopping = Latch()
        self._threads: list[threading.Thread] = []
        self._again: dict[str, float] = {}  # what failed in the service thread → when to try it

    def _begin_threads(self) -> None:
        self._begin("service", self._serve)
        self._begin("checkpoints", self._serve_checkpoints)
        if self.hosts > 1:
            self._begin("answers", self._serve_answers)
            for node in self.nodes:
                self._start(node)

    def _begin(self, name: str, target: Any, *args: Any) -> threading.Thread:
        thread = threading.Thread(
            target=self._last, args=(target, *args), name=f"planstep-{name}", daemon=True
        )
        self._threads.append(thread)
        thread.start()
        return thread

    def _last(self, target: Any, *args: Any) -> None:
        """The thread goes on when memory was short: without it commits would wait for ever."""
        while not self._stopping.is_set():
            try:
                target(*args)
                return
            except (MemoryError, RuntimeError) as error:
                if not of_memory(error):
                    raise
            time.sleep(_TICK_SECONDS)

    def _start(self, node: Node) -> None:
        node.thread = self._begin(f"host-{node.host.number}", self._loop, node)

    def _end_threads(self) -> None:
        """All that were begun here, but for the caller's."""
        self._stopping.set()
        self._submitted.set()
        self.replies.is_due.set()
        for node in self.nodes:
            node.wake.set()
            node.changed.ring()
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join()

    # who commits ----------------------------------------------------------------------------

    def _take_part(self, node: Node, waiter: Waiter, timeout: float | None) -> None:
        """Leads until `waiter` is answered, or waits until whoever leads has answered it.

        Whoever leads may find nothing to do while what it waits for is on its way: then it waits, and is
        answered by another, or leads again.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with (
                Uninterrupted() as block
            ):  # a signal ends the waiting, no more; its handler comes behind
                try:
                    if node.try_lead(waiter):
                        self._lead(node, waiter)
                    if waiter.answer is None:
                        waiter.wait(timeout, block)
                finally:  # the lead may have been handed to this very thread
                    if node.leave(waiter):  # or while its answer came from another thread
                        waiter.leads = False
                        self._lead(node, waiter)
            if waiter.answer is not None:
                break
            if deadline is not None:
                timeout = deadline - time.monotonic()
                if timeout <= 0:
                    break
        if self.replies.due:
            self._submitted.set()

    def _lead(self, node: Node, waiter: Waiter | None) -> None:
        """Runs turns, holding the lead, until `waiter` is answered; for nobody in particular, one.

        The futures that it answers are the caller's to end, who has given the lead away by then.
        On the main thread it runs Uninterrupted.
        """
        try:
            idle = False
            while not idle and (waiter is None or waiter.answer is None):
                node.lock.acquire()
                try:
                    try:
                        # With nothing here, `waiter` was in the turn that had the lock.
                        idle = waiter is None or not node.inbox
                        if node.host.stopped is not None or node.down:
                            self._refuse_all(node)
                        else:
                            self._turn(node)
                    finally:
                        node.lock.release()  # what ends a `with` takes memory: a tuple
                finally:
                    self.replies.answer()
        finally:
            try:
                if node.hand_over():
                    self._submitted.set()
            except MemoryError:
                # Else nobody would ever lead again; the service thread looks who waits.
                node.leading = False
                raise

    # threads of the engine's own --------------------------------------------------------------

    def _loop(self, node: Node) -> None:
        while not self._stopping.is_set() and not node.down:
            node.wake.wait(0.5)
            while node.inbox and not node.down and not self._stopping.is_set():
                try:
                    with node.lock:
                        if node.down or node.host.stopped is not None:
                            return
                        self._turn(node)
                finally:
                    self.replies.answer()

    def _serve_answers(self) -> None:
        """With several hosts: callbacks of futures must not hold up a host's thread."""
        while not self._stopping.is_set():
            self.replies.is_due.wait(0.5)
            self.replies.end_futures()

    def _serve(self) -> None:
        ticked = 0.0
        while not self._stopping.is_set():
            if self.hosts > 1:
                self._stopping.wait(_TICK_SECONDS)
                self._outlive("the network", self.network.tick)
            else:
                self._submitted.wait(0.25)
            if self._stopping.is_set():
                return
            self._outlive("a turn", self._run_what_waits)
            now = time.monotonic()
            ticking = now - ticked >= 0.1
            if ticking:
                ticked = now
            for node in self.nodes:
                if node.down:
                    continue
                if ticking and node.host.ticks:
                    node.inbox.append(Tick())
                    self._poke(node)

    def _serve_checkpoints(self) -> None:
        """On a thread of their own: a checkpoint takes its time, and nobody's turn waits for it."""
        while not self._stopping.wait(_CHECKPOINT_LOOK_SECONDS):
            now = time.monotonic()
            for node in self.nodes:
                if not node.down:
                    what = f"host {node.host.number}: a checkpoint"
                    self._outlive(what, partial(self._checkpoint, node, now))

    def _run_what_waits(self) -> None:
        self.replies.answer()  # what an interrupted caller left
        while self._later and self._stopped is None:
            host, item = self._later.popleft()
            self.nodes[host].inbox.append(item)
            self.nodes[host].wake.set()
        if self.hosts == 1:
            self.replies.end_futures()
            while self.nodes[0].inbox and self.nodes[0].try_lead(None):
                self._lead(self.nodes[0], None)
                self.replies.end_futures()

    def _checkpoint(self, node: Node, now: float) -> None:
        if node.host.store.checkpoint_due(now):
            node.host.store.checkpoint(self._stopping.wait)

    def _outlive(self, what: str, call: Callable[[], Any]) -> None:
        """Without these threads nothing is ever checkpointed, and nobody is told."""
        now = time.monotonic()
        if now < self._again.get(what, now):
            return
        try:
            call()
        except Exception as error:
            self._again[what] = now + _RETRY_SECONDS
            tried_again(what, error)
