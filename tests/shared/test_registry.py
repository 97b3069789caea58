"""Tests that a URL opens the log of its scheme, and that other ones, and other settings, are refused in words."""

import os
from pathlib import Path
from typing import Any

import pytest
from shared_kit import ROOT, filled, read_all
from shared_kit import InFolder as Folder

import planstep
from planstep.errors import Diverged, IoError, NotSupported
from planstep.runtime.snapshotting import snapshots_of
from planstep.shared.registry import OPENERS, open_objects, open_shared_log
from planstep.shared.settings import Replicate


def test_a_url_opens_the_log_of_its_scheme(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "shop")
    entries = filled(folder, 3)
    log, root = open_shared_log(folder.path.as_uri(), ROOT)
    assert root == ROOT
    assert read_all(log) == entries
    log.close()
    folder.close()


@pytest.mark.parametrize("url", ["ftp://machine/shop", "s4:shop", "://shop", "FILES:///shop"])
def test_a_scheme_that_no_log_has_names_those_that_there_are(url: str) -> None:
    with pytest.raises(NotSupported, match="choose one of az:, file:, gs:, kafka:, s3:") as refused:
        open_shared_log(url, ROOT)
    assert "/shop" not in str(refused.value)  # a URL may hold a password


def test_a_path_is_no_url(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="file:///disk/shop"):
        open_shared_log("/disk/shop", ROOT)
    path: Any = tmp_path
    with pytest.raises(TypeError, match="file:///disk/shop"):
        open_shared_log(path, ROOT)


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("file:///disk/shop/", "file:///disk/shop"),
        ("file:///disk//shop/.", "file:///disk/shop"),
        ("FILE://localhost/disk/shop", "file:///disk/shop"),
        ("file:////disk/sh%6Fp", "file:///disk/shop"),
        ("file:///disk/a%20b%FF", "file:///disk/a%20b%FF"),
        ("S3://bucket/shop/", "s3://bucket/shop"),
        ("gs://bucket/a/b", "gs://bucket/a/b"),
        ("KAFKA://h:1/shop", "kafka://h:1/shop"),
        ("s3://no bucket//", "s3://no bucket//"),  # refused when it is opened
    ],
)
def test_a_log_has_one_url(given: str, normal: str) -> None:
    assert Replicate(given) == Replicate(normal)
    assert Replicate(given).url == normal
    assert Replicate("kafka://h:1/shop", snapshots=given).snapshots == normal


def test_a_store_is_opened_again_by_another_spelling_of_its_url(tmp_path: Path) -> None:
    url = (tmp_path / "log").as_uri()
    with (
        planstep.open(tmp_path / "a", replicate=url) as db,
        planstep.open(tmp_path / "a", replicate=url + "/") as again,
    ):
        assert again is db
    for wrong in ("file://disk/shop", "file:///", "file:///disk/../shop"):
        with pytest.raises(ValueError, match=r"write|mount"):
            planstep.open(tmp_path / "b", replicate=wrong)
    assert not (tmp_path / "b").exists()


# settings --------------------------------------------------------------------------------------


def test_a_url_alone_means_the_defaults() -> None:
    assert Replicate.of("file:///disk/shop") == Replicate("file:///disk/shop")
    settings = Replicate("file:///disk/shop", log_timeout=5)
    assert Replicate.of(settings) is settings


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"url": "/disk/shop"}, ValueError, "no URL"),
        ({"url": 7}, TypeError, "URL"),
        ({"url": "pigeon://x"}, NotSupported, "choose one of"),
        ({"snapshots": "/disk/shop"}, ValueError, "no URL"),
        ({"snapshots": 7}, TypeError, "URL"),
        ({"log_timeout": 0}, ValueError, "log_timeout"),
        ({"log_timeout": float("nan")}, ValueError, "log_timeout"),
        ({"log_timeout": float("inf")}, ValueError, "log_timeout"),
        ({"log_timeout": True}, TypeError, "log_timeout"),
        ({"linger": -1}, ValueError, "linger"),
        ({"linger": "1"}, TypeError, "linger"),
        ({"local_sync": 1}, TypeError, "local_sync"),
        ({"keep": 0}, ValueError, "keep"),
        ({"keep": 2.0}, TypeError, "keep"),
        ({"snapshot_bytes": 0}, ValueError, "snapshot_bytes"),
        ({"beat": -1}, ValueError, "beat"),
        ({"reads": "stale"}, ValueError, "confirmed"),
    ],
)
def test_settings_that_make_no_sense_are_named(
    settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Replicate(**{"url": "file:///disk/shop", **settings})


def test_least_and_greatest_settings_are_fine() -> None:
    Replicate("file:///a", log_timeout=0.001, linger=0, keep=1, snapshot_bytes=1, beat=0)
    Replicate(
        "s3://bucket/a",
        snapshots="file:///a",
        log_timeout=86_400,
        linger=10,
        local_sync=False,
        reads="local",
    )


# places for snapshots --------------------------------------------------------------------------


def test_snapshots_of_a_store_have_a_place_of_its_own(tmp_path: Path) -> None:
    url = (tmp_path / "snapshots").as_uri()
    with pytest.raises(IoError):
        open_objects(url, None)
    objects = open_objects(url, ROOT)
    assert objects.names("log/") == []
    objects.close()
    other = ROOT._replace(store_id=b"another store id")
    with pytest.raises(Diverged, match="another store"):
        open_objects(url, other)
    open_objects(url, None).close()


class WithoutObjects:
    objects = None

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_a_log_that_is_in_no_object_store_has_no_place_for_snapshots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = WithoutObjects()
    monkeypatch.setitem(OPENERS, "file", lambda *_: (log, ROOT))
    with pytest.raises(NotSupported, match="object store"):
        open_objects("file:///disk/shop", ROOT)
    assert log.closed


def test_a_place_for_snapshots_is_let_go(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no list of descriptors")
    log: Any = WithoutObjects()
    url = (tmp_path / "snapshots").as_uri()
    before = descriptors()
    with snapshots_of(Replicate("file:///disk/shop", snapshots=url), log, ROOT) as snapshots:
        assert snapshots is not None and list(snapshots.newest_first()) == []
        assert descriptors() > before
    assert descriptors() == before and not log.closed
    with snapshots_of(Replicate("file:///disk/shop"), log, ROOT) as snapshots:
        assert snapshots is None
