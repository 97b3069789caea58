"""Tests that files written for Spark's tasks are private to the user, and go with the process."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import planstep
from planstep.errors import IoError
from planstep.spark import owners, tables
from planstep.spark.owners import make_private
from planstep.spark.private import PrivateFolder
from planstep.spark.snapshots import snapshot
from planstep.spark.source import Source

ENGINE = Path(__file__).parents[2] / "engine"


def _gone(folder: Path) -> bool:
    """Waits, without a bound that a slow machine could reach."""
    for _ in range(6000):
        if not folder.exists():
            return True
        time.sleep(0.01)
    return False


def _in_its_own_process(program: str, temp: Path, *args: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(ENGINE), "TMPDIR": str(temp)}
    environment.pop("SPARK_LOCAL_DIRS", None)
    return subprocess.Popen(
        [sys.executable, "-c", program, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


_SNAPSHOT = """
import sys
from planstep.spark.snapshots import snapshot
snap = snapshot(sys.argv[1], tables=["totals"])
print(snap.options["snapshot"], flush=True)
sys.stdin.readline()
"""
_LOAD = """
import sys
from planstep.spark.source import Source
source = Source({"path": sys.argv[1], "table": "totals"})
source.schema()
print(source._picture.file, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("program", [_SNAPSHOT, _LOAD], ids=["snapshot", "load"])
@pytest.mark.parametrize("killed", [False, True], ids=["ends", "killed"])
def test_what_a_process_wrote_goes_with_it(
    db: planstep.Engine, path: str, tmp_path: Path, program: str, killed: bool
) -> None:
    db.create_table("totals").put("a", 1)
    temp = tmp_path / "temp"
    temp.mkdir()
    process = _in_its_own_process(program, temp, path)
    with process:
        assert process.stdout is not None
        written = Path(process.stdout.readline().strip())
        assert written.exists()
        (folder,) = set(temp.iterdir()) - {temp / f"planstep-{os.geteuid()}"}
        assert folder in (written, *written.parents)
        assert folder.stat().st_mode & 0o777 == 0o700
        if killed:
            process.send_signal(signal.SIGKILL)
        else:
            process.communicate("\n")
    assert _gone(folder)


def test_no_folder_of_a_name_that_others_can_guess(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tables._own_folder.cache_clear()
    try:
        assert tables.local_folder() == tables.local_folder()
        assert tables.local_folder().parent == tmp_path
    finally:
        tables._own_folder().close()
        tables._own_folder.cache_clear()
    (listed,) = tmp_path.iterdir()
    assert list(listed.iterdir()) == []


def _foreign(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 12_345, -1)


def _open_to_all(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def _link(folder: Path) -> None:
    other = folder.with_name("other")
    other.mkdir(mode=0o700)
    folder.symlink_to(other)


@pytest.mark.parametrize("trap", [_foreign, _open_to_all, _link, Path.touch])
def test_a_folder_that_somebody_else_has_made_is_refused(
    db: planstep.Engine, load: Callable[..., Any], local: Path, trap: Callable[[Path], None]
) -> None:
    if trap is _foreign and os.geteuid():
        pytest.skip("only root can give a folder away")
    db.create_table("totals").put("a", 1)
    trap(local / tables.FOLDER)
    with pytest.raises(IoError, match="not a folder of this user's alone"):
        load(table="totals")


def test_one_that_is_there_already_is_used_again(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    make_private(folder)
    (folder / "x").touch()
    make_private(folder)
    assert (folder / "x").exists()


def test_close_may_be_called_again(tmp_path: Path) -> None:
    folder = PrivateFolder("x-", str(tmp_path))
    (folder.path / "y").touch()
    folder.close()
    folder.close()
    assert not folder.path.exists()


_MARK = """
import os, sys
from pathlib import Path
from planstep.spark import owners
for folder in sys.argv[1:]:
    owners.make_private(Path(folder))
    owners.register(Path(folder))
print("there", flush=True)
sys.stdin.readline()
"""


def test_what_a_killed_process_left_goes_with_the_next_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folders go, in Spark's folder and elsewhere; those of a living process, and all others, stay."""
    temp = tmp_path / "temp"
    temp.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temp))
    spark = tmp_path / "blockmgr-1"
    left = [spark / tables.FOLDER, tmp_path / "else" / "planstep-snapshot-1"]
    kept = tmp_path / "else" / "planstep-snapshot-2"
    with (
        _in_its_own_process(_MARK, temp, *map(os.fspath, left)) as killed,
        _in_its_own_process(_MARK, temp, os.fspath(kept)) as living,
    ):
        assert killed.stdout is not None and living.stdout is not None
        assert killed.stdout.readline() == living.stdout.readline() == "there\n"
        owners.sweep()
        assert all(folder.exists() for folder in [*left, kept])
        killed.kill()
        killed.wait()
        owners.sweep()
        assert not any(folder.exists() for folder in [*left, spark])
        assert kept.exists()
        living.kill()
        living.wait()
    owners.sweep()
    assert not kept.exists() and kept.parent.exists()
    owners.sweep()
    (listed,) = temp.iterdir()
    assert listed.stat().st_mode & 0o777 == 0o700 and list(listed.iterdir()) == []


@pytest.mark.parametrize(
    ("owner", "gone"),
    [
        ({}, False),
        ({"start": "1"}, True),  # its id is another process's by now
        ({"pid": 1 << 30}, True),
        ({"boot": "before", "pid": 1 << 30}, True),
        ({"space": "pid:[7]", "pid": 1 << 30}, False),  # another container's
        ({"host": "other", "pid": 1 << 30}, False),
    ],
)
def test_an_owner_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: dict[str, Any], gone: bool
) -> None:
    own = owners._own()
    monkeypatch.setattr(owners, "_own", lambda: own._replace(**owner))
    owners.mark(tmp_path)
    monkeypatch.undo()
    assert owners.is_gone(tmp_path) == gone
    monkeypatch.setattr(owners, "_FORGOTTEN_SECONDS", -1)
    assert owners.is_gone(tmp_path) == (owner != {}), "after a day without a load"


def test_the_list_of_folders_is_only_this_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"planstep-{os.geteuid()}").mkdir(mode=0o755)
    owners.sweep()
    with pytest.raises(IoError, match="TMPDIR"):
        PrivateFolder("planstep-", str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_snapshot_without_references_is_no_default(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows go with it, so loads must not be of it for the rest of a Spark session."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    this = SimpleNamespace(current=lambda: SimpleNamespace(pid=os.getpid))
    java = SimpleNamespace(lang=SimpleNamespace(ProcessHandle=this))
    spark = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=SimpleNamespace(java=java)))

    def shown() -> int:
        about = Source({"path": path, "topic": "t"}).schema()[0].metadata["planstep"]
        return int(about["asOfStep"])

    with planstep.open(path) as db:
        db.create_topic("t", format="utf8").write("a")
    first = snapshot(path, spark=spark)
    with planstep.open(path) as db:
        newest = db.topic("t").write("b").place.step
    second = snapshot(path, spark=spark)
    assert first.step < newest <= second.step
    assert shown() == second.step
    del second
    gc.collect()
    assert shown() == first.step
    del first
    gc.collect()
    assert shown() >= newest
    assert list(tmp_path.glob("planstep-*")) == [tmp_path / f"planstep-{os.geteuid()}"]
