"""Tests row `pulsar`: a few kills, the control, and bugs that its judge would notice."""

from dataclasses import replace
from pathlib import Path

import pytest
from kit import until

import planstep
from planstep.bench.proof.disks import pulsar_ends
from planstep.bench.proof.rows import pulsar as row
from planstep.bench.proof.rows.registry import RowOptions


def test_a_few_kills_are_clean_and_count_what_is_allowed(options: RowOptions) -> None:
    result = row.run(replace(options, runs=2, row="pulsar"))
    assert result.violations == []
    assert result.faults["kill -9"] == 2 and result.figures["acks"] > 0
    counted = result.figures["allowed"]["individual consumers with rivals"]
    assert counted["G0"] > 0 and row.USED_TWICE not in counted


def test_overlapping_acknowledgements_judged_as_conflicts_are_noticed(options: RowOptions) -> None:
    result = row.control(replace(options, runs=1))
    assert any(row.USED_TWICE in text for text in result.violations), result.violations


def test_what_is_left_of_a_transaction_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row, "_PATIENCE_S", 0.0)
    with planstep.open(tmp_path / "store", mode="pulsar") as db:
        db.create_topic("in").write(b"1")
        db.topic("in").create_consumer("g", start="earliest", kind="individual")
        assert row._left(db) == []
        tx = db.transaction()
        tx.write("in", b"2")
        tx.flush()
        text = "\n".join(row._left(db))
        assert "something live" in text and "something ongoing" in text and "entries" in text
        assert "readers of " in text
        tx.rollback()
        until(lambda: not row._left(db))
        monkeypatch.setattr(pulsar_ends, "replayed", lambda *_: ({0: (0, 1)}, None))
        assert "says that something is pending" in "\n".join(row._left(db))
        monkeypatch.setattr(pulsar_ends, "recover", lambda *_: None)
        assert "gives other aborted ids" in "\n".join(row._left(db))
