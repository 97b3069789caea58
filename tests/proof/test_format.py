"""Tests row format: a byte that differs in an archived store is noticed, and what is archived ships."""

from dataclasses import replace
from pathlib import Path

from planstep.bench.proof.formats import make
from planstep.bench.proof.rows import format
from planstep.bench.proof.rows.registry import RowOptions
from planstep.store.meta import FORMAT


def test_the_control_is_noticed(tmp_path: Path) -> None:
    found = format.control(RowOptions(tmp_path, tmp_path / "memory", quick=True, workers=1))
    assert len(found.violations) == found.runs == len(format.stored())


def test_this_version_is_stored_and_what_is_stored_ships() -> None:
    names = {name for name, _ in format.stored()}
    assert names >= {make.stem(kind) for kind in make.STORED}
    assert all(int(name.split("-")[1]) <= FORMAT for name in names)
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '"planstep.bench.proof.formats" = ["*.tar.xz", "*.json"]' in project


def test_packing_is_undone_by_unpacking() -> None:
    name, kind = format.stored()[0]
    archive = (make.HERE / f"{name}.tar.xz").read_bytes()
    sample = make.unpacked(archive, kind)
    assert make.packed(sample) == archive
    other = replace(sample, files={**sample.files, "host-0/meta.pb": b""})
    assert make.packed(other) != archive
