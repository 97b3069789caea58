"""Tests the shared log of a folder that goes away, and on a system that refuses calls or loses their answers."""

import errno
import os
import resource
from pathlib import Path
from typing import Any

import pytest
from shared_kit import (
    ROOT,
    FailingFiles,
    InFolder,
    QuickFiles,
    filled,
    history,
    opened,
    read_all,
    slot,
    turn_behind,
)

import planstep
from planstep.errors import Corruption, IoError, LogUnreachable, NoSpace, TransactionTooLarge
from planstep.shared.files_log import open_files_log
from planstep.shared.objects_log import ObjectsLog
from planstep.shared.shared_log import Position
from planstep.store.files import io_error

ALL = 1 << 20


def names_of(folder: InFolder) -> set[str]:
    files = (path for path in folder.path.rglob("*") if not path.is_dir())
    return {str(path.relative_to(folder.path)) for path in files}


# a folder that goes away -----------------------------------------------------------------------


def check_unreachable(log: ObjectsLog, folder: InFolder) -> None:
    """Checks that a log neither believes that its end is here, nor that a turn was written."""
    entries = history(2)
    for call in (
        lambda: log.read(ALL, 0),
        lambda: log.append(entries[1]),
        log.barrier,
        log.floor,
        lambda: log.trim(2),
    ):
        with pytest.raises(LogUnreachable, match=folder.path.name):
            call()


@pytest.mark.parametrize("part", ["", "log"])
def test_a_folder_that_was_moved_away_is_not_the_end_of_the_log(
    folder: InFolder, tmp_path: Path, part: str
) -> None:
    filled(folder, 1)
    log = opened(folder, QuickFiles(), 0.0)
    path = folder.path / part
    path.rename(tmp_path / "away")
    if not part:
        check_unreachable(log, folder)
    entry = history(2)[1]
    with pytest.raises(LogUnreachable):
        log.append(entry)
    with pytest.raises(LogUnreachable):
        log.read(ALL, 0)
    (tmp_path / "away").rename(path)
    log.append(entry)
    assert read_all(folder.open()) == history(2)


def test_a_folder_that_was_replaced_is_not_the_log(folder: InFolder, tmp_path: Path) -> None:
    filled(folder, 1)
    log = opened(folder, QuickFiles(), 0.0)
    folder.path.rename(tmp_path / "away")
    other = InFolder(folder.path)
    filled(other, 1)
    check_unreachable(log, folder)
    other.close()
    assert names_of(other) == {"store", slot(1)}


def test_a_folder_that_is_gone_is_unreachable(folder: InFolder) -> None:
    filled(folder, 1)
    log = opened(folder, QuickFiles(), 0.0)
    for path in sorted(folder.path.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.path.rmdir()
    check_unreachable(log, folder)


# what the operating system may answer ----------------------------------------------------------


@pytest.mark.parametrize("kind", ["open", "read", "write", "link", "remove"])
def test_a_call_that_fails_for_a_while_is_waited_for(folder: InFolder, kind: str) -> None:
    filled(folder, 1)
    opening = kind in ("open", "read")  # has one such call
    files = FailingFiles(kind, opening, code=errno.EIO, times=3)
    log = opened(folder, files)
    log.append(history(2)[1])
    log.open(Position())
    assert log.read(ALL, 0) == history(2)
    log.trim(3)
    assert files.failed == 3


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.ESTALE])
@pytest.mark.parametrize("kind", ["write", "link"])
def test_a_call_that_fails_for_longer_is_unreachable(
    folder: InFolder, kind: str, code: int
) -> None:
    filled(folder, 1)
    log = opened(folder, FailingFiles(kind, 0, code=code, times=None), 0.05)
    with pytest.raises(LogUnreachable, match=r"not reached for 0\.05 seconds"):
        log.append(history(2)[1])
    assert names_of(folder) == {"store", slot(1)}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_refuses_a_turn_at_once(folder: InFolder, code: int) -> None:
    filled(folder, 1)
    files = FailingFiles("write", 0, code=code, short=lambda size: size // 2)
    log = opened(folder, files)
    with pytest.raises(NoSpace, match=r"shop: .*the disk is full"):
        log.append(history(2)[1])
    assert files.failed == files.calls == 1
    assert names_of(folder) == {"store", slot(1)}
    log.append(turn_behind(history(1)[0], history(1)[0].owner, b"another one"))


def test_a_turn_beyond_the_limit_of_a_file_is_refused_at_once(folder: InFolder) -> None:
    filled(folder, 1)
    log = opened(folder, QuickFiles())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        with pytest.raises(TransactionTooLarge, match=r"shop: .* no file of \d+ bytes") as caught:
            log.append(history(2)[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert isinstance(caught.value, NoSpace), "another turn may follow"
    assert names_of(folder) == {"store", slot(1)}
    log.append(turn_behind(history(1)[0], history(1)[0].owner, b"another one"))


class FullForNames(QuickFiles):
    """Files of a disk without room for a name, or that takes none; the first link is `made` all the same.
    Removals may fail, too."""

    def __init__(
        self, code: int = errno.ENOSPC, *, made: bool = False, stays: bool = False
    ) -> None:
        self.code, self.made, self.stays = code, made, stays
        self.full = True

    def link(self, source: Path, target: Path) -> bool:
        if self.made:
            self.made = False
            super().link(source, target)
        if self.full:
            error = OSError(self.code, os.strerror(self.code))
            raise io_error(error, target) from error
        return super().link(source, target)

    def remove(self, path: Path) -> None:
        if self.stays:
            raise IoError("not removed")
        super().remove(path)


def test_a_disk_that_is_full_for_a_name_refuses_a_turn_at_once(folder: InFolder) -> None:
    filled(folder, 1)
    files = FullForNames()
    log = opened(folder, files)
    with pytest.raises(NoSpace, match=r"shop: .*the disk is full"):
        log.append(history(2)[1])
    assert names_of(folder) == {"store", slot(1)}, "what is not there is never linked"
    files.full = False
    log.append(turn_behind(history(1)[0], history(1)[0].owner, b"another one"))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_refused_link_that_is_made_all_the_same_is_the_turn(folder: InFolder, code: int) -> None:
    filled(folder, 1)
    opened(folder, FullForNames(code, made=True)).append(history(2)[1])
    assert read_all(folder.open()) == history(2)


@pytest.mark.parametrize(
    ("code", "words"), [(errno.ENOSPC, "full"), (errno.EROFS, "may not be written")]
)
def test_a_file_that_stays_may_be_linked_yet(folder: InFolder, code: int, words: str) -> None:
    filled(folder, 1)
    files = FullForNames(code, stays=True)
    log = opened(folder, files, 0.0)
    for _ in range(2):
        with pytest.raises(LogUnreachable, match="not removed"):
            log.append(history(2)[1])
    files.stays = False
    with pytest.raises(LogUnreachable, match=words):
        log.append(history(2)[1])  # the doubt stays
    files.full = False
    log.append(history(2)[1])
    assert read_all(folder.open()) == history(2)


def test_a_real_link_for_which_the_disk_is_full(
    folder: InFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(folder, 1)
    log = opened(folder, QuickFiles())

    def full(*words: Any, **settings: Any) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(NoSpace, match="the disk is full"):
        log.append(history(2)[1])


# what it does not allow ------------------------------------------------------------------------


class Refusing:
    """Makes the operating system refuse calls for names in one of the log's folders, while `on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: str, part: str, code: int) -> None:
        self.on = True
        self.calls = 0
        really = getattr(os, call)

        def refuse(path: Any, *words: Any, **settings: Any) -> Any:
            names = (path, *words)[: 2 if call == "link" else 1]
            if self.on and any(Path(str(name)).parts[:1] == (part,) for name in names):
                self.calls += 1
                raise OSError(code, os.strerror(code))
            return really(path, *words, **settings)

        monkeypatch.setattr(os, call, refuse)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
@pytest.mark.parametrize(("call", "part"), [("open", "new"), ("link", "log")])
def test_a_turn_that_may_not_be_written_is_refused_at_once(
    folder: InFolder, monkeypatch: pytest.MonkeyPatch, call: str, part: str, code: int
) -> None:
    if (call, code) == ("link", errno.EPERM):
        pytest.skip("it says that there are no hard links")
    filled(folder, 1)
    log = opened(folder, QuickFiles())
    refusing = Refusing(monkeypatch, call, part, code)
    with pytest.raises(IoError, match=rf"shop/{part}.*may not be written .*nothing was done"):
        log.append(history(2)[1])
    refusing.on = False
    assert refusing.calls == 1
    assert names_of(folder) == {"store", slot(1)}, "what is not there is never linked"
    log.append(turn_behind(history(1)[0], history(1)[0].owner, b"another one"))


@pytest.mark.parametrize("part", ["log", "floor"])
def test_a_log_that_may_not_be_listed_is_refused_at_once(
    folder: InFolder, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    filled(folder, 1)
    Refusing(monkeypatch, "open", part, errno.EACCES)
    with pytest.raises(IoError, match=rf"shop/{part}.*may not be read .*one user"):
        open_files_log(folder.path.as_uri(), None)


def test_a_commit_that_may_not_be_written_is_aborted_and_an_opening_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = (tmp_path / "shop").as_uri()
    with planstep.open(tmp_path / "a", replicate=url) as db:
        table = db.create_table("t")
        refusing = Refusing(monkeypatch, "open", "new", errno.EACCES)
        for n in range(2):
            with pytest.raises(planstep.Aborted, match=r"shop/new may not be written"):
                table.put("k", n)
        with pytest.raises(IoError, match=r"shop/new may not be written"):
            planstep.open(tmp_path / "b", replicate=url, takeover=True)
        refusing.on = False
        assert list(table.scan()) == []
        table.put("k", 3)
    with planstep.open(tmp_path / "b", replicate=url) as db:
        assert db.table("t").get("k") == 3


class LosesAnswers(QuickFiles):
    """Files whose links are made, and reported as failed."""

    def link(self, source: Path, target: Path) -> bool:
        super().link(source, target)
        raise IoError("no answer")


def test_a_link_whose_answer_is_lost_is_ones_own(folder: InFolder) -> None:
    filled(folder, 1)
    log = opened(folder, LosesAnswers(), 0.0)
    log.append(history(2)[1])
    assert names_of(folder) == {"store", slot(1), slot(2)}


class Tidied(QuickFiles):
    """Files of which a new owner removes what is not linked yet, as if it were left by a killed process."""

    times = 1

    def link(self, source: Path, target: Path) -> bool:
        if self.times:
            self.times -= 1
            source.unlink()
        return super().link(source, target)


def test_a_file_that_a_new_owner_removed_is_written_again(folder: InFolder) -> None:
    filled(folder, 1)
    files = Tidied()
    log = opened(folder, files)
    log.append(history(2)[1])
    assert files.times == 0
    assert read_all(folder.open()) == history(2)


def test_a_sync_that_failed_is_not_tried_again(folder: InFolder) -> None:
    filled(folder, 1)
    files = FailingFiles("sync_folder", 1, times=None)  # opening needs the first one
    log = opened(folder, files)
    with pytest.raises(LogUnreachable, match="could not be synced"):
        log.append(history(2)[1])
    assert files.failed == 1
    log.open(Position())
    with pytest.raises(
        LogUnreachable, match="could not be synced"
    ):  # it must not be taken over either
        log.read(ALL, 0)
    assert files.failed == 2
    assert read_all(folder.open()) == history(2)


class Noting(QuickFiles):
    """Files that note which folders were synced, and what was written durably."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def write(self, fd: int, buffers: Any, offset: int, sync: bool) -> None:
        self.notes.append(f"write {sync}")
        super().write(fd, buffers, offset, sync)

    def sync_folder(self, path: Path) -> None:
        self.notes.append(f"sync {path.name}")

    def link(self, source: Path, target: Path) -> bool:
        self.notes.append(f"link {target.parent.name}")
        return super().link(source, target)


def test_a_turn_is_durable_before_it_has_its_name_and_its_name_before_it_counts(
    folder: InFolder,
) -> None:
    filled(folder, 1)
    files = Noting()
    log = opened(folder, files)
    files.notes.clear()
    log.append(history(2)[1])
    assert files.notes == ["write True", "link log", "sync log"]


class NotingLost(LosesAnswers, Noting):
    """Files that note what was synced, and whose links are made and reported as failed."""


def test_a_name_whose_answer_was_lost_is_durable_before_it_counts(folder: InFolder) -> None:
    filled(folder, 1)
    files = NotingLost()
    log = opened(folder, files)
    files.notes.clear()
    log.append(history(2)[1])
    assert files.notes == ["write True", "link log", "sync log"]


def test_a_sync_for_which_there_was_no_descriptor_is_tried_again(folder: InFolder) -> None:
    filled(folder, 1)
    files = FailingFiles("sync_folder", 1, code=errno.EMFILE)
    log = opened(folder, files)
    log.append(history(2)[1])
    assert files.failed == 1
    assert read_all(folder.open()) == history(2)


def test_a_reader_syncs_what_it_read(folder: InFolder) -> None:
    filled(folder, 3)
    files = Noting()
    log = opened(folder, files)
    files.notes.clear()
    assert len(log.read(ALL, 0)) == 2
    assert files.notes == ["sync log"]
    assert log.read(ALL, 0) == []
    assert files.notes == ["sync log"]


def test_a_log_and_its_parent_are_durable_before_the_root_is(tmp_path: Path) -> None:
    files = Noting()
    log, _ = open_files_log((tmp_path / "shop").as_uri(), ROOT, 0, files)
    log.close()
    made = ["sync shop", f"sync {tmp_path.name}"]
    assert files.notes == [*made, "write True", "link shop", "sync shop", "sync shop"]


def test_descriptors_do_not_grow(folder: InFolder) -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no list of descriptors")
    entries = history(30)
    log = folder.open()
    before = len(os.listdir("/proc/self/fd"))
    for entry in entries:
        log.append(entry)
    assert read_all(log) == entries
    for _ in range(10):
        again, _root = open_files_log(folder.path.as_uri(), None)
        again.close()
        with pytest.raises(ValueError):
            open_files_log("file:///", None)
    (folder.path / "store").write_bytes(b"?")
    for _ in range(10):
        with pytest.raises(Corruption):
            open_files_log(folder.path.as_uri(), None)
    assert len(os.listdir("/proc/self/fd")) == before
