"""Tests the socket between a store's owner and other processes: real processes, long paths, dead owners, forks."""

import contextlib
import os
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import Child, until

from planstep.errors import ForeignPeer, IoError, OwnerSilent
from planstep.store import process_socket
from planstep.store.owner_lock import OwnerLock, read_holder
from planstep.store.process_socket import (
    NAME,
    Listener,
    NobodyListens,
    Peer,
    connect,
)

OWNER = """
import os, select, sys
from pathlib import Path
from planstep.store.owner_lock import OwnerLock
from planstep.store.process_socket import Listener

folder = Path(sys.argv[1])
lock = OwnerLock(folder / "lock", 60, share=True)
listener = Listener(lock, folder)
print("listens", flush=True)
for command in sys.stdin:
    if command == "accept\\n":
        select.select([listener.socket], [], [])
        link, peer = listener.accept()
        link.send(b"hello")
        print(peer.pid, peer.user, flush=True)
    elif command == "fork\\n":
        pid = os.fork()
        if not pid:
            print(listener.socket.fileno(), link.fileno(), lock.held, flush=True)
            listener.close()
            os.read(0, 1)
            os._exit(0)
    elif command == "close\\n":
        listener.close()
        lock.close()
        print("closed", flush=True)
"""


@contextlib.contextmanager
def owner_in(folder: Path) -> Iterator[Child]:
    with Child(OWNER, folder) as owner:
        assert owner.line() == "listens"
        yield owner


@contextlib.contextmanager
def listening(folder: Path) -> Iterator[Listener]:
    lock = OwnerLock(folder / "lock", share=True)
    listener = Listener(lock, folder)
    yield listener
    listener.close()
    lock.close()


def no_way(folder: Path, fd: int) -> Path:
    """Finds a folder by its path alone, as on systems without /proc."""
    return folder


def test_two_processes_meet_and_know_each_other(quick_path: Path) -> None:
    with owner_in(quick_path) as owner:
        link, peer = connect(quick_path)
        owner.tell("accept")
        assert owner.line() == f"{os.getpid()} {os.geteuid()}"
        assert peer == Peer(owner.process.pid, os.geteuid())
        assert link.getblocking() and link.recv(100) == b"hello"
        status = (quick_path / NAME).lstat()
        assert stat.S_ISSOCK(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o600
        holder = read_holder(quick_path / "lock")
        assert (holder.pid, holder.share, holder.socket) == (owner.process.pid, True, "")
        owner.tell("close")
        assert owner.line() == "closed" and not (quick_path / NAME).exists()
        with pytest.raises(NobodyListens, match="no owner listens"):
            connect(quick_path)
        link.close()


def test_a_path_may_be_longer_than_an_address(quick_path: Path) -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("the next test is of such systems")
    folder = quick_path / ("d" * 150) / ("e" * 150)
    folder.mkdir(parents=True)
    with owner_in(folder) as owner:
        link, peer = connect(folder)
        assert peer.pid == owner.process.pid and (folder / NAME).is_socket()
        link.close()


@pytest.mark.parametrize("depth", [1, 2])
def test_systems_without_paths_through_descriptors(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    """A short path is used as it is; in place of a long one is a name in a private folder, which the lock tells."""
    monkeypatch.setattr(process_socket, "way_into", no_way)
    temporary = quick_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    folder = quick_path.joinpath(*["d" * 40] * depth)
    folder.mkdir(parents=True)
    with listening(folder) as listener:
        named = read_holder(folder / "lock").socket
        assert named is not None and (folder / NAME).exists() is (depth == 1) is (named == "")
        private = temporary / f"planstep-{os.geteuid()}"
        assert len(list(private.glob("*"))) == depth - 1
        monkeypatch.setattr(tempfile, "tempdir", str(quick_path))  # of the process that attaches
        link, peer = connect(folder)
        accepted = listener.accept()
        assert accepted is not None and accepted[1] == peer == Peer(os.getpid(), os.geteuid())
        link.close()
        accepted[0].close()
        (folder / "lock").rename(folder / "other")
        (folder / "lock").write_text('{"socket": "/nowhere/name"}')  # anybody's words
        if depth == 1:
            connect(folder)[0].close()
        else:
            with pytest.raises(NobodyListens):
                connect(folder)
        (folder / "other").rename(folder / "lock")
        if depth == 2:
            private.chmod(0o755)
            with pytest.raises(IoError, match="lets them in"):
                connect(folder)
            private.chmod(0o700)
    assert list(private.glob("*")) == [] and not (folder / NAME).exists()


def test_a_killed_owner_ends_its_links_and_another_takes_its_place(quick_path: Path) -> None:
    with owner_in(quick_path) as owner:
        link, _ = connect(quick_path)
        owner.tell("accept")
        assert link.recv(100) == b"hello"
        owner.kill()
        assert link.recv(100) == b""
        link.close()
    assert (quick_path / NAME).is_socket()
    with pytest.raises(NobodyListens):
        connect(quick_path)
    with owner_in(quick_path) as owner:
        link, peer = connect(quick_path)
        assert peer.pid == owner.process.pid
        link.close()


def test_a_fork_of_the_owner_holds_no_link_open(quick_path: Path) -> None:
    with owner_in(quick_path) as owner:
        link, _ = connect(quick_path)
        owner.tell("accept")
        assert owner.line() and link.recv(100) == b"hello"
        owner.tell("fork")
        assert owner.line() == "-1 -1 False"
        owner.process.kill()
        assert link.recv(100) == b""
        owner.process.wait(60)  # its link ends before its listening does
        assert (quick_path / NAME).is_socket()  # the child's `close` was not its business
        with pytest.raises(NobodyListens):
            connect(quick_path)
        link.close()
        OwnerLock(quick_path / "lock").close()


def test_a_fork_of_an_attached_process_holds_no_link_open(quick_path: Path) -> None:
    with listening(quick_path) as listener:
        link, _ = connect(quick_path)
        accepted = until(listener.accept)
        sleeper = os.fork()
        if not sleeper:
            signal.pause()
            os._exit(0)
        try:
            link.close()
            assert until(lambda: received(accepted[0])) == [b""]
        finally:
            os.kill(sleeper, signal.SIGKILL)
            os.waitpid(sleeper, 0)
            accepted[0].close()


def received(link: socket.socket) -> list[bytes]:
    try:
        return [link.recv(100)]
    except BlockingIOError:
        return []


def test_an_owner_that_accepts_nobody_is_silent_in_time(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_socket, "_BACKLOG", 1)
    with listening(quick_path) as listener, contextlib.ExitStack() as stack:
        with pytest.raises(OwnerSilent, match="does not accept"):
            for _ in range(5):
                link, _ = connect(quick_path, timeout=0.05)
                stack.callback(link.close)
        while accepted := listener.accept():
            accepted[0].close()
        connect(quick_path)[0].close()


def test_a_process_of_another_user_is_refused_at_both_ends(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(quick_path) as listener:
        link, _ = connect(quick_path)
        with monkeypatch.context() as patch:
            patch.setattr(process_socket, "peer_of", lambda link: Peer(7, 12_345))
            with pytest.raises(ForeignPeer, match="process 7 belongs to user 12345"):
                until(listener.accept)
            assert link.recv(100) == b""
            with pytest.raises(ForeignPeer):
                connect(quick_path)
        until(listener.accept)[0].close()  # the one that left
        assert listener.accept() is None
        link.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_root_does_not_attach_to_another_user_s_store() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chown(folder, 65_534, 65_534)
        says, ready = os.pipe()
        owner = os.fork()
        if not owner:
            os.setgid(65_534)
            os.setuid(65_534)
            _kept = Listener(OwnerLock(folder / "lock"), folder)
            os.write(ready, b"r")
            signal.pause()
            os._exit(0)
        try:
            os.close(ready)
            assert os.read(says, 1) == b"r"
            with pytest.raises(ForeignPeer, match=f"process {owner} belongs to user 65534"):
                connect(folder)
        finally:
            os.close(says)
            os.kill(owner, signal.SIGKILL)
            os.waitpid(owner, 0)


def test_what_is_no_socket_is_not_removed(quick_path: Path) -> None:
    lock = OwnerLock(quick_path / "lock")
    for make in (Path.touch, Path.mkdir, lambda path: path.symlink_to(quick_path / "lock")):
        make(quick_path / NAME)
        with pytest.raises(IoError, match=r"cannot|is no socket: remove it"):
            Listener(lock, quick_path)
        with pytest.raises(NobodyListens):
            connect(quick_path)
        subprocess.run(["rm", "-r", quick_path / NAME], check=True)
    assert lock.held and read_holder(quick_path / "lock").socket is None
    Listener(lock, quick_path).close()
    lock.close()
    with pytest.raises(AssertionError, match="only the store's owner"):
        Listener(lock, quick_path)


def test_an_owner_removes_its_own_socket_only(quick_path: Path) -> None:
    with listening(quick_path):
        (quick_path / NAME).unlink()
        other = socket.socket(socket.AF_UNIX)
        other.bind(str(quick_path / NAME))
    assert (quick_path / NAME).is_socket()
    other.close()


def test_failed_calls_leave_no_descriptor(quick_path: Path) -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("counts descriptors by /proc")

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    for _ in range(3):
        with pytest.raises(NobodyListens):
            connect(quick_path)
        with pytest.raises(IoError, match=r"cannot reach the store's owner: .*No such file"):
            connect(quick_path / "missing")
        lock = OwnerLock(quick_path / "lock")
        (quick_path / NAME).mkdir()
        with pytest.raises(IoError):
            Listener(lock, quick_path)
        (quick_path / NAME).rmdir()
        listener = Listener(lock, quick_path)
        link, _ = connect(quick_path)
        link.close()
        listener.close()
        lock.close()
    assert descriptors() == before


def test_a_file_system_without_sockets_leaves_the_owner_alone(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Any, address: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    class Refusing(socket.socket):
        bind = refuse

    lock = OwnerLock(quick_path / "lock")
    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(IoError, match=r"cannot listen for other processes: .*not permitted"):
        Listener(lock, quick_path)
    assert lock.held
    lock.close()
