"""A few allocations that fail, and a commit that is shown too early."""

from pathlib import Path

import pytest

from planstep.bench.proof.disks.apart import apart
from planstep.bench.proof.disks.judging import look
from planstep.bench.proof.disks.kept import Contents
from planstep.bench.proof.disks.memory import ACTIONS, Lived, Position, hooks, live, reopened
from planstep.bench.proof.disks.sample import KINDS, Sample, make

pytestmark = pytest.mark.skipif(hooks() is None, reason="no allocation can be made to fail")


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sample, Contents]:
    folder = tmp_path_factory.mktemp("oom")
    made = make(KINDS[0], folder)
    made.planted(folder / "whole")
    return made, apart(look, folder / "whole").value.shown["reader"]


@pytest.mark.parametrize("action", ACTIONS)
def test_an_allocation_that_fails(
    sample: tuple[Sample, Contents], action: str, tmp_path: Path
) -> None:
    failed = 0
    for n in (40, 400):
        position = Position(action, n)
        first = apart(live, (*sample, position, tmp_path / "s", False))
        assert not first.why and not first.value.wrong, (str(position), first)
        failed += bool(first.value.raised)
        second = apart(reopened, (*sample, position, tmp_path / "s", first.value))
        assert (second.why, second.value) == ("", ""), str(position)
    assert failed


def test_what_is_acknowledged_must_be_there(
    sample: tuple[Sample, Contents], tmp_path: Path
) -> None:
    sample[0].planted(tmp_path / "s")
    for lived, said in (
        (Lived(acknowledged=True), "an acknowledged commit is gone"),
        (Lived(shown=[True] * 5), "the engine showed"),
        (Lived(probe=True), "after the failure is gone"),
    ):
        told = apart(reopened, (*sample, Position("commit", 1), tmp_path / "s", lived))
        assert said in told.value
