"""Row `cover`: measures the lines and branches that the tests take, of the cores and of the whole package.

    tests/…  ─┬─▶ a process with coverage.py, and all that it starts ─┐
    tests/…  ─┴─▶ another one at the same time                       ─┴▶ data ─▶ by folder ─▶ cores, package

Quick: the cores only, by the tests that drive them. It needs a checkout, as tests/ is not installed. Coverage
shows code that no test runs; it does not show that tests check anything. Row `mutants` does.

Not counted: generated code, benchmarks, notebooks (a kernel runs these), code for type checkers only, and
our own assertions, which nothing can reach.

Negative control: tests that do nothing.

Next: ../../../../tests/tablets/test_partition.py, the cores by themselves.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ...children import Child, Children, end_group, last_words, module
from .registry import RowOptions, RowResult

CORES = ("tablets", "coordinator", "proxy")
CORES_PERCENT, PACKAGE_PERCENT = 98.0, 90.0
_OF_SHARES = ("claims", "lane_shares", "unanswered")
QUICK = (
    ("tests/kafka", *(f"--ignore=tests/kafka/test_{name}.py" for name in ("face", "face_room"))),
    ("tests/tablets", "tests/sim", "tests/protocol", "tests/operations/test_entries.py"),
    ("tests/pulsar", *(f"tests/processes/test_{name}.py" for name in _OF_SHARES)),
)
"""The tests that cover most of the cores for their time."""
_NOT_MEASURED = tuple(
    f"--deselect=tests/proof/test_oom.py::test_{name}"
    for name in (
        "an_allocation_that_fails",
        "the_allocations_of_an_action_are_counted",
        "a_wrong_acknowledgement_is_caught",
        "what_a_store_says_of_itself_is_read_without_memory_or_not_at_all",
    )
)
"""These tests count allocations, and coverage allocates."""
FULL = (
    ("tests/compare", "tests/judges", "tests/report", "tests/micro"),
    ("tests/cli",),
    ("tests/spark",),
    ("tests/store", "tests/kafka", "tests/pulsar", "tests/protocol", "tests/golden", "tests/proto"),
    ("tests/api", "tests/tablets", "tests/sim", "tests/aio"),
    ("tests/reshard", "tests/operations", "tests/arrow", "tests/processes"),
    ("tests/proof", *_NOT_MEASURED),
)
"""The longest first: two run at a time."""
_PATIENCE_S = 1800.0
_LOOK_S = 0.1
_SETTINGS = """\
[run]
branch = true
parallel = true
patch = subprocess, fork, _exit
plugins = coverage_unlocked
data_file = {data}
source =
    {sources}
omit =
    */bench/bench_*.py
    */bench/conftest.py
    */bench/notebooks/0*.py
    *_pb2.py
[report]
exclude_also =
    if TYPE_CHECKING:
    @overload
    @abstractmethod
    raise AssertionError
"""
_FOLDERS = ("tablets", "coordinator", "proxy", "proto", "bench", "engine")
_PYTEST = """\
import sys, pytest
if __name__ == "__main__":  # a process that multiprocessing spawned reads this file too
    sys.exit(pytest.main(sys.argv[1:]))
"""
_UNLOCKED = """\
from coverage.collector import Collector

def coverage_init(registry, options):
    Collector.lock_data = Collector.unlock_data = lambda self: None
"""
"""Removes coverage's lock: Ctrl-C between its lock and unlock hangs every thread at its next new file, and tests
interrupt. The lock guards one entry of a dictionary, for which the interpreter's lock is enough.
"""


class Counted(NamedTuple):
    statements: int = 0
    taken: int = 0
    branches: int = 0
    branches_taken: int = 0

    @property
    def percent(self) -> float:
        """Percentage of statements and branches together, as in coverage.py."""
        all_ = self.statements + self.branches
        return round(100 * (self.taken + self.branches_taken) / all_, 2) if all_ else 0.0

    @property
    def branch_percent(self) -> float:
        return round(100 * self.branches_taken / self.branches, 2) if self.branches else 0.0


def run(options: RowOptions) -> RowResult:
    return measure(options, QUICK if options.quick else FULL, whole=not options.quick)


def control(options: RowOptions) -> RowResult:
    nothing = options.folder / "test_nothing.py"
    nothing.write_text("def test_nothing() -> None:\n    assert True\n")
    result = measure(options, ((os.fspath(nothing),),), whole=False)
    return result if result.skipped else result.planted("the cores: 0.0 %")


def measure(options: RowOptions, groups: Sequence[tuple[str, ...]], whole: bool) -> RowResult:
    """Runs the groups and compares the coverage; with `whole` the package has to reach its figure too."""
    result = RowResult()
    root = _checkout()
    if root is None:
        result.skipped = "tests/ is not beside the package: coverage is a matter of a checkout"
        return result
    for name in ("coverage", "pytest"):
        if find_spec(name) is None:
            result.skipped = f"{name} is not installed: pip install --group dev"
            return result
    settings = options.folder / "coveragerc"
    data = options.folder / "data" / "coverage"
    data.parent.mkdir()
    measured = _FOLDERS if whole else CORES
    sources = "\n    ".join(os.fspath(root / name) for name in measured)
    settings.write_text(_SETTINGS.format(data=data, sources=sources))
    (options.folder / "runs_pytest.py").write_text(_PYTEST)
    (options.folder / "coverage_unlocked.py").write_text(_UNLOCKED)
    _run(options, root, settings, groups, result)
    counted = _count(options, root, settings)
    cores = sum_of(counted, CORES)
    package = sum_of(counted, measured)
    result.events = package.statements + package.branches
    _must_reach(result, "cores", cores, CORES_PERCENT)
    if whole:
        _must_reach(result, "package", package, PACKAGE_PERCENT)
    result.figures |= {f"{name}_percent": counted[name].percent for name in sorted(counted)}
    return result


def _must_reach(result: RowResult, what: str, counted: Counted, percent: float) -> None:
    result.figures[f"{what}_percent"] = counted.percent
    result.figures[f"{what}_branch_percent"] = counted.branch_percent
    result.must(
        min(counted.percent, counted.branch_percent) >= percent,
        f"the {what}: {counted.percent} % of lines and branches, {counted.branch_percent} % of branches alone are "
        f"covered: {percent} % are to be reached",
    )


def total(counts: Iterable[Counted]) -> Counted:
    return Counted(*map(sum, zip(*counts, strict=True)))


def sum_of(counted: dict[str, Counted], names: Sequence[str]) -> Counted:
    """Sums up all folders that are one of `names` or lie in one."""
    return total(one for folder, one in counted.items() if folder.split("/")[0] in names)


def _checkout() -> Path | None:
    """Returns the folder of pyproject.toml and tests/, if this package lies in one."""
    root = Path(__file__).resolve().parents[3]
    there = (root / "pyproject.toml").is_file() and (root / "tests" / "tablets").is_dir()
    return root if there else None


# tests ------------------------------------------------------------------------------------------


def _run(
    options: RowOptions,
    root: Path,
    settings: Path,
    groups: Sequence[tuple[str, ...]],
    result: RowResult,
) -> None:
    """Runs `options.workers` groups at a time. A failed test is a violation: it left lines unmeasured."""
    own = os.fspath(root / "engine"), os.fspath(options.folder)
    paths = [*own, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    words = module("coverage", "run", f"--rcfile={settings}", options.folder / "runs_pytest.py")
    words += ["-q", "-p", "no:cacheprovider"]
    waiting = list(enumerate(groups))
    running: list[tuple[str, Path, Child, float]] = []
    with Children() as children:
        while waiting or running:
            while waiting and len(running) < max(1, options.workers):
                number, group = waiting.pop(0)
                output = options.folder / f"said-{number}"
                with output.open("wb") as stream:
                    child = children.start(
                        [*words, f"--basetemp={options.folder / f'tests-{number}'}", *group],
                        cwd=root,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=stream,
                        stderr=stream,
                    )
                running.append((group[0], output, child, time.monotonic()))
            time.sleep(_LOOK_S)
            for one in list(running):
                name, output, child, began = one
                late = time.monotonic() - began > _PATIENCE_S
                if child.poll() is not None or late:
                    end_group(child)
                    running.remove(one)
                    options.tell(f"{name}: {last_words(output)}")
                    _record_end(output, name, child.returncode, late, result)


def _record_end(output: Path, what: str, status: int, late: bool, result: RowResult) -> None:
    text = output.read_text(errors="replace")
    result.runs += sum(int(passed) for passed in re.findall(r"(\d+) passed", text)[-1:])
    if late:
        result.violations.append(f"{what} had not ended after {_PATIENCE_S:.0f} s")
    elif status:
        failed = [line for line in text.splitlines() if line.startswith(("FAILED", "ERROR"))]
        why = "; ".join(failed[:5]) or last_words(output)
        result.violations.append(f"{what} ended with status {status}: {why}")


# the result -------------------------------------------------------------------------------------


def _count(options: RowOptions, root: Path, settings: Path) -> dict[str, Counted]:
    """Returns the counts by folder, such as "tablets" and "engine/planstep/store"."""
    from coverage import Coverage

    report = options.folder / "coverage.json"
    measured = Coverage(config_file=os.fspath(settings), data_suffix=False)
    measured.set_option("run:plugins", [])  # this process measures nothing itself
    measured.combine([os.fspath(options.folder / "data")])
    measured.json_report(outfile=os.fspath(report))
    by_folder: dict[str, Counted] = {}
    for name, one in json.loads(report.read_text())["files"].items():
        path = Path(name) if Path(name).is_absolute() else Path.cwd() / name
        folder = path.resolve().relative_to(root).parent.as_posix()
        summary = one["summary"]
        counts = Counted(
            summary["num_statements"],
            summary["covered_lines"],
            summary.get("num_branches", 0),
            summary.get("covered_branches", 0),
        )
        by_folder[folder] = total([by_folder.get(folder, Counted()), counts])
    return by_folder
