"""Compares writers' numbers in modes whose partitions do not do it as mode "deterministic"'s do.

    flush ─▶ the producer's last numbers ─▶ which parts are new? ─▶ `write` ─▶ the same again counts once
                                              └ a repeat, or a Conflict

Next: client_transactions.py.
"""

import threading
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..proto.messages import PartitionPart, Slice
from ..proto.reasons import NumberTaken, cause_of, kept_as
from .client_requests import NO_PLACE
from .outcome import Commit, failure

if TYPE_CHECKING:
    from .client_hooks import ClientHooks

WRITER = "writer:"
"""The prefix of names that stand for writers' producers."""
NumberedParts = dict[int, PartitionPart[Slice]]
"""By partition's tablet; `producer` of each is (producer, first number, last number)."""


def writer_of(producer: bytes) -> str:
    """Returns the name of a writer's producer; no worker and no consumer has it."""
    try:
        text = producer.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or not text or text.startswith("="):
        text = "=" + b64encode(producer).decode()
    return WRITER + text


class WriterNumbers(ABC):
    """Invariant: under a producer's lock no other thread writes under its numbers.

    `_sessions` tells which writer gave the last numbers that it made up itself: equal numbers of another writer
    are a Conflict, not repeats. It is in memory, as the writers are.
    """

    def __init__(self, mode: "ClientHooks") -> None:
        self._mode = mode
        self._runtime = mode.runtime
        self._locks: dict[str, threading.Lock] = {}
        self._sessions: dict[tuple[str, int], dict[int, bytes]] = {}  # … → last number → session

    @abstractmethod
    def begin(self, tx: bytes, name: str, tablets: Iterable[int]) -> dict[int, int | None]:
        """Begins a commit under a producer's name; returns its last number in each partition, None for none."""

    @abstractmethod
    def write(self, tx: bytes, name: str, parts: NumberedParts, timeout: float | None) -> Commit:
        """Writes parts with their numbers."""

    @abstractmethod
    def end(self, tx: bytes) -> None:
        """Ends what `begin` began, whether it was written or not."""

    def commit(self, tx: bytes, parts: NumberedParts, timeout: float | None) -> Commit:
        """Publishes the new records; raises Conflict as in mode "deterministic"."""
        producer = next(iter(parts.values())).producer
        assert producer is not None
        name = writer_of(producer[0])
        with self._locks.setdefault(name, threading.Lock()):
            try:
                last = self.begin(tx, name, parts)
                new = {
                    tablet: part
                    for tablet, part in parts.items()
                    if self._new(tx, tablet, part, last)
                }
                repeats = dict.fromkeys(tablet for tablet in parts if tablet not in new)
                if not new:
                    return Commit(tx, NO_PLACE, repeats, self._runtime.names.of_tablet)
                self._remember(name, new, last)
                done = self.write(tx, name, new, timeout)
            finally:
                self.end(tx)
        return done._replace(details={**done.details, **repeats})

    def _new(
        self, tx: bytes, tablet: int, part: PartitionPart[Slice], known: dict[int, int | None]
    ) -> bool:
        """Returns whether a part is to be written, False if it was published already."""
        assert part.producer is not None
        producer, first, last = part.producer
        before = known[tablet]
        if before is None or first > before:
            return True
        session = self._sessions.get((writer_of(producer), tablet), {}).get(before)
        foreign = part.session is not None and part.session != session
        if foreign or not part.dedupe or last > before:
            reason = kept_as(tablet, NumberTaken(producer, first, before, foreign))
            self._mode.client_transactions.count_aborted(cause_of(reason))
            raise failure(tx, reason, self._runtime.names.of_tablet)
        return False

    def _remember(self, name: str, parts: NumberedParts, known: dict[int, int | None]) -> None:
        """Notes the sessions before the outcome is known: then the stored number tells which one was the last."""
        for tablet, part in parts.items():
            assert part.producer is not None
            former = self._sessions.get((name, tablet), {})
            current = {last: session for last, session in former.items() if last == known[tablet]}
            if part.session is not None:
                current[part.producer[2]] = part.session
            self._sessions[name, tablet] = current
