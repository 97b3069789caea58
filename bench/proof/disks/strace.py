"""Records every write and sync of a workload through strace, LMDB's own included, for ../rows/powerloss.py.

    strace ─▶ child: steps.py over the engine's own files ─▶ calls, and the workload's events, in the file `said`
       └▶ lines ─▶ events, as recorder.py has them ─▶ images.py

The workload is a story: a list of users' steps, drawn from a seed (scripts.py). strace must be installed and
allowed to attach. Calls of several threads are listed as they end; until then the data of a sync is in
doubt. LMDB's mapped lock file, the owner's mark and leases are left out, since their processes end with the power.

Next: images.py, which makes disks from the events.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ....api.open_engine import Durability
from ....store.files import Files
from ...children import call
from .engines import open_engine
from .recorder import Event, Trace
from .scripts import story
from .steps import Player

SAID = "said"
_CALLS = (
    "openat,close,lseek,write,writev,pwrite64,pwritev,pwritev2,fdatasync,fsync,ftruncate,fallocate,rename,"
    "renameat,renameat2,unlink,unlinkat,mkdir,mkdirat"
)
_OURS = re.compile(r"(log-|data-)\d{8}-\d{8}|(meta|data|spare|reserve)(\.\w+)?")
_LINE = re.compile(r"(\d+) +(.*)")
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)(.*)", re.DOTALL)
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)", re.DOTALL)
_HEX = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_PATH = re.compile(r'(?:(?:\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2}|[^>])*)>, )?"((?:\\x[0-9a-f]{2})*)"')
_THROUGH = re.compile(r"/proc/self/fd/(\d+)(.*)")
_FD = re.compile(r"^(\d+)<((?:\\x[0-9a-f]{2}|[^>])*)>")
_OPENED = re.compile(r"<((?:\\x[0-9a-f]{2}|[^>])*)>")
_SECONDS = 60


def child(root: str, seed: str, durability: Durability, hosts: str) -> None:
    """Plays the story below strace."""
    fd = os.open(Path(root) / SAID, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def say(event: Event) -> None:
        os.write(fd, json.dumps(event).encode())

    path = Path(root) / "s"
    opened = partial(open_engine, path, Files(), hosts=int(hosts), durability=durability)
    Player(path, opened, say).play(story(int(seed), "deterministic"))


def available() -> str | None:
    """Returns None if strace works, else why not."""
    program = shutil.which("strace")
    if program is None:
        return "strace is not installed"
    tried = subprocess.run([program, "-o", os.devnull, "true"], capture_output=True, text=True)
    return None if tried.returncode == 0 else "strace may not attach to processes"


def record(root: Path, seed: int, durability: Durability, hosts: int) -> Trace:
    """Plays one story below `root`; returns its events."""
    root.mkdir(parents=True)
    lines = root / "calls"
    options = f"-f -y -xx -s {1 << 24} --seccomp-bpf -e trace={_CALLS}".split()
    program = call(child, root, seed, durability, hosts)
    words = ["strace", *options, "-o", str(lines), *program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        raise RuntimeError(f"the story, seed {seed}, ended with {done.returncode}: {done.stderr}")
    with lines.open() as text:
        return list(Reading(root).events(text))


class _Arguments(NamedTuple):
    whole: str
    text: str
    fd: int
    path: str
    strings: list[bytes]
    numbers: list[int]


class Reading:
    """Translates strace's lines to events. Invariant: `known` are the files and folders that exist."""

    def __init__(self, root: Path) -> None:
        self.root = os.fspath(root) + "/"
        self.known: dict[str, int] = {}  # name → size; -1: a folder
        self.durable: dict[int, bool] = {}  # descriptor → opened with O_DSYNC
        self.at: dict[int, int] = {}  # descriptor → where it writes next
        self.folders: dict[int, str] = {}  # descriptor → what it was opened for
        self._begun: dict[str, str] = {}
        self._of_names: dict[str, Callable[[_Arguments, int], Iterator[Event]]] = {
            "openat": self._open,
            **dict.fromkeys(("rename", "renameat", "renameat2"), self._rename),
            **dict.fromkeys(("unlink", "unlinkat"), self._remove),
            **dict.fromkeys(("mkdir", "mkdirat"), self._make_folder),
        }

    def events(self, lines: Iterable[str]) -> Iterator[Event]:
        for line in lines:
            match = _LINE.match(line.rstrip("\n"))
            if match is None:
                continue
            thread, text = match.groups()
            if text.endswith("<unfinished ...>"):
                self._begun[thread] = text.removesuffix("<unfinished ...>").rstrip()
                continue
            if resumed := _RESUMED.match(text):
                text = self._begun.pop(thread) + resumed.group(2)
            call = _CALL.match(text)
            if call is None or call.group(3) == "-1":
                continue
            result, opened = int(call.group(3)), _OPENED.match(call.group(4))
            if opened is not None:
                self.folders[result] = _text(opened.group(1))
            yield from self._of(call.group(1), _arguments(call.group(2)), result)

    def _paths(self, arguments: _Arguments) -> list[str]:
        """Returns the paths that a call names, resolved in the folder of a descriptor or through a descriptor."""
        paths = []
        for folder, name in _PATH.findall(arguments.whole):
            path = os.path.join(_text(folder), _text(name))
            if through := _THROUGH.fullmatch(path):
                path = self.folders[int(through.group(1))] + through.group(2)
            paths.append(path)
        return paths

    def _name(self, path: str) -> str | None:
        """Returns the path relative to the root; None for a file that is not the store's."""
        if not path.startswith(self.root):
            return None
        name = path.removeprefix(self.root)
        return name if _OURS.fullmatch(name.rsplit("/", 1)[-1]) else None

    def _of(self, call: str, arguments: _Arguments, result: int) -> Iterator[Event]:
        if call in self._of_names:
            yield from self._of_names[call](arguments, result)
        elif arguments.path == self.root + SAID:
            if call == "write":
                yield tuple(json.loads(arguments.strings[0]))
        elif call in ("fsync", "fdatasync"):
            yield from self._sync(arguments)
        elif call == "lseek":
            self.at[arguments.fd] = result
        elif (name := self._name(arguments.path)) is not None:
            yield from self._change(call, name, arguments)

    def _rename(self, arguments: _Arguments, result: int) -> Iterator[Event]:
        source, target = map(self._name, self._paths(arguments))
        if source is not None and target is not None:
            self.known[target] = self.known.pop(source)
            yield ("rename", source, target)

    def _remove(self, arguments: _Arguments, result: int) -> Iterator[Event]:
        name = self._name(self._paths(arguments)[0])
        if name is not None and self.known.pop(name, None) is not None:
            yield ("remove", name)

    def _make_folder(self, arguments: _Arguments, result: int) -> Iterator[Event]:
        path = self._paths(arguments)[0]
        if path.startswith(self.root) and not path.endswith("/leases"):
            name = path.removeprefix(self.root)
            self.known[name] = -1
            yield ("folder", name)

    def _sync(self, arguments: _Arguments) -> Iterator[Event]:
        folder = (arguments.path + "/").removeprefix(self.root).rstrip("/")
        name = self._name(arguments.path)
        if name is not None and self.known.get(name, -1) >= 0:
            yield ("sync", name)
        elif arguments.path + "/" == self.root or self.known.get(folder) == -1:
            yield ("sync_folder", folder)

    def _open(self, arguments: _Arguments, fd: int) -> Iterator[Event]:
        path = self._paths(arguments)[0]
        self.durable[fd] = "O_DSYNC" in arguments.text
        self.at[fd] = 0
        name = self._name(path)
        if name is not None and "O_CREAT" in arguments.text and name not in self.known:
            self.known[name] = 0
            yield ("create", name, 0)

    def _change(self, call: str, name: str, arguments: _Arguments) -> Iterator[Event]:
        numbers, size = arguments.numbers, self.known[name]
        if call in ("fallocate", "ftruncate"):
            end = numbers[-1] if call == "ftruncate" else max(size, sum(numbers[-2:]))
            self.known[name] = end
            if end < size:
                yield ("shrink", name, end)
            elif end > size:
                yield ("write", name, size, bytes(end - size))
        elif call in ("write", "writev", "pwrite64", "pwritev", "pwritev2"):
            data = b"".join(arguments.strings)
            durable = self.durable[arguments.fd] or arguments.text.endswith("DSYNC")
            if call in ("write", "writev"):
                offset = self.at[arguments.fd]
                self.at[arguments.fd] = offset + len(data)
            else:  # pwritev2 has flags after the offset, as a name or as 0
                offset = numbers[-2 if call == "pwritev2" and not durable else -1]
            self.known[name] = max(size, offset + len(data))
            yield ("write", name, offset, data)
            if durable:
                yield ("flush", name, offset, len(data))


def _arguments(text: str) -> _Arguments:
    match = _FD.match(text)
    fd, path = (int(match.group(1)), _text(match.group(2))) if match is not None else (-1, "")
    strings = [bytes.fromhex(data.replace("\\x", "")) for data in _HEX.findall(text)]
    rest = _HEX.sub("", text)
    numbers = [int(n) for n in re.findall(r"(?:^|[ ,])(\d+)(?=,|$)", rest)]
    return _Arguments(text, rest, fd, path, strings, numbers)


def _text(hexed: str) -> str:
    return bytes.fromhex(hexed.replace("\\x", "")).decode() if "\\x" in hexed else hexed
