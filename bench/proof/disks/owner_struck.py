"""Keeps a real owner of a store and a process that commits, while others send them what no process should.

    owner ◀── link ── good     commits 0, 1, 2, …, and has to find just these at the end
      ▲
      └─ OddLink               sends what it likes

Three processes: the owner, the good one, and the caller. The owner has to stay, with as much memory and as many
descriptors as before, and the good process has to keep its link.

Next: odd_links.py, link_limits.py.
"""

import os
import select
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import planstep
from planstep.proto import frames
from planstep.proto.frame_checks import MalformedFrame
from planstep.proto.frame_codec import Decoder
from planstep.runtime.processes.error_form import error_of
from planstep.store.files import Files
from planstep.store.meta import load_meta
from planstep.store.process_socket import connect
from planstep.store.verify import verify

from .forked import Child, Say
from .odd_frames import joined

ANSWER_SECONDS = 30.0
"""How long the owner may take to end a link, or to answer: it is a hang after that."""
_PAUSE_SECONDS = 0.001
_HAS_PROC = os.path.exists("/proc/self/statm")
_GAP = 400
"""Tablets between those that are damaged and the good ones, so that no flipped bit leads there."""
_GOOD = "good"
_ODD_TOPIC, _ODD_TABLE = "odd", "odds"


class State(NamedTuple):
    """Describes what the owner holds."""

    descriptors: int
    rss: int
    links: tuple[int, ...]
    shares: dict[str, Any]
    waiting: int
    stopped: str
    """Why the engine takes no more turns."""


class Places(NamedTuple):
    """The tablets that a damaged link may name, and the good process's, by their kinds."""

    topic: int
    partitions: tuple[int, ...]
    shards: tuple[int, ...]
    coordinators: tuple[int, ...]
    """Of modes that have some."""


# processes ---------------------------------------------------------------------------------


def own(folder: Path, mode: Any, prepare: Callable[[], None], say: Say, listen: int) -> None:
    """Owns the store; says its places, then its state each time it is told to, and at the end what it holds."""
    prepare()
    with planstep.open(folder, mode=mode) as db:
        runtime = db.context.runtime
        tables = runtime.hooks.has_tables
        db.create_topic(_ODD_TOPIC, partitions=2)
        if tables:
            db.create_table(_ODD_TABLE, shards=2)
        db.create_topic("gap", partitions=_GAP)
        db.create_topic(_GOOD, partitions=2)
        if tables:
            db.create_table(_GOOD)
        names = runtime.names
        odd = names.topics[_ODD_TOPIC]
        shards = names.tables[_ODD_TABLE].shards if tables else ()
        coordinators = tuple(getattr(runtime.hooks, "coordinators", tuple)())
        say(Places(odd.id, odd.partitions, shards, coordinators))
        while os.read(listen, 1) == b"g":
            say(_state(db))
        say(_content(db))
    say([str(problem) for problem in verify(folder / "host-0")])


def _state(db: planstep.Engine) -> State:
    runtime = db.context.runtime
    assert runtime.server is not None
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if _HAS_PROC else 0
    shown = db.stats()["processes"]
    shares = {name: shown[name] for name in shown if name not in ("attached", "served")}
    return State(
        len(os.listdir("/dev/fd")),
        pages * os.sysconf("SC_PAGE_SIZE"),
        tuple(runtime.server.peers),
        shares,
        len(runtime.replies.waiting),
        "" if runtime.turns.stopped is None else repr(runtime.turns.stopped),
    )


def _content(db: planstep.Engine) -> tuple[list[list[bytes]], Any]:
    """Returns the good process's records by partition, and its row."""
    records = [[r.value for r in db.topic(_GOOD).read(partition=n)] for n in range(2)]
    row = db.table(_GOOD).get("sum") if db.context.runtime.hooks.has_tables else None
    return records, row


def commit_on(folder: Path, say: Say, listen: int) -> None:
    """Commits number after number until it is told to end; says how many at each word."""
    with planstep.open(folder) as db:
        runtime = db.context.runtime
        n = 0
        word = b"g"
        while word == b"g":
            while not select.select([listen], [], [], _PAUSE_SECONDS)[0]:
                _commit(db, n)
                n += 1
            word = os.read(listen, 1)
            say(n)
        assert runtime.link is not None, "it is attached to the owner still"


def _commit(db: planstep.Engine, n: int) -> None:
    if not db.context.runtime.hooks.has_tables:
        db.topic(_GOOD).write(b"%d" % n, partition=n % 2)
        return
    with db.transaction() as tx:
        tx.write(_GOOD, b"%d" % n, partition=n % 2)
        tx.add(_GOOD, "sum", 1)


class Struck:
    """An owner, a good process, and links that are damaged. Invariant: after `end` there is no other process."""

    def __init__(self, folder: Path, mode: str, prepare: Callable[[], None] = lambda: None) -> None:
        self.folder, self.mode = folder, mode
        self.counts: Counter[str] = Counter()
        self._children: list[Child] = []
        self.owner = self._begin(partial(own, folder, mode, prepare))
        self.places: Places = self._said(self.owner, Places)
        self.good = self._begin(partial(commit_on, folder))
        self.committed = 0
        self.goes_on()  # its link is the first
        meta = load_meta(folder / "host-0", Files())
        assert meta is not None
        self.store_id = meta.store_id

    def _begin(self, body: Callable[[Say, int], None]) -> Child:
        child = Child(body)
        self._children.append(child)
        return child

    def _said(self, child: Child, kind: type) -> Any:
        said = child.line()
        if not isinstance(said, kind):
            raise Wrong(f"the {'owner' if child is self.owner else 'good process'}: {said!r}")
        return said

    def state(self) -> State:
        self.owner.tell()
        state: State = self._said(self.owner, State)
        if state.stopped:
            raise Wrong(f"the owner has stopped: {state.stopped}")
        return state

    def goes_on(self) -> int:
        """Returns how much the good process has committed since the last call."""
        self.good.tell()
        before, self.committed = self.committed, self._said(self.good, int)
        return self.committed - before

    def settled(self, what: str = "") -> State:
        """Returns the owner's state once only the good process's link is left."""
        deadline = time.monotonic() + 2 * ANSWER_SECONDS
        while True:
            state = self.state()
            if state.links == (1,):
                return state
            if time.monotonic() > deadline:
                raise Wrong(f"{what}: the owner still has the links {state.links}, not only (1,)")
            time.sleep(0.01)

    def finish(self) -> str:
        """Ends both; returns what is wrong with what they hold, or ""."""
        state = self.settled("at the end")
        left = {name: n for name, n in state.shares.items() if n}
        self.good.tell(b"s")
        self.committed = self._said(self.good, int)
        if self.good.wait():
            return "the good process said more at its end"
        self.owner.tell(b"s")
        records, row = self._said(self.owner, tuple)
        problems = self._said(self.owner, list)
        expected = [[b"%d" % n for n in range(part, self.committed, 2)] for part in range(2)]
        if records != expected:
            return f"of {self.committed} commits there are {[len(one) for one in records]} records"
        if row not in (None, self.committed):
            return f"the sum is {row} after {self.committed} commits"
        return f"left over: {left}" if left else "; ".join(problems[:3])

    def end(self) -> None:
        for child in self._children:
            child.kill()


class Wrong(Exception):
    """Something happened that must not: the text says what."""


# links -------------------------------------------------------------------------------------


class OddLink:
    """A connection to the owner, of a process that sends what it likes."""

    def __init__(self, struck: Struck) -> None:
        self._struck = struck
        self.socket, _ = connect(struck.folder / "host-0", ANSWER_SECONDS)
        self.socket.settimeout(ANSWER_SECONDS)
        self._decoder = Decoder(frames.OF_OWNER)
        self._mirror = Decoder(frames.OF_ATTACHED)
        self.malformed = ""
        """What the owner has to notice in what was sent."""
        self.ended = False
        """The owner has ended the link."""
        self.reason = ""
        self.cut = False
        """The last frame is not whole."""

    def hello(self, **changes: Any) -> frames.Hello:
        return frames.Hello(frames.VERSIONS, self._struck.store_id, os.getpid(), "odd")._replace(
            **changes
        )

    def send(self, data: bytes) -> None:
        """Sends bytes, and notes whether they are malformed by the rules of the frames."""
        try:
            for _ in self._mirror.feed(data):
                pass
        except MalformedFrame as error:
            self.malformed = self.malformed or str(error)
        self.cut = not self._mirror.between
        try:
            self.socket.sendall(data)
        except ConnectionError:
            pass  # the owner has ended it: what it said is still to be received

    def received(self, until: Callable[[Any], bool]) -> Iterator[Any]:
        """Yields what the owner sends, up to a frame, or until it ends the link. Wrong: it does neither."""
        while True:
            try:
                data = self.socket.recv(1 << 18)
            except ConnectionError:
                data = b""
            except TimeoutError:
                raise Wrong("the owner neither answers nor ends the link") from None
            if not data:
                self.ended = True
                return
            for frame in self._decoder.feed(data):
                match frame:
                    case frames.Refused(text, _):
                        self.reason = text
                    case frames.Stopped(form):
                        self.reason = str(error_of(form))
                yield frame
                if until(frame):
                    return

    def welcomed(self) -> frames.Welcome | None:
        self.send(joined(self.hello()))
        for frame in self.received(lambda frame: isinstance(frame, frames.Welcome)):
            if isinstance(frame, frames.Welcome):
                return frame
        return None

    def close(self) -> None:
        self.socket.close()
