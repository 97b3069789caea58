"""Owns a store in the place of a real owner, and sends its attached process what no owner does.

    a store, closed ─▶ the false owner: lock, socket ◀── link ── a real engine, attached

The attached process sees a typed error, or looks for the owner again. It never crashes or hangs, and what it reads
is what the folder has. A commit that it reports was answered: and the false owner never answers one as done.

Next: ../rows/badinput.py.
"""

import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import planstep
from planstep.api.topics import batch_search, lane_sharing
from planstep.proto import frames
from planstep.proto.frame_checks import MalformedFrame
from planstep.proto.frame_codec import Decoder
from planstep.runtime import shutdown
from planstep.runtime.processes import attached, link
from planstep.store.owner_lock import OwnerLock
from planstep.store.process_socket import Listener

from ..patching import exchange
from .forked import Child, Say
from .mutating import mutate
from .odd_frames import DAMAGES, drawn_frame, joined

_COMMIT_SECONDS = 0.05
_VALUES = [b"a", b"b", b"c"]
_ROWS = {"k": 1, "l": 2}
_SAID = {
    "durability": "full",
    "placement": "shared",
    "trace": "summary",
    "rtt": 0.0,
    "snapshot_seconds": 60.0,
    "snapshot_bytes": 1 << 26,
    "group_commit": True,
    "confirms": False,
    "incarnation": "1",
}


def make(folder: Path) -> None:
    """Makes the store."""
    with planstep.open(folder) as db:
        db.create_topic("t").write_batch(_VALUES)
        table = db.create_table("n")
        for key, value in _ROWS.items():
            table.put(key, value)


def hurry() -> None:
    """Has this process wait less for its owner: a false one leaves much without an answer."""
    exchange(shutdown, "_ANSWERED_SECONDS", _COMMIT_SECONDS)
    exchange(attached, "_SECONDS", 0.5)
    exchange(link, "SILENT_SECONDS", 0.2)
    exchange(batch_search, "_LOOK_SECONDS", 2 * _COMMIT_SECONDS)
    for module in (batch_search, lane_sharing):
        exchange(module, "ANSWER_SECONDS", 2 * _COMMIT_SECONDS)


# the owner ---------------------------------------------------------------------------------


def lie(folder: Path, seed: str, say: Say, listen: int) -> None:
    """Answers links wrongly until it is told to end; says how many frames it has sent."""
    lock = OwnerLock(folder / "host-0" / "lock", share=True)
    listener = Listener(lock, folder / "host-0")
    sent = number = 0
    links: dict[socket.socket, Iterator[int]] = {}
    say("listens")
    while True:
        watched: list[Any] = [listen, listener.socket, *links]
        ready = select.select(watched, [], [])[0]
        if listen in ready:
            break
        for one in ready:
            if one is listener.socket:
                accepted = listener.accept()
                if accepted is not None:
                    number += 1
                    links[accepted[0]] = _answers(accepted[0], Random(f"{seed} {number}"))
            elif (count := next(links[one], None)) is None:
                del links[one]
                one.close()
            else:
                sent += count
    say(sent)


def _answers(peer: socket.socket, random: Random) -> Iterator[int]:
    """Yields how many frames it has sent, each time the link has something to be received."""
    decoder = Decoder(frames.OF_ATTACHED)
    left = random.choice([1, 3, 10, 30])
    while left > 0:
        try:
            data = peer.recv(1 << 16)
            received = list(decoder.feed(data))
            if not data:
                return
            answers = [data for frame in received for data in _answer(random, frame)]
            peer.settimeout(1.0)
            for answer in answers:
                peer.sendall(answer)
        except (OSError, MalformedFrame):
            return
        left -= len(received)
        yield len(answers)


def _answer(random: Random, frame: Any) -> list[bytes]:
    """Draws what is sent for a frame."""
    if isinstance(frame, frames.Hello):
        welcome = frames.Welcome(1, 1, random.choice([1, 7]), tuple(_SAID.items()), (1000, 256))
        way = random.randrange(12)
        if way == 0:
            return [joined(drawn_frame(random, frames.Refused))]
        if way == 1:
            said = tuple(random.sample(list(_SAID.items()), random.randrange(len(_SAID))))
            return [joined(welcome._replace(settings=said))]
        if way == 2:
            said = tuple((name, random.choice([None, -1, "x", (), {}])) for name in _SAID)
            return [joined(welcome._replace(settings=said))]
        if way == 3:
            return [joined(drawn_frame(random, frames.Welcome))]
        return [_damaged(random, joined(welcome)) if way == 4 else joined(welcome)]
    kind = random.choice(_OTHERS)
    drawn = drawn_frame(random, kind)
    if isinstance(frame, frames.Call) and hasattr(drawn, "number"):
        drawn = drawn._replace(number=frame.number)
    if isinstance(frame, frames.Commit) and isinstance(drawn, frames.Failures):
        drawn = drawn._replace(errors=((frame.tx, drawn_frame(random, frames.ErrorForm)),))
    data = joined(drawn)
    way = random.randrange(6)
    if way == 0:
        return [_damaged(random, data)]
    return [data] if way < 5 else [data, joined(drawn_frame(random, random.choice(_OTHERS)))]


def _damaged(random: Random, data: bytes) -> bytes:
    return mutate(random, data) if random.random() < 0.3 else random.choice(DAMAGES)(random, data)


_OTHERS = [
    kind
    for code, kind in frames.OF_OWNER.items()
    if code not in frames.OPENING and kind is not frames.Results
] + [frames.Results, frames.Failures, frames.Failures]


# the attached process ----------------------------------------------------------------------


class Deceived:
    """A false owner, and the engines that attach to it one after the other."""

    def __init__(self, folder: Path, seed: str) -> None:
        make(folder)
        self._folder = folder
        self._owner = Child(partial(lie, folder, seed))
        said = self._owner.line()
        assert said == "listens", said

    def attach(self, random: Random) -> str:
        """Attaches an engine, and uses it; returns what went wrong, or ""."""
        try:
            db = planstep.open(self._folder, create=False)
        except planstep.PlanstepError as error:
            return "" if str(error) else f"open: {type(error).__name__} without a word"
        except BaseException as error:
            return f"open: {error!r:.300}"
        wrong = ""
        try:
            for _ in range(random.randrange(1, 6)):
                wrong = wrong or _use(db, random)
        finally:
            try:
                db.close()
            except planstep.PlanstepError:
                pass
            except BaseException as error:
                wrong = wrong or f"close: {error!r:.300}"
        return wrong

    def ends(self) -> str:
        """Ends the false owner; returns what is wrong with it, or ""."""
        self._owner.tell(b"s")
        sent = next(self._owner.lines(), 0)
        self._owner.kill()
        return "" if isinstance(sent, int) and sent else f"the false owner has sent {sent!r:.300}"


def _use(db: planstep.Engine, random: Random) -> str:
    """Does one thing; returns what was wrong with its end, or ""."""
    name = random.choice(list(_USES))
    try:
        return _USES[name](db)
    except planstep.PlanstepError as error:
        return "" if _text(error) else f"{name}: {type(error).__name__} without a word"
    except BaseException as error:
        return f"{name}: {error!r:.300}"


def _text(error: planstep.PlanstepError) -> str:
    return f"{error}{error!r}"


def _look(db: planstep.Engine) -> str:
    with db.snapshot() as view:
        rows, values = dict(view.scan("n")), view.read("t").values
    if (rows, values) != (_ROWS, _VALUES):
        return f"it reads {rows} and {values}"
    return ""


def _commit(db: planstep.Engine) -> str:
    tx = db.transaction()
    tx.put("n", "k", 7)
    tx.write("t", b"d")
    tx.commit(_COMMIT_SECONDS)
    return "a commit is reported that nobody answered"


def _submit(db: planstep.Engine) -> str:
    tx = db.transaction()
    tx.put("n", "k", 7)
    future = tx.submit()
    with suppress(TimeoutError):
        future.result(_COMMIT_SECONDS)
        return "a commit is reported that nobody answered"
    return ""


def _run(db: planstep.Engine) -> str:
    db.run(lambda tx: tx.put("n", "k", 7), attempts=2, deadline=_COMMIT_SECONDS)
    return "a commit is reported that nobody answered"


def _wait(db: planstep.Engine) -> str:
    values = db.topic("t").read(_AT_END, timeout=_COMMIT_SECONDS).values
    return f"there is {values} behind the end" if values else ""


_AT_END = {0: len(_VALUES)}


def _share(db: planstep.Engine) -> str:
    with db.reader("t", "c") as reader:
        leased = reader.read(_COMMIT_SECONDS)
        values = [] if leased is None else leased.batch.values
    return "" if values == _VALUES[: len(values)] else f"a reader has {values}"


def _call(db: planstep.Engine) -> str:
    to_owner = db.context.runtime.link
    if to_owner is not None:
        to_owner.call("is_assigned", bytes(12), timeout=_COMMIT_SECONDS)
    return ""


_USES = {
    "look": _look,
    "commit": _commit,
    "submit": _submit,
    "run": _run,
    "wait": _wait,
    "share": _share,
    "call": _call,
}
