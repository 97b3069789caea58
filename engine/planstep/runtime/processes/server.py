"""Serves the processes that are attached to a store: takes their inputs into this owner's turns, and answers them.

    what has arrived ─▶ inputs in host 0's inbox ─▶ a turn, if nobody else leads ─▶ answers ─▶ one send a link
    answers that another thread hands out, and publications ─▶ the peer's frames ─▶ nudge ─▶ sent

One thread does all of it. It never waits for a peer. Calls run on a thread of their own, as they may wait. While
the owner has no room for a commit, its link is not read: what its process sends waits in the socket.

When a link ends, nothing of its process stays: what it staged is taken back, its watches go. Its commits run to
their end, and nobody is told.

Next: peer.py.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import ForeignPeer, IoError, Overloaded, PlanstepError
from ...logs import process_refused
from ...proto.frames import Call, Frame
from ...store.process_socket import Listener
from ..deferred_signals import room_for_a_turn
from ..shares_of_links import SharesOfLinks
from ..wait_primitives import Latch
from .armed import IN, OUT, new_poller
from .awake import Awake
from .calls import CALLS
from .error_form import form_of
from .ids import NUMBERS, Blocks
from .nudge import Nudge
from .peer import RECEIVED_MAX, Peer

if TYPE_CHECKING:
    from ..runtime import Runtime

LINKS_MAX = 256
_STALLED_SECONDS = 0.005
_LOOK_SECONDS = 0.05
_REST_SECONDS = 0.2
_MOMENT_SECONDS, _LEFT_SECONDS = 0.1, 0.002
_TICK_SECONDS = 1.0
_HELLO_SECONDS = 5.0
"""How long a process may hold a link that says nothing first, or is refused and takes no answer."""
_SETTLE_SECONDS = 1.0
"""How long those that have lost an owner may take to bring their shares to the next one."""
_RECEIVED_TIMES = 64
_HEARD_SECONDS = 20.0


class _Hearing:
    """Holds the wait of a thread until the server has taken all that had arrived on links."""

    def __init__(self) -> None:
        self.done = Latch()
        self.peers: list[Peer] | None = None
        """Those that are not heard out yet; None until the server's thread has seen this."""


class Server:
    """Serves links until the engine's threads end. Invariant: only its own thread touches sockets and peers."""

    def __init__(
        self, runtime: "Runtime", listener: Listener, said: dict[str, Any], *, follows: bool
    ) -> None:
        """`said`: the settings of this engine, by name, for those that attach. `follows`: another process owned the
        store just now, so that others come with what they had there."""
        listener.stay()
        self.nudge = Nudge()
        try:
            self._poller = new_poller()
        except BaseException:  # out of descriptors: it would keep two until it is collected
            self.nudge.close()
            raise
        self.runtime = runtime
        self.said = said
        self.buffer = memoryview(bytearray(RECEIVED_MAX))
        """What one link has sent, until it is decoded."""
        self.blocks = Blocks(runtime.generation)
        self.peers: dict[int, Peer] = {}
        self.served = 0
        """Links since this owner began; the number of the newest."""
        assert runtime.consumers is not None, "the face is there before others are"
        self.shares = SharesOfLinks(
            runtime.shares, runtime.consumers, self._send_frame, settled=not follows
        )
        self._touched: deque[Peer] = deque()
        """Those that have received something, or have something to send: any thread adds to it."""
        self._stalled: dict[Peer, None] = {}
        self._strangers: dict[Peer, None] = {}
        """Those whose processes have not said who they are, or have not taken why they are refused."""
        self._ended: list[Peer] = []
        """Peers whose links have ended while they had changes of names under way."""
        self._settles_at = time.monotonic() + _SETTLE_SECONDS if follows else None
        self._cleans_at: float | None = None
        """When the leases of processes that are gone are removed."""
        self._ticked = 0.0
        self._accepts_at: float | None = None  # after a failure to accept
        self._listener = listener
        self._folder = listener.folder
        self._poller.register(listener.socket, IN)
        self._poller.register(self.nudge.socket, IN)
        self._look_awake = partial(Awake().wait, self._poller.poll)
        self._waited_for: dict[int, Peer] = {}
        """Peers whose links are waited for, by descriptor."""
        self._led = False
        self._calls: deque[tuple[Peer, Call]] = deque()
        self._called = threading.Semaphore(0)
        self._calling = False
        self._hearings: deque[_Hearing] = deque()
        self._closing = False
        self._taken = Latch()
        self.thread = 0
        self.runner: threading.Thread | None = None

    # the thread ----------------------------------------------------------------------------

    def serve(self) -> None:
        self.thread = threading.get_ident()
        try:
            while not self._runtime_ends():
                pause = self._pause()
                self._attend_all(pause)
                if self._stalled and not self._closing:
                    for peer in list(self._stalled):
                        self._take(peer, peer.go_on)
                if self._hearings:
                    self._hear_out()
                if pause is not None:
                    self._accept_again()
                    self._look_round()
                if self._ended:
                    self._ended = [peer for peer in self._ended if peer.settle()]
                self._lead()
                closing = self._closing and not self._taken.is_set()
                if closing:
                    self._touched.extend(self.peers.values())
                self._settle_touched()
                if closing:
                    self._taken.set()
        finally:
            self._taken.set()
            self._hear_out()
            self._settle_touched()
            self._listener.close()  # while the store is owned: else its socket is another's

    def _attend_all(self, pause: float | None) -> None:
        """Waits for something to come, for at most `pause`, and takes all that has."""
        # Behind a turn for others their next input may be near.
        look = self._look_awake if self._led else self._poller.poll
        self._led = False
        for fd, events in look(pause):
            peer = self._waited_for.get(fd)
            if peer is not None:
                self._attend(peer, events)
            elif fd == self.nudge.socket.fileno():
                self.nudge.clear()
            elif not self._closing:
                self._accept()

    def _pause(self) -> float | None:
        """Returns the time after which there is something to do though nothing has come."""
        if self._stalled:
            return _STALLED_SECONDS
        if self._accepts_at is not None:
            return _REST_SECONDS
        waits = self._settles_at is not None or self._cleans_at is not None
        ticks = waits or self.shares.busy or self._strangers
        return _TICK_SECONDS if ticks else None

    def _accept_again(self) -> None:
        if self._accepts_at is not None and time.monotonic() >= self._accepts_at:
            self._accepts_at = None
            self._poller.register(self._listener.socket, IN)

    def _look_round(self) -> None:
        """Does what is due though nothing has come."""
        now = time.monotonic()
        for peer in list(self._strangers):
            if now - peer.since > _HELLO_SECONDS:
                self._drop(peer)
        if self._settles_at is not None and now >= self._settles_at:
            self._settles_at = None
            self.shares.settle()
        if self._cleans_at is not None and now >= self._cleans_at:
            self._cleans_at = None
            with suppress(PlanstepError):
                self._listener.others()  # which removes those of the dead
        if now - self._ticked >= _TICK_SECONDS and self.shares.busy:
            self._ticked = now
            self.shares.tick()

    def _send_frame(self, link: int, frame: Frame) -> None:
        peer = self.peers.get(link)
        if peer is not None:
            peer.tell(frame)

    def _runtime_ends(self) -> bool:
        return self.runtime.threads.stopping.is_set()

    def _lead(self) -> None:
        """Runs turns over what the peers have sent, unless another thread does."""
        runtime = self.runtime
        node = runtime.nodes[0]
        if runtime.hosts > 1:
            if node.inbox:
                node.wake.set()
            return
        while node.inbox and runtime.turns.stopped is None and node.try_lead(None):
            runtime.threads.lead(node, None)
            self._led = True
        if runtime.replies.due:
            runtime.turns.submitted.set()

    def _attend(self, peer: Peer, events: int) -> None:
        if events & ~OUT and peer.events & IN and not peer.stalled and not self._closing:
            self._receive(peer)  # which touches it
        else:
            self._touched.append(peer)

    def _receive(self, peer: Peer) -> bool:
        """Takes what has arrived on a link; returns whether there may be more."""
        return self._take(peer, peer.receive)

    def touch(self, peer: Peer) -> None:
        """Has what a peer is to be sent sent soon; any thread calls this."""
        self._touched.append(peer)
        if threading.get_ident() != self.thread:
            self.nudge.set()

    def _take(self, peer: Peer, work: Callable[[], bool]) -> bool:
        self._touched.append(peer)
        try:
            room_for_a_turn()
            return work()
        except MemoryError:
            raise
        except Exception as error:  # one link ends, and neither the owner nor the others
            peer.fail(error)
            return False

    def _hear_out(self) -> None:
        """Takes all that has arrived on links, if somebody asked for that."""
        for hearing in list(self._hearings):
            if hearing.peers is None:
                hearing.peers = list(self.peers.values())
            hearing.peers = [peer for peer in hearing.peers if not self._is_heard(peer)]
            if not hearing.peers:
                self._hearings.remove(hearing)
                hearing.done.set()

    def _is_heard(self, peer: Peer) -> bool:
        """Takes all that has arrived on a link; False while the owner has no room for it."""
        for _ in range(_RECEIVED_TIMES):  # who is alive may go on sending
            if peer.ended or self._closing or self._runtime_ends():
                return True
            if peer.stalled or peer.chokes or not self._receive(peer):
                break
        return not (peer.stalled or peer.chokes)

    def _settle_touched(self) -> None:
        """Sends what there is to send, and waits for what each link may do next."""
        while self._touched:
            peer = self._touched.popleft()
            if peer.number not in self.peers:
                continue
            if peer.ended or peer.has_output:
                self._send_to(peer)
            if not peer.ended:
                self._select(peer)
            if peer.number in self.peers:
                _note(self._stalled, peer, peer.stalled)
                _note(self._strangers, peer, peer.ended or not peer.welcomed)

    def _send_to(self, peer: Peer) -> None:
        with suppress(OSError):
            peer.flush()
            if not peer.ended or (peer.has_output and not peer.gone):
                return
        self._drop(peer)

    def _select(self, peer: Peer) -> None:
        reads = not (peer.stalled or peer.chokes or self._closing)
        self._wait_for(peer, IN * reads | OUT * peer.has_output)

    def _wait_for(self, peer: Peer, events: int) -> None:
        """Waits for these events of a link. One without any is left out: its end would be an event for ever."""
        if events == peer.events:
            return
        fd = peer.socket.fileno()
        if peer.events:
            self._poller.unregister(peer.socket)
            del self._waited_for[fd]
        if events:
            self._poller.register(peer.socket, events)
            self._waited_for[fd] = peer
        peer.events = events

    def _accept(self) -> None:
        try:
            accepted = self._listener.accept()
        except ForeignPeer as error:
            process_refused(self._folder, error)
            return
        except IoError as error:  # no descriptor is left; who wants to attach waits
            process_refused(self._folder, error)
            self._poller.unregister(self._listener.socket)
            self._accepts_at = time.monotonic() + _REST_SECONDS
            return
        if accepted is None:
            return
        self.served += 1
        while any((self.served - number) % NUMBERS == 0 for number in self.peers):
            self.served += 1  # the address of a client comes from it
        peer = Peer(self, self.served, *accepted)
        if len(self.peers) >= LINKS_MAX:
            peer.refuse(Overloaded(f"{LINKS_MAX} processes are attached to the store already"))
        self.peers[peer.number] = peer
        self._touched.append(peer)

    def _drop(self, peer: Peer) -> None:
        if self.peers.pop(peer.number, None) is None:
            return
        self._wait_for(peer, 0)
        self._cleans_at = self._cleans_at or time.monotonic() + _TICK_SECONDS
        self._stalled.pop(peer, None)
        self._strangers.pop(peer, None)
        peer.end()
        self._ended.append(peer)

    # calls ---------------------------------------------------------------------------------

    def call(self, peer: Peer, call: Call) -> None:
        """Has a call run on another thread, which answers it."""
        if not self._calling:
            self.runtime.threads.begin_thread("calls", self._serve_calls)
            self._calling = True
        self._calls.append((peer, call))
        self._called.release()

    def _serve_calls(self) -> None:
        while not self._runtime_ends():
            if not self._called.acquire(timeout=0.5) or not self._calls:
                continue
            peer, call = self._calls.popleft()
            if peer.gone:
                continue
            try:
                function = CALLS.get(call.name)
                if function is None:
                    raise PlanstepError(f"the store's owner knows no call {call.name!r:.100}")
                peer.returned(call.number, function(self.runtime, *call.arguments))
            except Exception as error:
                peer.failed(call.number, form_of(error))
            self.touch(peer)

    def hear_out(self) -> bool:
        """Takes all that processes had sent by now, also those that have ended. Returns whether that is done."""
        if self.thread == threading.get_ident():
            return False
        hearing = _Hearing()
        self._hearings.append(hearing)
        deadline = time.monotonic() + _HEARD_SECONDS
        self.nudge.set()
        while not hearing.done.wait(_LOOK_SECONDS):
            if self._runtime_ends() or time.monotonic() > deadline:
                return False
            self.nudge.set()
        return True

    def take_no_more(self) -> None:
        """Reads nothing more from any link. Returns once that is so; turns and answers go on."""
        self._closing = True
        while not self._taken.wait(_LOOK_SECONDS) and not self._runtime_ends():
            self.nudge.set()
            runner = self.runner
            if runner is None or not runner.is_alive() or runner is threading.current_thread():
                return  # there was no memory for the thread, perhaps

    def close(self) -> None:
        """Ends all links. The caller has closed the store, so that one of the processes can own it."""
        for peer in self.peers.values():
            peer.socket.close()
        self.peers.clear()
        self._listener.close()  # again, if the thread did not begin
        self._poller.close()
        self.nudge.close()
        self._leave_to_others()
        self._listener.end()

    def _leave_to_others(self) -> None:
        """Waits a moment until another process owns the store, if any has it open.

        One that opens it again and again kept it from them for 10 s.
        """
        deadline = time.monotonic() + _MOMENT_SECONDS
        with suppress(PlanstepError):
            while time.monotonic() < deadline and set(self._listener.others()) - {os.getpid()}:
                if self._listener.owner_by_now() != os.getpid():
                    return
                time.sleep(_LEFT_SECONDS)

    def stats(self) -> dict[str, Any]:
        return {"attached": len(self.peers), "served": self.served, **self.shares.stats()}


def _note(group: dict[Peer, None], peer: Peer, belongs: bool) -> None:
    if belongs:
        group[peer] = None
    elif group:
        group.pop(peer, None)
