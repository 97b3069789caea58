"""Adds to Engine what an operator asks: how transactions stand, whom they hold up, and how to end one.

    outcome, recorded, transactions         transactions that have ended
    open_transactions, slow_transactions    those that have not, in mode "kafka" transactional_ids
    resolve, abort_transaction              ends one
    buffer_stats, pending_acks …            mode "pulsar": its coordinators, partitions and consumers

Next: engine.py.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..errors import OutcomeExpired
from ..logs import tx_resolved
from ..proto.ids import TxnID, parse_txn, tx_parse, tx_text
from ..runtime.ledger import Costs, Phases
from ..runtime.outcome import Outcome
from .arguments import brief, whole
from .arguments import seconds as seconds_of
from .context import Context, unknown
from .transaction.snapshot_reader import check_partition

if TYPE_CHECKING:
    from ..runtime.administration import (
        BufferStats,
        CoordinatorStats,
        LogBatches,
        PendingAck,
        PositionState,
    )
    from ..runtime.catalog import TopicInfo
    from ..runtime.identity import Identity
    from ..runtime.open_transactions import OpenTransaction


Logs: TypeAlias = Literal["transactions", "pending acks", "both"]


class EngineAdministration:
    """Looks into an open store. Nothing here waits for other transactions but what ends one."""

    if TYPE_CHECKING:

        @property
        def context(self) -> Context: ...

    def outcome(self, tx: str | bytes) -> Outcome:
        """Returns how the transaction with this id ended, from durable records.

        `state` is committed, aborted, refused (ended before it was planned), planned, open (it runs in this
        process or another one) or unknown (it never asked for a place, and has no effect once its process is
        gone). When it is committed, its writes can be read. An engine that stopped raises StoreClosed or
        HostStopped for an outcome that it does not know: ask the next engine. Undetermined: a read-only engine of
        a replicated store does not know it, and the owner does. OutcomeExpired when it is too old. Modes "kafka"
        and "pulsar" know only outcomes that this process was told. Those of others are unknown, and all are after
        reopening.
        Mode "pulsar" takes a coordinator's id like "(0,5)", too: that of another process is open or unknown.
        """
        self.context.look()
        return _not_expired(self.context.runtime.outcomes.of(self._known_id(tx)))

    def _known_id(self, tx: str | bytes) -> str | bytes:
        """Returns the bytes of this engine's id, or the text of a coordinator's id. ValueError."""
        if self.context.runtime.hooks.by_txn_id and isinstance(tx, str) and tx.startswith("("):
            return str(parse_txn(tx))
        return _tx_bytes(tx)

    def costs(self, tx: str | bytes | None = None) -> Costs:
        """Returns the costs of one of the newest 10,000 transactions, or of all together.

        They are requests, messages, appends, syncs, bytes, and durable steps in series: runtime/ledger.py.

        In mode "kafka" they grow for a moment after the commit: markers follow the answer. In modes "kafka" and
        "pulsar" each process counts the requests of its own transactions, and no other process knows these.
        ValueError for a transaction without known costs.
        """
        self.context.check()
        ledger = self.context.runtime.ledger
        raw = None if tx is None else _tx_bytes(tx)
        costs = replace(ledger.total) if raw is None else ledger.of(raw)
        theirs = self._owners("costs", raw)
        if theirs is not None:
            costs = Costs(*theirs) if costs is None else costs.with_more(Costs(*theirs))
        if costs is None:
            raise ValueError(
                f"no costs are recorded for transaction {brief(tx)}: it did no work, or is not among the "
                "newest 10,000"
            )
        return costs

    def phases(self, tx: str | bytes) -> Phases:
        """Returns when one of the newest 10,000 transactions was planned, decided and visible.

        The times are time.monotonic_ns().

        planned   its place was durable; None in modes "kafka" and "pulsar"
        decided   its outcome was durable; elsewhere than in mode "deterministic": at its coordinator
        visible   others could read all of it; mode "kafka": its last marker was durable, after the answer;
                  mode "pulsar": its last end was durable, before the answer. In both, readers may still wait
                  for earlier open transactions, and only the process that ran it knows that it was aborted

        ValueError for a transaction without known phases.
        """
        self.context.check()
        raw = _tx_bytes(tx)
        theirs = self._owners("phases", raw)
        elsewhere = None if theirs is None else Phases(*theirs)
        phases = self.context.runtime.ledger.phases(raw, elsewhere)
        if phases is None:
            raise ValueError(f"transaction {brief(tx)} is not among the newest 10,000")
        return phases

    def _owners(self, call: str, tx: bytes | None) -> Any:
        """Returns what the store's owner knows of a transaction, or of all; None where that is this process."""
        link = self.context.runtime.link
        return None if link is None else link.call(call, tx)

    def switch_log_batching(self, on: bool, logs: Logs = "both") -> None:
        """Switches how logs are written, in modes "kafka" and "pulsar": through the buffered writer (PIP-160), or
        record by record. Buffered records are written first; logs may hold both.

        `logs`: those of coordinators of "transactions", in mode "pulsar" those of "pending acks", or "both". In
        mode "kafka" "both" has the group coordinators' logs too. The switch is durable, and precedes the settings.
        NotSupported in mode "deterministic": a turn is its batch.
        """
        self.context.check_writable()
        if not isinstance(on, bool):
            raise TypeError(f"on is True or False, not {brief(on)}")
        if logs not in ("transactions", "pending acks", "both"):
            raise ValueError(f'logs is "transactions", "pending acks" or "both", not {brief(logs)}')
        self.context.runtime.call("switch_log_batching", on, logs)

    def log_batches(self) -> "list[LogBatches]":
        """Reports on each log of modes "kafka" and "pulsar": whether it is batched, its entries, its batches.

        A program from before the buffered writer can read all of them when no report has a `last_batched`.
        """
        self.context.look()
        return self.context.runtime.hooks.log_batches()

    def resolve(self, tx: str | bytes) -> Outcome:
        """Ends a transaction that is not planned, durably; never decides one that is planned.

        OutcomeExpired when it is so old that its outcome is forgotten; if it has not ended, it has no effect.
        ValueError for an id that no transaction has had yet. Mode "pulsar": aborts an open transaction
        of this engine, or anyone's by an id like "(0,5)", as `abort_transaction` does. Mode "kafka": NotSupported.
        """
        self.context.check_writable()
        raw = self._known_id(tx)
        if isinstance(raw, bytes) and not self.context.runtime.call("is_assigned", raw):
            raise ValueError(
                f"transaction id {tx_text(raw)} is not assigned yet; to resolve it would refuse a future "
                "transaction"
            )
        outcome = _not_expired(self.context.runtime.outcomes.resolve(raw))
        tx_resolved(outcome)
        return outcome

    def transactions(self, limit: int = 100) -> list[Outcome]:
        """Returns the newest transactions that are remembered, newest first. Mode "deterministic" only."""
        self.context.look()
        return self.context.runtime.outcomes.newest(whole("limit", limit))

    def open_transactions(self) -> "list[OpenTransaction]":
        """Lists transactions that are under way, oldest first: state, age, what they hold and delay.

        A transaction that has sent nothing yet is not listed. NotSupported in mode "kafka",
        which has `transactional_ids`. Mode "pulsar": all that are open or being ended at a coordinator, also those
        of a process that has died, with who waits for them.
        """
        self.context.look()
        return self.context.runtime.outcomes.under_way()

    def transactional_ids(self, only_open: bool = False) -> "list[Identity]":
        """Lists transactional ids of mode "kafka" with state, producer, epoch and age, by name.

        `only_open`: those whose transaction is open or being ended, oldest first, with the partitions whose
        readers wait for them; then hanging transactions, without a name. NotSupported in other modes.
        """
        self.context.look()
        return self.context.runtime.hooks.transactional_ids(only_open)

    def recorded(self, tx: str | bytes) -> list[tuple[int, int, int, str]]:
        """Returns (host, turn, tablet, message) for each message of a transaction, recorded by trace="messages".

        Empty for a transaction that ran under trace="summary".
        """
        self.context.look()
        return self.context.runtime.recorded(_tx_bytes(tx))

    def slow_transactions(self, seconds: float) -> "list[OpenTransaction]":
        """Lists the transactions that have been under way for at least so many seconds, oldest first."""
        least = seconds_of("seconds", seconds)
        listed = self.open_transactions()
        return [tx for tx in listed if tx.age_seconds is not None and tx.age_seconds >= least]

    def abort_transaction(self, txn: TxnID | str) -> TxnID:
        """Aborts an open transaction of mode "pulsar", durably, whoever opened it; returns its id.

        `txn`: its TxnID, a text like "(0,5)", or the id of a transaction of this engine, like "3-17". It returns
        once all partitions and consumers have the end; aborting it again does nothing. Its owner's commit raises
        InvalidTxnStatus.

        PulsarError InvalidTxnStatus: its commit is decided, and stays so. TransactionNotFound: it has ended, or
        never was; with `ended_kept` AlreadyCommitted or AlreadyTimedOut. TransactionCoordinatorNotFound: it
        never was. ValueError: no id, or an engine's id that this one does not know.
        """
        self.context.check_writable()
        administration = self.context.runtime.hooks.administration
        id = self._txn_id(txn)
        administration.abort(id)
        tx_resolved(Outcome(str(id), "aborted", None, 0, ()))
        return id

    def _txn_id(self, txn: Any) -> TxnID:
        """Returns the id that a text or pair means. ValueError."""
        if isinstance(txn, str) and not txn.startswith("("):
            id = self.context.runtime.hooks.txn_id(tx_parse(txn))
            if id is None:
                raise ValueError(
                    f"transaction {brief(txn)} is none of this engine's that a coordinator knows: "
                    "db.open_transactions() lists those, with ids like (0,5)"
                )
            return id
        return parse_txn(txn if isinstance(txn, str) else _pair_text(txn))

    def abort_left_open(self) -> tuple[TxnID, ...]:
        """Aborts the open transactions that earlier processes have left in mode "pulsar"; returns their ids.

        Otherwise they end after their time-outs. Until then readers wait for them, their acknowledgements hold
        records, and changelogs cannot be restored.
        """
        self.context.check_writable()
        aborted = tuple(TxnID(*id) for id in self.context.runtime.call("abort_left_open"))
        for id in aborted:
            tx_resolved(Outcome(str(id), "aborted", None, 0, ()))
        return aborted

    def coordinator_stats(self) -> "list[CoordinatorStats]":
        """Returns what each transaction coordinator of mode "pulsar" has under way."""
        self.context.look()
        return self.context.runtime.hooks.administration.coordinator_stats()

    def buffer_stats(self, topic: str) -> "list[BufferStats]":
        """Returns the transaction buffer of each partition in mode "pulsar": how far readers may read, and which
        transaction holds them there. It counts the messages behind that, so it takes longer with many."""
        self.context.look()
        administration = self.context.runtime.hooks.administration
        return administration.buffer_stats(self.context.topic(topic))

    def pending_acks(self, topic: str, consumer: str) -> "list[PendingAck]":
        """Lists what open transactions have acknowledged for a consumer in mode "pulsar", by partition, offset."""
        self.context.look()
        administration = self.context.runtime.hooks.administration
        return administration.pending_acks(self._consumed(topic, consumer), consumer)

    def position_state(
        self, topic: str, consumer: str, offset: int, partition: int | None = None
    ) -> "PositionState":
        """Returns what an offset is to a consumer in mode "pulsar": acknowledged, pending in a transaction, free,
        or not shown. `partition` may be left out where there is one."""
        self.context.look()
        administration = self.context.runtime.hooks.administration
        info = self._consumed(topic, consumer)
        whole("offset", offset)
        if partition is None and len(info.partitions) > 1:
            raise ValueError("an offset belongs to one partition: pass partition=, too")
        number = check_partition(info, 0 if partition is None else partition)
        return administration.position_state(info.partitions[number], consumer, offset)

    def _consumed(self, topic: str, consumer: str) -> "TopicInfo":
        """Returns a topic with a consumer of this name; UnknownName suggests the nearest."""
        info = self.context.topic(topic)
        known = self.context.consumers(info)
        if consumer not in known:
            raise unknown("consumer", consumer, sorted(known))
        return info


def _pair_text(txn: Any) -> str:
    if isinstance(txn, tuple) and len(txn) == 2 and all(type(half) is int for half in txn):
        return str(TxnID(*txn))
    raise ValueError(f"{brief(txn)} is no transaction id; one looks like (0,5)")


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
        raise ValueError(f"{brief(tx)} is no transaction id: 12 bytes, or text like 3-17")
    return tx
