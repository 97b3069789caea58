"""Tests that files of the broker are fetched whole, checked, and only where they are missing."""

import hashlib
from pathlib import Path

import pytest

from planstep.bench.compare.systems import apache_kafka_jars
from planstep.bench.compare.systems.apache_kafka_jars import (
    MIRROR,
    Jar,
    class_path,
    fetch,
    folder,
)

FILES = {"org/one/1/one-1.jar": b"one" * 1000, "org/two/2/two-2.jar": b"two" * 1000}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a repository that the mirror's variable names, with the files that are listed."""
    for path, data in FILES.items():
        file = tmp_path / "repository" / path
        file.parent.mkdir(parents=True)
        file.write_bytes(data)
    rows = tuple(
        Jar(hashlib.sha256(data).hexdigest(), len(data), path) for path, data in FILES.items()
    )
    monkeypatch.setattr(apache_kafka_jars, "jars", lambda: rows)
    monkeypatch.setattr(apache_kafka_jars.sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setenv(MIRROR, (tmp_path / "repository").as_uri())
    return tmp_path / "repository"


def fetched() -> list[str]:
    told: list[str] = []
    fetch(told.append)
    assert sorted(path.name for path in folder().iterdir()) == ["one-1.jar", "two-2.jar"]
    return told


def test_what_is_missing_or_damaged_is_fetched(repository: Path) -> None:
    assert "2 of 2 files" in fetched()[0]
    assert "all 2 files" in fetched()[0]
    assert class_path().count(".jar") == 2
    (folder() / "two-2.jar").write_bytes(b"ten" * 1000)
    with pytest.raises(OSError, match=r"two-2\.jar is not the listed file any more: make peers"):
        class_path()  # before a broker runs it
    assert "1 of 2 files" in fetched()[0]
    assert (folder() / "two-2.jar").read_bytes() == FILES["org/two/2/two-2.jar"]


def test_another_file_than_the_listed_one_is_refused(repository: Path) -> None:
    (repository / "org/two/2/two-2.jar").write_bytes(b"ten" * 1000)
    with pytest.raises(OSError, match=r"two-2\.jar is not the listed file"):
        fetch(print)
    assert [path.name for path in folder().iterdir()] == ["one-1.jar"], "what came before stays"


def test_what_cannot_be_had_is_said_with_the_way_out(repository: Path) -> None:
    (repository / "org/one/1/one-1.jar").unlink()
    with pytest.raises(OSError, match=f"cannot fetch .*one-1.jar: .*; {MIRROR} may name another"):
        fetch(print)
    assert list(folder().iterdir()) == []


def test_the_list_names_each_file_once() -> None:
    rows = apache_kafka_jars.jars()
    assert len({row.file for row in rows}) == len(rows) > 40
    assert all(len(row.sha256) == 64 and row.path.endswith(".jar") for row in rows)
