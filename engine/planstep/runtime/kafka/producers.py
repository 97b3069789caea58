"""Keeps the producers that write transactions: by transactional id, one transaction at a time each.

    transaction ─▶ its worker's producer · or one of the pool ─▶ initialized? free? ─▶ begins
                                                                     └ not yet: its requests wait

A worker's producer is one incarnation: a new `Producer(name)` takes the transactional id over when it is
initialized, and fences the one before. An incarnation that has asked for nothing when a later one asks is fenced
without asking: the id never goes back to it. Transactions without a worker take producers from a pool, last used
first. So after a crash the same few ids are initialized again, which ends transactions left open. A process that is
attached to the store's owner has a pool of its own names.

Next: hooks.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ..writer_numbers import WRITER
from .views import Positions

POOL = "pool-"


def pool_names(incarnation: str) -> str:
    """Returns what the names of a process's pool begin with. All owners that were never attached share a pool: one
    lives at a time."""
    return f"{POOL}{incarnation}-" if "." in incarnation else POOL


def here(incarnation: str) -> str:
    """Returns what default names of a process's workers end with, before their number. It is "" for owners that
    were never attached, so that the next one takes over what a crash has left open."""
    return f"-{incarnation}" if "." in incarnation else ""


def check_identity(name: str) -> None:
    """Raises ValueError for a worker's name that looks like one of the pool's or of a writer's."""
    if name.startswith((POOL, WRITER)):
        raise ValueError(
            f"worker {name!r}: names that begin with {POOL!r} or {WRITER!r} are those of transactions without "
            "a worker, and of writers"
        )


@dataclass(slots=True, eq=False)
class Producer:
    """One incarnation of a transactional id. `handle` is the client core's, None before it is initialized.

    Invariants: `tx` is the transaction that has it, None when it is free; `waiting` begins in order. `later` is
    the next incarnation if that was made before this one asked for the id, else None.
    """

    name: str
    pooled: bool = False
    handle: int | None = None
    id_requested: bool = False  # whether it got it or not
    initializing: bool = False
    later: "Producer | None" = None
    dead: tuple[str, str] | None = None  # (error name, detail) once it has ended
    retired: bool = False  # no more transactions begin with it
    tx: bytes | None = None
    waiting: "list[Open]" = field(default_factory=list)
    positions: Positions = field(default_factory=dict)  # in its consumer's memory

    @property
    def busy(self) -> bool:
        return self.tx is not None or bool(self.waiting)

    @property
    def is_passed(self) -> bool:
        """Returns whether a later incarnation has asked for the id."""
        later = self.later
        while later is not None and not later.id_requested:
            later = later.later
        return later is not None

    def __repr__(self) -> str:
        return f"<Producer {self.name!r}>"


class Workers(dict[str, Producer]):
    """The last incarnation of each transactional id.

    One incarnation of a name asks at a time: one that is told to retry asks again, and would take the id back from
    a later one.
    """

    def __init__(self) -> None:
        self._asking: dict[str, list[Producer]] = {}

    def stand_last(self, producer: Producer) -> None:
        """Makes a producer its name's last incarnation; once it asks for the id, earlier ones cannot take it."""
        before = self.get(producer.name)
        if before is not None and before is not producer and not before.id_requested:
            before.later = producer
        producer.later = None
        self[producer.name] = producer

    def asks(self, producer: Producer) -> bool:
        """Puts a producer in line to ask for its id; returns whether it may ask now."""
        asking = self._asking.setdefault(producer.name, [])
        asking.append(producer)
        return asking[0] is producer

    def answered(self, producer: Producer) -> Producer | None:
        """Removes the producer that was answered; returns the next in line, if any."""
        _, *asking = self._asking.pop(producer.name)
        if asking:
            self._asking[producer.name] = asking
        return asking[0] if asking else None


@dataclass(slots=True, eq=False)
class Open:
    """A transaction from its first request to its end, with the work that it still wants done, in order."""

    tx: bytes
    producer: Producer
    wants: list[Callable[[int], None]] = field(default_factory=list)  # with the producer's handle
    group: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Consumer → (generation, member)."""
    positions: Positions = field(default_factory=dict)  # the positions that it moves
    begun: bool = False
    refused: str = ""  # the error if it could not begin
    ending: str = ""  # "commit" or "abort", once asked


class Pool:
    """Producers for transactions without a worker."""

    def __init__(self, names: str) -> None:
        """`names`: what their names begin with."""
        self._begin = names
        self._free: list[Producer] = []
        self._names: list[str] = []
        self._made = 0

    def take(self) -> Producer:
        if self._free:
            return self._free.pop()
        if self._names:
            return Producer(self._names.pop(), pooled=True)
        self._made += 1
        return Producer(f"{self._begin}{self._made - 1}", pooled=True)

    def give(self, producer: Producer) -> None:
        """Takes a producer back. Of one that has ended only the name is used again."""
        if producer.dead is None:
            self._free.append(producer)
        else:
            self._names.append(producer.name)
