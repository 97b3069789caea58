"""Keeps writers' numbers in the Kafka-style mode: as a group's positions, in the transaction of their records.

    flush ─▶ the producer's transactional id is initialized ─▶ its positions ─▶ the new part ─▶ one transaction:
             which ends what was left open under it             (last + 1)                       records, positions

Kafka's brokers number batches, not records, and forget the numbers with the producer id. So this does what an
exactly-once source connector of Kafka does: the position in the source is committed along with the copies,
under a transactional id that no other writer has. The commit does not check positions; they stay true until then
because one transaction at a time writes under the id.

Next: producer_sessions.py.
"""

import threading
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from ...proto.messages import PartitionPart, Slice
from ...proto.reasons import NumberTaken, cause_of, kept_as
from ..client_requests import NO_PLACE
from ..outcome import Commit, failure
from .views import WRITER

if TYPE_CHECKING:
    from .hooks import KafkaHooks


def writer_of(producer: bytes) -> str:
    """Returns the transactional id of a writer's producer, also the group of its positions; no consumer has it."""
    try:
        text = producer.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or not text or text.startswith("="):
        text = "=" + b64encode(producer).decode()
    return WRITER + text


class Numbers:
    """Invariant: under a producer's lock no other thread moves its positions.

    `_sessions` tells which writer gave the last numbers that it made up itself: equal numbers of another writer
    are a Conflict, not repeats. It is in memory, as the writers are.
    """

    def __init__(self, mode: "KafkaHooks") -> None:
        self._mode = mode
        self._runtime = mode.runtime
        self._locks: dict[str, threading.Lock] = {}
        self._sessions: dict[tuple[str, int], dict[int, bytes]] = {}  # … → last number → session

    def last(self, snap: Any, tablet: int, producer: bytes) -> int | None:
        """Returns the last number of a producer in a partition, None when it has none."""
        name = writer_of(producer)
        self._mode.writing.ready(name)
        return self._last(name, tablet, None)

    def _last(
        self, name: str, tablet: int, positions: dict[tuple[str, int], int] | None
    ) -> int | None:
        position = (positions or {}).get((name, tablet))
        if position is None:
            position = self._mode.in_place_views.stable_position(tablet, name)
        return None if position is None else position - 1

    def commit(
        self, tx: bytes, parts: dict[int, PartitionPart[Slice]], timeout: float | None
    ) -> Commit:
        """Publishes the new records; raises Conflict as in mode "deterministic"."""
        producer = next(iter(parts.values())).producer
        assert producer is not None
        name = writer_of(producer[0])
        with self._locks.setdefault(name, threading.Lock()):
            writing = self._mode.writing
            writing.assign(tx, name)
            try:
                positions = writing.snapshot(tx).positions
                last = {tablet: self._last(name, tablet, positions) for tablet in parts}
                new = {
                    tablet: part
                    for tablet, part in parts.items()
                    if self._new(tx, tablet, part, last)
                }
                repeats = dict.fromkeys(tablet for tablet in parts if tablet not in new)
                if not new:
                    return Commit(tx, NO_PLACE, repeats, self._runtime.names.of_tablet)
                self._remember(name, new, last)
                done = self._mode.client_transactions.commit_moving(tx, new, name, timeout)
            finally:
                writing.forget(tx)
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

    def _remember(
        self, name: str, parts: dict[int, PartitionPart[Slice]], known: dict[int, int | None]
    ) -> None:
        """Notes the sessions before the outcome is known: then the position tells which number was the last."""
        for tablet, part in parts.items():
            assert part.producer is not None
            former = self._sessions.get((name, tablet), {})
            current = {last: session for last, session in former.items() if last == known[tablet]}
            if part.session is not None:
                current[part.producer[2]] = part.session
            self._sessions[name, tablet] = current
