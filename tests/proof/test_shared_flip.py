"""Tests row `shared-flip`: its controls are noticed, and so is each kind of a wrong end."""

from pathlib import Path
from typing import Any

import pytest

from planstep.bench.proof.disks import shared_verdict
from planstep.bench.proof.disks.shared_damage import KINDS, Damage, draw
from planstep.bench.proof.disks.shared_verdict import Sample, Verdict, judge, make
from planstep.bench.proof.rows import shared_flip
from planstep.bench.proof.rows.registry import RowOptions
from planstep.errors import Corruption
from planstep.shared.entry import BEGIN, read_entry


def test_the_row_is_clean_and_draws_each_kind(options: RowOptions) -> None:
    result = shared_flip.run(options)
    assert result.violations == []
    assert result.faults.keys() == {*KINDS} == shared_flip.SHARES.keys()
    assert result.figures["refused"] >= 10 and result.figures["harmless"] >= 10


def test_both_planted_bugs_are_noticed(options: RowOptions) -> None:
    result = shared_flip.control(options)
    assert any("sealed anew: it shows other content" in text for text in result.violations)
    assert "not_noticed" not in result.figures


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    return make(tmp_path_factory.mktemp("samples") / "made")


def test_the_logs_have_what_a_damage_may_strike(samples: list[Sample]) -> None:
    whole, trimmed, snapshots = samples
    entries = [
        read_entry(data, name) for name, data in whole.objects.items() if name.startswith("log/")
    ]
    assert len([entry for entry in entries if entry.kind == BEGIN]) == 3
    assert len(trimmed.objects) < len(whole.objects)
    assert any(name.startswith("floor/") for name in trimmed.objects)
    for folder in ("run/", "snap/", "pack/", "floor/"):
        assert any(name.startswith(folder) for name in snapshots.objects)
    assert next(iter(whole.folders.values())) is None and None not in trimmed.folders.values()


@pytest.mark.parametrize("which", [shared_verdict.EMPTY, shared_verdict.OLD])
def test_what_is_drawn_is_found(samples: list[Sample], tmp_path: Path, which: str) -> None:
    for sample in (samples[0], samples[2]):
        for kind in KINDS:
            damage = draw(kind, 3, 1, sample.objects, sample.objects)
            verdict = judge(tmp_path / "damaged", sample, which, damage)
            assert verdict.end in ("refused", "harmless"), verdict


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (Corruption("turn 7 of the shared log is wrong"), "an error without the place"),
        (Corruption("something is damaged"), "an error without the place"),
        (KeyError("turn 5"), "an untyped error"),
        (None, "it shows other content"),
    ],
)
def test_a_wrong_end_is_noticed(
    samples: list[Sample],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception | None,
    why: str,
) -> None:
    def content(*args: Any) -> Any:
        if raised is not None:
            raise raised
        return "other"

    monkeypatch.setattr(shared_verdict, "content", content)
    damage = Damage("flip", "bit 0 of byte 0", {"log/00000000000000000005": b""}, (5,))
    verdict = judge(tmp_path / "d", samples[0], shared_verdict.EMPTY, damage)
    assert verdict == Verdict("wrong", verdict.why) and verdict.why.startswith(why)
