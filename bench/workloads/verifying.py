"""What workloads hold a store against, once it is closed and opened again to look only.

Next: ../check/__init__.py.
"""

from collections.abc import Sequence

from ..trace import TOPIC, identities
from .base import Run, Verdict

_SHOWN = 5


def collect(run: Run, topic: str, partitions: int) -> int:
    """Reads a topic's records into the trace; how many there are."""
    before = len(run.trace.records)
    for partition in range(partitions):
        lane = run.trace.lane(TOPIC, topic, partition)
        for taken in run.system.records(topic, partition):
            run.trace.records.add(lane, taken.offsets, taken.values)
    return len(run.trace.records) - before


def passed_on(
    run: Run,
    source: str,
    target: str,
    consumer: str,
    counts: Sequence[int],
    partitions: int | None = None,
) -> Verdict:
    """Each record of `source` that was consumed is in `target` once, in the order of its partition, and what is
    consumed is what the positions say. Both have `partitions`, if not as many as there are counts."""
    partitions = partitions or len(counts)
    consumed = [  # a position may be beyond the records there are: offsets have gaps in mode kafka
        min(run.system.position(source, consumer, partition), counts[partition])
        for partition in range(partitions)
    ]
    return _once(run, source, target, consumed, partitions)


def written_whole(
    run: Run, target: str, counts: Sequence[int], partitions: int | None = None
) -> Verdict:
    """Of each source the records [0, count) are in `target` once, in order."""
    return _once(run, "source", target, counts, partitions or run.shape.partitions)


def _once(run: Run, source: str, target: str, counts: Sequence[int], partitions: int) -> Verdict:
    """Records [0, count) of each source, and no others, once each; those of one source in order."""
    verdict = Verdict()
    seen = [bytearray(count) for count in counts]
    for partition in range(partitions):
        last: dict[int, int] = {}
        lane = run.trace.lane(TOPIC, target, partition)
        for taken in run.system.records(target, partition):
            verdict.records += len(taken.values)
            run.trace.records.add(lane, taken.offsets, taken.values)
            sources, ordinals, _ = identities(taken.values)
            for origin, ordinal in zip(sources, ordinals, strict=True):
                if not 0 <= origin < len(seen) or not 0 <= ordinal < len(seen[origin]):
                    verdict.violations["foreign"] = verdict.violations.get("foreign", 0) + 1
                    _tell(verdict, f"{target}/{partition} has record {origin}/{ordinal} of nobody")
                elif seen[origin][ordinal]:
                    verdict.duplicated += 1
                    _tell(verdict, f"{source}/{origin} record {ordinal} is in {target} again")
                else:
                    seen[origin][ordinal] = 1
                    if ordinal < last.get(origin, -1):
                        verdict.out_of_order += 1
                        _tell(verdict, f"{source}/{origin} record {ordinal} is behind later ones")
                    last[origin] = ordinal
    for origin, found in enumerate(seen):
        if missing := found.count(0):
            verdict.missing += missing
            _tell(verdict, f"{source}/{origin}: {missing} of {len(found)} are not in {target}")
    return verdict


def _tell(verdict: Verdict, problem: str) -> None:
    if len(verdict.problems) < _SHOWN:
        verdict.problems.append(problem)
