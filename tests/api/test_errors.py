"""Tests that errors cross processes: each can be pickled and copied, with its text and attributes."""

import copy
import pickle

import pytest

import planstep

ERRORS = [
    planstep.UnknownName("topic", "clik", "clicks"),
    planstep.KeyTooLong(900, 480),
    planstep.Conflict(kind="topic", name="t", part=1, consumer="c", expected=1, actual=2),
    planstep.ProcessingError("t", 0, 7, "c", ValueError("x"), records=1, attempt=2),
    planstep.KafkaError("PRODUCER_FENCED", "PRODUCER_FENCED", 90),
    planstep.StoreInUse(1, None, readers=(4, 5)),
    planstep.WrongMode("hosts", 1, 2),
    planstep.Undetermined("why"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_can_be_pickled_and_copied(error: planstep.PlanstepError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error) and str(again) == str(error)
        assert {**vars(again)}.keys() == {**vars(error)}.keys()
