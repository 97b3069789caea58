"""Counts what one commit of one record costs: Python calls, entries into another folder, instructions.

    make bench-instructions     a table; other work on the machine does not matter, as no clock is read

    parent ─ a child for each mode ─▶ profile set ─▶ open ─▶ warm up ─▶ commits, each counted ─▶ the median
           └ valgrind, if there is one ─▶ a child with few commits, one with many ─▶ the difference of both

A call is a Python function that begins on any thread while `commit()` runs; comprehensions are left out, as newer
Pythons call nothing for them. An entry is a call from one top folder of the package into another. Instructions
are those of the process, without the kernel's.

Next: bench/micro/bench_transaction.py.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, get_args

import planstep
from planstep.api.open_engine import Mode
from planstep.store import files
from planstep.store.tables import table

from ..children import call, environment
from ..proof.patching import exchange

MODES: tuple[Mode, ...] = get_args(Mode)
_PACKAGE = os.path.dirname(planstep.__file__) + os.sep
_COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}
_WARM, _COUNTED = 100, 100
_FEW, _MANY = 200, 600
_ROOT = "planstep"


@dataclass(frozen=True)
class Calls:
    """Medians for one commit; `files` counts the package's files that it calls into."""

    calls: int
    entries: int
    files: int


class _Profile:
    """A profile function for `sys.setprofile`, which counts while `counts` is set."""

    def __init__(self) -> None:
        self.counts = False
        self._folders: dict[str, str | None] = {}
        self.begin()

    def begin(self) -> None:
        self.calls = self.entries = 0
        self.files: set[str] = set()

    def _folder(self, file: str) -> str | None:
        """Returns the file's top folder in the package; None outside of it."""
        if file not in self._folders:
            top, below, _ = file.removeprefix(_PACKAGE).partition(os.sep)
            inside = file.startswith(_PACKAGE)
            self._folders[file] = (top if below else _ROOT) if inside else None
        return self._folders[file]

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.counts or event != "call" or frame.f_code.co_name in _COMPREHENSIONS:
            return
        self.calls += 1
        folder = self._folder(frame.f_code.co_filename)
        if folder is None:
            return
        self.files.add(frame.f_code.co_filename)
        caller = frame.f_back
        while caller is not None:
            of_caller = self._folder(caller.f_code.co_filename)
            if of_caller is not None:
                self.entries += of_caller != folder
                return
            caller = caller.f_back


def count_calls(mode: Mode, folder: Path) -> Calls:
    """Opens a store in `folder`, and counts calls. No other profile may be set on the thread."""
    profile = _Profile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        with planstep.open(folder / "s", mode=mode) as db:
            db.create_topic("t")
            counted = []
            for _ in range(_WARM + _COUNTED):
                tx = db.transaction()
                tx.write("t", b"x")
                profile.begin()
                profile.counts = True
                tx.commit()
                profile.counts = False
                counted.append((profile.calls, profile.entries, len(profile.files)))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    medians = [round(statistics.median(each)) for each in zip(*counted[_WARM:], strict=True)]
    return Calls(*medians)


def print_calls(mode: Mode) -> None:
    with tempfile.TemporaryDirectory(prefix="planstep-bench-") as folder:
        print(json.dumps(asdict(count_calls(mode, Path(folder)))))


def work(mode: Mode, commits: str) -> None:
    """Commits under valgrind, which supports neither writes that sync nor a memory map of a terabyte."""
    exchange(files, "_DSYNC", 0)
    exchange(table, "_MAP_BYTES", 1 << 28)
    with (
        tempfile.TemporaryDirectory(prefix="planstep-bench-") as folder,
        planstep.open(Path(folder) / "s", mode=mode) as db,
    ):
        db.create_topic("t")
        for _ in range(_WARM + int(commits)):
            with db.transaction() as tx:
                tx.write("t", b"x")


def count_instructions(mode: Mode) -> int | None:
    """Returns the instructions of one transaction: begin, write, commit. None where there is no valgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return None
    few, many = (_instructions(valgrind, mode, commits) for commits in (_FEW, _MANY))
    return (many - few) // (_MANY - _FEW)


def _instructions(valgrind: str, mode: Mode, commits: int) -> int:
    tool = [valgrind, "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    output = _run([*tool, *call(work, mode, commits)]).stderr
    match = re.search(r"I *refs: *([\d,]+)", output)
    if match is None:
        raise SystemExit(f"valgrind did not say how many instructions there were:\n{output}")
    return int(match[1].replace(",", ""))


def _run(words: list[str]) -> "subprocess.CompletedProcess[str]":
    variables = environment() | {"PYTHONHASHSEED": "0"}
    return subprocess.run(words, env=variables, capture_output=True, text=True, check=True)


def calls_of(mode: Mode) -> Calls:
    """Runs `count_calls` in a process of its own."""
    return Calls(**json.loads(_run(call(print_calls, mode)).stdout))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-instructions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", action="store_true", help="an object for each mode")
    options = parser.parse_args()
    counted = {
        mode: {**asdict(calls_of(mode)), "instructions": count_instructions(mode)} for mode in MODES
    }
    if options.json:
        print(json.dumps(counted))
        return
    print(f"{'':15}{'calls':>8}{'entries':>9}{'files':>7}{'instructions':>14}")
    for mode, of in counted.items():
        instructions = of["instructions"]
        print(
            f"{mode:15}{of['calls']:>8,}{of['entries']:>9,}{of['files']:>7}"
            f"{'-' if instructions is None else f'{instructions:,}':>14}"
        )
    if any(of["instructions"] is None for of in counted.values()):
        print("Instructions are counted where valgrind is installed.")


if __name__ == "__main__":
    main()
