"""Tests that reasons survive the forms that rows, messages and results store."""

import pytest

from planstep.proto import reasons
from planstep.proto.reasons import Why, cause_of, kept_as, read_reason

KEPT: list[tuple[Why, tuple[object, ...]]] = [
    (reasons.NotNext("c", 0, 4), ("position", "c", 0, 4)),
    (reasons.ConsumerMoved("c", 3, 6), ("moved", "c", 3, 6)),
    (reasons.OutsideLog("c", 11, 10), ("range", "c", 11, 10)),
    (reasons.MoreRecords(4, 5), ("end", 4, 5)),
    (reasons.NumberTaken(b"p", 2, 3, False), ("sequence", b"p", 2, 3, False)),
    (
        reasons.WrongKind("c", "cumulative", "individual"),
        ("consumer", "c", "cumulative", "individual"),
    ),
    (reasons.TooManyRanges("c", 9), ("gaps", "c", 9)),
    (reasons.StagedLost(2, 1), ("lost", 2, 1)),
    (reasons.RowChanged(b"k", None, (1, 0)), ("key", b"k", None, (1, 0))),
    (reasons.RangeChanged(b"a", 2, 3), ("phantom", b"a", 2, 3)),
    (reasons.NotANumber(b"k", "number", "other"), ("type", b"k", "number", "other")),
    (reasons.SumTooLarge(b"k", "64 bits", "more"), ("overflow", b"k", "64 bits", "more")),
    (reasons.NameExists("t"), ("exists", "t")),
    (reasons.NameGone(3, "t"), ("gone", 3, "t")),
    (reasons.NumbersUsedUp("t", 3, 2), ("full", "t", 3, 2)),
    (reasons.TabletDropped(), ("dropped",)),
    (reasons.RefusedUnplanned(), ("refused",)),
    (reasons.Withdrawn(), ("withdrawn",)),
    (reasons.DiskFull(), ("space",)),
    (reasons.OwnerEnded(), ("owner",)),
    (reasons.RecordForgotten(), ("forgotten",)),
]


@pytest.mark.parametrize(("why", "stored"), KEPT)
def test_a_reason_has_one_kept_form(why: Why, stored: tuple[object, ...]) -> None:
    assert kept_as(7, why) == (7, *stored) and read_reason((7, *stored)) == (7, why)
    assert type(read_reason((7, *stored))[1]) is type(why) and cause_of((7, *stored)) == stored[0]
