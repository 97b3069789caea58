"""Lists transactions under way: what they hold, which transactions they wait for, and which they delay.

    staged      data was sent before the commit; it holds space, and nothing waits for it
    prepared    proposed and without a place: holds what it staged, delays nothing
    planned     has its place: transactions that overlap with it at a tablet wait until it is decided there
    sent        in this process: asked for, and not yet at any tablet

The list is read from the tablets' durable rows, so another process sees it too. With one host a transaction is
decided in the turn that plans it: planned ones show with several hosts, where one is down or late.

What it leaves out: transactions that an application has begun and not sent; they hold nothing. Planned
ones that have left all tablets, beyond the newest 1,000 that the coordinator remembers.

Next: ../cli/inspect.py.
"""

from pathlib import Path
from typing import Any, NamedTuple

from ..coordinator.plan import PLANNED, OutcomeRow
from ..errors import Corruption, IoError
from ..host.tablet_space import stored_tablets
from ..proto.batch import HEADER_BYTES, timestamp_of
from ..proto.ids import (
    CATALOGUE,
    COORDINATOR_ID,
    PARTITION,
    SHARD,
    Place,
    kind_of,
    tablet_prefix,
    tablet_text,
    tx_text,
)
from ..proto.messages import Body, PartitionPart, ShardPart
from ..store import Store
from ..tablets.participant import TxRecord
from .catalog import Names
from .consistent_cut import views_of
from .identity import Waiting

_NEWEST = 1_000
_ORDER = ("sent", "staged", "prepared", "planned")


class Held(NamedTuple):
    """The holdings of a transaction at one tablet.

    `participant` is like "topic clicks/3" or "table totals/0"; `records` and `bytes` are staged, `keys`
    counts rows to be written, `consumers` are to be moved. `waits_for` are transactions before it here,
    `votes_missing` the participants that have not voted yet, `delays` the transactions that wait for it.
    """

    participant: str
    state: str
    records: int
    bytes: int
    keys: int
    consumers: tuple[str, ...]
    waits_for: tuple[str, ...]
    votes_missing: tuple[str, ...]
    delays: tuple[str, ...]


class OpenTransaction(NamedTuple):
    """A transaction under way; `age_seconds` is None where no durable row tells it.

    The age counts from the plan, before that from the first data sent, in this process from the call.

    Mode "pulsar": `tx` is the id that its coordinator gave, as "(0,5)", and the age counts from there. It has a
    time-out. `held` is empty: `waiting` has where readers wait for it, and what it has acknowledged.
    """

    tx: str
    state: str
    place: Place | None
    age_seconds: float | None
    participants: tuple[str, ...]
    held: tuple[Held, ...]
    coordinator: int | None = None
    timeout_seconds: float | None = None
    waiting: tuple[Waiting, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(held.bytes for held in self.held)

    @property
    def delays(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(tx for held in self.held for tx in held.delays))

    @property
    def waits_for(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(tx for held in self.held for tx in held.waits_for))


def tablet_name(names: Names, tablet: int) -> str:
    """Returns "topic clicks/3", "table totals/0" or "catalogue"."""
    if kind_of(tablet) == CATALOGUE:
        return "catalogue"
    kind, name, part = names.of_tablet(tablet)
    return tablet_text(tablet) if name == f"{tablet:#x}" else f"{kind} {name}/{part}"


def undecided(
    stores: dict[int, Store], names: Names, now_ms: int, sent: dict[bytes, float] | None = None
) -> list[OpenTransaction]:
    """Lists all transactions under way, oldest id first.

    `stores`: by host, without hosts that are stopped; host 0 must be there. `sent`: transactions of this
    process with their ages in seconds.
    """
    held_by_tx: dict[bytes, list[Held]] = {tx: [] for tx in sent or {}}
    began: dict[bytes, int] = {}
    for host, store in stores.items():
        for prefix in stored_tablets(store, host):
            tablet = int.from_bytes(prefix, "big")
            for key, value in store.scan(prefix + b"s", prefix + b"u"):
                if len(key) != 17:
                    continue
                tx, staged = key[5:], key[4:5] == b"s"
                held, slices = (_staged if staged else _proposed)(names, tablet, value)
                held_by_tx.setdefault(tx, []).append(held)
                ms = _written_ms(store, slices)
                if ms is not None:
                    began[tx] = min(ms, began.get(tx, ms))
    prefix = tablet_prefix(COORDINATOR_ID)
    newest = stores[0].scan(prefix + b"o", prefix + b"p", reverse=True, limit=_NEWEST)
    for key, row in newest:
        if OutcomeRow._make(row).state == PLANNED:
            held_by_tx.setdefault(key[5:], [])
    result = []
    for tx, several in sorted(held_by_tx.items()):
        states = [held.state for held in several] + ["sent"]
        place, names_of = None, tuple(held.participant for held in several)
        row = stores[0].get(prefix + b"o" + tx)
        outcome = None if row is None else OutcomeRow._make(row)
        if outcome is not None and outcome.state == PLANNED:
            began[tx] = outcome.when_ms
            states.append("planned")
            place = Place(outcome.step, outcome.n)
            participants = tuple(tablet_name(names, tablet) for tablet in outcome.participants)
            names_of = participants or names_of
        state = max(states, key=_ORDER.index)
        age = max(0.0, (now_ms - began[tx]) / 1000) if tx in began else (sent or {}).get(tx)
        result.append(OpenTransaction(tx_text(tx), state, place, age, names_of, tuple(several)))
    return result


def undecided_in(store: Path, now_ms: int) -> list[OpenTransaction]:
    """Lists those of a store that is closed or open in another process; completes nothing that is under way."""
    with views_of(store, "`planstep topic create` makes one", complete=False) as views:
        return undecided(dict(enumerate(views)), Names(views[0]), now_ms)


def _staged(names: Names, tablet: int, value: Any) -> tuple[Held, Any]:
    slices = value[1:]
    return Held(tablet_name(names, tablet), "staged", *_sizes(slices), 0, (), (), (), ()), slices


def _proposed(names: Names, tablet: int, row: Any) -> tuple[Held, Any]:
    record: TxRecord[Body] = TxRecord._make(row)
    records = size = keys = 0
    consumers: tuple[str, ...] = ()
    slices: Any = ()
    if kind_of(tablet) == PARTITION:
        part = PartitionPart(*record.body)
        slices = part.slices
        records, size = _sizes(slices)
        moved = [consumer for consumer, _, _ in part.ranges + part.acks + part.seeks]
        consumers = tuple(dict.fromkeys(moved))
    elif kind_of(tablet) == SHARD:
        writes = ShardPart(*record.body).writes
        keys, size = len(writes), sum(len(value) for _, _, value in writes)
    votes = tuple(tablet_name(names, voter) for voter in record.missing or ())
    return Held(
        tablet_name(names, tablet),
        "planned" if record.step else "prepared",
        records,
        size,
        keys,
        consumers,
        tuple(map(tx_text, record.blockers)),
        votes if record.step else (),
        tuple(map(tx_text, record.waiters)),
    ), slices


def _sizes(slices: Any) -> tuple[int, int]:
    """Returns the records and bytes that a partition has staged."""
    return sum(count for _, _, count in slices), sum(length for _, length, _ in slices)


def _written_ms(store: Store, slices: Any) -> int | None:
    """Returns when the first batch was made, by its writer's clock."""
    if not slices:
        return None
    (address, _, _), *_ = slices
    try:
        return timestamp_of(store.read_payload(address, HEADER_BYTES))
    except (Corruption, IoError):
        return None
