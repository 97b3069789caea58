"""Counts what the engine's work costs: Python and C calls, entries into another folder, instructions.

    make bench-instructions     a table; other work on the machine does not matter, as no clock is read

    case ─ a child ─▶ sys.setprofile ─▶ rounds, each counted ─▶ the median
         └ valgrind, if there is one ─▶ a child with few rounds, one with many ─▶ the difference of both

With `--against REV` valgrind also counts the same cases over that revision's package, taken out of git, with
the same interpreter; the table then has ratios. A case that the revision cannot run has none.

A call is a Python function that begins on any thread; comprehensions are left out, as newer Pythons call
nothing for them. A C call is one of a built-in function or method. An entry is a call from one top folder of
the package into another. Instructions are those of the process, without the kernel's.

Next: cases.py, the work; bench_transaction.py.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import planstep

from . import cases
from .cases import CALLED, CASES, Calls

Counted: TypeAlias = dict[str, Any]
"""The figures of a case by name; None where there are none."""
_HERE = Path(planstep.__file__).absolute().parents[1]
"""The folder of today's package."""
_REPOSITORY = Path(__file__).resolve().parents[2]
_COLUMNS = (("calls", 8), ("c_calls", 9), ("entries", 9), ("files", 7), ("instructions", 14))


def _run(words: list[str], root: Path) -> "subprocess.CompletedProcess[str]":
    """Runs words with the package in `root`; PYTHONSAFEPATH keeps this folder's names off the path."""
    variables = {"PYTHONPATH": str(root), "PYTHONHASHSEED": "0", "PYTHONSAFEPATH": "1"}
    environment = {**os.environ, **variables}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True)


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """Makes a folder in memory, if the system has such a place, and removes it afterwards."""
    shared = Path("/dev/shm")
    memory = shared if os.access(shared, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="planstep-bench-", dir=memory) as folder:
        yield Path(folder)


def run_case(
    name: str, what: str, *rounds: int, root: Path = _HERE, tool: tuple[str, ...] = ()
) -> Any:
    """Runs cases.py for a case in a process of its own, with the package in `root`; raises if it fails."""
    with memory_folder() as folder:
        words = [sys.executable, cases.__file__, what, name, str(folder), *map(str, rounds)]
        return _run([*tool, *words], root)


def calls_of(name: str) -> Calls:
    """Counts the calls of a case's round in a process of its own."""
    return Calls(**json.loads(run_case(name, "calls").stdout))


def instructions_of(name: str, root: Path = _HERE) -> int | None:
    """Returns the instructions of one piece of the case's work. None where there is no valgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return None
    case = CASES[name]
    run_case(name, "work", case.few, root=root)  # whatever is compiled, is compiled now
    tool = (valgrind, "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
    few, many = (
        _instructions(run_case(name, "work", rounds, root=root, tool=tool).stderr)
        for rounds in (case.few, case.many)
    )
    return (many - few) // ((case.many - case.few) * case.each)


def _instructions(text: str) -> int:
    result = re.search(r"I *refs: *([\d,]+)", text)
    if result is None:
        raise SystemExit(f"valgrind did not say how many instructions there were:\n{text}")
    return int(result[1].replace(",", ""))


@contextlib.contextmanager
def package_of(revision: str) -> Iterator[Path]:
    """Takes a revision out of git; yields the folder of its package, which goes at the end."""
    with tempfile.TemporaryDirectory(prefix="planstep-bench-") as folder:
        archive = Path(folder) / "archive.tar"
        words = ["git", "archive", f"--output={archive}", revision]
        done = subprocess.run(words, cwd=_REPOSITORY, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"git has no {revision}: {done.stderr.strip()}")
        shutil.unpack_archive(archive, folder)
        yield Path(folder) / "engine"


def count(name: str, before: Path | None) -> Counted:
    calls = asdict(calls_of(name)) if name in CALLED else dict.fromkeys(Calls.__annotations__)
    counted: Counted = {**calls, "instructions": instructions_of(name)}
    if before is not None:
        counted["before"] = None
        with contextlib.suppress(subprocess.CalledProcessError):  # what it needs is not there
            counted["before"] = instructions_of(name, before)
        now, then = counted["instructions"], counted["before"]
        counted["ratio"] = None if now is None or then is None else round(now / then, 3)
    return counted


def count_all(names: list[str], against: str | None) -> dict[str, Counted]:
    """Counts all cases, some at the same time: that changes no figure."""
    with (
        contextlib.nullcontext() if against is None else package_of(against) as before,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        counting = [pool.submit(count, name, before) for name in names]
        return {name: one.result() for name, one in zip(names, counting, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-instructions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("cases", nargs="*", metavar="CASE", help="all, if none is named")
    parser.add_argument("--against", metavar="REV", help="a revision of git to compare with")
    parser.add_argument("--json", action="store_true", help="an object for each case")
    options = parser.parse_args()
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    counted = count_all(options.cases or list(CASES), options.against)
    if options.json:
        print(json.dumps(counted))
        return
    columns = [*_COLUMNS, *((("before", 14), ("ratio", 8)) if options.against else ())]
    print(f"{'':22}" + "".join(f"{name.replace('_', ' '):>{wide}}" for name, wide in columns))
    for name, of in counted.items():
        texts = ["-" if of[column] is None else f"{of[column]:,}" for column, _ in columns]
        print(f"{name:22}" + "".join(f"{t:>{w}}" for t, (_, w) in zip(texts, columns, strict=True)))
    if any(of["instructions"] is None for of in counted.values()):
        print("Instructions are counted where valgrind is installed.")


if __name__ == "__main__":
    main()
