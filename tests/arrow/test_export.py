"""Tests `planstep export` as a user meets it, and its message when a package is missing."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import kit
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit import PLANSTEP, python

import planstep
from planstep.api import optional_packages
from planstep.api.columns import span

call = kit.call


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "shop.planstep"
    with planstep.open(path) as db:
        clicks = db.create_topic("clicks", partitions=2, format="json")
        clicks.write_batch(
            [{"n": i} if i < 90 else {"n": i, "late": True} for i in range(100)],
            keys=[str(i % 9) for i in range(100)],
        )
        db.create_topic("raw").write_batch([b"%d" % i for i in range(100)])
        db.create_topic("none")
        db.create_table("totals").load({("u", i): i for i in range(50)})
        db.create_table("odd").load({1: "a", "x": "b"})
        db.create_table("void").load({1: {}})
    return path


def others_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "shop.planstep")


def test_several_as_of_one_step(
    call: Any, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "planstep.api.columns.parquet.BATCH_ROWS", 7
    )  # several row groups, of several types
    folder = tmp_path / "out"
    names = ["--topic", "clicks", "--topic", "raw", "--topic", "none", "--table", "totals"]
    status, out, err = call("export", store, *names, "--to", folder, "--json")
    assert status == 0, err
    result = json.loads(out)
    assert [(f["kind"], f["name"], f["rows"]) for f in result["files"]] == [
        ("topic", "clicks", 100),
        ("topic", "raw", 100),
        ("topic", "none", 0),
        ("table", "totals", 50),
    ]
    assert others_in(folder) == ["clicks.parquet", "none.parquet", "raw.parquet", "totals.parquet"]
    with planstep.open(store, read_only=True) as db:
        for file in result["files"]:
            path = Path(file["file"])
            assert path.stat().st_size == file["bytes"]
            table = pq.read_table(path)
            assert table.schema.metadata[b"planstep.step"] == b"%d" % result["step"]
            if file["kind"] == "topic":
                expected = db.topic(file["name"]).to_arrow()
                table = table.drop_columns(["headers"])
            else:
                expected = db.table(file["name"]).scan().to_arrow()
            assert table.column_names == expected.column_names
            assert table.to_pylist() == expected.to_pylist()
        parquet = pq.ParquetFile(folder / "clicks.parquet")
        assert parquet.num_row_groups > 5
        assert parquet.metadata.row_group(0).column(1).compression == "ZSTD"


def test_a_store_in_use_is_exported(store: Path, tmp_path: Path) -> None:
    arguments = ["export", str(store), "--topic", "raw", "--to", str(tmp_path / "raw.parquet")]
    with planstep.open(store) as db:
        db.topic("raw").write(b"new")
        ended = python(PLANSTEP, *arguments, "--json")
    assert json.loads(ended.stdout)["files"][0]["rows"] == 101


def test_a_file_that_is_there_stays_unless_forced(call: Any, store: Path, tmp_path: Path) -> None:
    file = tmp_path / "raw.parquet"
    assert call("export", store, "--topic", "raw", "--to", file)[0] == 0
    file.write_bytes(b"mine")
    status, _, err = call("export", store, "--topic", "raw", "--to", file)
    assert status == 1 and "--force replaces it" in err and file.read_bytes() == b"mine"
    status, _, err = call("export", store, "--table", "odd", "--to", file, "--force")
    assert status == 1 and "no common Arrow type: int and str" in err
    assert file.read_bytes() == b"mine" and others_in(tmp_path) == ["raw.parquet"]
    status, out, _ = call("export", store, "--topic", "clicks", "--to", file, "--force", "--raw")
    assert status == 0 and out.split("\t")[3] == "100"
    assert pq.read_schema(file).field("value").type == pa.string()


def test_nothing_is_left_of_an_export_that_failed(
    call: Any, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, _, err = call("export", store, "--table", "void", "--to", tmp_path / "void.parquet")
    assert status == 1 and "--raw exports values as stored" in err
    monkeypatch.setattr(span.Span, "_read", Mock(side_effect=KeyboardInterrupt))
    status, _, err = call("export", store, "--topic", "raw", "--to", tmp_path / "raw.parquet")
    assert status == 130 and err.startswith("interrupted")
    assert others_in(tmp_path) == []


def test_of_several_all_are_exported_or_none(call: Any, store: Path, tmp_path: Path) -> None:
    with planstep.open(store) as db:
        db.create_table("mixed").load({"a": 1, 1: 2})
    to = tmp_path / "out"
    status, _, err = call("export", store, "--topic", "raw", "--table", "mixed", "--to", to)
    assert status == 1 and "keys of" in err and "; leave the table out" in err
    assert "--prefix" not in err and not to.exists()
    to.mkdir()
    assert call("export", store, "--topic", "raw", "--table", "mixed", "--to", to)[0] == 1
    assert to.exists() and list(to.iterdir()) == []


@pytest.mark.parametrize("to", ["typo/out", "typo/again/out", "typo/raw.parquet"])
def test_no_folder_is_made_but_the_last(call: Any, store: Path, tmp_path: Path, to: str) -> None:
    status, _, err = call("export", store, "--topic", "raw", "--to", tmp_path / to)
    parent = (tmp_path / to).parent
    assert (status, err) == (
        1,
        f"planstep: {parent} is not there: make it first, or choose another path\n",
    )
    assert others_in(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--to", "x.parquet"], 2, "--topic or --table"),
        (["--topic", "a", "--table", "b", "--to", "x.parquet"], 2, "several need a folder"),
        (["--topic", "a", "--table", "a", "--to", "x"], 2, "written twice"),
        (["--topic", "click", "--to", "x.parquet"], 1, "did you mean 'clicks'?"),
    ],
)
def test_wrong_usage(
    call: Any, store: Path, tmp_path: Path, arguments: list[str], status: int, words: str
) -> None:
    with contextlib.chdir(tmp_path):
        code, _, err = call("export", store, *arguments)
    assert code == status and words in " ".join(err.replace("│", " ").split())
    assert others_in(tmp_path) == []


def test_a_missing_package_is_said_with_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.compute", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(planstep.MissingExtra, match=r'pip install "planstep\[arrow\]"'):
        optional_packages.pyarrow()
    with pytest.raises(ImportError, match=r'pip install "planstep\[pandas\]"'):
        optional_packages.pandas()


WITHOUT = """
import sys
sys.modules["pyarrow"] = sys.modules["pandas"] = None
import planstep
with planstep.open(":memory:") as db:
    topic, table = db.create_topic("t"), db.create_table("t")
    topic.write_batch([b"a"], keys=["k"])
    table.load([(1, 2)])
    batch = topic.read()
    calls = [topic.to_arrow, topic.to_pandas, topic.iter_arrow, batch.to_arrow, batch.to_pandas,
             table.scan().to_arrow, table.scan().to_pandas, lambda: next(table.scan_arrow())]
    for call in calls:
        try:
            call()
        except planstep.MissingExtra as error:
            print(error.package)
"""


def test_the_rest_works_without_them() -> None:
    assert python(WITHOUT).stdout.split() == ["pyarrow"] * 6 + ["pandas", "pyarrow"]
