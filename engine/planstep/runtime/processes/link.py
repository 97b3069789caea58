"""Sends an attached process's inputs to the store's owner, and receives what the owner sends.

    commit ─▶ send ─▶ lead ─▶ receive, for all that wait, until its own answer has come ─▶ give the lead away
    nobody leads ─▶ the link's own thread receives: publications, answers of futures, the end
    the owner is gone ─▶ its own thread finds the next one, or owns the store ─▶ what is not answered goes there

The own thread waits for the socket only while nobody leads: a lone commit wakes no other thread. A send
never waits: what the socket has no room for is sent by the own thread.

Next: next_owner.py.
"""

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ...errors import (
    EngineClosed,
    PlanstepError,
    ProtocolError,
    StoreClosed,
    reason,
)
from ...host.inputs import (
    AtomicDeliver,
    CommitAgain,
    Deliver,
    Input,
    Rollback,
    StageInput,
    each_of,
)
from ...host.inputs import Commit as CommitInput
from ...logs import owner_lost
from ...proto import frames
from ...proto.frame_checks import MalformedFrame
from ...proto.frame_codec import FrameTooLarge, encode
from ...proto.frames import Frame
from ...proto.ids import host_of, tx_text
from ...proto.messages import Resolve
from ...proxy.attached import Attached
from ..deferred_signals import Uninterrupted
from ..floors import FloorReport
from ..group_commit import Waiter
from ..outcome import undetermined
from .armed import Armed, new_poller
from .asking import Asking, doubt_about
from .attached import Accepted
from .awake import Awake, interrupting_nobody
from .error_form import error_of
from .incoming import Incoming
from .next_owner import OWNED, NextOwner
from .nudge import Nudge
from .output import Output

if TYPE_CHECKING:
    from ..runtime import Runtime
    from ..turn_loop import ToClient

Sent: TypeAlias = CommitInput | StageInput | Deliver | AtomicDeliver
_LOOK_SECONDS = 0.5
_TOGETHER = 6
"""So many buffers are sent at once: those of three commits, or of one large one."""
SILENT_SECONDS = 30.0
"""How long the owner may say nothing, or none be found, until what waits without a time-out is told that its end is
not known."""


class Link:
    """The link of an attached runtime, over all the owners that the store has meanwhile.

    Invariants: only the holder of the node's lead receives. Once this process owns the store, inputs that come here
    go into the host's own inbox.
    """

    def __init__(self, runtime: "Runtime", attached: Accepted, next_owner: NextOwner) -> None:
        self.said = dict(attached.welcome.settings)
        """The owner's settings, as plain values."""
        self._asking = Asking(runtime, self)
        self.ids = self._asking.ids
        self.lost: PlanstepError | None = None
        """Why nothing is sent any more."""
        self._runtime = runtime
        self._node = runtime.nodes[0]
        self.floors = FloorReport()
        self._next_owner = next_owner
        self._sending = threading.Lock()
        self._unanswered = Attached(attached.welcome.generation)
        self.owns = False
        """This process is the store's owner by now."""
        self._nudge = Nudge()
        self._waits = Awake()
        self._awake = Nudge()
        self._own = Armed(self._awake, self._writes, new_poller())
        """What the own thread waits for."""
        self._ended = False
        self._thread: threading.Thread | None = None
        self.connected = False
        """There is an owner to send to."""
        self._owners_lost = 0
        self._use(attached)

    @property
    def generation(self) -> int:
        """Returns the generation of the last owner."""
        return self._generation

    def stats(self) -> dict[str, Any]:
        lost = self._owners_lost
        return {"owner": self.owner, "connected": self.connected, "owners_lost": lost}

    def begin(self) -> None:
        self.arm()
        self._thread = self._runtime.threads.begin_thread("link", self._serve)
        self._runtime.shares.attach(self.tell)

    def _use(self, attached: Accepted) -> None:
        """Goes on with another connection. The caller holds the lead, or is alone."""
        attached.socket.setblocking(False)
        self.owner_incarnation = str(dict(attached.welcome.settings).get("incarnation", ""))
        self.owner = attached.owner.pid
        """The process id of the store's owner, 0 where it is not known."""
        self._socket = attached.socket
        self._generation = attached.welcome.generation
        self._output = Output(attached.socket)
        self._own.use(attached.socket)
        self._incoming = Incoming(self._nudge, self._waits, attached.socket, attached.decoder)
        self.ids.forget()
        self.ids.add(self._generation, *attached.welcome.ids)
        self.connected = True

    # sending -------------------------------------------------------------------------------

    def send(self, item: Input) -> None:
        """Sends an input; its answer comes to the reply book."""
        match item:
            case CommitInput(tx, parts, size):
                self._send(frames.Commit(tx, parts, size), item)
            case StageInput(tx, slices, size):
                self._send(frames.Stage(tx, slices, size), item)
            case Rollback(tx):
                self._send(frames.Rollback(tx))
            case Deliver(_, Resolve(tx)):
                self._send(frames.Call(self._asking.number(), "resolve", (tx,)), item)
            case Deliver() | AtomicDeliver():
                requests = tuple((one.target, one.message, one.cause) for one in each_of(item))
                self._send(frames.Deliver(requests), item)
            case _:
                raise AssertionError(f"{type(item).__name__} is for the owner's own turns")

    def tell(self, frame: Frame) -> None:
        """Sends a frame that nothing answers, or nobody waits for."""
        self._send(frame)

    def _send(self, frame: Frame, item: Sent | None = None) -> None:
        try:
            buffers = encode(frame)
        except FrameTooLarge as error:
            raise PlanstepError(f"this is too large for one commit: {error}") from None
        with Uninterrupted():
            with self._sending:
                if self.owns:
                    self._take_here(frame, item)
                    return
                if not (self.connected if item is None else self._note(item)):
                    return
                waited = self._output.waits
                self._output.add(buffers)
                # Where others are under way, the own thread sends what has come until it runs. It may have to wait
                # for the interpreter: the owner would have nothing to do meanwhile.
                others = item is not None and len(self._runtime.replies.waiting) > 1
                later = others and len(self._output) < _TOGETHER
                sends = not later and (others or not waited)
                if sends:
                    self._flush()
                waits = self._output.waits
            if later:
                self._awake.set()
            elif waits and sends:
                self._own.look()

    def _note(self, item: Sent) -> bool:
        """Notes an input that is to be answered; returns whether to send it now.

        Requests of a mode's client are not noted: it sends them again itself.
        """
        if isinstance(item, (Deliver, AtomicDeliver)):
            return self.connected
        if isinstance(item, CommitInput):
            return self._unanswered.sent(item.tx, item.parts, item.size)
        sends = self._unanswered.staged(item.tx)
        if not sends:
            self._fail_staged([item.tx])
        return sends

    def _take_here(self, frame: Frame, item: Sent | None) -> None:
        """Takes an input that was about to be sent when this process became the owner."""
        if isinstance(item, (Deliver, AtomicDeliver)):
            node = self._runtime.nodes[host_of(each_of(item)[0].target)]
            self._runtime.turns.put(node, item)
        elif item is not None:
            self._node.inbox.append(item)
        elif isinstance(frame, frames.Rollback):
            self._node.inbox.append(Rollback(frame.tx))
        self._runtime.turns.submitted.set()

    def _flush(self) -> None:
        """Sends what there is; the caller holds the lock."""
        try:
            self._output.send()
        except OSError:
            self._disconnect()

    def call(self, name: str, *arguments: Any, **options: float) -> Any:
        """Calls a function of the owner's table: see Asking.call."""
        return self._asking.call(name, arguments, **options)

    def patience(self, since: float) -> float:
        """Returns until when what was sent at `since` waits, if nothing is heard of an owner by then."""
        return max(self._incoming.heard_at, since) + SILENT_SECONDS

    def end_futures(self) -> None:
        """Ends futures that the owner has left without an answer for long; what they stand for goes on."""
        now = time.monotonic()
        if now < self._incoming.heard_at + SILENT_SECONDS:
            return
        for waiter in self._runtime.replies.waiting.copy().values():
            if now >= self.patience(waiter.since):
                self._runtime.replies.end_in_doubt(
                    waiter, undetermined(waiter.tx, None, self.doubt())
                )

    def doubt(self) -> str:
        """Says why an input is not answered in time."""
        if not self.connected:
            return f"no process owns the store just now: {self._next_owner.state}"
        return doubt_about(self.owner)

    # receiving -----------------------------------------------------------------------------

    def lead(self, waiter: Waiter | None, deadline: float, block: Uninterrupted | None) -> None:
        """Receives until `waiter` is answered; without one, what is there now. The caller holds the node's lead.

        Ends at `deadline` too, with a signal that `block` defers, and when the owner is gone.
        """
        while self.connected and (waiter is None or waiter.answer is None):
            remaining = min(deadline - time.monotonic(), _LOOK_SECONDS)
            if waiter is not None and (
                remaining <= 0 or not self._incoming.ready(remaining, block)
            ):
                return
            self._receive()
            if waiter is None:
                return

    def _receive(self) -> None:
        """Takes what has arrived, and hands the answers out."""
        arrived = self._incoming.frames()
        if arrived is None:
            self._disconnect()
            return
        try:
            for frame in arrived:
                self._take(frame)
        except Exception as error:  # what came behind it is lost: those that wait for it must end
            self._lose(PlanstepError(reason(error)))
        replies = self._runtime.replies
        if replies.answers:
            replies.hand_out()
        if replies.due:  # callbacks may take long: never here, as others wait for this thread
            self._runtime.turns.submitted.set()

    def _take(self, frame: Frame) -> None:
        match frame:
            case frames.Results() | frames.Failures():
                self._answered(frame)
            case frames.Answers(to_clients):
                self._runtime.turns.answer_clients(cast("list[ToClient]", list(to_clients)))
            case frames.Published(tablets):
                self._runtime.turns.watches.wake(tablets)
            case frames.Ids(first, number):
                self.ids.add(self._generation, first, number)
            case frames.Return() | frames.CallFailed():
                self._asking.returned(frame)
            case frames.Shares() | frames.Claimed():
                self._runtime.shares.arrived(frame)
            case frames.Stopped(form):
                self._lose(error_of(form))
            case _:
                raise MalformedFrame(f"{type(frame).__name__} is not known here")

    def _answered(self, frame: frames.Results | frames.Failures) -> None:
        """Notes the answers of a turn. One that comes twice, from two owners, is the same."""
        turns = self._runtime.turns
        if isinstance(frame, frames.Results):
            for tx, step, n, details in frame.results:
                if self._unanswered.answered(tx):
                    turns.committed_at(tx, step, n, details)
        else:
            for tx, form in frame.errors:
                if self._unanswered.answered(tx):
                    turns.failed_with(tx, error_of(form))

    # the owner's end -----------------------------------------------------------------------

    def _disconnect(self) -> None:
        """Notes that the owner is gone: the own thread finds the next one."""
        if self.connected:
            self._own.use(None)  # first: the own thread closes the socket once it is not connected
            self.connected = False
            self._fail_staged(self._unanswered.lost())
            self._runtime.turns.submitted.set()
        self._asking.disconnected()
        self._awake.set()

    def _lose(self, error: PlanstepError) -> None:
        """Gives up: the owner refuses this process, or nobody can own the store."""
        if self.lost is None and not self._ended:
            self.lost = error if isinstance(error, StoreClosed) else StoreClosed(str(error))
            self.lost.__cause__ = error
            self._runtime.turns.stop_everything(self.lost)
            self._runtime.turns.submitted.set()
        self._disconnect()

    def _find_owner(self) -> None:
        """Attaches to the next owner, or becomes it; then hands in what is not answered."""
        while not self._node.try_lead(None):
            time.sleep(0.0005)  # its holder leaves at once, as there is no connection
        try:
            self._socket.close()
            self._owners_lost += 1
            owner_lost(self._runtime, self.owner)
            self._runtime.shares.lost()
            found = self._next_owner.find(lambda: self._ended)
            if found is OWNED:
                self._become_owner()
            elif isinstance(found, Accepted):
                self._go_on(found)
        except PlanstepError as error:
            self._lose(error)
        except Exception as error:
            self._lose(PlanstepError(f"the store's next owner was not found: {reason(error)}"))
        finally:
            if self._node.hand_over():
                self._runtime.turns.submitted.set()

    def _go_on(self, attached: Accepted) -> None:
        with self._sending:
            self._use(attached)
            for tx, parts, size, again in self._unanswered.resumed(self._generation):
                self._output.add(encode(frames.Commit(tx, parts, size, again)))
            self._flush()
        self._own.look()  # for what the socket has no room for: a thread that takes the lead now only receives
        self._runtime.turns.watches.again()
        self._runtime.shares.attach(self.tell)
        self.floors.again()
        self._runtime.hooks.reconnected()

    def _become_owner(self) -> None:
        """Hands in what is not answered to this process's own host."""
        with self._sending:
            self.owns = True
            for tx, parts, size, again in self._unanswered.resumed(self._runtime.generation):
                self._node.inbox.append((CommitAgain if again else CommitInput)(tx, parts, size))
        self._ended = True
        self._runtime.hooks.reconnected()

    def _fail_staged(self, staged: list[bytes]) -> None:
        """Ends what was staged at an owner that is gone: the next one takes it back."""
        for tx in staged:
            why = f"transaction {tx_text(tx)} was not committed: what it had sent ahead is gone with the owner"
            error = ProtocolError(f"{why}; run it again", name="StagedLost", retryable=True)
            self._runtime.turns.failed_with(tx, error)

    # the own thread ------------------------------------------------------------------------

    def arm(self) -> None:
        """Has the own thread receive: nobody else leads."""
        self._own.arm()

    def disarm(self) -> None:
        self._own.disarm()

    def _writes(self) -> bool:
        return self._output.waits

    def _serve(self) -> None:
        while not self._ended:
            with interrupting_nobody():  # but threads that it begins as an owner do
                self._serve_link()
            if not self._ended:
                self._find_owner()
        if self.owns:
            self.release()

    def _serve_link(self) -> None:
        """Receives while nobody leads, and sends what the socket had no room for, until the owner is gone."""
        while not self._ended and (self.connected or self.lost is not None):
            if self._own.wait() and self._node.try_lead(None):
                self._runtime.threads.lead(self._node, None)
            if self._output.waits and self.connected:
                with self._sending:
                    self._flush()
                self._own.look()

    def drain(self, deadline: float) -> None:
        """Waits until all that was sent is answered."""
        while self._runtime.replies.waiting and self.lost is None and time.monotonic() < deadline:
            time.sleep(0.001)

    def close(self) -> None:
        """Ends the link: nothing more is sent. The own thread has ended then, perhaps as the store's owner."""
        if not self._ended:
            self._ended = True  # first: the owner ends the link at once, and is not lost for that
            with suppress(PlanstepError):
                self._send(frames.Bye())
            self.lost = self.lost or EngineClosed("the engine is closed")
            self._awake.set()
        if self._thread is not None:
            self._thread.join()

    def release(self) -> None:
        """Closes the sockets, once the own thread has ended. What readers tell after that reaches nobody."""
        with self._sending:
            self._own.use(None)
            self.connected = False
        self._socket.close()
        self._nudge.close()
        self._awake.close()
        self._own.close()
