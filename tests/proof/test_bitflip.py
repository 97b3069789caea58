"""Tests that damage is the same for a seed and is judged by the store's contents; a blind judge is reported."""

from pathlib import Path

import pytest

from planstep.bench.proof.disks.contents import Contents
from planstep.bench.proof.disks.damage import CLASSES, Damage, draw
from planstep.bench.proof.disks.forked import apart
from planstep.bench.proof.disks.sample import KINDS, Sample, make
from planstep.bench.proof.disks.verdict import judged, look
from planstep.bench.proof.rows import bitflip


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sample, Contents]:
    folder = tmp_path_factory.mktemp("killed")
    sample = make(KINDS[1], folder)
    sample.planted(folder / "whole")
    return sample, apart(look, folder / "whole").value.shown["reader"]


def test_damage_is_a_seed_s(killed: tuple[Sample, Contents]) -> None:
    samples = [killed[0], killed[0]]
    for kind in CLASSES[:3]:
        for number in range(20):
            damage = draw(samples, kind, number, 5)
            assert damage == draw(samples, kind, number, 5)
            assert damage.exchanged and damage.sample == number % 2
        drawn = {draw(samples, kind, number, 5).what for number in range(20)}
        assert len(drawn) > 10


@pytest.mark.parametrize("seed", [1, 2])
def test_no_answer_is_wrong(killed: tuple[Sample, Contents], seed: int, tmp_path: Path) -> None:
    sample, whole = killed
    for kind in CLASSES[:3]:
        damage = draw([sample], kind, seed, seed)
        ended = apart(judged, (sample, whole, damage, tmp_path))
        assert not ended.why and ended.value.end != "wrong", (damage.what, ended)


def test_the_last_turn_is_missed_and_so_is_an_earlier_one(
    killed: tuple[Sample, Contents], tmp_path: Path
) -> None:
    sample, whole = killed
    turns = [at for at in sample.records if at.counts and "log-00000003" in at.name]
    for at in (turns[-1], turns[-3]):
        data = bytearray(sample.files[at.name])
        data[at.start + 90] ^= 1
        damage = Damage(0, "flip", "by hand", {at.name: bytes(data)})
        assert apart(judged, (sample, whole, damage, tmp_path)).value.end == "refused"
    cut: dict[str, bytes | None] = {}
    cut[turns[-1].name] = sample.files[turns[-1].name][: turns[-1].start]
    for exchanged, end in ((cut, "refused"), ({**cut, "host-0/released": None}, "wrong")):
        damage = Damage(0, "truncated", "by hand", exchanged)
        assert apart(judged, (sample, whole, damage, tmp_path)).value.end == end


def test_a_file_of_another_store_is_no_excuse(
    killed: tuple[Sample, Contents], tmp_path: Path
) -> None:
    sample, whole = killed
    other = make(KINDS[0], tmp_path / "other")
    for name, word in (("log-00000001-00000000", "another"), ("table/data.mdb", "another store")):
        path = f"host-0/{name}"
        damage = Damage(0, "file", "by hand", {path: other.files[path]})
        assert not damage.is_valid_by_itself
        ended = apart(judged, (sample, whole, damage, tmp_path)).value
        assert ended.end == "refused" and word in ended.why, ended
    page = Damage(0, "page", "page 3 from 2 versions ago", {"host-0/table/data.mdb": b""})
    assert page.is_valid_by_itself


def test_content_that_differs_unnoticed_is_wrong(
    killed: tuple[Sample, Contents], tmp_path: Path
) -> None:
    sample, whole = killed
    damage = Damage(0, "flip", "none at all", {})
    ended = apart(judged, (sample, {**whole, "topic more": []}, damage, tmp_path))
    assert ended.value.end == "wrong" and "topic more" in ended.value.why


def test_checksums_that_are_off_are_missed(tmp_path: Path) -> None:
    sample = make(KINDS[0], tmp_path, 1, bitflip._blinded)
    sample.planted(tmp_path / "whole")
    whole = apart(lambda store: bitflip._whole(True, store), tmp_path / "whole")
    shown = whole.value.shown["reader"]
    ends = []
    for number in range(30):
        damage = draw([sample], "flip", number, 1)
        ended = apart(bitflip._judged_blind, (sample, shown, damage, tmp_path))
        ends.append(ended.value.end if ended.value else ended.why)
    assert ends.count("wrong") >= 3
