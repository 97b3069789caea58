"""Finds how transactions ended, and which are under way, from the coordinator's durable records.

    of ─▶ a record · waiting for an answer · refused · forgotten

Next: open_transactions.py.
"""

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ..coordinator.plan import PLANNED, STATES, OutcomeRow
from ..errors import HostStopped, IoError, Undetermined
from ..proto.ids import COORDINATOR_ID, Place, tablet_prefix, tx_parse, tx_text
from ..proto.messages import Resolve
from .open_transactions import OpenTransaction, undecided
from .outcome import Outcome

if TYPE_CHECKING:
    from .runtime import Runtime


_CALL_SECONDS = 5.0


class Outcomes:
    """Answers questions about a transaction by its id; a mode may know less."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime

    def of(self, tx: bytes | str) -> Outcome:
        """Returns how a transaction ended, from durable records. Raises StoreClosed or HostStopped when only the
        next engine can tell, Undetermined when only the engine that owns the store can, IoError when an owner that
        is another process does not answer."""
        tx = tx_parse(tx) if isinstance(tx, str) else tx
        outcome = self.told_here(tx)
        if outcome.state == "unknown" and self._may_be_on_its_way(tx):
            outcome = self.told_here(tx)
            if outcome.state == "unknown":
                outcome = outcome._replace(state="open")
        return outcome

    def _may_be_on_its_way(self, tx: bytes) -> bool:
        """Returns whether another process may have sent a transaction that has no record: at the owner after all is
        taken that had arrived. So what a process sent before it was killed is known."""
        link, server = self._runtime.link, self._runtime.server
        if link is not None:
            return bool(link.call("state", tx) != "unknown")
        return server is not None and (
            not server.hear_out() or self.told_here(tx).state != "unknown"
        )

    def told_here(self, tx: bytes) -> Outcome:
        """Returns how a transaction ended as far as this process knows now, without asking others."""
        self._runtime.look()
        outcome = self._of(tx)
        turns = self._runtime.turns
        if turns.stopped is not None and outcome.state in ("open", "planned", "unknown"):
            turns.check_open()
        # Whoever is attached asks its owner, which has them.
        lags = self._runtime.link is None and self._runtime.nodes[0].host.store.lags
        if outcome.state == "unknown" and lags:
            raise Undetermined(
                f"how transaction {outcome.tx} ended is not known here: the store's shared log may have turns that "
                "this folder has not; ask its owner, or open it with replicate=URL and ask again"
            )
        return outcome

    def _of(self, tx: bytes) -> Outcome:
        host = self._runtime.nodes[0].host
        prefix = tablet_prefix(COORDINATOR_ID)
        # Ask this first: when the waiter is gone, the record is there.
        running = tx in self._runtime.replies.waiting
        row = host.store.get(prefix + b"o" + tx)
        record = None if row is None else OutcomeRow._make(row)
        if record is not None and record.step <= host.step_released:
            return outcome_of(tx, record)
        if running or record is not None:  # effects that cannot be read yet are not reported
            state = "open"
        elif tx in self._runtime.replies.refused:
            state = "refused"
        else:
            forgotten = host.store.get(prefix + b"f")
            state = "expired" if forgotten is not None and tx <= forgotten else "unknown"
        return Outcome(tx_text(tx), state, None, 0, ())

    def never_sent(self, tx: bytes) -> bool:
        """Returns whether a commit that an exception broke off will have no effect; for the calling thread."""
        reads = self._runtime.read_only and self._runtime.link is None
        return reads or (
            self._runtime.turns.stopped is None
            and tx not in self._runtime.replies.waiting
            and self.told_here(tx).state in ("unknown", "open")
        )

    def resolve(self, tx: bytes | str) -> Outcome:
        """Refuses a transaction that is not planned; never decides a planned one."""
        tx = tx_parse(tx) if isinstance(tx, str) else tx
        self._runtime.tell(COORDINATOR_ID, Resolve(tx))
        return self.of(tx)

    def newest(self, limit: int = 100) -> list[Outcome]:
        """The newest transactions that the coordinator remembers."""
        prefix = tablet_prefix(COORDINATOR_ID)
        host = self._runtime.nodes[0].host
        released = host.step_released
        rows = host.store.scan(prefix + b"o", prefix + b"p", reverse=True, limit=limit)
        records = [(key[5:], OutcomeRow._make(row)) for key, row in rows]
        return [outcome_of(tx, record) for tx, record in records if record.step <= released]

    def under_way(self) -> list[OpenTransaction]:
        """Lists the transactions under way: open_transactions.py."""
        if self._runtime.nodes[0].down:
            raise HostStopped("host 0, which plans all transactions, is stopped: start it first")
        stores = {n: node.host.store for n, node in enumerate(self._runtime.nodes) if not node.down}
        now_ms = time.time_ns() // 1_000_000
        return undecided(stores, self._runtime.names, now_ms, self.sent_anywhere())

    def sent_anywhere(self) -> dict[bytes, float]:
        """Returns what `sent` does, of all processes; without an owner that answers, of this one."""
        link, sent = self._runtime.link, self.sent()
        if link is not None:
            with suppress(IoError):
                sent = {**dict(link.call("sent", timeout=_CALL_SECONDS)), **sent}
        return sent

    def sent(self) -> dict[bytes, float]:
        """Returns the transactions that were sent and are not answered, with their ages in seconds."""
        now = time.monotonic()
        return {
            tx: now - waiter.since for tx, waiter in self._runtime.replies.waiting.copy().items()
        }


def outcome_of(tx: bytes, record: OutcomeRow) -> Outcome:
    """Makes an Outcome from the coordinator's record."""
    place = Place(record.step, record.n) if record.step else None
    assert record.state != PLANNED or place is not None
    return Outcome(tx_text(tx), STATES[record.state], place, record.when_ms, record.participants)
