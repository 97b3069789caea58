"""Tests the shared log of a folder: which URLs name one, how it is opened, and what a slot may be."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit import in_threads
from shared_kit import (
    ROOT,
    STORE,
    InFolder,
    QuickFiles,
    filled,
    opened,
    read_all,
    slot,
)

import planstep
from planstep.errors import (
    Corruption,
    FormatError,
    IoError,
    NotSupported,
)
from planstep.shared.files_log import folder_of, open_files_log
from planstep.shared.root import encode_root

ALL = 1 << 20


# URLs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///disk/shop", "/disk/shop"),
        ("FILE:///disk/shop", "/disk/shop"),
        ("file://localhost/disk/shop", "/disk/shop"),
        ("file:////disk//shop/", "/disk/shop"),
        ("file:///disk/a%20shop%3f%25", "/disk/a shop?%"),
        (Path("/disk/a?b#c%d é").as_uri(), "/disk/a?b#c%d é"),
        ("file:///disk/ä b", "/disk/ä b"),
    ],
)
def test_a_url_names_a_folder(url: str, path: str) -> None:
    assert folder_of(url) == Path(path)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("file:shop", "three slashes"),
        ("file:/disk/shop", "three slashes"),
        ("file://", "three slashes"),
        ("file://shop", "three slashes"),
        ("file://server/disk/shop", "machine 'server'"),
        ("file://~/shop", "machine '~'"),
        ("file:///disk/shop?mode=async", "write %3F"),
        ("file:///disk/shop#1", "%23"),
        ("file:///disk/100%", "%25"),
        ("file:///", "as in file:///disk/shop"),
        ("file:///disk/\udc80", "is no URL"),
        ("file:///disk/../etc", "without '..'"),
        ("file:///disk/%2e%2e/etc", "without '..'"),
        ("file:///disk/%00", "without %00"),
    ],
)
def test_a_url_that_names_no_folder_is_refused(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        open_files_log(url, ROOT)


# opening ---------------------------------------------------------------------------------------


def test_the_first_opener_makes_the_log_and_the_others_find_its_root(tmp_path: Path) -> None:
    url = (tmp_path / "log").as_uri()
    for root in (ROOT, ROOT._replace(store_id=bytes(16), mode="kafka"), None):
        log, found = open_files_log(url, root)
        assert found == ROOT
        log.close()
    assert sorted(path.name for path in (tmp_path / "log").iterdir()) == [
        *("floor", "log", "new", "store")
    ]


def test_of_many_first_openers_one_makes_the_root(tmp_path: Path) -> None:
    url = (tmp_path / "log").as_uri()
    found = []

    def open_with(n: int) -> None:
        log, root = open_files_log(url, ROOT._replace(store_id=bytes([n]) * 16), 0, QuickFiles())
        found.append(root)
        log.close()

    in_threads(lambda n=n: open_with(n) for n in range(8))
    assert len(found) == 8 and len(set(found)) == 1


def test_a_log_that_must_be_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(IoError, match="is not there: mount its disk, or mend the URL"):
        open_files_log((tmp_path / "none").as_uri(), None)
    with pytest.raises((IoError, FormatError)):
        open_files_log(tmp_path.as_uri(), None)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_log_yet_is_not_taken_for_one(folder: InFolder) -> None:
    (folder.path / "store").unlink()
    with pytest.raises(FormatError, match="is no shared log"):
        open_files_log(folder.path.as_uri(), None)


def test_a_folder_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "meta.pb").write_bytes(b"a store's")
    with pytest.raises(FormatError, match=r"other files than a shared log \(meta.pb\)"):
        open_files_log(tmp_path.as_uri(), ROOT)
    assert [path.name for path in tmp_path.iterdir()] == ["meta.pb"]


def test_a_log_in_a_store_or_in_another_log_is_refused(folder: InFolder, tmp_path: Path) -> None:
    planstep.open(tmp_path / "store").close()
    for home in (tmp_path / "store", tmp_path / "store" / "host-0", folder.path / "log"):
        with pytest.raises(FormatError, match=r"is inside the s.*: choose a path outside of it"):
            open_files_log((home / "inner").as_uri(), ROOT)
        assert not (home / "inner").exists()


def test_a_store_or_a_backup_in_a_log_is_refused(folder: InFolder, tmp_path: Path) -> None:
    with planstep.open(tmp_path / "store") as db:
        with pytest.raises(FormatError, match="is inside the shared log"):
            db.backup(folder.path / "copy")
    for settings in ({}, {"replicate": (tmp_path / "new").as_uri()}):
        with pytest.raises(FormatError, match="is inside the shared log"):
            planstep.open(folder.path / "store-2", **settings)
    assert not (folder.path / "copy").exists()


def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IoError, match="make it first"):
        open_files_log((tmp_path / "typo" / "log").as_uri(), ROOT)
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "log"):
        with pytest.raises(IoError, match="file"):
            open_files_log(path.as_uri(), ROOT)
    (tmp_path / "long").mkdir()
    with pytest.raises(IoError, match="too long"):
        open_files_log((tmp_path / "long" / ("x" * 300)).as_uri(), ROOT)


@pytest.mark.parametrize("name", ["log", "floor", "new"])
def test_a_folder_that_was_removed_is_not_made_anew(folder: InFolder, name: str) -> None:
    (folder.path / name).rmdir()
    with pytest.raises(IoError, match=f"{name}: No such file"):
        folder.open()
    assert not (folder.path / name).exists()


def test_a_link_in_place_of_a_folder_is_refused(folder: InFolder, tmp_path: Path) -> None:
    (folder.path / "log").rename(tmp_path / "elsewhere")
    (folder.path / "log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IoError, match="log is no folder"):
        folder.open()


def test_a_link_to_the_whole_folder_is_followed(folder: InFolder, tmp_path: Path) -> None:
    entries = filled(folder, 2)
    (tmp_path / "link").symlink_to(folder.path)
    log, _ = open_files_log((tmp_path / "link").as_uri(), None)
    assert read_all(log) == entries
    log.close()


def test_a_root_of_a_newer_version_is_refused(folder: InFolder) -> None:
    (folder.path / "store").write_bytes(encode_root(ROOT._replace(format=2)))
    with pytest.raises(FormatError, match="store has format 2"):
        folder.open()


def test_a_damaged_root_is_corruption(folder: InFolder) -> None:
    (folder.path / "store").write_bytes(STORE)
    with pytest.raises(Corruption, match="store is no root"):
        folder.open()


def test_a_file_system_without_hard_links_is_not_supported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: Any, **settings: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(NotSupported, match="no hard links"):
        open_files_log((tmp_path / "log").as_uri(), ROOT)
    assert list((tmp_path / "log" / "new").iterdir()) == []


# what a slot may be ----------------------------------------------------------------------------


def link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "store")


@pytest.mark.parametrize("make", [link, os.mkfifo, Path.mkdir], ids=["link", "pipe", "folder"])
def test_a_slot_that_is_no_file_is_corruption(
    folder: InFolder, make: Callable[[Path], object]
) -> None:
    entries = filled(folder, 2)
    path = folder.path / slot(2)
    path.unlink()
    make(path)
    log = opened(folder, QuickFiles())
    with pytest.raises(Corruption, match=f"{slot(2)} is no file"):
        log.read(ALL, 0)
    with pytest.raises(Corruption, match=f"{slot(2)} is no file"):
        log.append(entries[1])


def test_a_new_owner_removes_folders_that_a_killed_snapshot_left_empty(folder: InFolder) -> None:
    filled(folder, 1)
    for name in ("snap/a", "snap/b", "pack", "run", "check-0/new"):
        (folder.path / name).mkdir(parents=True)
    (folder.path / "snap" / "b" / "manifest").touch()
    folder.objects().tidy()
    there = {str(path.relative_to(folder.path)) for path in folder.path.rglob("*") if path.is_dir()}
    assert there == {"log", "floor", "new", "snap", "snap/b", "check-0", "check-0/new"}
    assert folder.objects().create("snap/a/manifest", b"made")
