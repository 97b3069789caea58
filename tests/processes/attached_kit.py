"""Shares a store in memory, and faces of attached processes whose groups have lines in place of sockets."""

import threading
from collections import Counter
from itertools import count
from queue import SimpleQueue
from typing import Any

from planstep.api.engine import Engine
from planstep.proto.frames import Frame
from planstep.runtime.process_shares import ProcessShares
from planstep.runtime.shares_of_links import SharesOfLinks


class AttachedRuntime:
    """The runtime of a store with shares of its own, as an attached process has them."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self.shares = ProcessShares()
        self.consumers: Any = None
        self.maintenance = self  # its jobs are the owner's
        self.leases: Any = None
        self.reading: Any = None
        self.open_floors: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def begin(self) -> None: ...


class Store:
    """An owner, and faces of attached processes; a thread carries their frames in order."""

    def __init__(self, owner: Engine) -> None:
        self.owner = owner
        self.links = self._own(settled=True)
        self.sent: Counter[str] = Counter()
        self._numbers = count(1)
        self._faces = {id(owner._runtime.shares): owner}
        self._ends: dict[int, ProcessShares] = {}
        self._frames: SimpleQueue[tuple[int, bool, Frame] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._carry)
        self._thread.start()

    def _own(self, settled: bool) -> SharesOfLinks:
        runtime = self.owner._runtime
        assert runtime.consumers is not None
        return SharesOfLinks(runtime.shares, runtime.consumers, self._send, settled=settled)

    def _send(self, link: int, frame: Frame) -> None:
        self._frames.put((link, False, frame))

    def _carry(self) -> None:
        while (one := self._frames.get()) is not None:
            link, up, frame = one
            if link in self._ends:
                self.sent[type(frame).__name__] += 1
                if up:
                    self.links.take(link, frame)
                else:
                    self._ends[link].arrived(frame)  # type: ignore[arg-type]

    def attach(self) -> Engine:
        runtime: Any = AttachedRuntime(self.owner._runtime)
        context = self.owner.context
        db = Engine(context.path, runtime, context.settings, self.owner.lifetime._slot)
        self._faces[id(runtime.shares)] = db
        self.link(db)
        return db

    def kill(self, db: Engine) -> None:
        """Ends the link of an attached process, whose threads go on."""
        shares = db._runtime.shares
        for link in [link for link, end in self._ends.items() if end is shares]:
            del self._ends[link]
            self.links.drop(link)
        shares.lost()

    def link(self, db: Engine) -> None:
        """Gives a process a new link to the owner."""
        link = next(self._numbers)
        self._ends[link] = db._runtime.shares
        db._runtime.shares.attach(lambda frame: self._frames.put((link, True, frame)))

    def move(self, owner: Engine) -> None:
        """Makes another process the owner; the others attach to it, also the one before."""
        others = [self._faces[id(end)] for end in self._ends.values()]
        others = [db for db in [self.owner, *others] if db is not owner]
        for db in [*others, owner]:
            db._runtime.shares.lost()
        self._ends = {}
        self.owner = owner
        self.links = self._own(settled=False)
        for db in others:
            self.link(db)
        self.links.settle()

    def end(self) -> None:
        self._frames.put(None)
        self._thread.join()
