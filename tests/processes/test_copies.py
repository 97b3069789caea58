"""The files of a store whose owner was killed, copied with the usual tools: there is a socket among them."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from process_kit import Other

import planstep


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    store = tmp_path / "s"
    owner = Other(store)
    owner.run("db.create_table('n'); db.table('n').put('k', 1)")
    owner.kill()
    assert stat.S_ISSOCK((store / "host-0" / "lock.socket").stat().st_mode)
    return store


def opens(copy: Path) -> None:
    with planstep.open(copy) as db, Other(copy) as other:
        assert db.owner == os.getpid()
        assert other("db.table('n').get('k')") == 1


def test_copytree_leaves_the_socket_out_if_told_to(killed: Path, tmp_path: Path) -> None:
    with pytest.raises(shutil.Error, match="socket"):
        shutil.copytree(killed, tmp_path / "all")
    opens(tmp_path / "all")  # all else was copied
    shutil.copytree(killed, tmp_path / "c", ignore=shutil.ignore_patterns("*.socket"))
    opens(tmp_path / "c")


def test_cp_copies_the_socket_too(killed: Path, tmp_path: Path) -> None:
    subprocess.run(["cp", "-r", killed, tmp_path / "c"], check=True)
    opens(tmp_path / "c")


def test_tar_leaves_the_socket_out(killed: Path, tmp_path: Path) -> None:
    archive = tmp_path / "s.tar"
    subprocess.run(["tar", "-cf", archive, "-C", killed, "."], check=True)
    (tmp_path / "c").mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path / "c"], check=True)
    assert not (tmp_path / "c" / "host-0" / "lock.socket").exists()
    opens(tmp_path / "c")


def test_a_moved_store_opens(killed: Path, tmp_path: Path) -> None:
    shutil.move(killed, tmp_path / "c")
    opens(tmp_path / "c")
