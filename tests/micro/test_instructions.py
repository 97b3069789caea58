"""Tests that one commit makes no more calls than the figures of docs/performance.md."""

import pytest

from planstep.bench.micro.instructions import Calls, calls_of


@pytest.mark.parametrize(
    ("mode", "most"),
    [
        ("deterministic", Calls(calls=130, entries=45, files=35)),
        ("kafka", Calls(calls=720, entries=170, files=56)),  # threads meet differently each time
    ],
)
def test_one_commit_takes_no_more_calls_than_it_did(mode: str, most: Calls) -> None:
    counted = calls_of(mode)
    assert counted.calls <= most.calls
    assert counted.entries <= most.entries
    assert counted.files <= most.files
