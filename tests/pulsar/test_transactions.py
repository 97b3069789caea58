"""Tests the transaction coordinator of mode "pulsar": ids, states, ends, time-outs, and its log."""

import random

import pytest
from transactions_kit import Coordinator, P, step

from planstep.coordinator.pulsar.states import ABORTING, COMMITTING, OPEN
from planstep.proto.pulsar.messages import AbortTxn, EndTxnOnPartition, SwitchLog
from planstep.proto.shell import Answer

OK = ("", None)
INVALID, UNKNOWN = ("InvalidTxnStatus", None), ("TransactionNotFound", None)


@pytest.fixture(params=[False, True], ids=["plain", "batched"])
def c(request: pytest.FixtureRequest) -> "Coordinator":
    """A coordinator whose log takes records one by one, or in batches of at most two (then timers flush)."""
    return Flushed(log_batching=request.param)


class Flushed(Coordinator):
    """Writes what its log gathers after each message, as a timer would."""

    def handle(self, message: object) -> None:
        super().handle(message)
        while self.tablet.log.buffered:
            self.tablet.log.flush()  # an end that is decided may be over at once: another record
        self.check()


def test_scenario_1_ids_ascend_and_an_end_is_given_once_everyone_has_it(c: Coordinator) -> None:
    assert c.new() == ("", (0, 0)) and c.new() == ("", (0, 1))
    assert c.add(0, P[0], P[1]) == OK and c.subscribe(0, (P[0], "c")) == OK
    assert c.end(0) is None
    sent = c.ends()
    assert [(target, end.commit) for target, end in sent] == [
        (P[0], True),
        (P[1], True),
        (P[0], True),
    ]
    asked = c.requests
    assert c.end(0) is None  # again, while it is under way
    assert c.end(0, commit=False) == INVALID
    for target, end in sent[:2]:
        c.acknowledge(target, end)
        c.acknowledge(target, end)  # repeats do not count
    assert c.answer(asked) is None
    c.acknowledge(*sent[2])
    assert c.answer(asked) == OK and c.answer(asked + 1) == OK
    assert c.live() == [1] and c.end(0) == UNKNOWN and c.add(0, P[0]) == UNKNOWN
    assert c.end(1, commit=False) == OK  # nobody has to hear of it


def test_another_coordinators_transaction(c: Coordinator) -> None:
    c.handle(AbortTxn(1, 77, 5, 0))
    assert c.answer(77) == ("TransactionCoordinatorNotFound", None)


@pytest.mark.parametrize("least", [-1, 3, 1 << 63])
def test_a_number_that_was_never_given(c: Coordinator, least: int) -> None:
    c.open()
    assert c.end(least) == UNKNOWN and c.add(least, P[0]) == UNKNOWN


def test_scenario_2_numbers_go_on_after_a_restart_also_if_the_log_is_empty(c: Coordinator) -> None:
    assert c.open() == 0 and c.end(0) == OK and c.entries() == 0
    c.restart()
    assert c.open() == 1
    c.restart()
    assert c.open() == 2


def test_scenario_3_the_log_is_empty_once_nothing_is_live() -> None:
    c = Flushed(log_batching=True)
    c.open(P[0])
    c.handle(SwitchLog(False))
    c.open(P[1])
    c.handle(SwitchLog(True))
    c.add(0, P[1]), c.add(1, P[0])
    c.open(), c.open(P[0], P[1])
    for least in (2, 0, 3, 1):
        c.end(least, commit=bool(least % 2))
        c.acknowledge_all()
        c.restart()
        assert least not in c.live()
    assert sorted(key for key in c.keys.rows if key[:1] in b"tdlv") == []


def test_records_of_one_batch_belong_to_many_transactions() -> None:
    c = Coordinator(log_batching=True)
    for _ in range(4):
        assert c.new() is None
    c.wait(1)
    assert c.entries() == 1 and c.live() == [0, 1, 2, 3]
    for least in (3, 0, 2):
        c.end(least)
        c.wait(1), c.wait(1)
        assert c.entries() == 1
    c.end(1)
    c.wait(1), c.wait(1)
    assert c.entries() == 0


def test_scenario_4_batching_is_switched_with_transactions_across() -> None:
    c = Coordinator()
    c.open(P[0])
    c.handle(SwitchLog(True, 1, 90))
    assert c.answer(90) == OK
    assert c.new() is None
    c.restart()  # what was in the buffer is lost, its client asks again; the switch stays
    assert c.new() is None
    c.wait(1)
    assert c.answer() == ("", (0, 1))
    c.handle(SwitchLog(False))
    assert c.end(1) == OK and c.add(0, P[1]) == OK
    c.restart()
    assert c.open() == 2 and c.live() == [0, 2]


def test_scenario_9_open_ones_time_out_at_their_deadline_also_after_a_restart(
    c: Coordinator,
) -> None:
    first = c.open(P[0], timeout_ms=10_000)
    second = c.open(P[0], timeout_ms=4_000)
    c.wait(3_999)
    assert not c.ends()
    c.wait(1)
    assert [(end.least, end.commit) for _, end in c.ends()] == [(second, False)]
    c.restart()
    assert [end.least for _, end in c.ends()] == [second]  # decided: driven on
    c.wait(5_999)
    assert c.tablet.get(first).state == OPEN
    c.wait(1)
    assert c.tablet.get(first).state == ABORTING
    assert c.end(first) == INVALID


def test_a_decided_transaction_never_times_out(c: Coordinator) -> None:
    c.open(P[0], timeout_ms=1_000)
    c.end(0)
    c.wait(100_000)
    assert c.tablet.get(0).state == COMMITTING
    c.acknowledge_all()
    assert c.live() == []


def test_a_clock_that_was_set_back_delays_the_time_out_and_forward_hastens_it(
    c: Coordinator,
) -> None:
    c.open(timeout_ms=1_000)
    c.shell.now_ms -= 5_000
    timers, c.shell.timers = c.shell.timers, []
    c.handle(next(wake for _, wake in timers if wake.what == "time"))
    assert c.live() == [0]
    c.wait(5_999)
    assert c.live() == [0]
    c.wait(1)
    assert c.live() == []
    c.open(timeout_ms=1_000_000)
    c.shell.now_ms += 2_000_000
    c.restart()
    c.wait(0)
    assert c.live() == []


def test_a_time_out_below_a_tick_has_passed_at_once(c: Coordinator) -> None:
    c.open(timeout_ms=99)
    kept = c.open(timeout_ms=100)
    c.wait(0)
    assert c.live() == [kept]


@pytest.mark.parametrize("timeout_ms", [0, -1, 1 << 53])
def test_a_time_out_that_cannot_be(c: Coordinator, timeout_ms: int) -> None:
    assert c.new(timeout_ms) == ("NotAllowedError", None)


def test_scenario_10_an_end_is_sent_again_until_it_is_acknowledged(c: Coordinator) -> None:
    c.open(P[0], P[1])
    c.end(0)
    assert len(c.ends()) == 2
    for _ in range(3):
        c.wait(4_000)
        assert {target for target, _ in c.ends()} == {P[0], P[1]}
        assert c.answer() is None
    c.acknowledge(P[1], EndTxnOnPartition(0, 0, 0, True, -1))
    c.wait(4_000)
    assert {target for target, _ in c.ends()} == {P[0]}
    c.acknowledge(P[0], EndTxnOnPartition(0, 0, 0, True, -1))
    assert c.answer() == OK


def test_ends_on_their_way_are_limited_and_the_rest_follows_in_order(c: Coordinator) -> None:
    c.restart(participant_requests=3)
    for _ in range(4):
        c.end(c.open(P[0], P[1]))
    sent = c.ends()
    assert [end.least for _, end in sent] == [0, 0, 1]
    c.acknowledge(*sent[0])
    more = c.ends()
    assert [end.least for _, end in more] == [1]
    for pair in [*sent[1:], *more]:
        c.acknowledge(*pair)
    while c.acknowledge_all():
        assert c.tablet.ends.on_way <= 3
    assert c.live() == [] and c.tablet.ends.on_way == 0 and not c.tablet.ends.waiting


def test_scenario_12_a_decision_is_driven_on_after_a_restart(c: Coordinator) -> None:
    c.open(P[0])
    c.subscribe(0, (P[1], "c"))
    c.end(0)
    c.ends()
    c.restart()
    sent = c.ends()
    assert [(target, end.commit) for target, end in sent] == [(P[0], True), (P[1], True)]
    for pair in sent:
        c.acknowledge(*pair)
    assert c.live() == [] and c.entries() == 0


def test_scenario_13_a_limit_of_active_transactions() -> None:
    c = Flushed(max_active_transactions=2)
    c.open(P[0]), c.open()
    assert c.new() == ("ReachMaxActiveTxn", None)
    c.restart()
    assert c.new() == ("ReachMaxActiveTxn", None)
    c.end(0)
    assert c.new() == ("ReachMaxActiveTxn", None)  # until its end is known
    c.acknowledge_all()
    assert c.new() == ("", (0, 2))


def test_low_water_marks_are_below_the_lowest_live_one(c: Coordinator) -> None:
    for _ in range(3):
        c.open(P[0])
    marks = []
    for least in (1, 0, 2):
        c.end(least)
        marks += [end.low_water_mark for _, end in c.ends()]
        c.acknowledge(P[0], EndTxnOnPartition(0, 0, least, True, -1))
    assert marks == [-1, -1, 1]


def test_scenario_42_an_end_that_is_over_is_answered_again_while_it_is_kept(c: Coordinator) -> None:
    c.restart(ended_kept=2)
    for commit in (True, False):
        c.end(c.open(), commit)
    timed_out = c.open(timeout_ms=1_000)
    for _ in range(2):
        assert c.end(0) == OK and c.end(0, False) == ("AlreadyCommitted", None)
        assert c.end(1, False) == OK and c.end(1) == ("AlreadyAborted", None)
        c.restart()
    c.wait(1_000)
    assert c.end(timed_out) == ("AlreadyTimedOut", None) and c.end(timed_out, False) == OK
    assert c.end(0) == UNKNOWN  # only two are kept
    c.restart(ended_kept=0)
    for _ in range(2):
        c.end(c.open())
    assert not [key for key in c.keys.rows if key[:1] == b"e"]


def test_an_operator_aborts_an_open_one_and_never_a_decided_one(c: Coordinator) -> None:
    c.open(P[0]), c.open(P[0])
    c.end(1)
    c.handle(AbortTxn(1, 80, 0, 0))
    c.handle(AbortTxn(1, 81, 0, 1))
    c.acknowledge_all()
    assert c.answer(80) == OK and c.answer(81) == INVALID


def test_a_request_behind_a_decision_that_is_on_its_way_to_the_log() -> None:
    c = Coordinator(log_batching=True)
    c.new(), c.wait(1)
    c.add(0, P[0])
    c.end(0)
    assert c.add(0, P[1]) == INVALID and c.end(0, commit=False) == INVALID
    c.wait(60_000)  # its time-out passes as well
    assert {(end.commit, target) for target, end in c.ends()} == {(True, P[0])}


def test_an_undone_turn_leaves_no_trace() -> None:
    c = Flushed()
    c.open(P[0])
    rows, mark = dict(c.keys.rows), c.tablet.mark()
    c.end(0)
    c.open(), c.ends()
    inner = c.tablet.mark()
    c.end(1), c.acknowledge(P[0], EndTxnOnPartition(0, 0, 0, True, -1))
    c.tablet.undo(inner)
    c.tablet.undo(mark)
    c.keys.rows = rows
    assert not c.tablet.ends.ending and c.tablet.ends.on_way == 0
    assert c.open() == 1
    c.end(0)
    assert c.acknowledge_all() == 1 and c.live() == [1]


def test_a_mark_costs_the_same_with_many_open_transactions() -> None:
    c = Coordinator()
    for _ in range(300):
        c.open(P[0])
    before, _ = c.tablet.mark()
    c.end(0)
    assert c.tablet.mark()[0] == [] and 0 < len(before) < 20


@pytest.mark.parametrize("seed", range(30))
def test_any_course_ends_each_call_once_and_leaves_nothing(seed: int) -> None:
    rng = random.Random(seed)
    c = Coordinator(log_batching=rng.random() < 0.7, participant_requests=rng.choice((1, 3, 1_000)))
    asked = set()
    for _ in range(120):
        asked.add(step(c, rng))
        if rng.random() < 0.03:
            c.restart()
            asked.clear()
    c.handle(SwitchLog(False))
    for _ in range(60):
        c.wait(4_000)
        c.acknowledge_all()
    assert c.live() == [] and c.entries() == 0 and not c.tablet.ends.ending
    answers = [s.message.request for s in c.shell.sent if type(s.message) is Answer]
    assert len(answers) == len(set(answers)) and asked - {0} <= set(answers)
