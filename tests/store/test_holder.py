"""Tests what a lock's owner says of itself: it is read by others, believed for nothing, and may be anything."""

import json
import os
import sys
from pathlib import Path

import pytest
from kit import Child

from planstep.errors import StoreInUse
from planstep.store.owner_lock import Holder, OwnerLock, boot_id, program_name, read_holder

READER = """
import sys
from pathlib import Path
from planstep.store.owner_lock import read_holder
print(tuple(read_holder(Path(sys.argv[1]))))
"""


def test_another_process_reads_who_the_owner_is(quick_path: Path) -> None:
    lock = OwnerLock(quick_path / "lock", share=True)
    holder = read_holder(quick_path / "lock")
    assert holder == lock.holder
    assert holder[:1] + holder[2:3] == (os.getpid(), boot_id()) and holder.is_here
    assert holder.program and holder.version and holder.since
    assert holder[5:] == (True, None, None)
    lock.describe(socket="/tmp/" + "s" * 90, generation=7)
    lock.describe(socket="")
    with Child(READER, quick_path / "lock") as reader:
        assert reader.line() == repr(tuple(holder._replace(socket="", generation=7)))
    lock.close()
    assert not lock.held


def test_the_former_version_reads_it_too(quick_path: Path) -> None:
    lock = OwnerLock(quick_path / "lock", share=True)
    lock.describe(program="uvicorn", socket="")
    assert json.loads((quick_path / "lock").read_bytes()[:200])["pid"] == os.getpid()
    lock.close()


def test_the_form_of_the_former_version_is_read(quick_path: Path) -> None:
    path = quick_path / "lock"
    path.write_text('{"pid": 4711, "since": "2026-01-02 03:04:05"}')
    assert read_holder(path) == Holder(4711, "2026-01-02 03:04:05")
    lock = OwnerLock(path)
    path.write_text('{"pid": 4711, "since": "2026-01-02 03:04:05"}')
    with pytest.raises(StoreInUse, match="by process 4711 since 2026-01-02") as refused:
        OwnerLock(path)
    assert refused.value.pid == 4711
    lock.close()


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\xff\xfe", b"null", b"[1]", b"7", b'"pid"', b"[" * 4096, b'{"pid": 1' + b"0" * 4096, b"{}",
     b'{"pid": "1", "since": 7, "share": 1, "boot": null}', b'{"pid": true, "generation": -1, "socket": ["a"]}',
     b'{"pid": 1e9, "program": "\\u001b[2J", "version": "\\n"}', b'{"pid": 99999999999999999999999}'],
)  # fmt: skip
def test_what_is_no_description_says_nothing(quick_path: Path, text: bytes) -> None:
    path = quick_path / "lock"
    path.write_bytes(text)
    assert read_holder(path) == Holder() and Holder().is_here
    lock = OwnerLock(path)
    path.write_bytes(text)
    with pytest.raises(StoreInUse, match="by another process"):
        OwnerLock(path)
    lock.close()


def test_a_path_that_is_no_lock_says_nothing(quick_path: Path) -> None:
    assert read_holder(quick_path / "missing") == Holder()
    assert read_holder(quick_path) == Holder()
    (quick_path / "link").symlink_to(quick_path / "lock")
    OwnerLock(quick_path / "lock").close()
    assert read_holder(quick_path / "link") == Holder()


def test_fields_that_this_version_does_not_know_are_left_out(quick_path: Path) -> None:
    (quick_path / "lock").write_text('{"pid": 5, "colour": "red", "share": false}\nold rest')
    assert read_holder(quick_path / "lock") == Holder(5, share=False)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["/usr/bin/gunicorn", "app"], "gunicorn"),
        (["a\udcffb\n"], "a?b?"),
        (["x" * 999], "x" * 200),
    ],
)
def test_a_program_is_named_so_that_it_can_be_shown(
    monkeypatch: pytest.MonkeyPatch, words: list[str], name: str
) -> None:
    monkeypatch.setattr("sys.argv", words)
    assert program_name() == name
    for none in ([], [""]):
        monkeypatch.setattr("sys.argv", none)
        assert program_name() == Path(sys.executable).name


def test_an_owner_of_another_boot_is_not_here() -> None:
    assert Holder(boot="another").is_here is (boot_id() is None)
    assert Holder(boot=boot_id()).is_here
