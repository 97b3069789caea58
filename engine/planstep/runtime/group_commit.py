"""Shares turns among committing threads: with one host, a committing thread leads when no other does.

    commit ─▶ inbox ─▶ is there a leader? ─ no ─▶ leads: turn after turn until its own is answered
                            │ yes                      └▶ hands over: to one that still waits, or to none
                            ▼
                       waits, is answered by the leader, or is handed the lead

Commits that arrive during a turn's sync wait in the inbox and share the next turn: the group commit.
Only one of their threads is woken to lead it. With several hosts each host's thread runs its turns and
callers only wait.

Next: runtime.py.
"""

import threading
from collections import deque
from queue import SimpleQueue
from time import monotonic
from typing import Protocol

from ..histogram import COUNTS, SECONDS, Histogram
from ..host.host import Host
from ..host.inputs import Commit, Input, StageInput
from ..proto.messages import PartitionPart, ShardPart
from .deferred_signals import Uninterrupted
from .outcome import Commit as Committed
from .wait_primitives import Bell, Signal, once_free, wait_for


class ReplySink(Protocol):
    """Receives a commit's answer, on a thread of the engine: a future, or an object like it."""

    def set_result(self, result: Committed, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...


class Sink:
    """Takes answers while they are handed out, on the thread that does that: it is quick, and raises nothing.

    Not an abc.ABC: each answer asks `isinstance`, which is Python's code there.
    """

    def take(self, tx: bytes, answer: Committed | BaseException) -> None:
        raise NotImplementedError


class Link(Protocol):
    """Takes the inputs of turns that run in another process: the store's owner. The answers come to the reply book.

    Whoever holds the node's lead receives them. `arm` and `disarm` tell the link's own thread whether nobody does.
    """

    @property
    def connected(self) -> bool: ...
    def send(self, item: Input, /) -> None: ...
    def lead(
        self, waiter: "Waiter | None", deadline: float, block: Uninterrupted | None, /
    ) -> None: ...
    def patience(self, since: float, /) -> float: ...
    def end_futures(self) -> None: ...
    def doubt(self) -> str: ...
    def arm(self) -> None: ...
    def disarm(self) -> None: ...


class Waiter:
    """Holds the answer of a transaction that was sent, and wakes the thread that waits for it."""

    __slots__ = (
        "_wake",
        "answer",
        "attended",
        "future",
        "leads",
        "since",
        "size",
        "stopped",
        "tx",
        "unheard",
    )

    def __init__(self, tx: bytes, size: int, future: ReplySink | Sink | None) -> None:
        self.tx = tx
        self.size = size
        self.since = monotonic()
        self.future = future
        self.attended = future is None  # a thread waits, and ends the future if there is one
        self.answer: Committed | BaseException | None = None
        self.leads = False
        self.stopped = False  # its thread has stopped waiting
        self.unheard = False  # … for good: its sender was told that its end is not known
        self._wake: SimpleQueue[None] = SimpleQueue()

    def wake(self) -> None:
        self._wake.put(None)

    def wait(self, timeout: float | None, block: Uninterrupted | None = None) -> bool:
        """Waits until woken, or until a signal comes that `block` defers; False after `timeout` seconds."""
        return wait_for(self._wake, timeout, block)

    def result(self) -> Committed:
        answer = self.answer
        if isinstance(answer, BaseException):
            raise answer
        assert answer is not None
        return answer


class Node:
    """A host with its inbox. Invariants: a turn runs under `lock`; at most one thread leads.

    With a `link`, the host is a view of another process's, and runs no turns: leading is receiving.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.inbox: deque[Input] = deque()
        self.link: Link | None = None
        """Takes the inputs in place of the inbox, in a process that does not own the store."""
        self.lock = threading.Lock()
        self.changed = Bell()
        self.wake = Signal()
        self.thread: threading.Thread | None = None
        self.down = False
        self.turn_seconds = Histogram(SECONDS)  # of whole turns, with their sync
        self.turn_transactions = Histogram(COUNTS)  # answered by a turn
        self.leading = False
        self.linger = 0.0
        """The least time from the end of a turn to the next one's beginning, in seconds."""
        self.due = 0.0  # by the monotonic clock, when the next turn may begin
        self.hurried = Bell()
        self._guard = threading.Lock()
        self._followers: deque[Waiter] = deque()

    def take(self, item: Input) -> None:
        """Takes an input for one of the next turns, here or at the store's owner."""
        if self.link is None:
            self.inbox.append(item)
        else:
            self.link.send(item)

    def try_lead(self, waiter: Waiter | None) -> bool:
        """Takes the lead and returns True, or joins the line behind the leader."""
        with once_free(self._guard):
            if not self.leading:
                self.leading = True
                if self.link is not None:
                    self.link.disarm()
                return True
            if waiter is not None:
                if not waiter.stopped or waiter not in self._followers:
                    self._followers.append(waiter)
                waiter.stopped = False
            return False

    def leave(self, waiter: Waiter) -> bool:
        """Stops waiting; returns True when the lead was handed over meanwhile, and is held now."""
        with once_free(self._guard):
            waiter.stopped = True
            return waiter.leads

    def hand_over(self) -> bool:
        """Gives the lead away; returns True when no thread took it although the inbox has input."""
        with once_free(self._guard):
            waiting = self._followers
            while waiting and (waiting[0].stopped or waiting[0].answer is not None):
                waiting.popleft()
            link = self.link
            # Else they would pass the lead round.
            if waiting and (self.inbox or (link is not None and link.connected)):
                follower = waiting.popleft()
                follower.leads = True
                follower.wake()
                return False
            self.leading = False
            if link is not None:
                link.arm()
        # Checked after giving up the lead: a thread that adds to the inbox checks `leading` then.
        return bool(self.inbox)


def bytes_of(item: Commit | StageInput) -> int:
    """Returns the payload bytes of a client's input."""
    size = 0
    if isinstance(item, StageInput):
        return sum(len(data) for _, slices in item.slices.values() for data, _ in slices)
    for part in item.parts.values():
        if type(part) is PartitionPart:
            for data, _ in part.slices:
                size += len(data)
        elif type(part) is ShardPart:
            for _, _, value in part.writes:
                size += len(value)
    return size
