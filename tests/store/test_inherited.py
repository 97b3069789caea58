"""Tests opening the tables' files a second time: in the same process, and after a fork.

tests/api/test_closing.py uses real children; here one process simulates a child's memory.
"""

from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from planstep.errors import ForkedProcess, StoreInUse
from planstep.store.tables import fork_safe_open
from planstep.store.tables.fork_safe_open import close_environment, file_key, open_environment


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Makes a folder whose tables are open already, with a row."""
    others = set(fork_safe_open._own)
    env, key = open_environment(tmp_path, map_size=1 << 20)
    with env.begin(write=True) as txn:
        txn.put(b"k", b"1")
    assert key == file_key(tmp_path)
    yield tmp_path
    close_environment(env, key)
    fork_safe_open._own.update(others)


def forked() -> None:
    """Makes this process forget its own openings, as a forked child does."""
    fork_safe_open._after_fork()


def test_once_a_process(folder: Path) -> None:
    with pytest.raises(StoreInUse):
        open_environment(folder)


def test_what_was_closed_is_opened_again(tmp_path: Path) -> None:
    for _ in range(2):
        close_environment(*open_environment(tmp_path, map_size=1 << 20))
    assert file_key(tmp_path) not in fork_safe_open._own


def test_a_child_opens_its_own_beside_what_it_inherited(folder: Path) -> None:
    if fork_safe_open._keys is None:
        pytest.skip("this py-lmdb lets nothing be opened beside")
    forked()
    env, key = open_environment(folder, readonly=True)
    with env.begin() as txn:
        assert txn.get(b"k") == b"1"
    assert fork_safe_open._envid.env_keys is fork_safe_open._keys, "as it was"
    with pytest.raises(StoreInUse):
        open_environment(folder)
    close_environment(env, key)


def test_where_nothing_can_be_opened_beside_the_fork_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked()
    with monkeypatch.context() as patched, pytest.raises(ForkedProcess, match="forked"):
        patched.setattr(fork_safe_open, "_keys", None)
        open_environment(folder)
    if fork_safe_open._keys is not None:
        monkeypatch.setattr(fork_safe_open, "_renamed", fork_safe_open._keys)
        with pytest.raises(ForkedProcess, match="py-lmdb"):
            open_environment(folder)
        assert fork_safe_open._envid.env_keys is fork_safe_open._keys


def test_any_other_error_is_lmdbs_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(lmdb.Error):
        open_environment(folder / "nowhere", create=False)
    forked()
    whole = lmdb.open
    calls: list[str] = []

    def opening(path: str, **settings: object) -> object:
        calls.append(path)
        if len(calls) > 1:
            raise lmdb.Error("out of luck")
        return whole(path, **settings)

    monkeypatch.setattr(lmdb, "open", opening)
    with pytest.raises(lmdb.Error, match="out of luck"):
        open_environment(folder)
    assert len(calls) == 2
