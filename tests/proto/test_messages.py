"""Tests that every message survives its codec, and that foreign bytes raise ValueError."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planstep.proto import messages as m
from planstep.proto.ids import (
    CATALOGUE_ID,
    GROUPS,
    PARTITION,
    SHARD,
    TRANSACTIONS,
    host_of,
    kind_of,
    tablet_id,
    tx_parse,
    tx_text,
)
from planstep.proto.kafka import messages as k
from planstep.proto.pulsar import messages as u

TX = bytes(12)
P, S = tablet_id(PARTITION, 1, 7), tablet_id(SHARD, 2, 8)
T, G = tablet_id(TRANSACTIONS, 0, 0), tablet_id(GROUPS, 1, 0)
PART = m.PartitionPart((("c", 0, 3),), ((b"data", 2),), (b"p", 1, 2), True, 3)
ROWS = m.ShardPart(((b"k", (1, 0)), (b"l", None)), ((b"a", b"b", 9, 0, 0),), ((b"k", m.PUT, b"v"),))
MORE = m.PartitionPart(acks=(("i", 3, 5),), seeks=(("c", None, False),), trim=7, drop=True)
MAKE = m.CataloguePart(PARTITION, "t", 3, "bytes", 2)
ALL = [
    (P, m.Propose(TX, 5, PART)),
    (S, m.Propose(TX, 5, ROWS)),
    (CATALOGUE_ID, m.Propose(TX, 5, MAKE)),
    (5, m.Prepared(TX, P)),
    (5, m.Refused(TX, P, (P, "position", "c", 1, 2))),
    (P, m.Withdraw(TX)),
    (1, m.PlanRequest(TX, 5, (P, S), (P,), (P, S), (PART, ROWS))),
    (5, m.PlanRefused(TX, "refused")),
    (1, m.PlanRequest(TX, 5, (P, S), (P,), (P, S), (), (P,))),
    (5, m.PlanRefused(TX, "dropped", P)),
    (P, m.Propose(TX, 5, MORE)),
    (P, m.Plan(3, 2, ((0, TX, 5, (P,), (P,), PART), (1, TX, 5, (), (P,), None)))),
    (P, m.ReadSet(TX, S, None)),
    (5, m.Done(TX, P, 3, 0, True, (0, 2))),
    (1, m.Executed(TX, True)),
    (1, m.Ask(TX, P)),
    (P, m.Never(TX)),
    (1, m.Resolve(TX)),
    (P, m.Stage(TX, 5, 2, ((b"data", 2), (b"more", 1)))),
    (5, m.Staged(TX, P, 4)),
    (P, m.Clean(100)),
    (5, k.Answer(7, P, "PRODUCER_FENCED", (1, 2))),
    (T, k.InitProducer(5, 1, "w1", 60_000, 7, 3)),
    (T, k.AddPartitions(5, 2, "w1", 7, 3, (P, P + 1))),
    (T, k.AddOffsets(5, 3, "w1", 7, 3, G)),
    (T, k.EndTxn(5, 4, "w1", 7, 3, True, 2)),
    (P, k.Produce(5, 5, None, 7, 3, 0, b"data", 4)),
    (T, k.Register(P, "w1", 7, 3)),
    (P, k.Registered(P, "w1", 7, 3, "")),
    (P, k.Marker(T, "w1", 7, 3, False, 12, 2)),
    (T, k.Marked(P, "w1", 7, 3, "")),
    (G, k.Join(5, 6, "g", "m")),
    (G, k.Leave(5, 7, "g", "m")),
    (G, k.OffsetCommit(5, 8, "g", -1, "", ((P, 4), (P + 1, None)))),
    (G, k.TxnOffsetCommit(5, 9, "w1", 7, 3, "g", 2, "m", ((P, 4),))),
    (P, k.TrimTo(5, 10, 100)),
    (P, k.DropPartition()),
    (P, k.ExpireProducers(1_700_000_000_000)),
    (T, k.SwitchLog(True)),
    (T, u.NewTxn(5, 1, 60_000)),
    (T, u.AddPartitionToTxn(5, 2, 0, 7, (P, P + 1))),
    (T, u.AddSubscriptionToTxn(5, 3, 0, 7, ((P, "c"), (P, "d")))),
    (T, u.EndTxn(5, 4, 0, 7, True)),
    (T, u.AbortTxn(5, 5, 0, u.LEAST_MAX)),
    (T, u.SwitchLog(True, 5, 6)),
    (P, u.Send(5, 7, -1, -1, "w", 4, b"data", 4)),
    (P, u.Ack(5, 8, 0, 7, "c", ((3, 4), (6, 9)))),
    (P, u.Ack(5, 9, 0, 7, "c", (), 12)),
    (P, u.Seek(5, 10, "c", 0, True)),
    (P, u.DropSubscription(5, 11, "c")),
    (P, u.TrimTo(5, 12, 100)),
    (P, u.DropPartition()),
    (P, u.EndTxnOnPartition(T, 0, 7, True, -1)),
    (P, u.EndTxnOnSubscription(T, 0, 7, False, 4, "c")),
    (T, u.Ended(P, 0, 7, None, "")),
]


@pytest.mark.parametrize("target, message", ALL)
def test_round_trip(target: int, message: object) -> None:
    assert m.decode(m.encode(target, message)) == (target, message, m.NOBODY)
    assert m.decode(m.encode(target, message, (TX, 3))) == (target, message, (TX, 3))


def test_each_kind_is_here() -> None:
    assert {type(message) for _, message in ALL} == set(m._CODES.values())


@given(st.binary(max_size=40))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    try:
        m.decode(data)
    except ValueError:
        pass


def test_ids() -> None:
    assert (kind_of(P), host_of(P)) == (PARTITION, 1)
    assert tx_text(tx_parse("3-17")) == "3-17"
    for bad in ("", "3", "a-b", "-1-2", "3-99999999999999999999999"):
        with pytest.raises(ValueError, match="transaction id"):
            tx_parse(bad)
