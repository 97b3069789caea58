"""Asks the store's owner for what an attached process needs of it: the value of a call, and transactions' ids.

    call ─▶ Call ─▶ the owner ─▶ Return, or its error          once more, where the owner goes meanwhile
                                                               done here, once this process is the owner
    ids used up ─▶ NewIds ─▶ the owner ─▶ Ids

Who waits too long is told what is known of the owner: it is stopped, it is busy, or there is none.

Next: link.py.
"""

import asyncio
import time
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from ...errors import IoError, Overloaded
from ...proto import frames
from ...proto.frames import Frame
from .calls import CALLS
from .error_form import error_of
from .ids import Ids

if TYPE_CHECKING:
    from ..runtime import Runtime
    from .link import Link

_LOOK_SECONDS = 0.5
_CALL_SECONDS = 30.0
_LOOP_SECONDS = 0.1


class Asking:
    """Invariant: a call waits no longer than the link it went over; then it goes over the next one."""

    def __init__(self, runtime: "Runtime", link: "Link") -> None:
        self.ids = Ids(self._ask_ids, self._wait_ids)
        self._runtime = runtime
        self._link = link
        self._numbers = count(1)
        self._calls: dict[int, SimpleQueue[Frame | None]] = {}

    def number(self) -> int:
        """Returns a number for a call whose return nobody waits for."""
        return next(self._numbers)

    def call(self, name: str, arguments: tuple[Any, ...], timeout: float = _CALL_SECONDS) -> Any:
        """Calls a function of the owner's table, and returns its value or raises its error. It may run twice.

        IoError where no owner answers within `timeout` seconds; StoreClosed where nobody can.
        """
        link = self._link
        deadline = time.monotonic() + timeout
        while not link.owns:
            answer = self._call(name, arguments, deadline)
            match answer:
                case frames.Return(_, value):
                    return value
                case frames.CallFailed(_, form):
                    raise error_of(form)
            if link.lost is not None:
                raise link.lost
            if time.monotonic() >= deadline:
                raise IoError(f"{link.doubt()}, for {timeout:g} s")
            time.sleep(0.001)  # an owner is about to be found
        return CALLS[name](self._runtime, *arguments)

    def _call(self, name: str, arguments: tuple[Any, ...], deadline: float) -> Frame | None:
        number = self.number()
        answers = self._calls[number] = SimpleQueue[Frame | None]()
        try:
            self._link.tell(frames.Call(number, name, arguments))
            while self._link.connected and time.monotonic() < deadline:
                remaining = max(0.0, min(_LOOK_SECONDS, deadline - time.monotonic()))
                with suppress(Empty):
                    return answers.get(timeout=remaining)
            return None if answers.empty() else answers.get()
        finally:
            del self._calls[number]

    def returned(self, frame: frames.Return | frames.CallFailed) -> None:
        answers = self._calls.get(frame.number)
        if answers is not None:
            answers.put(frame)

    def disconnected(self) -> None:
        """Has calls go on with the next owner."""
        for answers in list(self._calls.values()):
            answers.put(None)

    def _ask_ids(self) -> None:
        self._link.tell(frames.NewIds())

    def _wait_ids(self, ids: Ids) -> None:
        """Waits for ids; IoError. On the thread of an event loop Overloaded soon: others wait for that loop."""
        loops = _runs_a_loop()
        deadline = time.monotonic() + (_LOOP_SECONDS if loops else _CALL_SECONDS)
        pause = 0.0002
        asked = time.monotonic()
        while ids.empty and not self._link.owns:
            self._runtime.turns.check_open()
            now = time.monotonic()
            if now > deadline:
                text = f"{self._link.doubt()}; no transaction can begin until then"
                raise Overloaded(f"{text}: try again") if loops else IoError(text)
            if now - asked > _LOOK_SECONDS:  # the owner that was asked may be gone
                self._ask_ids()
                asked = now
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        if self._link.owns:
            ids.replace(self._runtime.new_tx)


def doubt_about(pid: int) -> str:
    """Says why the process that owns the store does not answer; 0 where its id is not known."""
    owner = f"process {pid}, which owns the store," if pid else "the store's owner"
    try:
        with open(f"/proc/{pid}/stat") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        state = ""
    if state in ("T", "t"):
        return f"{owner} is stopped (SIGSTOP): continue it, or end it"
    return f"{owner} has not answered yet: it is busy, or hangs"


def _runs_a_loop() -> bool:
    """Returns whether this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
