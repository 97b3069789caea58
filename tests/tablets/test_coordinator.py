"""Tests the coordinator and a client's proxy alone: each transaction has one end, however often or late it is asked
for."""

from typing import Any

import pytest
from dict_space import DictSpace

from planstep.coordinator import plan as module
from planstep.coordinator.plan import Coordinator, OutcomeRow
from planstep.proto.ids import COORDINATOR_ID, PARTITION, PROXY, tablet_id
from planstep.proto.messages import (
    Ask,
    Done,
    Executed,
    Never,
    PartitionPart,
    Plan,
    PlanRefused,
    PlanRequest,
    Prepared,
    Refused,
    Resolve,
    Stage,
    Staged,
    Withdraw,
)
from planstep.proxy.deterministic import Proxy, Result

CLIENT = tablet_id(PROXY, 0, 1)
ONE, TWO = (tablet_id(PARTITION, host, 1) for host in (0, 1))
HOUR = 3_600_000


class Planning:
    def __init__(self) -> None:
        self.space = DictSpace()
        self.sent: list[tuple[int, Any]] = []
        self.core = Coordinator(
            COORDINATOR_ID, self.space, lambda target, message: self.sent.append((target, message))
        )

    def request(self, tx: bytes, *tablets: int, drops: tuple[int, ...] = ()) -> None:
        self.core.handle(PlanRequest(tx, CLIENT, tablets, (), tablets, (), drops))

    def close(self, now_ms: int = 0) -> list[tuple[int, Any]]:
        self.core.close(now_ms)
        sent, self.sent = self.sent, []
        return sent

    def state(self, tx: bytes) -> int | None:
        row = self.space.get(b"o" + tx)
        return None if row is None else OutcomeRow._make(row).state


@pytest.fixture
def planning() -> Planning:
    return Planning()


def test_one_place_for_each_and_none_twice(planning: Planning) -> None:
    planning.request(b"a", ONE)
    planning.request(b"a", ONE)
    planning.request(b"b", ONE, TWO)
    to_one, to_two = planning.close()
    assert to_one[0] == ONE and to_two[0] == TWO and type(to_one[1]) is Plan
    assert [entry[:2] for entry in to_one[1].entries] == [(0, b"a"), (1, b"b")]
    planning.request(b"a", ONE)  # too late: it is planned
    assert planning.close() == []


def test_what_was_refused_is_never_planned_and_what_is_planned_is_never_refused(
    planning: Planning,
) -> None:
    planning.core.handle(Ask(b"a", ONE))
    planning.core.handle(Ask(b"a", ONE))
    assert planning.sent == [(ONE, Never(b"a"))] * 2
    planning.request(b"a", ONE)
    assert planning.sent[2:] == [(CLIENT, PlanRefused(b"a", "refused"))]
    planning.close()
    planning.request(b"b", ONE)
    planning.core.handle(Resolve(b"b"))  # waits for its place
    planning.core.handle(Ask(b"b", ONE))
    assert planning.state(b"b") is None
    planning.close()
    planning.core.handle(Resolve(b"b"))
    planning.core.handle(Ask(b"b", ONE))
    assert planning.state(b"b") == module.PLANNED and planning.sent == []


def test_an_end_is_noted_once(planning: Planning) -> None:
    planning.core.handle(Executed(b"x", True))  # of no known transaction
    assert planning.space.rows == {}
    planning.request(b"a", ONE)
    planning.close()
    planning.core.handle(Executed(b"a", False))
    planning.core.handle(Executed(b"a", True))
    assert planning.state(b"a") == module.ABORTED


def test_nobody_gets_a_place_behind_a_drop(planning: Planning) -> None:
    planning.request(b"a", ONE)
    planning.request(b"drop", ONE, drops=(ONE,))
    planning.request(b"b", ONE, TWO)
    planning.request(b"c", TWO)
    sent = planning.close()
    assert (CLIENT, PlanRefused(b"b", "dropped", ONE)) in sent
    planned = [
        entry[1] for _, message in sent if type(message) is Plan for entry in message.entries
    ]
    assert planned == [b"a", b"drop", b"c"]
    planning.core.handle(Executed(b"drop", True))
    planning.request(b"d", ONE)
    assert planning.close() == [(CLIENT, PlanRefused(b"d", "dropped", ONE))]


def test_a_drop_that_was_not_leaves_its_tablet(planning: Planning) -> None:
    planning.request(b"drop", ONE, drops=(ONE,))
    planning.close()
    planning.core.handle(Executed(b"drop", False))
    planning.request(b"a", ONE)
    assert [target for target, _ in planning.close()] == [ONE]


def test_old_outcomes_go_but_none_that_is_not_decided(
    planning: Planning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OUTCOMES_KEPT", 4)
    monkeypatch.setattr(module, "_PRUNE_EVERY", 2)
    for tx in (b"1", b"2", b"3", b"4", b"5", b"6"):
        planning.request(tx, ONE)
    planning.close()
    for tx in (b"2", b"3", b"4", b"5", b"6"):
        planning.core.handle(Executed(tx, True))
    planning.close(HOUR)  # not an hour old
    assert [planning.state(b"%d" % n) for n in (1, 2, 3)] == [1, 2, 2]
    planning.close(HOUR + 1), planning.close(HOUR + 1)
    assert [planning.state(b"%d" % n) for n in (1, 2, 3)] == [1, None, 2]
    assert planning.space.get(b"f") == b"2" and planning.space.get(b"k") == 5
    planning.core.handle(Executed(b"1", True))
    planning.close(HOUR + 1), planning.close(HOUR + 1)
    assert planning.state(b"1") is None
    assert planning.space.get(b"f") == b"2", "what is forgotten stays known to be"


def test_what_was_forgotten_is_neither_refused_anew_nor_planned(
    planning: Planning, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome is forgotten: a late request gets no plan, and no record claims more than that."""
    monkeypatch.setattr(module, "OUTCOMES_KEPT", 1)
    monkeypatch.setattr(module, "_PRUNE_EVERY", 1)
    for tx in (b"1", b"3", b"4", b"5"):
        planning.request(tx, ONE)
    planning.close()
    for tx in (b"1", b"3", b"4", b"5"):
        planning.core.handle(Executed(tx, True))
    planning.close(HOUR + 1)
    assert planning.space.get(b"f") == b"4" and planning.state(b"5") == module.COMMITTED
    planning.core.handle(Ask(b"1", ONE))
    planning.core.handle(Resolve(b"2"))
    assert planning.sent == [(ONE, Never(b"1"))]
    assert [planning.state(tx) for tx in (b"1", b"2")] == [module.EXPIRED] * 2
    planning.sent.clear()
    planning.request(b"2", ONE)
    assert planning.close(HOUR + 1) == [(CLIENT, PlanRefused(b"2", "refused"))]


def test_a_refusal_is_kept_as_long_as_other_outcomes(
    planning: Planning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OUTCOMES_KEPT", 0)
    monkeypatch.setattr(module, "_PRUNE_EVERY", 1)
    planning.core.now_ms = 5
    planning.core.handle(Resolve(b"a"))
    planning.close(HOUR + 5)
    assert planning.state(b"a") == module.REFUSED
    planning.close(HOUR + 6)
    assert planning.state(b"a") is None


def test_what_came_with_an_input_that_is_undone_is_forgotten(planning: Planning) -> None:
    planning.request(b"a", ONE)
    planning.request(b"b", ONE)
    planning.core.forget(1)
    ((_, plan),) = planning.close()
    assert [entry[1] for entry in plan.entries] == [b"a"]


# the client's side ------------------------------------------------------------------------------


class Client:
    """A client of two participants on hosts of their own: no parts travel with the plan."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Any]] = []
        self.core = Proxy(CLIENT, lambda target, message: self.sent.append((target, message)))
        self.parts = dict.fromkeys((ONE, TWO), PartitionPart(slices=((b"d", 1),)))

    def hear(self, *messages: Any) -> list[tuple[int, Any]]:
        self.sent = []
        for message in messages:
            self.core.mark()
            self.core.handle(message)
        return self.sent


@pytest.fixture
def client() -> Client:
    client = Client()
    client.core.mark()
    client.core.commit(b"a", client.parts)
    client.core.commit(b"a", client.parts)
    assert [target for target, _ in client.sent] == [ONE, TWO]
    return client


def test_the_plan_is_asked_for_once_all_are_prepared(client: Client) -> None:
    assert client.hear(Prepared(b"a", ONE), Prepared(b"a", ONE)) == []
    ((target, request),) = client.hear(Prepared(b"a", TWO))
    assert target == COORDINATOR_ID and type(request) is PlanRequest
    assert client.hear(Prepared(b"a", TWO), Refused(b"a", ONE, ("late",))) == []
    client.hear(Done(b"a", ONE, 5, 1, True, (0, 1)))
    assert client.core.take() == []
    client.hear(Done(b"a", TWO, 5, 1, True, (7, 8)))
    assert client.core.take() == [Result(b"a", 5, 1, None, {ONE: (0, 1), TWO: (7, 8)})]
    assert client.hear(Done(b"a", TWO, 5, 1, True, (7, 8))) == [] and client.core.take() == []


def test_one_that_refuses_ends_it_for_all(client: Client) -> None:
    client.hear(Prepared(b"a", TWO))
    assert client.hear(Refused(b"a", ONE, (ONE, "position"))) == [(TWO, Withdraw(b"a"))]
    assert client.core.take() == [Result(b"a", reason=(ONE, "position"))]
    assert not client.core.knows(b"a")


def test_a_place_that_was_refused_leaves_nothing_prepared(client: Client) -> None:
    client.hear(Prepared(b"a", ONE), Prepared(b"a", TWO))
    assert client.hear(PlanRefused(b"a", "dropped", TWO)) == [
        (ONE, Withdraw(b"a")),
        (TWO, Withdraw(b"a")),
    ]
    assert client.core.take() == [Result(b"a", reason=(TWO, "dropped"))]


def test_of_two_reasons_the_first_is_told(client: Client) -> None:
    client.hear(Prepared(b"a", ONE), Prepared(b"a", TWO))
    client.hear(Done(b"a", ONE, 5, 1, False, ("first",)), Done(b"a", TWO, 5, 1, False, ("second",)))
    assert client.core.take() == [Result(b"a", 5, 1, ("first",))]


def test_an_input_that_fails_is_taken_back_whole(client: Client) -> None:
    client.core.take()
    mark = client.core.mark()
    client.core.handle(Refused(b"a", ONE, ("position",)))
    client.core.stage(b"b", {ONE: (0, ((b"d", 1),))})
    client.core.undo(mark)
    assert client.core.take() == [] and client.core.knows(b"a") and not client.core.knows(b"b")
    client.core.decided(b"a", 3, 0, None, {}, late=True)
    client.core.decided(b"a", 4, 0, None, {}, late=True)  # it has ended
    assert client.core.take() == [Result(b"a", 3, 0)]


def test_what_goes_ahead_is_sent_again_until_it_is_there_and_withdrawn_when_it_is_too_late() -> (
    None
):
    client = Client()
    client.core.mark()
    client.core.stage(b"b", {ONE: (0, ((b"d", 1),)), TWO: (0, ((b"d", 1),))})
    assert [type(message) for _, message in client.sent] == [Stage, Stage]
    client.hear(Staged(b"b", ONE, 1), Staged(b"b", ONE, 1))
    client.core.resend()
    assert [target for target, _ in client.sent] == [TWO]
    client.hear(Staged(b"b", TWO, 0))
    assert client.core.take() == []  # a part of it is missing
    client.hear(Staged(b"b", TWO, 1))
    assert client.core.take() == [Result(b"b")]
    client.core.rollback(b"b")
    assert client.sent == [(ONE, Withdraw(b"b")), (TWO, Withdraw(b"b"))]
    assert client.hear(Staged(b"b", ONE, 1)) == [(ONE, Withdraw(b"b"))]  # a late repeat
    assert client.core.take() == []


def test_a_rollback_ends_what_somebody_waits_for() -> None:
    client = Client()
    client.core.mark()
    client.core.rollback(b"b")
    client.core.stage(b"b", {ONE: (0, ((b"d", 1),))})
    client.core.rollback(b"b")
    assert client.core.take() == [Result(b"b", reason=(CLIENT, "withdrawn"))]


def test_a_partition_that_refuses_what_goes_ahead_ends_it() -> None:
    client = Client()
    client.core.mark()
    client.core.stage(b"b", {ONE: (0, ((b"d", 1),)), TWO: (0, ((b"d", 1),))})
    client.hear(Refused(b"b", ONE, (ONE, "space")), Staged(b"b", TWO, 1))
    assert client.core.take() == [Result(b"b", reason=(ONE, "space"))]
