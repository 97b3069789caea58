"""Tests readable output: sizes, ages, the newest records, flags; and the sources of STORE."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import planstep
from planstep.cli.values import age, readable


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with planstep.open(tmp_path / "s") as db:
        topic = db.create_topic("t", partitions=2, format="utf8")
        for partition, count in ((0, 5), (1, 1)):
            topic.write_batch([f"{partition}.{n}" for n in range(count)], partition=partition)
    return tmp_path / "s"


def test_sizes_and_ages() -> None:
    sizes = "0 bytes, 1 byte, 999 bytes, 4.2 MB, 999.9 kB, 1.0 MB, 3000.0 TB"
    numbers = 0, 1, 999, 4_194_304, 999_949, 999_950, 3 * 10**15
    assert ", ".join(map(readable, numbers)) == sizes
    ages = "0.0s, 59.0s, 1m 0s, 3m 12s, 1h 0m, 1d 1h"
    assert ", ".join(map(age, (0.04, 59.0, 60, 192.7, 3600, 90_000))) == ages


def test_stats_speak_to_people(done: Any, fields: Any, store: Path) -> None:
    lines = dict(line.split("\t") for line in done("stats", store).splitlines())
    assert lines["topic t"] == "6 records" and "bytes" not in lines["tables and positions on disk"]
    assert set(fields("stats", store)["bytes_on_disk"]) == {"log", "tables", "aside", "other"}


def test_the_newest_of_each_partition(call: Any, done: Any, store: Path) -> None:
    def values(*words: object) -> list[str]:
        lines = done("topic", "read", store, "t", *words).splitlines()
        return [line.split("\t")[3] for line in lines]

    assert values("--last", 2) == ["0.3", "0.4", "1.0"]
    assert values("-n", 2, "--partition", 0, "--limit", 1) == ["0.3"]
    assert values("--last", 9, "--partition", 1) == ["1.0"]
    assert values("--last", 1, "--follow", "--limit", 2) == ["0.4", "1.0"]
    assert call("topic", "read", store, "t", "--last", 2, "--from", "latest")[0] == 2


def test_retention_says_what_each_limit_is(done: Any, tmp_path: Path) -> None:
    first = done("topic", "create", tmp_path / "n", "t", "--retention", "7d")
    assert first == "topic t: 1 partition, format bytes, retention 7d, no size limit\n"
    done("topic", "alter", tmp_path / "n", "t", "--retention-bytes", "10GB")
    last = done("topic", "alter", tmp_path / "n", "t", "--retention", "none")
    assert last.endswith("retention no age limit, 10GB a partition\n")


def test_restore_takes_its_store_from_the_environment(
    done: Any, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANSTEP_STORE", str(tmp_path / "again"))
    assert "6 records" in done("restore", store)
    assert "6 records" in done("stats")


def test_flags_take_no_value(done: Any) -> None:
    assert "<bool>" not in done("topic", "read", "--help")


def test_as_a_module() -> None:
    command = [sys.executable, "-m", "planstep", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == planstep.__version__
