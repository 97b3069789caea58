"""Tests that a URL opens the log of its scheme, and that any other one is refused in words."""

from pathlib import Path
from typing import Any

import pytest
from shared_kit import ROOT, filled, read_all
from shared_kit import InFolder as Folder

from planstep.errors import NotSupported
from planstep.shared.registry import open_shared_log


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
    with pytest.raises(NotSupported, match="choose one of az:, file:, gs:, s3:") as refused:
        open_shared_log(url, ROOT)
    assert "/shop" not in str(refused.value)  # a URL may hold a password


def test_a_path_is_no_url(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="file:///disk/shop"):
        open_shared_log("/disk/shop", ROOT)
    path: Any = tmp_path
    with pytest.raises(TypeError, match="file:///disk/shop"):
        open_shared_log(path, ROOT)
