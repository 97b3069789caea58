"""Tests that an input makes the same calls, and scans the same rows, beside ten and ten thousand open ones."""

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import pytest
from buffer_kit import CLIENT, COORDINATOR, TABLET
from coordinator_kit import FakeShell
from transactions_kit import P

from planstep.coordinator.pulsar.transactions import Transactions
from planstep.proto.pulsar.coordinators import coordinator_tablet
from planstep.proto.pulsar.messages import (
    NO_TXN,
    Ack,
    AddPartitionToTxn,
    Ended,
    EndTxn,
    EndTxnOnPartition,
    EndTxnOnSubscription,
    NewTxn,
    Seek,
    Send,
)
from planstep.proto.pulsar.settings import PulsarSettings
from planstep.store.layers import Layer
from planstep.tablets.pulsar.partition import Partition

FEW, MANY = 10, 10_000


class LayerSpace:
    """A tablet's space over the store's own layer. `rows`: those that scans have returned."""

    def __init__(self) -> None:
        self.layer = Layer()
        self.rows = 0

    def get(self, key: bytes) -> Any:
        return self.layer.values.get(key)

    def put(self, key: bytes, value: Any) -> None:
        self.layer.update({key: value})

    def delete(self, key: bytes) -> None:
        self.layer.remove(key)

    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, Any]]:
        found: Any = self.layer.between(begin, end, reverse, limit)
        self.rows += len(found)
        return found  # type: ignore[no-any-return]

    def append_payload(self, data: bytes) -> int:
        return 0


def cost_of(tablet: Any, inputs: Iterable[Any]) -> tuple[int, int]:
    """Returns the calls that the inputs make, and the rows that their scans return."""
    space, calls = tablet.space, 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    space.scan(b"", b"\xff")  # sorts what the open ones have put
    before = space.rows
    sys.setprofile(count)
    try:
        feed(tablet, inputs)
    finally:
        sys.setprofile(None)
    return calls, space.rows - before


def feed(tablet: Any, inputs: Iterable[Any]) -> None:
    for message in inputs:
        tablet.mark()
        tablet.handle(message)
        tablet.shell.sent.clear()


def coordinator(open: int) -> tuple[Any, list[Any]]:
    shell: Any = FakeShell(PulsarSettings(), 1, 1_000_000)  # type: ignore[arg-type]
    tablet: Any = Transactions(coordinator_tablet(0, 1), LayerSpace(), shell)  # type: ignore[arg-type]
    for n in range(open):
        feed(tablet, [NewTxn(CLIENT, n, 60_000), AddPartitionToTxn(CLIENT, n, 0, n, (P[0],))])
    last = open - 1
    ends = [EndTxn(CLIENT, -1, 0, last, True), Ended(P[0], 0, last, None, "")]
    return tablet, [NewTxn(CLIENT, -2, 60_000), *ends]


def partition() -> Any:
    shell: Any = FakeShell(PulsarSettings(), now_ms=0)  # type: ignore[arg-type]
    return Partition(TABLET, LayerSpace(), shell)  # type: ignore[arg-type]


def send(n: int, txn: tuple[int, int], records: int = 1) -> Send:
    return Send(CLIENT, n, *txn, "w", n, b"x", records)


def buffer(open: int) -> tuple[Any, list[Any]]:
    tablet = partition()
    feed(tablet, (send(n, (0, n)) for n in range(open)))
    end = EndTxnOnPartition(COORDINATOR, 0, open // 2, True, -1)
    return tablet, [send(open, NO_TXN), send(open + 1, (0, open)), end]


def subscription(open: int) -> tuple[Any, list[Any]]:
    tablet = partition()
    feed(tablet, [send(0, NO_TXN, 2 * MANY), Seek(CLIENT, 1, "s", 0, True)])
    feed(tablet, (Ack(CLIENT, n, 0, n, "s", ((2 * n, 2 * n + 1),)) for n in range(open)))
    mine = open // 2
    return tablet, [
        Ack(CLIENT, -1, 0, open, "s", ((2 * mine + 1, 2 * mine + 2),)),
        Ack(CLIENT, -2, 0, open, "s", ((2 * mine, 2 * mine + 1),)),  # conflicts
        EndTxnOnSubscription(COORDINATOR, 0, mine, True, -1, "s"),
        EndTxnOnSubscription(COORDINATOR, 0, 0, False, 0, "s"),
    ]


@pytest.mark.parametrize("opened", (coordinator, buffer, subscription))
def test_an_input_costs_the_same_beside_ten_thousand(
    opened: Callable[[int], tuple[Any, list[Any]]],
) -> None:
    (few, few_rows), (many, many_rows) = (cost_of(*opened(n)) for n in (FEW, MANY))
    assert many <= few * 1.1
    assert many_rows <= few_rows + 2
