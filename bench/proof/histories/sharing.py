"""Lives one life of a process that shares its store with others.

    fork ─▶ open: owns the store, or attaches ─▶ outcomes of the life before ─▶ clients, looks ── kill -9
                                                                                  └▶ states, as asked ─▶ close

Transactions are numbered over all processes by a counter in a file, in blocks: a record names its transaction, and
a kill leaves a few numbers unused. Some lives answer late when they own the store, so that kills meet turns that
are durable and not answered.

Next: ../rows/processes.py, which strikes.
"""

import fcntl
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import planstep

from ....runtime.processes.peer import Peer
from ..disks.forked import Say, small_steps
from ..disks.sharers import Begun, Owning, SharedStore, obey, state_of
from ..patching import exchange
from .journal import IS_ABORTED
from .planted import PLANTS
from .reader import look
from .writer import Client, LifeSpec, Writer, clock

WINDOWS = (1, 1, 6)
"""How many commits each client of a process has under way."""
_BLOCK = 32
_EACH_SECONDS = 0.005
_LOOK_SECONDS = 0.4
_LATE_SECONDS = 0.003
_LATE = 0.3
"""The share of lives that answer late."""
_AHEAD = 0.2
"""The share of transactions that send their records ahead."""
_ENDLESS = 1 << 62


class SharedNumbers(Iterator[int]):
    """Numbers that no other process gets: blocks of a counter in a file."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._lock = threading.Lock()
        self._next = self._end = 0

    def __next__(self) -> int:
        with self._lock:
            if self._next == self._end:
                fcntl.flock(self._fd, fcntl.LOCK_EX)
                self._next = given(self._fd)
                self._end = self._next + _BLOCK
                os.pwrite(self._fd, self._end.to_bytes(8, "little"), 0)
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            self._next += 1
            return self._next - 1


def given(fd: int) -> int:
    """Returns how many numbers have been given."""
    return int.from_bytes(os.pread(fd, 8, 0), "little")


class SharingClient(Client):
    """A client whose owner may be killed: with several hosts, they may have given up what was under way. Some of
    what it writes is sent ahead of the commit, and is gone with an owner."""

    def submit(self, body: Callable[[planstep.Transaction], None]) -> "Future[Any]":
        tx = self._build(body)
        number = self._tx
        try:
            if self._draw.random() < _AHEAD:
                tx.flush()
            future = tx.submit()
        except planstep.Aborted as error:
            future = Future()
            future.set_exception(error)
        future.add_done_callback(partial(self._writer.on_done, number))
        return future

    def plain(self) -> None:
        try:
            super().plain()
        except planstep.Aborted:
            self._writer.end(self._tx, IS_ABORTED)


class Sharer(Writer):
    """The clients of one life of one of the processes."""

    def __init__(self, life: LifeSpec, db: planstep.Engine, number: int, say: Say) -> None:
        super().__init__(life, db)
        self.numbers = SharedNumbers(Path(life.tapes).parent / "numbers")
        self.last = _ENDLESS
        self.owning = Owning(db, say)
        self._say = say
        # Client n consumes from partition n, modulo their number: mostly the process's own.
        self._clients = [
            SharingClient(self, number + 8 * n, f"client-{n}", window)
            for n, window in enumerate(WINDOWS)
        ]

    def begin(self) -> None:
        self._threads = [threading.Thread(target=client.run) for client in self._clients]
        self._threads.append(threading.Thread(target=self._observe))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the clients; their commits are answered."""
        self.last = 0
        for thread in self._threads:
            thread.join()
        if self.failed is not None:
            raise self.failed

    def _observe(self) -> None:
        """Looks at everything now and then, and notices when this process has become the owner."""
        draw = random.Random(f"{self.life.seed}-{self.life.life}-looks")
        due = time.monotonic() + draw.uniform(0, _LOOK_SECONDS)
        with (Path(self.life.tapes) / "looks").open("w") as lines:
            while self.last:
                if self.failed is not None:
                    self._say(f"x a client ended: {self.failed!r}")
                    os._exit(1)
                self.owning.notice()
                if time.monotonic() > due:
                    look(self.db, self.world, lines, clock())
                    due = time.monotonic() + draw.uniform(0, 2 * _LOOK_SECONDS)
                time.sleep(_EACH_SECONDS)


def live(life: LifeSpec, store: SharedStore, number: int, say: Say, listen: int) -> None:
    """Lives a life: `number` is the process's."""
    small_steps()
    if random.Random(f"{life.seed}-{number}-{life.life}-late").random() < _LATE:
        _answer_late()
    if life.planted:
        PLANTS[life.planted]()
    with store.open() as db:
        sharer = Sharer(life, db, number, say)

        def tell() -> None:
            sharer.owning.notice()
            say(state_of(db, len(db.open_transactions())))

        if not life.life and not number:
            sharer.prepare()
        say(Begun())
        sharer.resolve()
        sharer.begin()
        obey(listen, sharer.stop, tell, say)


def resolve(life: LifeSpec, store: SharedStore, say: Say, listen: int) -> None:
    """Asks for the outcomes that no process has learned."""
    with store.open() as db:
        Writer(life, db).resolve()


def _answer_late() -> None:
    flush = Peer.flush

    def late(self: Peer) -> None:
        if self.has_output:
            time.sleep(_LATE_SECONDS)
        flush(self)

    exchange(Peer, "flush", late)
