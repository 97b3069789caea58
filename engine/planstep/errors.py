"""Defines the library's errors. Each message says what to do; attributes carry the details.

A bug of the library is an assertion, not one of these. Inside the cores a refusal is a value;
runtime/outcome.py turns it into one of these.
"""

import os
from dataclasses import asdict, is_dataclass
from typing import Any, TypeVar

E = TypeVar("E", bound="PlanstepError")


class PlanstepError(Exception):
    """The root of all errors of this library. It can be pickled, whatever arguments a class is made from."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[E], args: tuple[Any, ...], attributes: dict[str, Any]) -> E:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


class Aborted(PlanstepError):
    """The transaction has no effect; running it again may succeed."""

    retryable = False


class Conflict(Aborted):
    """Another transaction committed first and changed what this one had read.

    `kind` is "topic" or "table", `part` the partition or shard; then either `key`, or `consumer`
    or `producer`. `expected` is what this transaction read, `actual` what is there now.
    `foreign`: another writer numbers records under this producer name. Trying again never helps with a
    conflict of a `producer`.
    `moved`: the consumer was moved by seek, or dropped; `expected` and `actual` are then the steps of moves.
    `consumed`: the records were consumed before this transaction began, so trying again does not help either.
    `ahead`: the records begin behind the consumer's position, so others are missing; nor does it help.
    """

    retryable = True

    def __init__(
        self,
        *,
        kind: str,
        name: str,
        part: int,
        key: Any = None,
        consumer: str | None = None,
        producer: bytes | None = None,
        expected: Any = None,
        actual: Any = None,
        foreign: bool = False,
        moved: bool = False,
        consumed: bool = False,
        ahead: bool = False,
    ) -> None:
        self.moved, self.consumed, self.ahead = moved, consumed, ahead
        self.kind, self.name, self.part = kind, name, part
        self.key, self.consumer, self.producer = key, consumer, producer
        self.expected, self.actual, self.foreign = expected, actual, foreign
        self.retryable = producer is None and not consumed and not ahead
        what = (
            f"consumer {consumer!r}"
            if consumer is not None
            else f"producer {producer!r}"
            if producer is not None
            else f"key {key!r}"
            if key is not None
            else "a range"
            if kind == "table"
            else "the end"
        )
        advice = (
            "another writer uses this producer name: give each its own, or number the records yourself"
            if foreign
            else "these numbers were published before: go on behind them, or let the writer skip them "
            "(dedupe=True)"
            if producer is not None
            else "this was consumed before the transaction began: tx.read gives what is left, and seek goes back"
            if consumed
            else "this would skip records: begin at the position that was found, or move the consumer with seek"
            if ahead
            else "run the transaction again (db.run does)"
        )
        where = f"{kind} {name!r}, {'partition' if kind == 'topic' else 'shard'} {part}, {what}"
        if moved:
            super().__init__(f"{where} was moved by seek since it was read; {advice}")
            return
        if kind == "table" and what != "a range":
            expected = "no row" if expected is None else f"the row of place {tuple(expected)}"
            actual = "no row" if actual is None else f"that of {tuple(actual)}"
        super().__init__(f"{where}: expected {expected}, found {actual}; {advice}")


class ProtocolError(Aborted):
    """The commit protocol has aborted the transaction.

    `name` and `code` are the protocol's own; `retryable`: run it again.
    """

    fenced = False
    """The producer can no longer write, because another one has its name."""

    def __init__(self, text: str, name: str = "", code: int = -1, retryable: bool = False) -> None:
        self.name, self.code, self.retryable = name, code, retryable
        super().__init__(text)


class KafkaError(ProtocolError):
    """Mode "kafka": the transaction was aborted. `name` and `code` are Kafka's; `retryable`: run it again."""


class ProducerFenced(KafkaError):
    """Mode "kafka": this producer can no longer write.

    Another producer has taken its transactional id, or the coordinator has aborted a transaction that was
    open for too long.
    """

    fenced = True


class PulsarError(ProtocolError):
    """Mode "pulsar": the transaction was aborted. `name` is Pulsar's, `retryable`: run it again.

    `code` is the number of Pulsar's ServerError, -1 for an error that only the client knows.
    """


class Dropped(Aborted):
    """The topic or table was dropped before the transaction got its place; nothing was done."""


class LeaseLost(Aborted):
    """The records were given to another reader before this one committed; nothing was done."""

    retryable = True


class TooManyGaps(Aborted):
    """An individual consumer has consumed too many ranges out of order; nothing was done."""


class Undetermined(PlanstepError):
    """The commit was sent but its end is not known here; `outcome(id)` tells it, also after reopening."""


class ProcessingError(PlanstepError):
    """The function given to `process` fails on one record: see `__cause__`.

    `attempt` counts its failures in this process; 1 is the first. `records` is more than 1 for a batch whose
    snapshot was too old twice: SnapshotTooOld is the cause, and `offset` is that of its first record.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        consumer: str,
        cause: BaseException,
        *,
        records: int = 1,
        attempt: int = 1,
    ) -> None:
        self.topic, self.partition, self.offset = topic, partition, offset
        self.consumer = consumer
        self.records, self.attempt = records, attempt
        self.choice = "stop"
        self.__cause__ = cause
        where = f"topic {topic!r}, partition {partition}, offset"
        if isinstance(cause, SnapshotTooOld):
            last = f"s {offset} to {offset + records - 1}" if records > 1 else f" {offset}"
            super().__init__(
                f"{where}{last}: for consumer {consumer!r} the function outlived its snapshot more than once, "
                f"and would again: {cause}; or let it do less at a time, with a smaller max_records"
            )
            return
        super().__init__(
            f"{where} {offset}: the record could not be "
            f"processed for consumer {consumer!r}: {type(cause).__name__}: {cause}; mend the function, "
            'or let process go on with on_error="skip" or dead_letter='
        )


class OutcomeExpired(PlanstepError):
    """The transaction ended too long ago for its outcome to be remembered."""


class Overloaded(PlanstepError):
    """Too many bytes are under way already, or too many processes are attached; nothing was done."""


class SnapshotTooOld(PlanstepError):
    """The versions that this snapshot reads are forgotten; open a new one."""


class TransactionClosed(PlanstepError):
    """The transaction was committed or rolled back already."""


class TransactionTooLarge(PlanstepError):
    """The transaction is beyond its limits; nothing was done."""


class RecordTooLarge(PlanstepError, ValueError):
    """The record is larger than 16 MiB; nothing was done."""


class OffsetOutOfRange(PlanstepError, ValueError):
    """The offset is outside the partition's log."""


class SequenceError(PlanstepError, ValueError):
    """A writer's numbers must rise within each partition: this record would be taken for a repeat."""


class InvalidName(PlanstepError, ValueError):
    """Topics, tables and consumers cannot have this name."""


class InvalidKey(PlanstepError, TypeError):
    """The value cannot be a key: it has no place in the order of keys."""


class KeyTooLong(PlanstepError, ValueError):
    """The key's encoding is longer than the limit; `length` and `limit` in bytes."""

    def __init__(self, length: int, limit: int) -> None:
        self.length, self.limit = length, limit
        super().__init__(f"the key takes {length} bytes encoded, the limit is {limit}")


class AlreadyExists(PlanstepError):
    """The name is taken."""


class UnknownName(PlanstepError, KeyError):
    """The topic or table does not exist; `nearest` is a similar name, or None."""

    def __init__(self, kind: str, name: str, nearest: str | None = None) -> None:
        self.kind, self.name, self.nearest = kind, name, nearest
        hint = f"; did you mean {nearest!r}?" if nearest else f"; db.create_{kind} makes one"
        self.message = f"no {kind} {name!r}{hint}"
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message


class NotSupported(PlanstepError):
    """This mode, version or operating system does not support that."""


class NoCommonType(PlanstepError, TypeError):
    """No single Arrow type holds all values, or keys; the message names alternatives."""


class MissingExtra(PlanstepError, ImportError):
    """A package that only part of this library needs is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(f'this needs {package}: pip install "planstep[{extra}]"', name=package)


class WrongMode(PlanstepError):
    """The store was created with another setting than the one asked for."""

    def __init__(self, setting: str, stored: object, asked: object) -> None:
        self.setting, self.stored, self.asked = setting, stored, asked
        super().__init__(
            f"the store was created with {difference(setting, stored, asked)}; "
            f"leave {setting} out to take it as stored"
        )


def difference(setting: str, one: object, other: object) -> str:
    """Says how two values of a setting differ; of one with fields, it names the first that does."""
    fields, others = _fields(one), _fields(other)
    for name in fields:
        if name in others and fields[name] != others[name]:
            return f"{setting}.{name}={fields[name]!r}, not {others[name]!r}"
    return f"{setting}={one!r}, not {other!r}"


def _fields(setting: object) -> dict[str, object]:
    """Returns the fields of a setting that has some; a link carries it as a dict."""
    if is_dataclass(setting) and not isinstance(setting, type):
        return asdict(setting)
    return setting if isinstance(setting, dict) else {}


class FormatError(PlanstepError):
    """The folder is not a store, or a newer version wrote it."""


class StoreInUse(PlanstepError):
    """Another process owns the store, and this one may not attach to it. Or `readers` (process ids) still read
    a store that is to be replaced.

    `shares`: other processes may attach to the owner, so this one asked to have the store alone.
    """

    def __init__(
        self,
        pid: int | None,
        since: str | None,
        *,
        readers: tuple[int, ...] = (),
        shares: bool = False,
        path: str = "the store",
    ) -> None:
        self.pid, self.since, self.readers, self.shares = pid, since, readers, shares
        if readers:
            named = f"process{'es' * (len(readers) > 1)} {', '.join(map(str, readers))}"
            super().__init__(
                f"{path} is read by {named}, and is not replaced under them; close those first"
            )
            return
        if pid == os.getpid():
            super().__init__(
                "the store is open in this very process, perhaps under another path (its folder was moved, or is "
                "reached by a link): use that engine, or close it first"
            )
            return
        owner = "another process" if pid is None else f"process {pid}"
        when = "" if since is None else f" since {since}"
        why = ", which does not share it"
        if shares:
            why = ": leave out share=False and attach=False to attach to it"
        super().__init__(
            f"the store is in use by {owner}{when}{why}; open it with read_only=True to look at it, or with "
            "wait=SECONDS to wait until that ends"
        )


class TooManyReaders(PlanstepError):
    """All places for reading processes are taken: `readers` are in use, `limit` may be."""

    def __init__(self, readers: int, limit: int) -> None:
        self.readers, self.limit = readers, limit
        super().__init__(
            f"{readers:,} readers have the store open, and {limit:,} may at a time: close some of the "
            "read-only ones, or try again when they are done"
        )


class TooManyTakeovers(PlanstepError):
    """This process took the store over by itself three times in a short time: its owners live, and are slow."""


class ForkedProcess(PlanstepError):
    """A fork uses a store in memory, or what its parent has begun, such as a transaction. Begin it in the fork: the
    engine of a folder works there."""


class EngineClosed(PlanstepError):
    """The engine is closed."""


def reason(error: BaseException) -> str:
    """Returns an error's text, or its repr if it has none, as a handler's TimeoutError."""
    return str(error) or repr(error)


class HostStopped(EngineClosed):
    """The engine found a bug of its own, or ran out of memory, and stopped before doing harm; reopen it."""


class StoreClosed(EngineClosed):
    """The store gave up after a failed write and a failed attempt to go on; reopen it."""

    in_doubt = False
    """True if the turn that failed may be durable, so that its callers get Undetermined."""


class Fenced(StoreClosed):
    """Another machine has taken the store over: this one writes nothing more. What failed with it has no effect.

    `term`: the number of the ownership that ended this one. `owner`: who began it, as far as that is known.
    `lost`: turns that were answered here and are not in the shared log; 0 but in mode "async".
    """

    lost = 0

    def __init__(self, term: int, owner: str = "") -> None:
        self.term, self.owner = term, owner
        by = f" ({owner})" if owner else ""
        super().__init__(
            f"the store was taken over in term {term}{by}: go on there, or follow it from here"
        )


class LogUnreachable(StoreClosed):
    """The shared log does not answer. The store stopped: what was sent last is undetermined until it reopens."""


class OwnedElsewhere(PlanstepError):
    """Another machine owns the store, and did not close it; `owner` says who, and since when.

    Opening it would take it over, which ends its writes there: ask for that with takeover=True.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        super().__init__(
            f"the store is owned by {owner}, which did not close it; takeover=True takes it over"
        )


class Trimmed(PlanstepError):
    """The next turn is gone from the shared log: begin from a snapshot of turn `floor` or later."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        super().__init__(f"turns below {floor} are gone from the shared log: restore a snapshot")


class IoError(PlanstepError):
    """The operating system refused a read, a write or a sync; nothing of that turn is kept."""


class NoSpace(IoError):
    """The disk is full; nothing was done. Deleting and trimming still work, unless it is a shared log's disk."""


class Refused(IoError):
    """The operating system does not let this process write a file; nothing was done."""


class TooManyOpen(IoError):
    """The process or the machine is out of file descriptors; nothing was done."""


class OwnerSilent(IoError):
    """The owner has not accepted the connection in time: it is stopped, or does nothing but something else."""


class ForeignPeer(IoError):
    """The process at the other end belongs to another user; nothing was sent to it."""


class Corruption(PlanstepError):
    """Bytes on disk are not what was written; the message names where."""


class Diverged(Corruption):
    """A folder and its shared log are not of one history: nothing is merged. The message names the first turn that
    differs.
    """
