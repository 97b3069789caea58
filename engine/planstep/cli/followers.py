"""`planstep follow` keeps a folder up to date with a shared log, and takes the store over once its owner is silent.

    follow ─ a line each 10 s in which turns came ─▶ SIGINT, SIGTERM: exit 0
       └ --take-over-after ─▶ lead ─┬ COMMAND: closed, and this process becomes COMMAND
                                    └ none: owns the store until it is fenced ─▶ follow

Next: ../api/follower.py.
"""

import _thread
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

import planstep

from ..errors import (
    Fenced,
    LogUnreachable,
    NotSupported,
    PlanstepError,
    TooManyTakeovers,
    Trimmed,
)
from .output import print_json, say, sleep_while_read
from .values import duration

_LINE_SECONDS = 10.0
_LOOK_SECONDS = 0.2
_AGAIN_SECONDS = 5.0


def follow(
    url: Annotated[str, typer.Argument(metavar="URL", help="The shared log, as s3://bucket/shop.")],
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The folder; it may be missing, empty or old.")
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND]", help="Becomes this once it has taken over."),
    ] = None,
    *,
    take_over_after: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Take over once the owner is silent: 10s, 1m."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Follow a replicated store into a folder, which others may read meanwhile.

    It ends with exit 0 on Ctrl-C and SIGTERM. Other processes open PATH with
    read_only=True, and commands that look work on it.

    With --take-over-after it takes the store over once its owner was silent for
    so long, times 1 to 1.5. The owner needs beats: planstep.Replicate(URL,
    beat=1). Then this process becomes COMMAND, which opens PATH with
    replicate=URL, soon: other followers wait, too. Without COMMAND it owns the
    store, and does nothing with it, until a signal ends it or another machine
    takes over; then it follows again. After three takeovers in ten times that
    age it only follows, as two slow machines end one another's work.

    JSON: event (following, owner, fenced, stopped), turn, lag_turns and
    lag_seconds (null for an owner).

    Example: planstep follow s3://bucket/shop shop --take-over-after 10s -- ./serve
    """
    after = None if take_over_after is None else duration(take_over_after, "--take-over-after")
    if command and after is None:
        raise typer.BadParameter("only after a takeover: --take-over-after", param_hint="COMMAND")
    if command and shutil.which(command[0]) is None:
        raise typer.BadParameter(f"there is no program {command[0]!r}", param_hint="COMMAND")
    told = _Told(as_json)
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, _interrupt)
        while True:
            after = _follow(url, path, after, command or [], told)
    except KeyboardInterrupt:
        told.tell("stopped")


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


class _Told:
    """Prints a line an event, and remembers the last turn."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._said = ""
        self.turn = 0

    def say_once(self, text: str) -> None:
        """Prints a line for people, unless it was the last one."""
        if text != self._said:
            self._said = text
            say(f"planstep: {text}")

    def tell(self, event: str, lag: planstep.Lag | None = None) -> None:
        turns, seconds = (None, None) if lag is None else lag
        if self._as_json:
            print_json(
                {"event": event, "turn": self.turn, "lag_turns": turns, "lag_seconds": seconds}
            )
        else:
            behind = "" if lag is None else f", {turns} turns behind, all there {seconds:.1f} s ago"
            print(f"{event}: turn {self.turn}{behind}")
        sys.stdout.flush()

    def note(self, turn: int) -> None:
        """Is called with each turn of the beginning."""
        if turn >= self.turn + 10_000:
            self.turn = turn
            try:
                self.tell("following")
            except BrokenPipeError:  # the opening would take it for an error of its files
                raise KeyboardInterrupt from None

    def follow(self, me: planstep.Follower, ended: threading.Event) -> None:
        """Tells of each 10 seconds in which turns came."""
        while True:
            turn, lag = me.db.turn, me.lag()
            if turn != self.turn:
                self.turn = turn
                self.tell("following", lag)
            until = time.monotonic() + _LINE_SECONDS
            while time.monotonic() < until:
                if ended.wait(_LOOK_SECONDS):
                    return
                sleep_while_read(0)


def _follow(
    url: str, path: Path, after: float | None, command: list[str], told: _Told
) -> float | None:
    """Follows until it has owned the store and is fenced, or has to begin from a snapshot; returns `after`."""
    ended = threading.Event()
    with _begin(url, path, told) as me:
        lines = threading.Thread(target=_lines, args=(told, me, ended), daemon=True)
        lines.start()
        try:
            db = _lead(me, url, after, told)
        except (Fenced, LogUnreachable, Trimmed) as error:
            if me.db.closed or isinstance(error, Trimmed):  # about to take over, or left behind
                say(f"planstep: follows again: {error}")
                return after
            raise
        finally:
            ended.set()
            lines.join()
    with db:
        told.turn = db.turn
        told.tell("owner")
        if not command:
            _own(db, told)
            return after
    os.execvp(command[0], command)


def _begin(url: str, path: Path, told: _Told) -> planstep.Follower:
    """Begins to follow, and waits for a shared log that does not answer, as it does later."""
    while True:
        try:
            return planstep.follow(path, url, progress=told.note)
        except LogUnreachable as error:
            told.say_once(f"tries again, as {error}")
            time.sleep(_AGAIN_SECONDS)


def _lines(told: _Told, me: planstep.Follower, ended: threading.Event) -> None:
    try:
        told.follow(me, ended)
    except PlanstepError:
        pass  # the main thread has it too
    except BrokenPipeError:
        _thread.interrupt_main(signal.SIGTERM)  # which meets the closed pipe, too


def _lead(me: planstep.Follower, url: str, after: float | None, told: _Told) -> planstep.Engine:
    """Leads the store once its owner is silent. Without `after`, or once that is not to be tried again, never."""
    while after is not None:
        try:
            return me.lead(after, replicate=planstep.Replicate(url, beat=after / 4))
        except NotSupported as error:
            told.say_once(str(error))
            time.sleep(_AGAIN_SECONDS)
        except TooManyTakeovers as error:
            say(f"planstep: {error}")
            break
    while True:
        me.lag()  # raises what ended it
        time.sleep(_LOOK_SECONDS)


def _own(db: planstep.Engine, told: _Told) -> None:
    """Owns the store until another machine does."""
    turns = db.context.runtime.turns
    while turns.stopped is None:
        sleep_while_read(_LOOK_SECONDS)
    if not isinstance(turns.stopped, Fenced):
        turns.check_open()
    told.tell("fenced")
