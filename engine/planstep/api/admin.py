"""What a store's operator asks of an engine: how transactions ended or stand, counters, a backup.

    Operations ◀── Engine                its own threads: none; each call runs on its caller's

Next: runtime/statistics.py, runtime/open_transactions.py, runtime/backup.py.
"""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import OutcomeExpired
from ..logs import backup_made, tx_resolved
from ..proto.ids import tx_parse, tx_text
from ..runtime.ledger import Costs, Phases
from ..runtime.outcome import Outcome
from .arguments import shown, whole
from .guards import Opened

if TYPE_CHECKING:
    from ..runtime.backup import Backup, Telling
    from ..runtime.kafka.identities import Identity
    from ..runtime.open_transactions import OpenTransaction


class Operations(Opened):
    """The engine brings `_backing_up`."""

    _backing_up: threading.RLock

    def outcome(self, tx: str | bytes) -> Outcome:
        """How the transaction with this id ended, from what is durable.

        `state` is committed, aborted, refused (ended before it was planned), planned, open (it runs
        in this engine) or unknown (it never asked for a place, and has no effect once its engine is gone). What
        was committed can be read by then. An engine that stopped raises StoreClosed or HostStopped for what it does
        not know: ask the next one. OutcomeExpired when it is too old. In mode
        "kafka" only what this engine was told: after reopening every id is unknown.
        """
        self._check()
        return _not_expired(self._runtime.outcomes.of(_tx_bytes(tx)))

    def costs(self, tx: str | bytes | None = None) -> Costs:
        """What a transaction cost, of the newest 10,000, or all of them together: requests, messages, appends,
        syncs, bytes, and durable steps in series; see runtime/ledger.py.

        In mode "kafka" it grows for a moment after the commit: markers follow the answer. ValueError for a
        transaction that nothing is known of.
        """
        self._check()
        ledger = self._runtime.ledger
        if tx is None:
            return replace(ledger.total)
        found = ledger.of(_tx_bytes(tx))
        if found is None:
            raise ValueError(
                f"transaction {shown(tx)} cost nothing, or is not among the newest 10,000"
            )
        return found

    def phases(self, tx: str | bytes) -> Phases:
        """When a transaction was planned, decided and visible, of the newest 10,000 (time.monotonic_ns()).

        planned   its place was durable; None in mode "kafka"
        decided   its outcome was durable: with mode "kafka", when its coordinator had written that
        visible   all of it could be read by others; mode "kafka": its last marker was durable, behind the answer.
                  Readers there may still wait for what others have open before it

        ValueError for a transaction that nothing is known of.
        """
        self._check()
        found = self._runtime.ledger.phases(_tx_bytes(tx))
        if found is None:
            raise ValueError(f"transaction {shown(tx)} is not among the newest 10,000")
        return found

    def switch_log_batching(self, on: bool) -> None:
        """Mode "kafka": coordinators write their logs through the buffered writer (PIP-160) from now on, or
        record by record. What is buffered is written first; logs may hold both.

        NotSupported in other modes: a turn is their batch.
        """
        self._writable()
        if not isinstance(on, bool):
            raise TypeError(f"on is True or False, not {shown(on)}")
        self._runtime.hooks.switch_log_batching(on)

    def resolve(self, tx: str | bytes) -> Outcome:
        """Ends a transaction that is not planned, durably; never decides one that is planned.

        OutcomeExpired when it is so old that nobody knows any more how it ended; if it did not, it has no effect.
        ValueError for an id that no transaction has had yet.
        """
        self._writable()
        raw = _tx_bytes(tx)
        if raw > self._runtime.newest_tx():
            raise ValueError(
                f"transaction id {tx_text(raw)} was not given yet: refusing it would refuse a "
                "transaction to come"
            )
        outcome = _not_expired(self._runtime.outcomes.resolve(raw))
        tx_resolved(outcome)
        return outcome

    def transactions(self, limit: int = 100) -> list[Outcome]:
        """The newest transactions that are remembered, newest first. NotSupported in mode "kafka"."""
        self._check()
        return self._runtime.outcomes.newest(whole("limit", limit))

    def open_transactions(self) -> "list[OpenTransaction]":
        """Transactions that are under way, oldest first: state, age, what they hold and delay.

        A transaction that was begun and has sent nothing is not among them. NotSupported in mode "kafka",
        where `transactional_ids` tells.
        """
        self._check()
        return self._runtime.outcomes.under_way()

    def transactional_ids(self, only_open: bool = False) -> "list[Identity]":
        """Mode "kafka": transactional ids with state, producer, epoch and age, by name.

        `only_open`: those whose transaction is open or being ended, oldest first, with the partitions whose
        readers wait for them, and what hangs for nobody's. NotSupported in other modes.
        """
        self._check()
        return self._runtime.hooks.transactional_ids(only_open)

    def recorded(self, tx: str | bytes) -> list[tuple[int, int, int, str]]:
        """(host, turn, tablet, message) of a transaction's way, as trace="messages" recorded it.

        Empty for a transaction that ran under trace="summary".
        """
        self._check()
        return self._runtime.recorded(_tx_bytes(tx))

    def stats(self) -> dict[str, Any]:
        """Counters since the engine was opened, and how things are now: keys in runtime/statistics.py.

        hosts, generation, step, transactions (by outcome and cause), turns (histograms), store,
        per_host, memory, checkpoint_age_seconds, snapshots, disk_bytes.
        """
        self._check()
        return self._runtime.stats()

    def backup(self, path: "str | os.PathLike[str]", progress: "Telling | None" = None) -> "Backup":
        """Copies everything as of the last step to `path`, a new folder, while writers go on.

        The copy is a store of its own: open it, or `planstep.restore` it. It is verified before it
        gets its name; `progress(done, total)` counts records. AlreadyExists when `path` is there,
        Corruption when a record is damaged, NoSpace; then there is nothing at `path`.
        """
        from ..runtime.backup import backup_runtime

        def tell(done: int, total: int) -> None:
            self._check()
            if progress is not None:
                progress(done, total)

        with self._backing_up:
            self._check()
            began = time.monotonic()
            made = backup_runtime(self._runtime, Path(path), tell)
        backup_made(self.path, made, time.monotonic() - began)
        return made


def _not_expired(outcome: Outcome) -> Outcome:
    if outcome.state == "expired":
        raise OutcomeExpired(
            f"transaction {outcome.tx} ended more than an hour and a million transactions ago"
        )
    return outcome


def _tx_bytes(tx: str | bytes) -> bytes:
    if isinstance(tx, str):
        return tx_parse(tx)
    if not isinstance(tx, bytes) or len(tx) != 12:
        raise ValueError(f"{shown(tx)} is no transaction id: 12 bytes, or text like 3-17")
    return tx
