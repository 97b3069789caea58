"""Defines the ids of transactions, places and tablets.

transaction id   12 bytes  = engine generation (4) + counter (8), big endian; text "3-17"
place            (step, n) = a transaction's position in the coordinator's one order
tablet id        32 bits   = kind (4) + host (8) + number (20); never reused, holds its own route
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

COORDINATOR, CATALOGUE, PARTITION, SHARD, PROXY, HOST = 1, 2, 3, 4, 5, 6
TRANSACTIONS, GROUPS = 7, 8
"""Mode "kafka": each host has one coordinator of transactions and one of consumer groups."""
KIND_NAMES = {
    COORDINATOR: "coordinator",
    CATALOGUE: "catalogue",
    PARTITION: "partition",
    SHARD: "shard",
    PROXY: "proxy",
    HOST: "host",
    TRANSACTIONS: "transaction coordinator",
    GROUPS: "group coordinator",
}
_TX = struct.Struct(">IQ")
_TX_TEXT_MAX = 40


class Place(NamedTuple):
    """A point in virtual time: plan step and position in the step's plan.

    `n` is None behind the whole step: the place of a read-only transaction.
    """

    step: int
    n: int | None


tx_id: Callable[[int, int], bytes] = _TX.pack
"""(generation, counter) → a transaction's id; each transaction calls it."""


def tx_text(tx: bytes) -> str:
    generation, counter = _TX.unpack(tx)
    return f"{generation}-{counter}"


def tx_parse(text: str) -> bytes:
    """Parses "3-17" into its id. Raises ValueError for anything else."""
    generation, _, counter = text.partition("-")
    if len(text) > _TX_TEXT_MAX:
        raise ValueError(f"{text[:_TX_TEXT_MAX]}… is no transaction id: it is too long")
    if not (generation.isdecimal() and counter.isdecimal()):
        raise ValueError(f"{text!r} is no transaction id; one looks like 3-17")
    try:
        return _TX.pack(int(generation), int(counter))
    except struct.error:
        raise ValueError(f"{text!r} is no transaction id: a number is too large") from None


TABLETS_MAX = 1 << 20
"""The number of tablet numbers; a dropped tablet's number is never given again."""


KIND_SHIFT = 28
"""`tablet >> KIND_SHIFT` is `kind_of(tablet)` without the call, for routing messages."""
HOST_SHIFT = 20
HOST_MASK = 0xFF << HOST_SHIFT
"""Selects a tablet id's host: tablets with equal bits here live on the same host."""


def tablet_id(kind: int, host: int, number: int) -> int:
    assert 0 < kind < 16 and 0 <= host < 256 and 0 <= number < TABLETS_MAX
    return kind << KIND_SHIFT | host << HOST_SHIFT | number


def kind_of(tablet: int) -> int:
    return tablet >> KIND_SHIFT


def host_of(tablet: int) -> int:
    return (tablet & HOST_MASK) >> HOST_SHIFT


def tablet_prefix(tablet: int) -> bytes:
    return tablet.to_bytes(4, "big")


def tablet_text(tablet: int) -> str:
    """Describes a tablet to people: "partition 5 on host 2"."""
    kind = KIND_NAMES.get(kind_of(tablet), "tablet")
    return f"{kind} {tablet & 0xFFFFF} on host {host_of(tablet)}"


COORDINATOR_ID = tablet_id(COORDINATOR, 0, 0)
CATALOGUE_ID = tablet_id(CATALOGUE, 0, 0)


class TxnID(NamedTuple):
    """A transaction's 128-bit id in mode "pulsar". Its text is Pulsar's: "(0,5)"."""

    most: int
    """The number of its coordinator."""
    least: int
    """Its number there, from 0."""

    def __str__(self) -> str:
        return f"({self.most},{self.least})"


LEAST_MAX = (1 << 63) - 1
"""The highest value of a half: what one 64-bit field of Pulsar's protocol holds."""


def parse_txn(text: str) -> TxnID:
    """Parses "(0,5)". Raises ValueError for anything else."""
    halves = text[1:-1].split(",") if text[:1] == "(" and text[-1:] == ")" else []
    if len(text) > 64 or len(halves) != 2 or not all(h.isascii() and h.isdecimal() for h in halves):
        raise ValueError(f"{text[:64]!r} is no transaction id; one looks like (0,5)")
    id = TxnID(int(halves[0]), int(halves[1]))
    if max(id) > LEAST_MAX:
        raise ValueError(f"{text!r} is no transaction id: a number is too large")
    return id
