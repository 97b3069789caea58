"""Row `shared-flip`: damages objects of shared logs; each damage must be found and named, or change nothing.

    3 logs (whole, trimmed, with snapshots and runs) × 1,000 damages ─▶ opened, each in a process of its own,
    by a machine whose folder is empty, of yesterday, or up to date ─▶ ../disks/shared_verdict.py

An error counts if it is one of ours and names the slot. A machine that does not need the damaged turn opens, and
shows what it showed before: `harmless`.

The controls leave the checksums out, and the chain.

Left out: turns that are gone at the log's end, which nobody can miss but a folder that has them.

Next: ../disks/shared_damage.py.
"""

import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ....shared import entry, root, runs
from ....shared.owner import Ownership
from ..disks.forked import apart
from ..disks.shared_damage import draw
from ..disks.shared_verdict import Sample, Verdict, judge, make
from ..parallel import gather
from ..patching import exchange
from .registry import RowOptions, RowResult

SHARES = {"flip": 600, "cut": 100, "gone": 80, "exchanged": 80, "foreign": 70, "rewritten": 70}
_PIECE, _CONTROLLED = 25, 24
_SECONDS = 60.0
_MISSED, _LATE = "it shows other content", "an error without the place"


class _Task(NamedTuple):
    folder: Path
    samples: list[Sample]
    foreign: Sample
    numbers: list[tuple[str, int]]
    seed: int
    blind: str


def run(options: RowOptions) -> RowResult:
    whole = sum(SHARES.values())
    total = options.of(whole)
    return _run(
        options,
        "",
        [
            (kind, number)
            for kind, share in SHARES.items()
            for number in range(max(1, round(share * total / whole)))
        ],
    )


def control(options: RowOptions) -> RowResult:
    """Leaves out the checksums, then the chain: the first finds damage at the next turn only, or never."""
    result = RowResult(seeds=(options.seed, options.seed))
    for blind, kind, words in (
        ("crc", "flip", (_MISSED, _LATE)),
        ("chain", "rewritten", (_MISSED,)),
    ):
        numbers = [(kind, number) for number in range(options.runs or _CONTROLLED)]
        one = _run(options, blind, numbers).planted(*words)
        if not one.violations:
            return one
        result.add(one)
    return result


def _run(options: RowOptions, blind: str, numbers: list[tuple[str, int]]) -> RowResult:
    home = options.memory / f"shared-flip-{blind}"
    samples = _made(home / "sample", blind)
    foreign, *_ = _made(home / "foreign", blind)
    tasks = [
        _Task(
            *(home / f"{n}", samples, foreign),
            *(numbers[n : n + _PIECE], options.seed, blind),
        )
        for n in range(0, len(numbers), _PIECE)
    ]
    result = gather(options, _judge, tasks)
    result.figures = dict(sorted(result.figures.items()))
    return result


def _made(folder: Path, blind: str) -> list[Sample]:
    ended = apart(partial(_make, blind), folder, _SECONDS)
    if ended.why:
        raise AssertionError(f"a shared log could not be made: {ended.why}")
    samples: list[Sample] = ended.value
    return samples


def _make(blind: str, folder: Path) -> list[Sample]:
    _BLIND[blind]()
    return make(folder)


def _judge(task: _Task) -> RowResult:
    result, ends = RowResult(len(task.numbers)), Counter[str]()
    for kind, number in task.numbers:
        ended = apart(partial(_judged, task, kind, number), task.folder, _SECONDS)
        verdict: Verdict
        verdict, where = ended.value or (Verdict("wrong", ended.why), f"{kind} {number}")
        result.faults[kind] += 1
        ends[verdict.end] += 1
        result.must(verdict.end != "wrong", f"{where}: {verdict.why}")
    shutil.rmtree(task.folder, ignore_errors=True)
    result.figures = dict(ends)
    return result


def _judged(task: _Task, kind: str, number: int, folder: Path) -> tuple[Verdict, str]:
    _BLIND[task.blind]()
    round_, at = divmod(number, len(task.samples))
    sample = task.samples[at]
    which = [*sample.folders][round_ % len(sample.folders)]
    damage = draw(kind, number, task.seed, sample.objects, task.foreign.objects)
    verdict = judge(folder, sample, which, damage)
    return verdict, f"{sample.name}, folder {which}; {', '.join(damage.objects)}: {damage.what}"


def _without_crc() -> None:
    for module in (entry, root, runs):
        exchange(module, "crc32", lambda data, value=0: 0)


def _without_chain() -> None:
    really: Any = Ownership.__dict__["_check"]

    def check(self: Any, found: entry.Entry) -> None:
        really(self, found._replace(before=self.last.chain))

    exchange(Ownership, "_check", check)


_BLIND = {"": lambda: None, "crc": _without_crc, "chain": _without_chain}
