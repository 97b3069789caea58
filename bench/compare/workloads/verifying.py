"""Verifies outputs in a store that was closed and reopened read-only.

Next: ../../judges/python/__init__.py.
"""

from collections.abc import Mapping, Sequence

from ...judges.trace import CONSUMER, TOPIC, identities
from .base import Run, Verdict

_SHOWN = 5


class Places:
    """The partition of each key; a key with records in two partitions is a violation."""

    def __init__(self) -> None:
        self._partition: dict[bytes, int] = {}

    def look(
        self, verdict: Verdict, topic: str, partition: int, keys: Sequence[bytes | None]
    ) -> None:
        for key in dict.fromkeys(keys):
            if key is not None and self._partition.setdefault(key, partition) != partition:
                verdict.violations["scattered"] = verdict.violations.get("scattered", 0) + 1
                _tell(verdict, f"{topic}/{partition} has records of {key!r}, as others have")


def passed_on(
    run: Run,
    source: str,
    target: str,
    consumer: str,
    counts: Sequence[int],
    partitions: int | None = None,
    *,
    by_key: bool = False,
) -> Verdict:
    """Verifies that each consumed record of `source` is in `target` once, in the order of its partition.

    Positions say which records were consumed. Both topics have `partitions`, by default one for each count.
    `by_key`: all records of a key must be in one partition.
    """
    partitions = partitions or len(counts)
    consumed = [  # a position may be beyond the records there are: offsets may have gaps
        min(run.system.position(source, consumer, partition), counts[partition])
        for partition in range(partitions)
    ]
    return _once(run, source, target, consumed, partitions, by_key)


def written_whole(
    run: Run,
    target: str,
    counts: Sequence[int],
    partitions: int | None = None,
    by_key: bool = False,
) -> Verdict:
    """Verifies that records [0, count) of each source are in `target` once, in order; `by_key`: see `passed_on`."""
    partitions = partitions or run.shape.partitions
    return _once(run, "source", target, counts, partitions, by_key)


def _once(
    run: Run, source: str, target: str, counts: Sequence[int], partitions: int, by_key: bool
) -> Verdict:
    """Verifies that records [0, count) of each source are there once, in order, and no others."""
    verdict, places = Verdict(), Places()
    seen = [bytearray(count) for count in counts]
    for partition in range(partitions):
        last: dict[int, int] = {}
        lane = run.trace.lane(TOPIC, target, partition)
        for taken in run.system.records(target, partition):
            verdict.records += len(taken.values)
            run.trace.records.add(lane, taken.offsets, taken.values)
            if by_key:
                places.look(verdict, target, partition, taken.keys)
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


def keep_inputs(run: Run, feeds: Mapping[str, str]) -> None:
    """Copies the store's records of input topics into the trace, unless the trace has them."""
    trace, inputs = run.trace, run.trace.inputs
    there = {trace.lanes[lane].name for lane in set(trace.records.lane)}
    lanes = {lane: number for number, lane in enumerate(trace.lanes) if lane.kind == CONSUMER}
    for feed in sorted(set(feeds.values())):
        topic = feed.rpartition("/")[0]
        partitions = [lane.partition for lane in lanes if lane.name == feed]
        if topic in there:
            continue
        for partition in sorted(partitions):  # only from these was anything consumed
            lane = trace.lane(TOPIC, topic, partition)
            for taken in run.system.records(topic, partition):
                inputs.add(lane, taken.offsets, taken.values)


def _tell(verdict: Verdict, problem: str) -> None:
    if len(verdict.problems) < _SHOWN:
        verdict.problems.append(problem)
