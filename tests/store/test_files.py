"""Tests the log's files: system errors have typed errors, and partial writes are completed."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from planstep.errors import IoError, NoSpace, TooManyOpen
from planstep.store import files as module
from planstep.store.files import Files, io_error

ERRORS = [
    (errno.ENOSPC, NoSpace),
    (errno.EDQUOT, NoSpace),
    (errno.EMFILE, TooManyOpen),
    (errno.ENFILE, TooManyOpen),
    (errno.EIO, IoError),
]


def failing(number: int) -> Callable[..., Any]:
    def fail(*args: Any, **more: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """Opens a file of eight bytes."""
    (tmp_path / "log").write_bytes(b"01234567")
    fd = Files().open(tmp_path / "log", write=True)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("number, kind", ERRORS)
def test_each_error_has_its_kind_and_names_the_file(
    tmp_path: Path, number: int, kind: type[IoError]
) -> None:
    error = OSError(number, os.strerror(number))
    told = io_error(error, tmp_path / "log")
    assert type(told) is kind and str(told).startswith(f"{tmp_path / 'log'}: ")
    assert type(io_error(error, None)) is kind and str(tmp_path) not in str(io_error(error, None))


CALLS: dict[str, Callable[[Files, int, Path], Any]] = {
    "pread": lambda files, fd, path: files.read(fd, 0, 4),
    "pwritev": lambda files, fd, path: files.write(fd, [b"a"], 0, sync=True),
    "ftruncate": lambda files, fd, path: files.shrink(fd, 4),
    "fdatasync": lambda files, fd, path: files.sync(fd),
    "fsync": lambda files, fd, path: files.sync_folder(path),
    "rename": lambda files, fd, path: files.rename(path / "log", path / "other"),
    "unlink": lambda files, fd, path: files.remove(path / "log"),
    "open": lambda files, fd, path: files.open(path / "log", write=False),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("number, kind", ERRORS)
def test_an_operation_that_fails_raises_it(
    tmp_path: Path,
    fd: int,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    number: int,
    kind: type[IoError],
) -> None:
    if not hasattr(os, name):
        pytest.skip(f"there is no os.{name} here")
    open_before = len(os.listdir("/dev/fd"))
    with monkeypatch.context() as patched, pytest.raises(kind) as raised:
        patched.setattr(os, name, failing(number))
        CALLS[name](Files(), fd, tmp_path)
    assert type(raised.value) is kind
    assert len(os.listdir("/dev/fd")) == open_before
    assert (tmp_path / "log").read_bytes() == b"01234567"


@pytest.mark.parametrize("name", ["posix_fallocate", "fsync"])
def test_a_file_that_cannot_be_allocated_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if not hasattr(os, name):
        pytest.skip(f"there is no os.{name} here")
    with monkeypatch.context() as patched, pytest.raises(NoSpace):
        patched.setattr(os, name, failing(errno.ENOSPC))
        Files().allocate(tmp_path / "new", 4096)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_allocated_again(tmp_path: Path, fd: int) -> None:
    with pytest.raises(IoError):
        Files().allocate(tmp_path / "log", 4096)
    assert (tmp_path / "log").read_bytes() == b"01234567"


def test_where_nothing_can_be_reserved_the_size_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    Files().allocate(tmp_path / "new", 4096)
    assert (tmp_path / "new").read_bytes() == bytes(4096)


def test_what_is_not_there_is_removed_already(tmp_path: Path) -> None:
    Files().remove(tmp_path / "nothing")
    with pytest.raises(IoError):
        Files().remove(tmp_path)
    with pytest.raises(IoError):
        Files().sync_folder(tmp_path / "nothing")


def test_a_read_that_comes_in_parts_is_whole(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, at: whole(fd, min(length, 3), at))
    assert Files().read(fd, 1, 5) == b"12345"
    assert Files().read(fd, 4, 100) == b"4567", "fewer only at the end"
    assert Files().read(fd, 8, 1) == b""


@pytest.mark.parametrize("dsync", [True, False])
def test_a_write_that_is_done_by_halves_is_done_wholly(
    tmp_path: Path, fd: int, monkeypatch: pytest.MonkeyPatch, dsync: bool
) -> None:
    """Each part of it is durable, by either of the system's ways."""
    flag = getattr(os, "RWF_DSYNC", 0)
    if dsync and not flag:
        pytest.skip("there is no RWF_DSYNC here")
    parts: list[tuple[int, ...]] = []
    synced: list[int] = []

    def pwritev(fd: int, buffers: list[bytes], offset: int, *flags: int) -> int:
        parts.append(flags)
        return os.pwrite(fd, b"".join(buffers)[:3], offset)

    monkeypatch.setattr(module, "_DSYNC", flag if dsync else 0)
    monkeypatch.setattr(os, "pwritev", pwritev)
    monkeypatch.setattr(Files, "sync", lambda self, fd: synced.append(fd))
    Files().write(fd, [b"ab", b"cde", b"fg"], 2, sync=True)
    assert (tmp_path / "log").read_bytes() == b"01abcdefg"
    assert parts == [(flag,) if dsync else ()] * 3
    assert synced == ([] if dsync else [fd])
    Files().write(fd, [b"xy"], 0, sync=False)
    assert parts[-1] == () and len(synced) == (not dsync)


def test_more_buffers_than_the_system_takes_at_once(tmp_path: Path, fd: int) -> None:
    Files().write(fd, [b"%d" % (n % 10) for n in range(5_000)], 0, sync=False)
    assert (tmp_path / "log").read_bytes() == b"0123456789" * 500


def test_shrunk_and_synced(tmp_path: Path, fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Files().shrink(fd, 3)
    assert (tmp_path / "log").read_bytes() == b"012"
    Files().sync(fd)
    synced: list[int] = []
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(os, "fsync", synced.append)
    Files().sync(fd)
    assert synced == [fd]


def test_on_a_mac_a_sync_reaches_the_platter(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(module, "_FULLFSYNC", 51)
    monkeypatch.setattr(module.sys, "platform", "darwin")
    monkeypatch.setattr(module.fcntl, "fcntl", lambda fd, what: asked.append((fd, what)))
    Files().sync(fd)
    assert asked == [(fd, 51)]


def test_the_end_of_what_was_written(
    tmp_path: Path, fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never too short; where the system reports holes, it is less than the allocated size."""
    files = Files()
    assert files.data_end(fd) == 8
    os.ftruncate(fd, 1 << 20)
    assert 8 <= files.data_end(fd) <= 1 << 20
    os.pwrite(fd, b"x", 600_000)
    assert 600_001 <= files.data_end(fd) <= 1 << 20
    with monkeypatch.context() as patched:
        patched.setattr(os, "lseek", failing(errno.EINVAL))
        assert files.data_end(fd) == 1 << 20, "it does not tell"
    with monkeypatch.context() as patched:
        patched.setattr(os, "lseek", failing(errno.ENXIO))
        assert files.data_end(fd) == 0, "nothing but holes"
    monkeypatch.delattr(os, "SEEK_DATA", raising=False)
    assert files.data_end(fd) == 1 << 20
