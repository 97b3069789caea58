"""Row `bitflip`: changes bytes of stores at rest; each change must be detected, or have no visible effect.

    18 stores (all modes, 1 and 2 hosts, closed, killed, killed while closing)
        × 3,000 flips, 500 stale, zeroed, exchanged pages and files, 200 truncations
        ─▶ verified, read, opened, each copy in a process of its own ─▶ ../disks/verdict.py

The figures distinguish: `refused` at opening or reading; `named` by `planstep verify` only (an older page of
the tables, in which each value has its checksum; any other damage must be refused); `unseen` (the visible
content is unchanged). Nothing in a store can show that all of it is an older copy.

The control removes the checksums and digests.

Next: ../disks/sample.py.
"""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from planstep.proto import batch
from planstep.store.log import compaction, records
from planstep.store.tables import checksums

from ..disks.contents import Contents
from ..disks.damage import Damage, draw
from ..disks.forked import apart
from ..disks.sample import KINDS, Sample, make, quickly
from ..disks.verdict import Looks, Verdict, judged, look
from ..parallel import gather
from ..patching import exchange
from .registry import RowOptions, RowResult

FLIPS, PAGES, FILES, TRUNCATED = 3_000, 350, 150, 200
_PIECE = 25
_SECONDS = 20.0


@dataclass(frozen=True)
class _Task:
    folder: Path
    samples: list[tuple[Sample, Contents]]
    numbers: list[tuple[str, int]]
    seed: int
    blind: bool


def run(options: RowOptions) -> RowResult:
    return _run(options, blind=False)


def control(options: RowOptions) -> RowResult:
    """Judges the same copies without checksums and digests: it must show misses."""
    result = _run(options, blind=True)
    missed = int(result.figures.get("wrong", 0))
    least = 1_000 * result.runs // (FLIPS + PAGES + FILES + TRUNCATED)
    if missed <= least:
        return RowResult(result.runs, figures={**result.figures, "misses_expected": least})
    return result


def _run(options: RowOptions, blind: bool) -> RowResult:
    shares = {"flip": FLIPS, "page": PAGES, "file": FILES, "truncated": TRUNCATED}
    total = options.of(sum(shares.values()))
    samples = list(_samples(options, blind))
    numbers = [
        (kind, number)
        for kind, figure in shares.items()
        for number in range(max(1, round(figure * total / sum(shares.values()))))
    ]
    pieces = [
        _Task(options.memory / f"{n}", samples, numbers[n : n + _PIECE], options.seed, blind)
        for n in range(0, len(numbers), _PIECE)
    ]
    result = gather(options, _judge, pieces)
    result.figures = dict(sorted(result.figures.items()))
    return result


def _samples(options: RowOptions, blind: bool) -> Iterator[tuple[Sample, Contents]]:
    folder = options.memory / "samples"
    for kind in KINDS:
        options.tell(f"making a store: {kind}")
        sample = make(kind, folder, options.seed, _blinded if blind else quickly)
        store = folder / f"whole {kind}"
        sample.planted(store)
        ended = apart(partial(_whole, blind), store)
        looks = ended.value
        if ended.why or looks.problems or looks.refused or looks.untyped:
            raise AssertionError(
                f"{kind}: an undamaged copy is not well: {ended.why} {looks}"[:2000]
            )
        reader, *others = looks.shown.values()
        assert [reader] * 2 == others, f"{kind}: those who look at an undamaged copy differ"
        yield sample, reader


def _whole(blind: bool, store: Path) -> Looks:
    (_blinded if blind else quickly)()
    return look(store)


def _judge(task: _Task) -> RowResult:
    work: Any = _judged_blind if task.blind else judged
    result, ends = RowResult(len(task.numbers)), Counter[str]()
    plain = [sample for sample, _ in task.samples]
    task.folder.mkdir(parents=True, exist_ok=True)
    for kind, number in task.numbers:
        damage = draw(plain, kind, number, task.seed)
        sample, whole = task.samples[damage.sample]
        began = time.monotonic()
        ended = apart(work, (sample, whole, damage, task.folder), _SECONDS)
        verdict: Verdict = ended.value
        if ended.why:
            after = f" after {time.monotonic() - began:.1f} s"
            verdict = Verdict("wrong", why=ended.why + after)
        result.faults[damage.kind] += 1
        ends[verdict.end] += 1
        if verdict.end in ("refused", "named"):
            ends[f"seen by {verdict.who}"] += 1
        result.must(verdict.end != "wrong", f"{sample.kind}; {damage.what}: {verdict.why}")
    result.figures = {name.replace(" ", "_"): count for name, count in ends.items()}
    return result


def _blinded() -> None:
    """Makes every checksum 0, and so every digest, when written and when compared, in a child."""
    quickly()
    for module in (records, compaction, batch, checksums):
        exchange(module, "crc32", lambda data, value=0: 0)


def _judged_blind(task: tuple[Sample, Contents, Damage, Path]) -> Verdict:
    _blinded()
    return judged(task)
