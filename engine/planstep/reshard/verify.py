"""Did every event arrive exactly once, in order, and counted? Read from both ends, in a process of its own.

    the source, read again ──▶ source and ordinal ◀── the store, read-only

Nothing is believed that the job said: the input is parsed anew, the store is opened read-only. Order is
that of one writer's partition for one user: their events must come out in the order of their ordinals.

Run: python -m planstep.reshard.verify STORE '{"kind": …}'  → one JSON object.
"""

import json
import sys
from collections import Counter
from dataclasses import asdict
from typing import Any

import planstep
from planstep.proto.keys import partition_of

from .events import Source
from .job import BY_USER, EVENTS, REJECTED, TOTALS

_READ = 50_000


def verify(store: str, source: Source) -> dict[str, Any]:
    """The verdict: counts of what is missing, duplicated, out of order or miscounted."""
    with planstep.open(store, read_only=True) as db, db.snapshot() as view:
        partitions = db.topic(EVENTS).partitions
        expected: dict[tuple[bytes, int], tuple[int, str, bytes]] = {}
        rejected: set[tuple[bytes, int]] = set()
        for number, file in enumerate(source.files):
            name = b"%d" % number
            for chunk in source.chunks(file, 0, _READ):
                homes = {w: partition_of(w.encode(), partitions) for w in set(chunk.writers)}
                rows = zip(chunk.ordinals, chunk.writers, chunk.users, chunk.values, strict=True)
                expected.update(
                    ((name, ordinal), (homes[w], u, value)) for ordinal, w, u, value in rows
                )
                rejected.update((name, ordinal) for ordinal, _, _ in chunk.rejected)
        records = duplicated = out_of_order = foreign = 0
        seen: set[tuple[bytes, int]] = set()
        last: dict[tuple[bytes, int, str], int] = {}
        for partition in range(db.topic(BY_USER).partitions):
            at = 0
            while batch := view.read(BY_USER, at, partition=partition, max_records=_READ):
                at += len(batch)
                records += len(batch)
                for value, headers in zip(batch.values, batch.headers, strict=True):
                    ident = headers["source"], int(headers["ordinal"])
                    home = expected.get(ident)
                    if home is None or home[2] != value:
                        foreign += 1
                        continue
                    if ident in seen:
                        duplicated += 1
                        continue
                    seen.add(ident)
                    order = (ident[0], home[0], home[1])
                    if last.get(order, -1) > ident[1]:
                        out_of_order += 1
                    last[order] = ident[1]
        counts = Counter(user for _, user, _ in expected.values())
        table = dict(view.scan(TOTALS))
        mismatches = sum(
            1 for user in counts.keys() | table.keys() if counts[user] != table.get(user)
        )
        dropped = 0
        while batch := view.read(REJECTED, dropped, partition=0, max_records=_READ):
            dropped += len(batch)
    return {
        "expected": len(expected),
        "records": records,
        "missing": len(expected) - len(seen),
        "duplicated": duplicated,
        "out_of_order": out_of_order,
        "foreign": foreign,
        "users": len(table),
        "table_mismatches": mismatches,
        "rejected": dropped,
        "rejected_expected": len(rejected),
        "ok": len(seen) == len(expected) == records
        and not (duplicated or out_of_order or foreign or mismatches)
        and dropped == len(rejected),
    }


def describe(source: Source) -> str:
    """A source as the text that this module's command line takes."""
    return json.dumps(asdict(source))


def main() -> None:
    fields = json.loads(sys.argv[2])
    source = Source(**{**fields, "files": tuple(fields["files"])})
    print(json.dumps(verify(sys.argv[1], source)))


if __name__ == "__main__":
    main()
