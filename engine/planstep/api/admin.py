"""Answers a store's operator: how transactions ended or stand, counters, a backup.

    Engine ──has──▶ Admin                no threads of its own; each call runs on its caller's

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
from .context import Context

if TYPE_CHECKING:
    from ..runtime.backup import Backup, Telling
    from ..runtime.identity import Identity
    from ..runtime.open_transactions import OpenTransaction


class Admin:
    """Implements the operator's calls of Engine. `backing_up` is held while a backup is made."""

    def __init__(self, context: Context) -> None:
        self.backing_up = threading.RLock()
        self._context = context
        self._runtime = context.runtime

    def outcome(self, tx: str | bytes) -> Outcome:
        """See Engine.outcome."""
        self._context.check()
        return _not_expired(self._runtime.outcomes.of(_tx_bytes(tx)))

    def costs(self, tx: str | bytes | None = None) -> Costs:
        """See Engine.costs."""
        self._context.check()
        ledger = self._runtime.ledger
        if tx is None:
            return replace(ledger.total)
        found = ledger.of(_tx_bytes(tx))
        if found is None:
            raise ValueError(
                f"no costs are recorded for transaction {shown(tx)}: it did no work, or is not among the "
                "newest 10,000"
            )
        return found

    def phases(self, tx: str | bytes) -> Phases:
        """See Engine.phases."""
        self._context.check()
        found = self._runtime.ledger.phases(_tx_bytes(tx))
        if found is None:
            raise ValueError(f"transaction {shown(tx)} is not among the newest 10,000")
        return found

    def switch_log_batching(self, on: bool) -> None:
        """See Engine.switch_log_batching."""
        self._context.check_writable()
        if not isinstance(on, bool):
            raise TypeError(f"on is True or False, not {shown(on)}")
        self._runtime.hooks.switch_log_batching(on)

    def resolve(self, tx: str | bytes) -> Outcome:
        """See Engine.resolve."""
        self._context.check_writable()
        raw = _tx_bytes(tx)
        if raw > self._runtime.newest_tx():
            raise ValueError(
                f"transaction id {tx_text(raw)} is not assigned yet; to resolve it would refuse a future "
                "transaction"
            )
        outcome = _not_expired(self._runtime.outcomes.resolve(raw))
        tx_resolved(outcome)
        return outcome

    def transactions(self, limit: int = 100) -> list[Outcome]:
        """See Engine.transactions."""
        self._context.check()
        return self._runtime.outcomes.newest(whole("limit", limit))

    def open_transactions(self) -> "list[OpenTransaction]":
        """See Engine.open_transactions."""
        self._context.check()
        return self._runtime.outcomes.under_way()

    def transactional_ids(self, only_open: bool = False) -> "list[Identity]":
        """See Engine.transactional_ids."""
        self._context.check()
        return self._runtime.hooks.transactional_ids(only_open)

    def recorded(self, tx: str | bytes) -> list[tuple[int, int, int, str]]:
        """See Engine.recorded."""
        self._context.check()
        return self._runtime.recorded(_tx_bytes(tx))

    def stats(self) -> dict[str, Any]:
        """See Engine.stats."""
        self._context.check()
        return self._runtime.stats()

    def backup(self, path: "str | os.PathLike[str]", progress: "Telling | None" = None) -> "Backup":
        """See Engine.backup."""
        from ..runtime.backup import backup_runtime

        def tell(done: int, total: int) -> None:
            self._context.check()
            if progress is not None:
                progress(done, total)

        with self.backing_up:
            self._context.check()
            began = time.monotonic()
            made = backup_runtime(self._runtime, Path(path), tell)
        backup_made(self._context.path, made, time.monotonic() - began)
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
