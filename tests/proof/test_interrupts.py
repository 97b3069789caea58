"""Tests row interrupts: a few interrupts of each kind, and a planted order of operations that is wrong."""

from pathlib import Path

import pytest

from planstep.bench.proof.disks.forked import apart
from planstep.bench.proof.disks.striking import MODES, Piece, Strikes, bytecodes, strike


@pytest.mark.parametrize("mode", MODES)
def test_strikes_leave_all_or_nothing_and_the_engine_goes_on(mode: str, tmp_path: Path) -> None:
    made = apart(bytecodes, Piece("signal", mode, (), tmp_path / "counted"))
    assert not made.why and made.value > 2_000
    places = tuple(range(1, made.value, made.value // 12))
    for kind, at in (("signal", places), ("alarm", (1, 2, 3)), ("depth", (0, 10, 30, 60, 119))):
        ended = apart(strike, Piece(kind, mode, at, tmp_path / kind), 60)
        told: Strikes = ended.value
        assert (ended.why, told.wrong, told.runs) == ("", [], len(at))
        assert kind != "signal" or (told.put_off and told.strikes > told.put_off)
        assert kind != "depth" or 0 < told.committed < len(at)


@pytest.mark.parametrize("kind", ["signal", "depth"])
def test_strikes_that_nothing_puts_off_are_noticed(kind: str, tmp_path: Path) -> None:
    made = apart(bytecodes, Piece("signal", "deterministic", (), tmp_path / "counted")).value
    at = tuple(range(60)) if kind == "depth" else tuple(range(made // 2, made, made // 24))
    told: Strikes = apart(strike, Piece(kind, "deterministic", at, tmp_path / "s", True), 60).value
    assert len(told.wrong) == 1
    assert "the engine stopped" in told.wrong[0] or "was raised" in told.wrong[0]
