"""Shares a store in memory, and faces of attached processes whose groups have lines in place of sockets."""

import threading
from collections import Counter
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

    def begin_maintenance(self) -> None: ...


class Store:
    """An owner, and faces of attached processes; a thread carries their frames in order."""

    def __init__(self, owner: Engine) -> None:
        self.owner = owner
        runtime = owner._runtime
        assert runtime.consumers is not None
        self.links = SharesOfLinks(runtime.shares, runtime.consumers, self._send)
        self.sent: Counter[str] = Counter()
        self._ends: dict[int, ProcessShares] = {}
        self._frames: SimpleQueue[tuple[int, bool, Frame] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._carry)
        self._thread.start()

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
        link = len(self._ends) + 1
        runtime: Any = AttachedRuntime(self.owner._runtime)
        context = self.owner.context
        db = Engine(context.path, runtime, context.settings, self.owner.lifetime._slot)
        self._ends[link] = runtime.shares
        runtime.shares.attach(lambda frame: self._frames.put((link, True, frame)))
        return db

    def kill(self, db: Engine) -> None:
        """Ends the link of an attached process, whose threads go on."""
        [link] = [link for link, end in self._ends.items() if end is db._runtime.shares]
        del self._ends[link]
        self.links.drop(link)
        db._runtime.shares.lost()

    def end(self) -> None:
        self._frames.put(None)
        self._thread.join()
