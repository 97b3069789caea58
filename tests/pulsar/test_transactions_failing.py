"""Tests the transaction coordinator when participants are gone or refuse, when its log fails, and what it costs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transactions_kit import CLIENT, Coordinator, P

from planstep.coordinator.pulsar.invariants import violations
from planstep.coordinator.pulsar.states import (
    ABORTED,
    ABORTING,
    CAME_FROM,
    COMMITTED,
    COMMITTING,
    DECIDED,
    END,
    END_TXN,
    ENDED_AGAIN,
    OPEN,
    WAIT,
    check_move,
)
from planstep.proto.pulsar.messages import EndTxn, SwitchLog

OK = ("", None)
STATES = (OPEN, COMMITTING, COMMITTED, ABORTING, ABORTED)


def break_log(c: Coordinator, times: int = 1, error: str = "PersistenceError") -> None:
    """Makes the next `times` records fail to be written."""
    log = c.tablet.log

    class Broken:
        left = times

        def append(self, record: Any, done: Any, refused: str = "") -> None:
            self.left -= 1
            if not self.left:
                c.tablet.log = log
            done(error, None)

        def __getattr__(self, name: str) -> Any:
            return getattr(log, name)

    c.tablet.log = Broken()


# participants --------------------------------------------------------------------------------


def test_scenario_11_a_topic_or_subscription_dropped_while_ending_counts_as_ended() -> None:
    c = Coordinator()
    c.open(P[0], P[1])
    c.subscribe(0, (P[0], "kept"), (P[1], "dropped"))
    c.end(0)
    for target, end in c.ends():
        gone = target == P[1]
        c.acknowledge(target, end, "TopicNotFound" if gone else "")
    assert c.answer() == OK and c.live() == []


@pytest.mark.parametrize("error", ["PersistenceError", "ServiceNotReady", "TooManyRequests"])
def test_another_error_is_no_acknowledgement(error: str) -> None:
    c = Coordinator()
    c.open(P[0])
    c.end(0)
    for _ in range(3):
        (sent,) = c.ends()
        c.acknowledge(*sent, error)
        assert c.answer() is None and c.tablet.ends.on_way == 1
        c.wait(4_000)
    c.acknowledge_all()
    assert c.answer() == OK


def test_an_acknowledgement_of_a_transaction_that_is_not_ending_changes_nothing() -> None:
    c = Coordinator()
    c.open(P[0])
    c.end(c.open(P[0]))
    ((target, end),) = c.ends()
    rows = dict(c.keys.rows)
    end.least = 0  # open still
    c.acknowledge(target, end)
    end.least = 7  # never given
    c.acknowledge(target, end)
    assert c.keys.rows == rows and c.tablet.ends.on_way == 1


def test_a_restart_before_all_acknowledged_asks_all_of_them_again() -> None:
    c = Coordinator()
    c.open(P[0], P[1])
    c.end(0)
    first, second = c.ends()
    c.acknowledge(*first)
    c.restart()
    c.acknowledge(*second)  # late, from before the restart
    assert c.acknowledge_all() == 2 and c.live() == []


# the log -------------------------------------------------------------------------------------


def test_a_log_that_fails_refuses_the_call_and_later_ones_pass() -> None:
    c = Coordinator(max_active_transactions=1)
    break_log(c)
    assert c.new() == ("PersistenceError", None)
    least = c.open(P[0])
    break_log(c)
    assert c.add(least, P[1]) == ("PersistenceError", None)
    break_log(c)
    assert c.end(least) == ("PersistenceError", None)
    assert c.tablet.get(least).state == OPEN and not c.ends()
    assert c.end(least, commit=False) is None, "the refused commit has decided nothing"
    assert c.acknowledge_all() == 1 and c.answer() == OK


def test_a_refused_decision_of_the_tracker_is_made_again() -> None:
    c = Coordinator()
    c.open(timeout_ms=1_000)
    break_log(c, 3)
    c.wait(1_000)
    assert c.live() == []


@pytest.mark.parametrize("partitions", [(), (P[0], P[1])])
def test_an_end_that_everyone_has_is_logged_at_last(partitions: tuple[int, ...]) -> None:
    c = Coordinator()
    c.open(*partitions)
    if partitions:
        c.end(0)
        break_log(c)
        c.acknowledge_all()
    else:
        log = c.tablet.log
        real = log.append

        def second_fails(record: Any, done: Any, refused: str) -> None:
            break_log(c)
            real(record, done)

        c.tablet.log = type("Counting", (), {"append": staticmethod(second_fails), "buffered": 0})()
        c.end(0)
        c.tablet.log = log
    assert c.answer() is None and c.tablet.get(0).state == COMMITTING
    for _ in range(6):
        c.wait(1_000)
        assert not c.ends(), "nobody is asked twice"
    assert c.answer() == OK and c.live() == []
    c.wait(60_000)
    assert not c.shell.timers, "a coordinator at rest wakes nobody"


# time-outs -----------------------------------------------------------------------------------


def test_the_tracker_looks_again_after_an_hour_whatever_the_time_out() -> None:
    c = Coordinator()
    c.open(timeout_ms=(1 << 53) - 1)
    for _ in range(3):
        (timer,) = c.shell.timers
        assert timer[0] - c.shell.now_ms == 3_600_000
        c.wait(3_600_000)
    soon = c.open(timeout_ms=1_000)
    c.wait(1_000)
    assert c.live() == [0] and soon == 1


# what is over --------------------------------------------------------------------------------


def test_scenario_42_a_commit_is_asked_for_three_times_and_counts_once() -> None:
    c = Coordinator(ended_kept=10)
    c.open(P[0])
    request = EndTxn(CLIENT, c._number(), 0, 0, True)
    c.handle(request)
    c.handle(request)  # the datagram came twice
    assert c.end(0) is None
    assert c.acknowledge_all() == 1
    assert c.answer(request.request) == OK and c.answer() == OK
    c.restart()
    assert c.end(0) == OK and not c.ends()
    assert c.end(0, commit=False) == ("AlreadyCommitted", None)


def test_the_first_to_end_is_forgotten_first_not_the_lowest_number() -> None:
    c = Coordinator(ended_kept=2)
    for _ in range(4):
        c.open()
    for least in (3, 2, 0):
        c.end(least)
    assert c.end(0) == c.end(2) == OK
    assert c.end(3) == ("TransactionNotFound", None)


def test_what_ended_too_long_ago_is_forgotten() -> None:
    c = Coordinator(ended_kept=10, ended_kept_ms=1_000)
    c.end(c.open())
    c.shell.now_ms += 1_000
    assert c.end(0) == OK
    c.shell.now_ms += 1
    assert c.end(0) == ("TransactionNotFound", None)
    c.end(c.open())
    assert [key for key in c.keys.rows if key[:1] == b"e"] == [b"e" + (1).to_bytes(8, "big")]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 700), st.booleans()), max_size=40),
    st.integers(0, 4),
)
def test_ended_ones_are_kept_as_a_list_would(steps: list[tuple[int, int, bool]], most: int) -> None:
    c = Coordinator(ended_kept=most, ended_kept_ms=1_000)
    kept: list[tuple[int, int, bool]] = []  # number, when, how
    for which, ms, commit in steps:
        c.shell.now_ms += ms
        while len(c.live()) < 4:
            c.open()
        least = c.live()[which % 4]
        c.end(least, commit)
        kept = [*kept, (least, c.shell.now_ms, commit)]
        kept = [one for one in kept if one[1] >= c.shell.now_ms - 1_000][-most:] if most else []
    expected = {least: commit for least, _, commit in kept}
    given_so_far = c.keys.rows.get(b"i", -1) + 1
    for least in range(given_so_far):
        if least not in c.live():
            error, _ = c.end(least)
            if least not in expected:
                assert error == "TransactionNotFound"
            else:
                assert error == ("" if expected[least] else "AlreadyAborted")


# states --------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(STATES), max_size=6))
def test_only_five_courses_of_a_transaction_are_allowed(course: list[int]) -> None:
    allowed = [
        [OPEN, *course] == whole[: len(course) + 1]
        for whole in ([OPEN, COMMITTING, COMMITTED], [OPEN, ABORTING, ABORTED])
    ]
    try:
        for before, after in zip([OPEN, *course], course, strict=False):
            check_move(before, after)
    except AssertionError:
        assert not any(allowed)
    else:
        assert any(allowed)


def test_the_tables_agree() -> None:
    assert set(CAME_FROM) == set(END_TXN) == set(STATES)
    for state, outcomes in END_TXN.items():
        for commit, outcome in zip((True, False), outcomes, strict=True):
            moves = state in CAME_FROM[COMMITTING if commit else ABORTING]
            assert (outcome == END) == moves
            same = state in ((COMMITTING, COMMITTED) if commit else (ABORTING, ABORTED))
            assert (outcome == WAIT) == same
    assert {state for state, _ in ENDED_AGAIN} == {COMMITTED, ABORTED}
    assert {
        state for state in STATES if any(state in CAME_FROM[s] for s in (COMMITTED, ABORTED))
    } == {*DECIDED}


# costs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions, subscriptions", [(1, 1), (3, 1), (0, 0), (4, 4)])
def test_a_transaction_alone_costs_three_appends_and_one_a_registration(
    partitions: int, subscriptions: int
) -> None:
    c = Coordinator()
    least = c.open()
    for n in range(partitions):
        c.add(least, P[n])
    for n in range(subscriptions):
        c.subscribe(least, (P[n], "c"))
    c.end(least)
    c.add(least, P[0])  # refused: no append
    c.end(least)  # repeated: none either
    assert c.acknowledge_all() == partitions + subscriptions
    assert len(c.shell.appends) == 3 + partitions + subscriptions and c.live() == []


def test_batched_registrations_that_come_together_share_an_append() -> None:
    c = Coordinator(log_batching=True)
    c.new(), c.wait(1)
    for n in range(3):
        c.add(0, P[n])
    c.subscribe(0, (P[0], "c"))
    c.wait(1)
    c.end(0), c.wait(1)
    assert c.acknowledge_all() == 4
    c.wait(1)
    assert c.answer() == OK and c.keys.rows[b"L"] == 4
    assert sum(share for _, share in c.shell.appends) == pytest.approx(4)


def test_a_registration_again_costs_nothing() -> None:
    c = Coordinator()
    c.open(P[0])
    c.subscribe(0, (P[0], "c"))
    appends = len(c.shell.appends)
    assert c.add(0, P[0]) == OK and c.subscribe(0, (P[0], "c")) == OK
    assert c.add(0) == OK and len(c.shell.appends) == appends


# invariants ----------------------------------------------------------------------------------


def spoiled(spoil: str) -> list[str]:
    c = Coordinator(ended_kept=3)
    c.end(c.open())
    c.open(P[0])
    c.handle(SwitchLog(True))
    c.new(), c.new(), c.wait(1)
    c.end(2), c.wait(1), c.wait(1)
    assert c.live() == [1, 3]
    rows = c.keys.rows
    one = (1).to_bytes(8, "big")
    if spoil == "a row is gone":
        del rows[b"t" + one]
    elif spoil == "a record is gone":
        del rows[next(key for key in rows if key[:1] == b"l")]
    elif spoil == "a deadline is gone":
        del rows[next(key for key in rows if key[:1] == b"d")]
    elif spoil == "the highest number fell":
        rows[b"i"] = 2
    elif spoil == "a mark outlives its entry":
        rows[b"v" + (9).to_bytes(8, "big")] = b"\x01"
    elif spoil == "an ended one is lost":
        del rows[next(key for key in rows if key[:1] == b"e")]
    elif spoil == "an ended one is live":
        rows[b"e" + one] = (COMMITTED, 0, 0)
    elif spoil == "an entry is damaged":
        rows[next(key for key in rows if key[:1] == b"l")] = b"\xc1"
    return violations(c.keys)


SPOILS = (
    "a row is gone",
    "a record is gone",
    "a deadline is gone",
    "the highest number fell",
    "a mark outlives its entry",
    "an ended one is lost",
    "an ended one is live",
    "an entry is damaged",
)


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_coordinator_that_disagrees_with_itself_is_noticed(spoil: str) -> None:
    assert spoiled(spoil)


def test_one_that_agrees_is_not() -> None:
    assert spoiled("") == []
