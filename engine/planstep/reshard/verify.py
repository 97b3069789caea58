"""Verifies in a process of its own that every event arrived exactly once, in order, and is counted.

    the source, read again ──▶ per line: user, home partition, hash ◀── the store, read-only

It trusts nothing that the job reported: it parses the input again and opens the store read-only. It checks for
each event of the input:

    it is in the store once, byte for byte, under its user, in its user's partition
    it follows all earlier events of its user that came through the same partition of writers
    it is counted: each user's row is the number of their events
    a rejected line is in the topic of rejected lines, once

It takes about 17 bytes of memory a line: ten million events take 170 MB. A line is compared by a 64-bit hash.

Run: python -m planstep.reshard.verify STORE SOURCE  → one JSON object; exit 1 when a check fails, 2 when it
cannot tell. `describe` makes the text SOURCE.
"""

import json
import sys
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import planstep
from planstep.proto.keys import partition_of

from .events import Chunk, Source
from .job import BY_USER, EVENTS, ORIGIN, REJECTED, TOTALS

_READ = 20_000
_REJECTED, _EXPECTED, _SEEN = range(3)


class Expected:
    """The expected result, in arrays with one item for each line of the input, file after file."""

    def __init__(self, source: Source, homes: int) -> None:
        self.state = bytearray()
        self.homes, self.users, self.hashes = array("I"), array("I"), array("q")
        self.counts: Counter[str] = Counter()
        self._ids: dict[str, int] = {}
        self._home: dict[str, int] = {}
        self._partitions = homes
        self._first: list[int] = []
        for file in source.files:
            self._first.append(len(self.state))
            for chunk in source.chunks(file, 0, _READ):
                self._take(chunk)
        self._first.append(len(self.state))
        self.names = list(self._ids)

    def _take(self, chunk: Chunk) -> None:
        ids, home = self._ids, self._home
        for writer in set(chunk.writers) - home.keys():
            home[writer] = partition_of(writer.encode(), self._partitions)
        users = [ids.setdefault(user, len(ids)) for user in chunk.users]
        homes = [home[writer] for writer in chunk.writers]
        hashes = list(map(hash, chunk.values))
        self.counts.update(chunk.users)
        if not chunk.rejected:
            self.state += bytes([_EXPECTED]) * len(users)
            self.users.extend(users)
            self.homes.extend(homes)
            self.hashes.extend(hashes)
            return
        lines = {o: row for o, *row in zip(chunk.ordinals, users, homes, hashes, strict=True)}
        for ordinal in range(chunk.begin, chunk.end):
            user, at, digest = lines.get(ordinal, (0, 0, 0))
            self.state.append(_EXPECTED if ordinal in lines else _REJECTED)
            self.users.append(user)
            self.homes.append(at)
            self.hashes.append(digest)

    def line(self, origin: Any) -> int:
        """Returns the index of the line that a record's header names, -1 when there is none."""
        try:
            file, ordinal = map(int, origin.split(b":"))
            index = self._first[file] + ordinal
            return index if file >= 0 <= ordinal and index < self._first[file + 1] else -1
        except (AttributeError, IndexError, TypeError, ValueError):
            return -1


def verify(store: str, source: Source) -> dict[str, Any]:
    """Returns the verdict: "ok", and counts of events missing, duplicated, out of order or miscounted."""
    with planstep.open(store, read_only=True) as db:
        db.context.runtime.stay()
        expected = Expected(source, db.topic(EVENTS).partitions)
        verdict: Counter[str] = Counter()
        for partition in range(db.topic(BY_USER).partitions):
            _check_partition(db, partition, expected, verdict)
        _check_rejected(db, expected, verdict)
        if db.context.runtime.hooks.has_tables:
            table = dict(db.table(TOTALS).scan())
        else:
            table = _last_values(db)
    lines = len(expected.state)
    counted = sum(expected.counts.values())
    users = expected.counts.keys() | table.keys()
    flaws = {
        "missing": expected.state.count(_EXPECTED),
        **{k: verdict[k] for k in ("duplicated", "out_of_order", "misplaced", "foreign")},
        "table_mismatches": sum(expected.counts.get(u) != table.get(u) for u in users),
        "rejected_wrong": verdict["rejected_wrong"],
    }
    return {
        "ok": not any(flaws.values()) and verdict["records"] == counted,
        "expected": counted,
        "records": verdict["records"],
        **flaws,
        "users": len(table),
        "rejected": verdict["rejected"],
        "rejected_expected": lines - counted,
    }


def _check_partition(
    db: planstep.Engine, partition: int, expected: Expected, verdict: Counter[str]
) -> None:
    state, hashes, users, homes = expected.state, expected.hashes, expected.users, expected.homes
    partitions = db.topic(BY_USER).partitions
    last: dict[tuple[int, int], int] = {}
    for batch in _batches(db, BY_USER, partition):
        verdict["records"] += len(batch)
        for key in set(batch.keys):
            if key is None or partition_of(key, partitions) != partition:
                verdict["misplaced"] += batch.keys.count(key)
        for key, value, headers in zip(batch.keys, batch.values, batch.headers, strict=True):
            line = expected.line(headers.get(ORIGIN))
            if line < 0 or state[line] == _REJECTED or hash(value) != hashes[line]:
                verdict["foreign"] += 1
                continue
            if state[line] == _SEEN:
                verdict["duplicated"] += 1
                continue
            state[line] = _SEEN
            user = users[line]
            if key != expected.names[user].encode():
                verdict["misplaced"] += 1
            order = homes[line], user
            if last.get(order, -1) > line:
                verdict["out_of_order"] += 1
            last[order] = line


def _batches(db: planstep.Engine, name: str, partition: int) -> Iterator[planstep.ReadBatch]:
    """Reads all records of a partition, from its start."""
    topic = db.topic(name)
    at = topic.describe().partitions[partition].start
    while batch := topic.read({partition: at}, max_records=_READ):
        yield batch
        at = batch.ends[partition]


def _last_values(db: planstep.Engine) -> dict[Any, Any]:
    """Reads each key's last value from the changelog of counts."""
    values: dict[Any, Any] = {}
    for partition in range(db.topic(TOTALS).partitions):
        for batch in _batches(db, TOTALS, partition):
            values.update(zip(batch.keys, batch.values, strict=True))
    return values


def _check_rejected(db: planstep.Engine, expected: Expected, verdict: Counter[str]) -> None:
    lines: Counter[int] = Counter()
    for partition in range(db.topic(REJECTED).partitions):
        for batch in _batches(db, REJECTED, partition):
            lines.update(expected.line(headers.get(ORIGIN)) for headers in batch.headers)
    verdict["rejected"] = lines.total()
    state = expected.state
    right = sum(1 for line in lines if line >= 0 and state[line] == _REJECTED)
    verdict["rejected_wrong"] = lines.total() - right + state.count(_REJECTED) - right


def describe(source: Source) -> str:
    """Formats a source as the text that this module's command line takes."""
    return json.dumps(asdict(source))


def main() -> None:
    if len(sys.argv) != 3:
        print("usage: python -m planstep.reshard.verify STORE SOURCE", file=sys.stderr)
        raise SystemExit(2)
    try:
        fields = json.loads(sys.argv[2])
        verdict = verify(sys.argv[1], Source(**{**fields, "files": tuple(fields["files"])}))
    except (planstep.PlanstepError, OSError, ValueError, TypeError, KeyError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    print(json.dumps(verdict))
    raise SystemExit(0 if verdict["ok"] else 1)


if __name__ == "__main__":
    main()
