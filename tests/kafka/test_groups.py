"""Tests the group coordinator: membership, the right to commit positions, and positions that wait for a marker."""

from typing import Any

import pytest
from coordinator_kit import GroupCoordinator, P, T

from planstep.proto.kafka.messages import (
    ExpireProducers,
    Marked,
    Register,
    Registered,
)

FENCED = "INVALID_PRODUCER_EPOCH"


@pytest.fixture
def c() -> GroupCoordinator:
    return GroupCoordinator()


# membership --------------------------------------------------------------------------------


def test_the_generation_rises_with_each_change_of_the_membership(c: GroupCoordinator) -> None:
    assert c.join("m1") == (1, ("m1",))
    assert c.join("m2") == (2, ("m1", "m2"))
    assert c.join("m1") == (2, ("m1", "m2")), "nothing changed"
    assert c.leave("m1") == "" and c.join("m3") == (4, ("m2", "m3"))


def test_an_empty_group_keeps_its_generation(c: GroupCoordinator) -> None:
    c.join("m")
    c.leave("m")
    c.restart()
    assert c.join("m") == (3, ("m",))


def test_who_is_no_member_cannot_leave(c: GroupCoordinator) -> None:
    assert c.leave("m") == "UNKNOWN_MEMBER_ID"
    c.join("m")
    assert c.leave("other") == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("group, member", [("", "m"), ("a\0b", "m"), ("é" * 201, "m"), ("g", "")])
def test_names_that_cannot_be(c: GroupCoordinator, group: str, member: str) -> None:
    assert c.join(member, group) == "INVALID_REQUEST"
    if member and group != "g":
        assert c.leave(member, group) == "INVALID_REQUEST"
        assert c.commit(1, group=group) == c.pend(1, group=group) == "INVALID_REQUEST"


# the right to commit -----------------------------------------------------------------------

VALIDATION = [
    # members, generation, member; of a transaction, plain
    ((), -1, "", "", ""),
    ((), 0, "m1", "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
    ((), 1, "", "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
    (("m1",), 1, "m1", "", ""),
    (("m1", "m2"), 2, "m1", "", ""),
    (("m1", "m2"), 1, "m1", "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
    (("m1",), 2, "m1", "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
    (("m1",), -1, "m1", "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
    (("m1",), 1, "other", "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
    (("m1",), 1, "", "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
    (("m1",), -1, "", "", "UNKNOWN_MEMBER_ID"),
]


@pytest.mark.parametrize("members, generation, member, of_transaction, plain", VALIDATION)
def test_group_metadata_is_checked(
    c: GroupCoordinator, members: Any, generation: int, member: str, of_transaction: str, plain: str
) -> None:
    for name in members:
        c.join(name)
    assert c.pend(1, generation=generation, member=member) == of_transaction
    assert c.commit(1, generation, member) == plain
    assert c.at() == (None if plain else 1) and c.pending() == (not of_transaction)


def test_the_longest_name(c: GroupCoordinator) -> None:
    assert c.pend(1, group="é" * 200) == c.end() == "" and c.at("é" * 200) == 1


def test_a_zombie_of_an_older_generation_is_fenced(c: GroupCoordinator) -> None:
    generation, _ = c.join("zombie")
    c.leave("zombie")
    c.join("heir")
    assert c.pend(5, generation=generation, member="zombie") == "UNKNOWN_MEMBER_ID"


def test_an_empty_group_takes_commits_of_nobody_in_particular(c: GroupCoordinator) -> None:
    c.join("m")
    c.leave("m")
    assert c.commit(4) == "" and c.at() == 4
    assert c.commit(5, 1, "m") == "UNKNOWN_MEMBER_ID"


def test_two_unfenced_committers_both_succeed(c: GroupCoordinator) -> None:
    """This mode allows it, so it is asserted: positions are not checked against the records read."""
    assert c.commit(10) == "" and c.commit(5) == "" and c.at() == 5
    assert c.pend(20, producer=7) == c.pend(15, producer=8) == ""
    assert c.end(producer=8) == c.end(producer=7) == ""
    assert c.at() == 15, "the later in the log, not the larger, not the later marker"


# pending positions ---------------------------------------------------------------------------


@pytest.mark.parametrize("commit, expected", [(True, 9), (False, 3)])
def test_a_marker_moves_or_drops(c: GroupCoordinator, commit: bool, expected: int) -> None:
    c.commit(3)
    assert c.pend(9) == "" and c.at() == 3
    assert c.at(stable=True) == "pending"
    assert c.end(commit) == "" and c.at(stable=True) == expected and c.pending() == 0


def test_another_partition_or_group_is_stable(c: GroupCoordinator) -> None:
    c.pend(9)
    assert c.at(tablet=P[1], stable=True) is None and c.at("g2", stable=True) is None


def test_a_marker_ends_all_groups_and_partitions_of_its_producer_only(c: GroupCoordinator) -> None:
    c.pend(1)
    c.pend(2, tablet=P[1])
    c.pend(3, group="h")
    c.pend(4, producer=8, group="h", tablet=P[1])
    assert c.end() == "" and c.pending() == 1
    assert (c.at(), c.at(tablet=P[1]), c.at("h"), c.at("h", P[1])) == (1, 2, 3, None)


def test_the_last_pending_position_of_a_transaction_counts(c: GroupCoordinator) -> None:
    c.pend(1)
    c.pend(2)
    assert c.pending() == 1
    c.end()
    assert c.at() == 2


@pytest.mark.parametrize("batching", [False, True])
def test_a_plain_commit_made_meanwhile_is_later_in_the_log(batching: bool) -> None:
    c = GroupCoordinator(log_batching=batching)
    c.pend(9)
    c.commit(3)
    c.end()
    c.tablet.log.flush()
    assert c.at() == 3 and c.pending() == 0
    c.commit(4)
    c.pend(5)
    c.end()
    c.tablet.log.flush()
    assert c.at() == 5


def test_forgetting_clears_what_is_pending_too(c: GroupCoordinator) -> None:
    c.commit(3)
    c.pend(9)
    c.pend(8, producer=8)
    c.pend(7, tablet=P[1])
    assert c.commit(None) == "" and c.at(stable=True) is None and c.pending() == 1
    c.end()
    c.end(producer=8)
    assert c.at() is None and c.at(tablet=P[1]) == 7


def test_what_is_pending_after_the_forgetting_counts(c: GroupCoordinator) -> None:
    c.commit(3)
    c.commit(None)
    c.pend(9)
    c.end()
    assert c.at() == 9


def test_pending_positions_outlive_the_host(c: GroupCoordinator) -> None:
    c.commit(3)
    c.pend(9)
    c.restart()
    assert c.at(stable=True) == "pending" and c.end() == "" and c.at() == 9


# epochs --------------------------------------------------------------------------------------


def test_a_lower_epoch_is_fenced_and_no_sequence_is_asked_for(c: GroupCoordinator) -> None:
    assert c.pend(1, epoch=3) == c.pend(2, epoch=3) == c.pend(3, epoch=5) == ""
    assert c.pend(9, epoch=4) == FENCED


def test_a_marker_raises_the_epoch(c: GroupCoordinator) -> None:
    c.pend(1, epoch=3)
    assert c.end(commit=False, epoch=4) == "" and c.pending() == 0
    assert c.pend(2, epoch=3) == FENCED
    assert c.end(epoch=3) == FENCED


def test_a_former_coordinator_is_fenced(c: GroupCoordinator) -> None:
    c.pend(1)
    assert c.end(coordinator_epoch=5) == ""
    c.pend(2, epoch=1)
    assert c.end(epoch=1, coordinator_epoch=4) == "TRANSACTION_COORDINATOR_FENCED"
    c.restart()
    assert c.end(epoch=1, coordinator_epoch=4) == "TRANSACTION_COORDINATOR_FENCED"
    assert c.end(epoch=1, coordinator_epoch=5) == "" and c.at() == 2


def test_a_marker_for_whom_nothing_is_known_is_answered(c: GroupCoordinator) -> None:
    assert c.end() == "" and c.pend(1, epoch=-1) == FENCED


def test_a_repeated_marker_is_written_again_in_version_1(c: GroupCoordinator) -> None:
    c.pend(1)
    assert c.end() == "" and c.keys.rows[b"L"] == 2
    assert c.end() == "" and c.keys.rows[b"L"] == 3 and c.at() == 1


def test_a_late_marker_ends_the_next_transaction_in_version_1(c: GroupCoordinator) -> None:
    """Version 1 allows it, so it is asserted: within an epoch the two are indistinguishable."""
    c.pend(1)
    c.end()
    c.pend(2)
    assert c.end() == "" and c.at() == 2


def test_a_numbered_marker_is_written_once_and_ends_no_later_transaction(
    c: GroupCoordinator,
) -> None:
    c.pend(1)
    assert c.end(number=1) == "" and c.at() == 1
    c.pend(2)
    assert c.end(number=1) == "" and c.pending() == 1 and c.at() == 1
    assert c.end(number=2, coordinator_epoch=2) == "" and c.at() == 2
    assert c.end(number=2, coordinator_epoch=1) == "", "written, by whichever start"


def test_of_two_numbered_markers_in_one_batch_the_second_is_a_repeat() -> None:
    c = GroupCoordinator(log_batching=True)
    c.pend(1)
    c.wait(1)
    c.end(number=1)
    c.pend(2)
    c.end(number=1)
    c.wait(1)
    assert c.at() == 1 and c.pending() == 1


def test_a_repeated_marker_is_answered_and_not_written_in_version_2(c: GroupCoordinator) -> None:
    c.pend(1, epoch=0)
    assert c.end(epoch=1, version=2) == "" and c.at() == 1
    entries = c.keys.rows[b"L"]
    assert c.end(epoch=1, version=2) == "", "else it stayed in Prepare for ever (KAFKA-19999)"
    assert c.keys.rows[b"L"] == entries


def test_a_late_marker_ends_no_later_transaction_in_version_2(c: GroupCoordinator) -> None:
    c.pend(1, epoch=0)
    c.end(epoch=1, version=2)
    c.pend(2, epoch=1)
    assert c.end(epoch=1, version=2) == FENCED and c.pending() == 1
    assert c.end(epoch=2, version=2) == "" and c.at() == 2


def test_idle_producers_are_forgotten_and_open_ones_never(c: GroupCoordinator) -> None:
    c.pend(1, producer=7)
    c.end(producer=7)
    c.pend(1, producer=8)
    c.shell.now_ms += 1_000
    c.pend(1, producer=9)
    c.end(producer=9)
    c.tablet.handle(ExpireProducers(c.shell.now_ms))
    producers = [int.from_bytes(k[1:], "big") for k, _ in c.keys.scan(b"p", b"q")]
    assert producers == [8, 9]


# version 2 asks the transaction first ----------------------------------------------------------


def registered(c: GroupCoordinator, error: str = "", epoch: int = 0) -> None:
    c.tablet.handle(Registered(T, "tx", 7, epoch, error))


def test_version_2_registers_before_anything_is_pending(c: GroupCoordinator) -> None:
    assert c.pend(9, version=2) is None and c.pending() == 0
    assert c.drain(Register, T) == [Register(c.tablet.id, "tx", 7, 0)]
    registered(c)
    assert c.answer(1).error == "" and c.pending() == 1
    assert c.pend(10, version=2) == "" and not c.drain(Register), "it is in already"
    assert c.end(epoch=1, version=2) == ""
    assert c.pend(11, epoch=1, version=2) is None, "the next transaction asks again"


def test_all_that_wait_share_the_answer(c: GroupCoordinator) -> None:
    c.shell.cause = "first"
    c.pend(9, version=2)
    c.shell.cause = "second"
    c.pend(10, version=2)
    c.shell.cause = None
    assert len(c.drain(Register)) == 2, "asked again: the first may have been lost"
    registered(c, "TRANSACTION_ABORTABLE")
    assert [(s.message.error, s.cause) for s in c.shell.sent] == [
        ("TRANSACTION_ABORTABLE", "first"),
        ("TRANSACTION_ABORTABLE", "second"),
    ]
    registered(c)
    assert c.pending() == 0, "an answer to nothing"


def test_one_refused_of_those_that_wait_refuses_no_other(c: GroupCoordinator) -> None:
    c.join("m1")
    c.pend(9, version=2, generation=1, member="m1")
    c.pend(10, version=2)
    c.join("m2")
    registered(c)
    assert c.answer(2).error == "ILLEGAL_GENERATION"
    assert c.answer(3).error == "" and c.pending() == 1


def test_a_marker_in_between_ends_the_waiting(c: GroupCoordinator) -> None:
    c.pend(9, version=2)
    assert c.end(commit=False, epoch=1, version=2) == ""
    assert c.answer(1).error == FENCED
    registered(c)
    assert c.pending() == 0


def test_the_marker_of_the_transaction_before_leaves_who_waits(c: GroupCoordinator) -> None:
    """Its producer was allowed to go on at Prepare, and was faster than the marker."""
    c.pend(9, epoch=1, version=2)
    assert c.end(epoch=1, version=2) == ""
    assert c.answer(1) is None
    registered(c, epoch=1)
    assert c.pending() == 1


def test_who_waits_is_not_kept_for_ever_nor_over_a_restart(c: GroupCoordinator) -> None:
    c.pend(9, version=2)
    c.wait(30_000)
    assert c.answer(1).error == "REQUEST_TIMED_OUT"
    c.pend(9, version=2)
    c.restart()
    registered(c)
    assert c.pending() == 0


def test_one_timer_serves_all_that_wait(c: GroupCoordinator) -> None:
    c.pend(9, version=2)
    c.wait(10_000)
    c.pend(9, producer=8, version=2)
    assert [what.what for _, what in c.shell.timers].count("held") == 1
    c.wait(20_000)
    assert c.answer(1).error == "REQUEST_TIMED_OUT"
    c.wait(9_999)
    assert c.answer(2) is None
    c.wait(1)
    assert c.answer(2).error == "REQUEST_TIMED_OUT"
    assert "held" not in [what.what for _, what in c.shell.timers]


# batching --------------------------------------------------------------------------------------


def test_positions_of_one_batch_share_an_append() -> None:
    c = GroupCoordinator(log_batching=True)
    assert c.commit(1) is None and c.pend(2) is None and c.end() is None and c.at() is None
    c.wait(1)
    assert c.keys.rows[b"L"] == 1 and c.at() == 2 and c.pending() == 0
    assert [s.message.error for s in c.shell.sent] == ["", "", ""]


def test_what_comes_behind_a_marker_in_the_same_batch_is_refused() -> None:
    c = GroupCoordinator(log_batching=True)
    c.end(commit=False, epoch=4)
    assert c.pend(9, epoch=3) is None
    assert c.end(epoch=2) is None
    c.tablet.log.flush()
    (marked, refused) = c.drain(Marked)
    assert (marked.error, refused.error) == ("", FENCED)
    assert c.answer(1).error == FENCED and c.pending() == 0


@pytest.mark.parametrize("transactional", [True, False])
def test_a_member_that_joins_before_the_batch_is_written_fences_what_is_in_it(
    transactional: bool,
) -> None:
    """The new member reads its position meanwhile, and finds nothing pending there."""
    c = GroupCoordinator(log_batching=True)
    c.join("m1")
    who = {"generation": 1, "member": "m1"}
    assert (c.pend(9, **who) if transactional else c.commit(9, **who)) is None
    c.join("m2")
    c.wait(1)
    assert c.answer(2).error == "ILLEGAL_GENERATION"
    assert c.pending() == 0 and c.at() is None


def test_a_turn_that_is_taken_back(c: GroupCoordinator) -> None:
    rows, mark = dict(c.keys.rows), c.tablet.mark()
    c.pend(9, version=2)
    c.keys.rows = rows
    c.tablet.undo(mark)
    registered(c)
    assert c.pending() == 0
