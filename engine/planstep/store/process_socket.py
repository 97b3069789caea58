"""Connects processes to a store's owner, by a unix socket in the store's folder.

    owner      flock ─▶ remove what a dead owner left ─▶ bind ─▶ mode 0600 ─▶ listen ─▶ accept ─▶ is it my user?
    attached   open the folder ─▶ connect ─▶ is it my user?

Only the holder of the flock binds or removes the socket, so two owners never meet here. Nobody can connect between
`bind` and `listen`, so the mode is set in time.

The address of a unix socket has 108 bytes, on macOS 104. On Linux both sides go through the folder's descriptor, by
/proc: 28 bytes, whatever the path. Elsewhere a long path gets a socket in a private folder of the system's
temporary one, and the lock file says where.

A forked child closes its copies: else a link would not end with the process that made it. A process that dies
closes one descriptor after the other: when a link has ended, another may be made for a moment, and ends too.

Left out: what is sent (../proto/frames.py), and network file systems: they refuse to bind, and an owner is alone.
Next: ../runtime/runtime.py.
"""

import contextlib
import os
import socket
import stat
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ..errors import ForeignPeer, IoError, OwnerSilent
from .files import check_there, io_error, open_folder, shown, way_into
from .owner_lock import OwnerLock, read_holder
from .readers.reader_lease import readers

NAME = "lock.socket"
"""The socket's name; readers do not look at files whose names begin with "lock"."""
_PATH_BYTES = 103 if sys.platform == "darwin" else 107
_BACKLOG = 128
_PAUSE_SECONDS = 0.01
_PEERCRED = Struct("iII")  # Linux: pid, user, group
_XUCRED = Struct("II")  # macOS: version, user, and groups behind
_LOCAL_PEERCRED, _LOCAL_PEERPID = 1, 2


class NobodyListens(IoError):
    """No owner listens there, or not yet; whether there is one, the flock says."""


class Peer(NamedTuple):
    """The process at the other end of a connection, when it connected or began to listen.

    `pid` is 0 for a process of another container, and where the system does not tell.
    """

    pid: int
    user: int


class _Place(NamedTuple):
    """A socket's name in an open folder, and the path by which it is bound and connected to."""

    folder: int
    name: str
    path: Path


class Listener:
    """The owner's listening socket, until `close`. IoError, which leaves the lock as it was.

    `folder` is the path of the lock's folder, for systems that find a folder by no descriptor. The caller closes it
    before the lock.
    """

    def __init__(self, lock: OwnerLock, folder: Path) -> None:
        assert lock.held, "only the store's owner listens"
        self.folder = folder
        self._lock = lock
        self._held = -1
        self._stack = contextlib.ExitStack()
        try:
            with _typed("listen for other processes", folder):
                self._place = place = self._stack.enter_context(_place(folder, lock.folder))
                self.socket = _own(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                self._stack.callback(self.socket.close)
                _remove(place)
                self.socket.bind(os.fspath(place.path))
                check_there(place.path.parent, place.folder)
                self._bound = _status(place)
                os.chmod(place.name, 0o600, dir_fd=place.folder)
                self.socket.setblocking(False)
                self.socket.listen(_BACKLOG)
        except BaseException:
            self._stack.close()
            raise
        elsewhere = "" if place.folder == lock.folder else os.fspath(place.path)
        lock.describe(share=True, socket=elsewhere)

    def accept(self) -> tuple[socket.socket, Peer] | None:
        """Returns the next connection, not blocking, and its process; None if none waits. ForeignPeer, IoError."""
        try:
            with _typed("accept a process", self._place.path):
                link = _own(self.socket.accept()[0])
        except (BlockingIOError, ConnectionAbortedError):
            return None
        link.setblocking(False)
        return link, _checked(link)

    def close(self) -> None:
        """Stops listening, and removes the socket if it is still this one."""
        with contextlib.suppress(OSError):
            if self._lock.held and os.path.samestat(_status(self._place), self._bound):
                os.unlink(self._place.name, dir_fd=self._place.folder)
        self._stack.close()

    def stay(self) -> None:
        """Stays in the folder until `end`, for `others` and `owner_by_now`, also once this is closed."""
        self._held = os.dup(self._lock.folder)

    def others(self) -> list[int]:
        """Returns the ids of processes that have the store open, once for each lease. IoError."""
        return readers(self.folder, self._held)

    def owner_by_now(self) -> int | None:
        """Returns the id of the process that says in the lock that it has it, or had it last."""
        return read_holder(Path("lock"), self._held).pid

    def end(self) -> None:
        """Leaves the folder."""
        if self._held >= 0:
            held, self._held = self._held, -1
            os.close(held)


def connect(folder: Path, timeout: float = 1.0) -> tuple[socket.socket, Peer]:
    """Connects to the owner that listens in a folder, and returns the socket, which blocks, and the owner.

    NobodyListens at once; OwnerSilent after `timeout` seconds; ForeignPeer, IoError.
    """
    with contextlib.ExitStack() as stack, _typed("reach the store's owner", folder):
        held = open_folder(folder)
        stack.callback(os.close, held)
        named = read_holder(Path("lock"), held).socket
        try:
            place = stack.enter_context(_place(folder, held, named))
        except FileNotFoundError:  # where its owner said it was
            raise NobodyListens(f"no owner listens in {folder}") from None
        link = _own(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        failed = stack.enter_context(contextlib.ExitStack())
        failed.callback(link.close)
        _connect(link, place, time.monotonic() + timeout)
        check_there(place.path.parent, place.folder)
        peer = _checked(link)
        failed.pop_all()
        return link, peer


def _connect(link: socket.socket, place: _Place, deadline: float) -> None:
    link.setblocking(False)  # a blocking one would wait for a stopped owner without end
    while True:
        try:
            link.connect(os.fspath(place.path))
            break
        except BlockingIOError:  # many have connected, and wait to be accepted
            if time.monotonic() >= deadline:
                raise OwnerSilent(
                    "the store's owner does not accept this process: it is stopped, or very busy; try "
                    "again, or end it"
                ) from None
            time.sleep(_PAUSE_SECONDS)
        except (FileNotFoundError, ConnectionRefusedError):
            raise NobodyListens(f"no owner listens in {shown(place.path.parent)}") from None
    link.setblocking(True)


# places ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _place(folder: Path, held: int, named: str | None = None) -> Iterator[_Place]:
    """Yields the place of a folder's socket; `named`: where the owner says it is, if not in the folder."""
    path = way_into(folder, held) / NAME
    status = os.fstat(held)
    name = f"{status.st_dev:x}-{status.st_ino:x}"
    elsewhere = Path(named or "")
    if elsewhere.name == name:
        private = elsewhere.parent
    elif len(os.fsencode(path)) <= _PATH_BYTES:
        yield _Place(held, NAME, path)
        return
    else:
        private = Path(tempfile.gettempdir()) / f"planstep-{os.geteuid()}"
        with contextlib.suppress(FileExistsError):
            private.mkdir(0o700)
    fd = os.open(private, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise IoError(f"{private} belongs to others or lets them in: remove it, or set TMPDIR")
        yield _Place(fd, name, private / name)
    finally:
        os.close(fd)


def _status(place: _Place) -> os.stat_result:
    return os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)


def _remove(place: _Place) -> None:
    """Removes the socket of an owner that is gone, but nothing else."""
    try:
        status = _status(place)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise IoError(f"{shown(place.path)} is no socket: remove it, so that others can attach")
    os.unlink(place.name, dir_fd=place.folder)


# peers -------------------------------------------------------------------------------------


def peer_of(link: socket.socket) -> Peer:
    """Returns the process at the other end. OSError."""
    if hasattr(socket, "SO_PEERCRED"):
        data = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
        pid, user, _ = _PEERCRED.unpack(data)
        return Peer(pid, user)
    _, user = _XUCRED.unpack_from(link.getsockopt(0, _LOCAL_PEERCRED, 76))
    try:
        return Peer(link.getsockopt(0, _LOCAL_PEERPID), user)
    except OSError:
        return Peer(0, user)


def _checked(link: socket.socket) -> Peer:
    """Returns the peer if it is of this user; else closes the link and raises ForeignPeer."""
    try:
        peer = peer_of(link)
        if peer.user != os.geteuid():
            raise ForeignPeer(
                f"process {peer.pid} belongs to user {peer.user}, this one to {os.geteuid()}: all processes of a "
                "store run as one user"
            )
        return peer
    except BaseException:
        link.close()
        raise


@contextlib.contextmanager
def _typed(what: str, path: Path) -> Iterator[None]:
    """Raises an IoError in place of an OSError of its block, but lets through what says to wait."""
    try:
        yield
    except (BlockingIOError, ConnectionAbortedError):
        raise
    except OSError as error:
        refusal = io_error(error, path)
        refusal.args = (f"cannot {what}: {refusal}",)
        raise refusal from error


# forks -------------------------------------------------------------------------------------

_sockets: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()


def _own(link: socket.socket) -> socket.socket:
    """Notes a socket to be closed in forked children."""
    _sockets.add(link)
    return link


def _after_fork() -> None:
    for link in list(_sockets):
        fd = link.detach()
        if fd >= 0:
            os.close(fd)


os.register_at_fork(after_in_child=_after_fork)
