"""Keeps the owner's end of one link: decodes what its process sends, and gathers what it is to be sent.

    bytes ─▶ frame ─▶ Commit, Stage ─▶ remote_commits.py ─▶ inbox ──────────┐
                    ─▶ Rollback ─▶ inbox     Watch ─▶ watches                │
                    ─▶ Deliver ─▶ remote_client.py ─▶ inbox                  │
    frames to send ◀─ Results, Failures: all answers since the last send ◀──┘

Next: remote_commits.py.
"""

import os
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import (
    NotSupported,
    PlanstepError,
    WrongMode,
    difference,
)
from ...host.inputs import Commit as CommitInput
from ...host.inputs import CommitAgain, StageInput
from ...proto import frames
from ...proto.frame_checks import MalformedFrame
from ...proto.frame_codec import Decoder, NoCommonVersion, encode
from ...proto.frames import OF_ATTACHED, Frame
from ...store import process_socket
from ..group_commit import Sink
from ..outcome import Commit
from .error_form import form_of
from .ids import BLOCK, address_of
from .output import Output
from .remote_client import RemoteClient
from .remote_commits import RemoteCommits

if TYPE_CHECKING:
    from .server import Server

RECEIVED_MAX = 256 << 10
"""Bytes taken from a link before the others have their turn."""
_UNSENT_MAX, _CALLS_MAX = 1 << 20, 64
"""Bytes that a process has not taken yet, and calls under way: with more its link is not read."""


class Peer(Sink):
    """An attached process. Its own methods are the server thread's, but for `take`, `returned`, `failed` and
    `publish`, which any thread calls."""

    def __init__(
        self, server: "Server", number: int, link: socket.socket, process: process_socket.Peer
    ) -> None:
        self.number = number
        self.socket = link
        self.process = process
        self.program = ""
        self.events = 0
        """The events that its server waits for."""
        self.ended = False
        """Nothing more is received: what is left to send is sent, then the link is closed."""
        self.gone = False
        """Nothing can be sent either."""
        self.welcomed = False
        self.since = time.monotonic()
        """When it connected, or was refused."""
        self.linked = (server.runtime.generation, number)
        """The owner's generation and the number of the first link of the engine there."""
        self._server = server
        self._runtime = server.runtime
        self._decoder = Decoder(OF_ATTACHED, hosts=server.runtime.hosts)
        self._buffer = server.buffer
        self._waiting: deque[Frame] = deque()  # for room
        self._output = Output(link)
        self._watched: dict[int, Any] = {}
        self._published: deque[int] = deque()
        self._unsent: dict[int, None] = {}
        self._answers: deque[tuple[bytes, Commit | BaseException]] = deque()
        self._others: deque[Frame] = deque()
        self._asked = self._returned = (
            0  # calls: counted by the server's thread, and by that of calls
        )
        self._commits = RemoteCommits(self._runtime, server.blocks, self)
        self._client = RemoteClient(self._runtime, self._nudge, lambda: address_of(*self.linked))

    # what arrives --------------------------------------------------------------------------

    @property
    def stalled(self) -> bool:
        """Returns whether the owner had no room for its last input, so that it is not read."""
        return bool(self._waiting) and not self.ended

    @property
    def chokes(self) -> bool:
        """Returns whether its process asks faster than it takes the answers, so that it is not read."""
        return self._output.size > _UNSENT_MAX or self._asked - self._returned > _CALLS_MAX

    def receive(self) -> bool:
        """Takes what has arrived; returns whether there may be more. OSError when the link is gone."""
        try:
            size = self.socket.recv_into(self._buffer)
        except BlockingIOError:
            return False
        if not size:
            self.ended = self.gone = True
            return False
        self._guarded(self._feed, self._buffer[:size])
        return not self.ended

    def _feed(self, data: memoryview) -> None:
        for frame in self._decoder.feed(data):
            if self.ended:
                return  # refused: nothing behind that is taken
            if self._waiting or not self._taken(frame):
                self._waiting.append(frame)

    def go_on(self) -> bool:
        """Tries again what had no room; returns whether it was taken."""
        self._guarded(self._try_waiting)
        return not self.stalled

    def _try_waiting(self) -> None:
        while not self.ended and self._waiting and self._taken(self._waiting[0]):
            self._waiting.popleft()

    def _guarded(self, work: Callable[..., None], *given: memoryview) -> None:
        """Takes frames, and refuses a link that sends what no process of the store does."""
        try:
            work(*given)
        except NoCommonVersion as error:
            self.refuse(
                NotSupported(
                    f"the store's owner (process {_own_pid()}) runs another version of planstep: {error}; "
                    "use one in all processes of a store"
                )
            )
        except MalformedFrame as error:
            self.refuse(
                NotSupported(f"the store's owner does not understand this process: {error}")
            )

    def fail(self, error: BaseException) -> None:
        if isinstance(error, OSError):
            self.ended = self.gone = True
        else:
            self.refuse(error)

    def _taken(self, frame: Frame) -> bool:
        """Takes a frame; False when there is no room for it now."""
        match frame:
            case frames.Commit(tx, parts, size, again):
                return self._commits.take((CommitAgain if again else CommitInput)(tx, parts, size))
            case frames.Deliver():
                return self._client.deliver(frame)
            case frames.Stage(tx, slices):
                return self._commits.take(StageInput(tx, slices))
            case _:
                take = _TAKE.get(type(frame))
                if take is None:
                    raise MalformedFrame(f"{type(frame).__name__} is not known here")
                take(self, frame)
        return True

    def rollback(self, frame: frames.Rollback) -> None:
        self._commits.rollback(frame.tx)

    def unwatch(self, frame: frames.Unwatch) -> None:
        for tablet in frame.tablets:
            if (wake := self._watched.pop(tablet, None)) is not None:
                self._runtime.turns.watches.remove((tablet,), wake)

    def give_ids(self, frame: frames.NewIds) -> None:
        self._others.append(frames.Ids(*self._new_ids()))

    def call(self, frame: frames.Call) -> None:
        self._asked += 1
        self._server.call(self, frame)

    def take_share(self, frame: Frame) -> None:
        self._server.shares.take(self.number, frame)

    def floor(self, frame: frames.Floor) -> None:
        self._runtime.maintenance.floors.take(self.number, frame.floors)

    def bye(self, frame: frames.Bye) -> None:
        self.ended = self.gone = True

    def greet(self, hello: frames.Hello) -> None:
        runtime, said = self._runtime, self._server.said
        self.program = hello.program
        if hello.store != runtime.nodes[0].host.store.store_id:
            self.refuse(PlanstepError("the store was replaced meanwhile: open it again"))
            return
        if any(self._is_of_another(peer, hello.first) for peer in self._server.peers.values()):
            self.refuse(
                PlanstepError("the link that this process says it had is another process's")
            )
            return
        for name, asked in hello.settings:
            if name in said and said[name] != asked:
                error = WrongMode(name, said[name], asked)
                error.args = (
                    f"process {_own_pid()} has the store open with {difference(name, said[name], asked)}: "
                    "open it with the same settings, or leave them out",
                )
                self.refuse(error)
                return
        self.linked = hello.first or self.linked
        welcome = frames.Welcome(
            frames.VERSIONS[1],
            runtime.generation,
            self.number,
            tuple(said.items()),
            self._new_ids(),
        )
        self._others.append(welcome)
        self.welcomed = True

    def _is_of_another(self, peer: "Peer", first: tuple[int, int] | None) -> bool:
        """Returns whether a link is the one that a process says it had, and a living one of another process."""
        return peer.linked == first and not peer.gone and peer.process.pid != self.process.pid

    def _new_ids(self) -> tuple[int, int]:
        first = self._runtime.hosting.new_block(BLOCK)
        self._server.blocks.add(first, self.linked)
        return first, BLOCK

    def watch(self, frame: frames.Watch) -> None:
        """Watches tablets, and says at once that they may have published: between the look and this, perhaps."""
        for tablet in frame.tablets:
            if tablet not in self._watched:
                wake = self._watched[tablet] = partial(self.publish, tablet)
                self._runtime.turns.watches.add((tablet,), wake)
            self._published.append(tablet)

    # what is sent --------------------------------------------------------------------------

    @property
    def has_output(self) -> bool:
        return bool(
            self._output.waits
            or self._answers
            or self._others
            or self._published
            or self._client.has_output
        )

    def take(self, tx: bytes, answer: Commit | BaseException) -> None:
        self._answers.append((tx, answer))
        self._nudge()

    def tell(self, frame: Frame) -> None:
        """Has a frame sent; any thread calls this."""
        self._others.append(frame)
        self._nudge()

    def publish(self, tablet: int) -> None:
        self._published.append(tablet)
        self._nudge()

    def returned(self, number: int, value: Any) -> None:
        frame = frames.Return(number, value)
        encode(frame)  # a value that cannot be sent is this call's error, and not the server's
        self._others.append(frame)
        self._returned += 1

    def failed(self, number: int, form: frames.ErrorForm) -> None:
        self._others.append(frames.CallFailed(number, form))
        self._returned += 1

    def _nudge(self) -> None:
        self._server.touch(self)

    def refuse(self, error: BaseException) -> None:
        """Refuses the link: says why, once, then closes it."""
        if self.ended:
            return
        form = form_of(error)
        refusal = (
            frames.Stopped(form) if self.welcomed else frames.Refused(str(error)[:20_000], form)
        )
        self._others.append(refusal)
        self.ended, self.since = True, time.monotonic()

    def flush(self) -> None:
        """Sends what there is, as far as the link takes it. OSError when the link is gone."""
        results: list[frames.Result] = []
        failures: list[tuple[bytes, frames.ErrorForm]] = []
        while self._answers:
            tx, answer = self._answers.popleft()
            self._commits.answered(tx, answer)
            if isinstance(answer, BaseException):
                failures.append((tx, form_of(answer)))
            else:
                results.append(
                    frames.Result(tx, answer.place.step, answer.place.n or 0, answer.details)
                )
        if results:
            self._output.add(encode(frames.Results(tuple(results))))
        if failures:
            self._output.add(encode(frames.Failures(tuple(failures))))
        for answers in self._client.output():
            self._output.add(encode(answers))
        while self._others:
            self._output.add(encode(self._others.popleft()))
        self._output.send()
        while self._published:
            self._unsent[self._published.popleft()] = None
        if (
            self._unsent and not self._output.waits
        ):  # else a process that hangs would be sent ever more
            self._output.add(encode(frames.Published(tuple(self._unsent))))
            self._unsent.clear()
            self._output.send()

    def settle(self) -> bool:
        """Takes notice of names that were changed since the link ended; returns whether one is still under way."""
        while self._answers:
            self._commits.answered(*self._answers.popleft())
        return self._commits.settle(lambda: bool(self._answers))

    def end(self) -> None:
        """Closes the link, and takes back what its process has left open."""
        self.ended = self.gone = True
        for tablet, wake in self._watched.items():
            self._runtime.turns.watches.remove((tablet,), wake)
        self._watched.clear()
        self._client.end()
        if self.welcomed and not self._runtime.turns.closed:
            self._runtime.hooks.client_left("{}.{}".format(*self.linked))
        self._commits.end()
        self._waiting.clear()
        self._server.shares.drop(self.number)
        self._runtime.maintenance.floors.drop(self.number)
        self.socket.close()


_TAKE: dict[type, Callable[[Peer, Any], None]] = {
    frames.Hello: Peer.greet,
    frames.Rollback: Peer.rollback,
    frames.Watch: Peer.watch,
    frames.Unwatch: Peer.unwatch,
    frames.NewIds: Peer.give_ids,
    frames.Call: Peer.call,
    frames.Bye: Peer.bye,
    frames.Floor: Peer.floor,
    **dict.fromkeys(
        (frames.Join, frames.Leave, frames.Given, frames.Claim, frames.Free), Peer.take_share
    ),
}
"""What is done with each kind of frame that needs no room."""


def _own_pid() -> int:
    return os.getpid()
