"""Tests that archived stores open as before, and that a byte that differs is noticed."""

from dataclasses import replace
from pathlib import Path

import pytest

from planstep.bench.proof.formats import make
from planstep.bench.proof.rows import format
from planstep.bench.proof.rows.registry import Asked
from planstep.store.meta import FORMAT


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path, tmp_path / "memory", quick=True, workers=1)


@pytest.mark.again
def test_every_stored_store(asked: Asked) -> None:
    found = format.run(asked)
    assert found.violations == [] and found.runs >= 10
    assert not any((asked.memory).rglob("data.mdb")), "it leaves nothing"


def test_the_control_is_noticed(asked: Asked) -> None:
    found = format.control(asked)
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
