"""Tests the description of a turn's changes: each kind of key that a person may look for, and no other."""

from typing import Any

import msgpack
import pytest

from planstep.coordinator.kafka.states import ONGOING, Transaction
from planstep.coordinator.plan import ABORTED, OutcomeRow
from planstep.host.describe import Nameless, appends, batch_text, part_name
from planstep.proto.batched_log import MAGIC
from planstep.proto.ids import (
    CATALOGUE,
    CATALOGUE_ID,
    COORDINATOR,
    COORDINATOR_ID,
    GROUPS,
    PARTITION,
    SHARD,
    TRANSACTIONS,
    kind_of,
    tablet_id,
    tablet_prefix,
    tx_id,
)
from planstep.proto.kafka.messages import ABORT, COMMIT, PLAIN, TRANSACTIONAL
from planstep.store.layers import GONE
from planstep.tablets.participant import proposal

TOPIC, TABLE = tablet_id(PARTITION, 0, 5), tablet_id(SHARD, 0, 6)
FIRST, SECOND = tablet_id(TRANSACTIONS, 0, 0), tablet_id(GROUPS, 2, 0)
TX = tx_id(3, 17)


class Named:
    """A catalogue of one topic and one table."""

    def of_tablet(self, tablet: int) -> tuple[str, str, int]:
        known = {TOPIC: ("topic", "clicks", 3), TABLE: ("table", "rows", 0)}
        return known.get(tablet, ("tablet", f"{tablet:#x}", 0))


def lines(tablet: int, key: bytes, value: Any) -> list[str]:
    mode = "kafka" if kind_of(tablet) in (TRANSACTIONS, GROUPS) else "deterministic"
    return appends(mode, Named(), {tablet_prefix(tablet) + key: value})


def offset(number: int) -> bytes:
    return number.to_bytes(8, "big")


def packed(record: tuple[Any, ...]) -> bytes:
    data: bytes = msgpack.packb(record)
    return data


@pytest.mark.parametrize(
    "row, text",
    [
        ((0, 10, 5, 12, 0), "@17 5 records place (12, 0)"),
        ((0, 10, 1, 12, 0), "@17 1 record place (12, 0)"),
        ((0, 10, 2, 4, 0, 7, PLAIN), "@17 2 records producer 4 epoch 0 seq 7 plain"),
        (
            (0, 10, 2, 4, 1, 7, TRANSACTIONAL),
            "@17 2 records producer 4 epoch 1 seq 7 transactional",
        ),
        ((0, 10, 1, 4, 1, -1, COMMIT, 9), "@17 commit marker producer 4 epoch 1"),
        ((0, 10, 1, 4, 1, -1, ABORT, 9), "@17 abort marker producer 4 epoch 1"),
    ],
)
def test_a_partitions_entry(row: tuple[int, ...], text: str) -> None:
    mode = "deterministic" if len(row) == 5 else "kafka"
    assert batch_text(mode, 17, row) == text
    changes = {tablet_prefix(TOPIC) + b"b" + offset(17): row}
    assert appends(mode, Named(), changes) == [f"clicks[3] {text}"]


@pytest.mark.parametrize(
    "tablet, key, value, text",
    [
        (TOPIC, b"creader", (0, 0, 12), "clicks[3] reader = 12"),
        (TOPIC, b"s" + TX, (0, (0, 9, 2), (0, 9, 3)), "clicks[3] 5 records staged for 3-17"),
        (TOPIC, b"t" + TX, proposal(0, ())._replace(step=7), "clicks[3] 3-17 planned"),
        (TABLE, b"t" + TX, proposal(0, ()), "rows[0] 3-17 prepared"),
        (COORDINATOR_ID, b"l", 9, "coordinator: step 9"),
        (COORDINATOR_ID, b"o" + TX, OutcomeRow(ABORTED, 0, 0, 0, ()), "coordinator: 3-17 aborted"),
        (CATALOGUE_ID, b"n" + bytes([PARTITION]) + b"clicks", (), "catalogue: topic clicks"),
        (CATALOGUE_ID, b"n" + bytes([SHARD]) + b"rows", GONE, "catalogue: table rows dropped"),
        (CATALOGUE_ID, b"c" + bytes(4) + b"me", (), "catalogue: consumer me"),
        (CATALOGUE_ID, b"c" + bytes(4) + b"me", GONE, "catalogue: consumer me dropped"),
        (
            SECOND,
            b"gus",
            (4, ("a", "b")),
            "group coordinator on host 2: us generation 4, members a, b",
        ),
        (SECOND, b"gus", (5, ()), "group coordinator on host 2: us generation 5, no members"),
    ],
)
def test_what_other_tablets_say(tablet: int, key: bytes, value: Any, text: str) -> None:
    assert lines(tablet, key, value) == [text]


@pytest.mark.parametrize(
    "tablet, record, text",
    [
        (
            FIRST,
            ("w", *Transaction(4, 1, ONGOING, 100, 5, 5, (TOPIC, SECOND))[:10]),
            "transaction coordinator: w Ongoing [clicks[3], group coordinator on host 2] "
            "producer 4 epoch 1",
        ),
        (FIRST, ("w", None), "transaction coordinator: w expired"),
        (
            SECOND,
            ("offsets", "us", ((TOPIC, 12), (TOPIC, None))),
            "group coordinator on host 2: us clicks[3] = 12, clicks[3] forgotten",
        ),
        (
            SECOND,
            ("pending", 4, 1, "us", ((TOPIC, 12),)),
            "group coordinator on host 2: us clicks[3] = 12 pending producer 4",
        ),
        (
            SECOND,
            ("marker", 4, 1, 0, True),
            "group coordinator on host 2: commit marker producer 4 epoch 1",
        ),
        (
            SECOND,
            ("marker", 4, 1, 0, False),
            "group coordinator on host 2: abort marker producer 4 epoch 1",
        ),
    ],
)
def test_a_coordinators_log(tablet: int, record: tuple[Any, ...], text: str) -> None:
    assert lines(tablet, b"l" + offset(1), packed(record)) == [text]


def test_an_entry_that_cannot_be_read_is_told_as_that() -> None:
    newer, damaged = MAGIC + b"\x00\x07", b"\xc1"
    assert "has batch version 7" in lines(FIRST, b"l" + offset(1), newer)[0]
    assert "cannot be read" in lines(FIRST, b"l" + offset(1), damaged)[0]


def test_rows_and_removals_are_counted_and_counters_left_out() -> None:
    rows, log = tablet_prefix(TABLE) + b"r", tablet_prefix(TOPIC) + b"b"
    changes: dict[bytes, Any] = {rows + b"1": 1, rows + b"2": GONE, rows + b"3": 3}
    changes |= {log + offset(1): GONE, log + offset(2): GONE}
    changes |= {tablet_prefix(TOPIC) + b"m": (0, 1, 1), tablet_prefix(TOPIC) + b"t" + TX: GONE}
    assert appends("deterministic", Named(), changes) == [
        "clicks[3] 2 entries removed",
        "rows[0] 2 rows put, 1 row deleted",
    ]
    assert appends("deterministic", Named(), {rows + b"1": GONE}) == ["rows[0] 1 row deleted"]


def test_without_a_catalogue_tablets_go_by_their_numbers() -> None:
    assert part_name(Nameless(), TOPIC) == "partition 5 on host 0"
    assert part_name(Nameless(), tablet_id(COORDINATOR, 0, 0)) == "coordinator"
    assert part_name(Nameless(), tablet_id(CATALOGUE, 1, 0)) == "catalogue on host 1"
