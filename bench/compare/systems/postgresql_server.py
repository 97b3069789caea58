"""Starts PostgreSQL in a folder of its own, and ends it with this process.

    initdb ─▶ postgres -c … ─▶ a query is answered: ready ─▶ … ─▶ SIGINT: a checkpoint, the end
              127.0.0.1 only, a password in a file that only this user reads, no Unix socket

PostgreSQL refuses to run as root, so root runs it as the user of POSTGRES. That user may not be able to pass the
folders above the server's own, for instance those that `mkdtemp` makes. So the server gets its folder as an open
descriptor, and its path is that of the descriptor.

Shared memory is left to nobody: the larger part is not named, and the named rest is in the server's folder. What
is left is a System V segment of 56 bytes, which PostgreSQL removes at its end; `close` removes it after a kill.
When this process dies, the kernel sends SIGQUIT rather than SIGKILL, so that PostgreSQL still does that.

Next: postgresql_store.py.
"""

import ctypes
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from ...children import last_words
from ..processes import is_running
from . import servers
from .base import Options

POSTGRES = "postgres"
"""The user that root runs the server as, as packages of PostgreSQL make it; also a database that always exists."""
USER = "planstep"
VERSION_MIN = 15
_PACKAGES = Path("/usr/lib/postgresql")
"""Where Debian's packages put the servers, by version; not in the PATH."""
_READY_S, _STOP_S = 60.0, 20.0
_IN_USE = "is still in use"
"""What PostgreSQL says while a child of a killed server has not ended yet."""
_TUNED: Mapping[str, str] = {
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "max_connections": "200",
}
"""Settings that everyone raises for such work; all others are PostgreSQL's defaults."""
BUFFERS_MAX_MB = 2048
"""The most of `shared_buffers`, which are a quarter of the memory, as PostgreSQL's manual advises."""
_KEPT_APART: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "dynamic_shared_memory_type": "mmap",
    "log_min_messages": "log",  # conflicts are errors on purpose, and are answered
}


def unavailable() -> str:
    """Returns a sentence that says what this machine lacks, and how to get it; "" if nothing is missing."""
    if importlib.util.find_spec("psycopg") is None:
        return 'PostgreSQL\'s client is missing: pip install "psycopg[binary]"'
    if binaries() is None:
        return (
            f"PostgreSQL {VERSION_MIN} or newer is missing: install your system's package, on Debian and Ubuntu "
            "postgresql; its own service need not run"
        )
    if os.geteuid() == 0 and not _has_user(POSTGRES):
        return f"PostgreSQL does not run as root, and there is no user {POSTGRES!r} to run it as"
    return ""


@cache
def binaries() -> Path | None:
    """Returns the folder with `postgres` and `initdb` of the newest version, None if there is none."""
    found = {}
    on_path = shutil.which("postgres")
    folders = [Path(on_path).resolve().parent] if on_path else []
    for folder in (*folders, *_PACKAGES.glob("*/bin")):
        if (folder / "postgres").exists() and (folder / "initdb").exists():
            found[_version(folder / "postgres")] = folder
    newest = max(found, default=(0,))
    return found[newest] if newest >= (VERSION_MIN,) else None


def _version(postgres: Path) -> tuple[int, ...]:
    """Returns (15, 18) for "postgres (PostgreSQL) 15.18 (Debian …)", (0,) if it does not say."""
    try:
        said = subprocess.run([postgres, "--version"], capture_output=True, text=True, timeout=10)
        word = said.stdout.split()[2]
        return tuple(int(part) for part in word.split("."))
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return (0,)


def _has_user(name: str) -> bool:
    try:
        return bool(pwd.getpwnam(name))
    except KeyError:
        return False


class PostgresqlServer(servers.Server):
    """A running server; its address is text for libpq. OSError if it cannot be started.

    At durability "os" it syncs nothing. The signal `ending` ends it: SIGINT after a checkpoint, SIGQUIT at once,
    for one that nobody starts again.
    """

    def __init__(self, folder: Path, durability: str, ending: int = signal.SIGINT) -> None:
        missing = unavailable()
        if missing:
            raise OSError(missing)
        found = binaries()
        assert found is not None
        self._binaries, self._durability, self._ending = found, durability, ending
        self._user = POSTGRES if os.geteuid() == 0 else None
        self._data, self._output = folder / "data", folder / "server.txt"
        began = time.monotonic()
        self._data.mkdir(parents=True, exist_ok=True)
        self._data.chmod(0o700)
        if self._user is not None:
            shutil.chown(self._data, self._user, self._user)
        self._password = folder / "password"
        if not (self._data / "PG_VERSION").exists():
            self._initialize()
        self._forget_former()
        servers.with_free_port(self._begin, self._output)
        self.start_s = time.monotonic() - began

    def _begin(self, port: int) -> None:
        self.address = (
            f"host=127.0.0.1 port={port} user={USER} passfile='{_quoted(self._password)}' "
            "sslmode=disable gssencmode=disable connect_timeout=10"
        )
        fsync = "off" if self._durability == "os" else "on"
        self._words = _settings({"port": str(port), "fsync": fsync})
        self._process = self._start("postgres", *self._words)
        try:
            self.version = self._wait_ready()
        except BaseException:
            self.close()
            raise

    def pids(self) -> Sequence[int]:
        return (self._process.pid,)

    def close(self) -> None:
        servers.end(self._process, self._ending, _STOP_S)
        self._remove_segment()

    def _initialize(self) -> None:
        """Makes the database cluster, with a password of its own."""
        password = secrets.token_hex(16)
        self._password.touch(0o600)
        self._password.write_text(f"127.0.0.1:*:*:{USER}:{password}\n")
        with TemporaryFile(dir=self._password.parent) as secret:
            secret.write(password.encode())
            secret.flush()
            if self._user is not None:
                os.chown(secret.fileno(), pwd.getpwnam(self._user).pw_uid, -1)
            os.lseek(secret.fileno(), 0, os.SEEK_SET)  # where /dev/fd shares the position
            made = self._start(
                "initdb",
                *("--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C"),
                *(f"--username={USER}", "--auth=scram-sha-256"),
                f"--pwfile=/dev/fd/{secret.fileno()}",
                descriptors=(secret.fileno(),),
            )
            try:
                status = made.wait(_READY_S)
            finally:
                servers.end(made, signal.SIGTERM)
        if status:
            raise OSError(f"initdb failed: {self._last_words()}")

    def _start(
        self, program: str, *words: str, descriptors: Sequence[int] = ()
    ) -> "subprocess.Popen[bytes]":
        data = os.open(self._data, os.O_RDONLY | os.O_DIRECTORY)
        path = f"/proc/self/fd/{data}" if self._user is not None else str(self._data.absolute())
        try:
            return servers.start(
                [self._binaries / program, "-D", path, *words],
                self._output,
                user=self._user,
                environment={"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)},
                descriptors=(data, *descriptors),
                dying=signal.SIGQUIT,
            )
        finally:
            os.close(data)

    def _forget_former(self) -> None:
        """Lets the server start although a killed one's process id is still taken.

        It may be a zombie, which nobody has reaped, or another process by now. PostgreSQL takes its parent's for a
        former one's, so this process's stands for it. It still checks that none of the former one's children runs.
        """
        file = self._data / "postmaster.pid"
        try:
            former, *rest = file.read_text().splitlines(keepends=True)
            pid = int(former)
        except (OSError, ValueError):
            return  # it has ended in good order
        until = time.monotonic() + _STOP_S
        while _is_postgres(pid) and time.monotonic() < until:
            time.sleep(0.01)  # a large process takes a moment to end
        if not _is_postgres(pid):
            file.write_text("".join((f"{os.getpid()}\n", *rest)))

    def _wait_ready(self) -> str:
        """Waits until a query is answered; returns the server's version."""
        import psycopg

        until = time.monotonic() + _READY_S
        while True:
            try:
                with psycopg.connect(self.address, dbname=POSTGRES) as connection:
                    row = connection.execute("SHOW server_version").fetchone()
                    return str(row[0].split()[0]) if row else ""
            except psycopg.OperationalError as error:
                if self._process.poll() is not None and _IN_USE in self._last_words():
                    self._process = self._start("postgres", *self._words)
                elif self._process.poll() is not None:
                    raise OSError(f"PostgreSQL did not start: {self._last_words()}") from error
                if time.monotonic() > until:
                    raise OSError(f"PostgreSQL does not answer: {error}") from error
            time.sleep(0.02)

    def _last_words(self) -> str:
        """Returns the last line that says why, or else the last one."""
        lines = self._output.read_text(errors="replace").splitlines()
        whys = [line for line in lines if any(word in line for word in ("FATAL", "error:"))]
        return whys[-1] if whys else last_words(self._output)

    def _remove_segment(self) -> None:
        """Removes the System V segment that a killed server left; its number is in the file of its process id."""
        try:
            words = (self._data / "postmaster.pid").read_text().splitlines()[6].split()
        except (OSError, IndexError):
            return  # it ended in good order
        remove = 0  # IPC_RMID
        ctypes.CDLL(None).shmctl(int(words[1]), remove, None)


def _is_postgres(pid: int) -> bool:
    try:
        return is_running(pid) and Path(f"/proc/{pid}/comm").read_text().strip() == "postgres"
    except OSError:
        return False


def _quoted(path: Path) -> str:
    return str(path.absolute()).replace("\\", "\\\\").replace("'", "\\'")


def buffers_mb() -> int:
    """Returns what `shared_buffers` is, which depends on the machine's memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(BUFFERS_MAX_MB, memory // 4 >> 20)


def _settings(more: Mapping[str, str]) -> list[str]:
    settings: dict[str, Any] = {
        "shared_buffers": f"{buffers_mb()}MB",
        **_TUNED,
        **_KEPT_APART,
        **more,
    }
    return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]


def serve(folder: Path, options: Options) -> servers.Server:
    """Starts a server that serves many runs, at the durability of the options."""
    return PostgresqlServer(folder, options.durability, signal.SIGQUIT)
