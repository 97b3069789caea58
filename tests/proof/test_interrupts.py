"""Tests row interrupts: a few interrupts of each kind, and a planted order of operations that is wrong."""

from pathlib import Path
from typing import Any

import pytest

from planstep.bench.proof.disks.forked import apart
from planstep.bench.proof.disks.modes import MODES
from planstep.bench.proof.disks.striking import Piece, Strikes, bytecodes, strike


@pytest.mark.parametrize("mode", MODES)
def test_strikes_leave_all_or_nothing_and_the_engine_goes_on(mode: Any, tmp_path: Path) -> None:
    counted = apart(bytecodes, Piece("signal", mode, (), tmp_path / "counted"))
    assert not counted.why and counted.value > 2_000
    places = tuple(range(1, counted.value, counted.value // 12))
    for kind, at in (("signal", places), ("alarm", (1, 2, 3)), ("depth", (0, 10, 30, 60, 119))):
        ended = apart(strike, Piece(kind, mode, at, tmp_path / kind), 60)
        strikes: Strikes = ended.value
        assert (ended.why, strikes.wrong, strikes.runs) == ("", [], len(at))
        assert kind != "signal" or (strikes.put_off and strikes.strikes > strikes.put_off)
        assert kind != "depth" or 0 < strikes.committed < len(at)


@pytest.mark.parametrize("kind", ["signal", "depth"])
def test_strikes_that_nothing_puts_off_are_noticed(kind: str, tmp_path: Path) -> None:
    count = apart(bytecodes, Piece("signal", "deterministic", (), tmp_path / "counted")).value
    at = tuple(range(60)) if kind == "depth" else tuple(range(count // 2, count, count // 24))
    strikes: Strikes = apart(
        strike, Piece(kind, "deterministic", at, tmp_path / "s", True), 60
    ).value
    assert len(strikes.wrong) == 1
    found = ("the engine stopped", "was raised", "the outcome is 'open'")
    assert any(how in strikes.wrong[0] for how in found)
