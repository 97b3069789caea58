"""Runs the engine's threads: with one host the committing threads run its turns, with several each host has one.

    commit ─▶ leads, or waits for the leader (group_commit.py) ─┐
    a host's thread, woken by its inbox ────────────────────────┼─▶ a turn ─▶ answers handed out
    service: inputs that no caller waits for, ticks ────────────┘
    checkpoints · answers: futures ended, under no lock

With several hosts only frames of bytes travel between them (network.py), and a separate thread ends futures, so
that their callbacks delay no host.

Next: mode_hooks.py.
"""

import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ..errors import IoError
from ..host.inputs import Tick
from ..logs import tried_again
from .deferred_signals import Uninterrupted
from .group_commit import Node, Waiter
from .replies import ReplyBook
from .turn_loop import TurnLoop
from .wait_primitives import Latch

_TICK_SECONDS = 0.02
_LOOK_SECONDS = 0.5
_RETRY_SECONDS = 1.0
_CHECKPOINT_LOOK_SECONDS = 0.1
_GIVE_EVERY, _GIVE_SECONDS = 0.001, 0.0003
"""How often and how long a leader gives way to background work. Each call of LMDB releases the interpreter, and a
client that never waits takes it back: unsaved keys once grew without end beside one. So they stay level."""


def start(thread: threading.Thread) -> None:
    """Starts a thread; IoError where the system has none left."""
    try:
        thread.start()
    except RuntimeError as error:
        raise IoError(f"the engine's threads could not be started: {error}") from error


class ThreadPool:
    """Owns the engine's threads. Invariant: while it is open, some thread takes each input in an inbox."""

    def __init__(self, turns: TurnLoop, replies: ReplyBook, read_only: bool = False) -> None:
        self.stopping = Latch()
        self._turns = turns
        self._replies = replies
        self.ticks = not read_only
        self._nodes = turns.nodes
        self._hosts = len(turns.nodes)
        self._threads: list[threading.Thread] = []
        self._wakes: list[Callable[[], object]] = []
        self._again: dict[str, float] = {}  # failed work of the service thread → when to retry
        self._background: set[str] = set()  # work that turns must not starve
        self._gave_way = 0.0

    def begin(self) -> None:
        self.begin_thread("service", self._serve)
        self.begin_thread("checkpoints", self._serve_checkpoints)
        if self._hosts > 1:
            self.begin_thread("answers", self._serve_answers)
            for node in self._nodes:
                self.begin_host(node)

    def begin_thread(
        self, name: str, target: Any, *args: Any, wake: Callable[[], object] | None = None
    ) -> threading.Thread:
        """Begins a thread, which ends once `stopping` is set; `wake` ends its wait for anything else. IoError."""
        thread = threading.Thread(
            target=self._last, args=(target, *args), name=f"planstep-{name}", daemon=True
        )
        self._threads.append(thread)
        if wake is not None:
            self._wakes.append(wake)
        start(thread)
        return thread

    def _last(self, target: Any, *args: Any) -> None:
        """Runs a thread's target. What it raises stops the engine; the thread goes on, to answer callers."""
        while not self.stopping.is_set():
            try:
                target(*args)
                return
            except Exception as error:
                self._turns.stop_soon(error)
            time.sleep(_TICK_SECONDS)

    def begin_host(self, node: Node) -> None:
        node.thread = self.begin_thread(f"host-{node.host.number}", self._loop, node)

    @property
    def has_this_thread(self) -> bool:
        return threading.current_thread() in self._threads

    def end(self) -> None:
        """Ends all threads begun here, except the calling one."""
        self.stopping.set()
        self._turns.submitted.set()
        self._replies.is_due.set()
        for wake in self._wakes:
            wake()
        for node in self._nodes:
            node.wake.set()
            node.changed.ring()
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join()

    # committing threads ---------------------------------------------------------------------

    def wait_for(self, waiter: Waiter, timeout: float | None) -> None:
        """Leads until `waiter` is answered, or waits until another leader has answered it.

        The leader may find the inbox empty while its own reply is still pending. It then waits until another
        leader replies, or leads again.

        Without a time-out it ends, not answered, once another process that owns the store is silent for long.
        """
        node = self._nodes[0]
        patient = timeout is None and node.link is None
        deadline = math.inf if patient else self._deadline(waiter, timeout)
        if self._hosts > 1:
            node.wake.set()
        while self._hosts == 1 and self._turns.stopped is None:
            try:
                # A signal only ends the wait; its handler runs after it.
                with Uninterrupted() as block:
                    led = False
                    try:
                        led = node.try_lead(waiter)
                        if led:
                            self.lead(node, waiter, deadline, block)
                        if waiter.answer is None:
                            remaining = max(0.0, deadline - time.monotonic())
                            waiter.wait(min(remaining, _LOOK_SECONDS), block)
                    finally:  # the lead may have been handed to this thread
                        # Not if it led already: it was not in line. Perhaps while another leader answered it.
                        if not led and node.leave(waiter):
                            waiter.leads = False
                            self.lead(node, waiter, deadline, block)
            except MemoryError as error:
                self._turns.stop_soon(error)
            if waiter.answer is not None or time.monotonic() >= (
                deadline := deadline if patient else self._deadline(waiter, timeout)
            ):
                break
        if waiter.answer is None:
            self._wait(waiter, timeout)
        if self._replies.due:
            self._turns.announce_due()

    def _deadline(self, waiter: Waiter, timeout: float | None) -> float:
        """Returns when to stop waiting, as far as is known by now. Clients of modes have timers of their own."""
        if timeout is not None:
            return waiter.since + timeout
        link = self._nodes[0].link
        if link is None or self._turns.client is not None:
            return math.inf
        return link.patience(waiter.since)

    def attend(self, waiter: Waiter, timeout: float | None) -> None:
        """Does what `wait_for` does, then ends the waiter's future on this thread: no other thread is woken for it.

        Where this is interrupted, the service thread ends the future a moment later.
        """
        waiter.attended = True
        try:
            self.wait_for(waiter, timeout)
            if waiter.answer is not None and waiter.tx in self._replies.attended:
                self._replies.end_future(waiter)  # else it was due already
        finally:
            waiter.attended = False

    def _wait(self, waiter: Waiter, timeout: float | None) -> None:
        """Waits for the engine's own threads to answer."""
        while waiter.answer is None:
            remaining = self._deadline(waiter, timeout) - time.monotonic()
            if remaining <= 0:
                return
            try:
                waiter.wait(min(remaining, _LOOK_SECONDS))
            except MemoryError as error:
                self._turns.stop_soon(error)

    def lead(
        self,
        node: Node,
        waiter: Waiter | None,
        deadline: float = math.inf,
        block: Uninterrupted | None = None,
    ) -> None:
        """Runs turns, holding the lead, until `waiter` is answered; without a waiter, one turn.

        It also ends at `deadline`, or with a signal that `block` defers, while the node rests between two turns.

        The caller ends the futures that these turns answer, after the lead is given away.
        On the main thread it is Uninterrupted.
        """
        try:
            idle = node.link is not None
            if node.link is not None:
                node.link.lead(waiter, deadline, block)
            while not idle and (waiter is None or waiter.answer is None):
                if node.linger and not self._turns.rest(node, deadline, block):
                    break
                try:
                    with node.lock:
                        # With an empty inbox, `waiter` was in the turn that held the lock.
                        idle = waiter is None or not node.inbox
                        if node.host.stopped is not None or node.down:
                            self._turns.refuse_all(node)
                        else:
                            self._turns.turn(node)
                finally:
                    if self._replies.answers:
                        self._replies.hand_out()
                if self._background:
                    self._give_way()
        finally:
            if node.hand_over():
                self._turns.submitted.set()

    def in_background(self, name: str, work: Callable[[], Any]) -> None:
        """Runs work of the engine's own; leaders give way to it until it ends."""
        self._background.add(name)
        try:
            work()
        finally:
            self._background.discard(name)

    def _give_way(self) -> None:
        now = time.monotonic()
        if now - self._gave_way >= _GIVE_EVERY:
            time.sleep(_GIVE_SECONDS)
            self._gave_way = time.monotonic()

    # threads of the engine's own --------------------------------------------------------------

    def _loop(self, node: Node) -> None:
        while not self.stopping.is_set() and not node.down:
            node.wake.wait(0.5)
            while node.inbox and not node.down and not self.stopping.is_set():
                try:
                    with node.lock:
                        if node.down or node.host.stopped is not None:
                            return
                        self._turns.turn(node)
                finally:
                    self._replies.answer()
                if self._background:
                    self._give_way()

    def _serve_answers(self) -> None:
        """Ends futures where there are several hosts: callbacks must not delay a host's thread."""
        while not self.stopping.is_set():
            self._replies.is_due.wait(0.5)
            self._replies.end_futures()

    def _serve(self) -> None:
        ticked = 0.0
        while not self.stopping.is_set():
            if self._hosts > 1:
                self.stopping.wait(_TICK_SECONDS)
                self.outlive("the network", self._turns.network.tick)
            else:
                self._turns.submitted.wait(0.25)
            if self.stopping.is_set():
                return
            self.outlive("a turn", self._run_what_waits)
            if (link := self._nodes[0].link) is not None and self._turns.client is None:
                self.outlive("an owner that is silent", link.end_futures)
            now = time.monotonic()
            if now - ticked < 0.1:
                continue
            ticked = now
            for node in self._nodes:
                if self.ticks and not node.down and node.host.ticks:
                    node.inbox.append(Tick())
                    self._turns.poke(node)

    def _serve_checkpoints(self) -> None:
        """Checkpoints on a separate thread: a checkpoint takes long, and no turn waits for it."""
        while not self.stopping.wait(_CHECKPOINT_LOOK_SECONDS):
            now = time.monotonic()
            for node in self._nodes:
                if not node.down:
                    what = f"host {node.host.number}: a checkpoint"
                    self.outlive(what, partial(self._checkpoint, node, now))

    def _run_what_waits(self) -> None:
        if self._turns.stopped is not None:  # perhaps by a thread without memory to tell anyone
            self._replies.give_up(self._turns.stopped)
        if self._turns.partial.waiting:
            self._turns.complete_partial()
        self._replies.answer()  # answers that an interrupted caller did not hand out
        while self._turns.retries and self._turns.stopped is None:
            host, item = self._turns.retries.popleft()
            self._nodes[host].inbox.append(item)
            self._nodes[host].wake.set()
        if self._hosts == 1:
            node = self._nodes[0]
            self._replies.end_futures()
            while self._turns.stopped is None and node.inbox and node.try_lead(None):
                self.lead(node, None)
                self._replies.end_futures()

    def _checkpoint(self, node: Node, now: float) -> None:
        if node.host.store.checkpoint_due(now):
            work = partial(node.host.store.checkpoint, self.stopping.wait)
            self.in_background(f"checkpoint {node.host.number}", work)

    def outlive(self, what: str, call: Callable[[], Any]) -> None:
        """Calls `call`; logs an error and retries a second later. Without these threads there are no checkpoints
        and no answers. Only MemoryError is passed on, which stops the engine: it concerns more than one call."""

        now = time.monotonic()
        if now < self._again.get(what, now):
            return
        try:
            call()
        except MemoryError:
            raise
        except Exception as error:
            self._again[what] = now + _RETRY_SECONDS
            tried_again(what, error)
