"""Verifies outputs in a store that was closed and reopened read-only.

Next: ../../judges/python/__init__.py.
"""

from collections.abc import Mapping, Sequence

from ...judges.trace import CONSUMER, TOPIC, identities
from .base import Run, Verdict

_SHOWN = 5


def verify_passed_on(
    run: Run,
    source: str,
    target: str,
    consumer: str,
    counts: Sequence[int],
    by_key: bool = False,
) -> Verdict:
    """Verifies that each consumed record of `source` is in `target` once, in the order of its partition.

    Positions say which records were consumed. Both topics have a partition for each count. `by_key`: all records
    of a key must be in one partition.
    """
    consumed = [  # a position may be beyond the records there are: offsets may have gaps
        min(run.system.position(source, consumer, partition), count)
        for partition, count in enumerate(counts)
    ]
    return verify_whole(run, target, consumed, len(counts), by_key, source)


def verify_whole(
    run: Run,
    target: str,
    counts: Sequence[int],
    partitions: int,
    by_key: bool = False,
    source: str = "source",
) -> Verdict:
    """Verifies that records [0, count) of each source are in `target` once, in order, and no others.

    `by_key`: see `verify_passed_on`. `source` names the sources in problems.
    """
    verdict, place_of = Verdict(), dict[bytes, str]()
    present = [bytearray(count) for count in counts]
    for partition in range(partitions):
        last: dict[int, int] = {}
        lane, place = run.trace.lane(TOPIC, target, partition), f"{target}/{partition}"
        for chunk in run.system.records(target, partition):
            verdict.records += len(chunk.values)
            run.trace.records.add(lane, chunk.offsets, chunk.values)
            if by_key:
                _check_keys(verdict, place, chunk.keys, place_of)
            sources, ordinals, _ = identities(chunk.values)
            for origin, ordinal in zip(sources, ordinals, strict=True):
                if not 0 <= origin < len(present) or not 0 <= ordinal < len(present[origin]):
                    verdict.violations["foreign"] += 1
                    _tell(verdict, f"{place} has record {origin}/{ordinal} of nobody")
                elif present[origin][ordinal]:
                    verdict.duplicated += 1
                    _tell(verdict, f"{source}/{origin} record {ordinal} is in {target} again")
                else:
                    present[origin][ordinal] = 1
                    if ordinal < last.get(origin, -1):
                        verdict.out_of_order += 1
                        _tell(verdict, f"{source}/{origin} record {ordinal} is behind later ones")
                    last[origin] = ordinal
    for origin, missing in enumerate(one.count(0) for one in present):
        verdict.missing += missing
        if missing:
            _tell(verdict, f"{source}/{origin}: {missing} of {counts[origin]} are not in {target}")
    return verdict


def _check_keys(
    verdict: Verdict, place: str, keys: Sequence[bytes | None], place_of: dict[bytes, str]
) -> None:
    """Checks that no key has records in two partitions; `place_of`: the partition of each key so far."""
    for key in filter(None, dict.fromkeys(keys)):
        if place_of.setdefault(key, place) != place:
            verdict.violations["scattered"] += 1
            _tell(verdict, f"{place} has records of {key!r}, as others have")


def keep_inputs(run: Run, feeds: Mapping[str, str]) -> None:
    """Copies the store's records of input topics into the trace, unless the trace has them."""
    trace = run.trace
    recorded_topics = {trace.lanes[lane].name for lane in set(trace.records.lane)}
    consumed = sorted((lane.name, lane.partition) for lane in trace.lanes if lane.kind == CONSUMER)
    for feed, partition in consumed:  # only from these was anything consumed
        topic = feed.rpartition("/")[0]
        if feed in feeds.values() and topic not in recorded_topics:
            lane = trace.lane(TOPIC, topic, partition)
            for chunk in run.system.records(topic, partition):
                trace.inputs.add(lane, chunk.offsets, chunk.values)


def _tell(verdict: Verdict, problem: str) -> None:
    if len(verdict.problems) < _SHOWN:
        verdict.problems.append(problem)
