"""Tests row `shared-restore`: its negative controls are noticed, and so is a store that is restored wrongly."""

from pathlib import Path

import pytest

from planstep.bench.proof.disks import snapshots
from planstep.bench.proof.rows import shared_restore
from planstep.bench.proof.rows.registry import RowOptions


def test_the_row_is_clean(options: RowOptions) -> None:
    result = shared_restore.run(options)
    assert result.violations == []
    assert result.figures["turns_restored"] == 25
    assert {f"kill in a {what}" for what in shared_restore.KILLED} < result.faults.keys()


def test_both_planted_bugs_are_noticed(options: RowOptions) -> None:
    result = shared_restore.control(options)
    assert "not_noticed" not in result.figures
    assert any("has not all its parts" in text for text in result.violations)
    assert any("Trimmed" in text for text in result.violations)


def test_a_store_that_is_restored_wrongly_is_noticed(
    options: RowOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = snapshots.restored

    def wrongly(url: str, turn: int, folder: Path, *, to_the_end: bool) -> tuple[str, str]:
        return really(url, max(turn - 5, 4), folder, to_the_end=to_the_end)

    monkeypatch.setattr(shared_restore, "restored", wrongly)
    result = shared_restore._restore_turns(options, 6)  # forked children have it, too
    assert any("is restored with other content" in text for text in result.violations)
