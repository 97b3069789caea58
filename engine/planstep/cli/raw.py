"""`planstep topic read --raw` prints the stored batches of partitions, markers and aborted records included.

Next: writing.py.
"""

from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import planstep

from ..api.transaction.snapshot_reader import check_partition
from ..host.describe import batch_columns, batch_fields
from .output import print_json, print_rows, say

if TYPE_CHECKING:
    from ..runtime.catalog import TopicInfo


def print_raw(
    db: "planstep.Engine",
    topic: str,
    start: str | int | datetime,
    partition: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """Prints the stored batches from `start` on, at most `limit`, partition after partition."""
    info = db.context.topic(topic)
    if isinstance(start, int) and partition is None and len(info.partitions) > 1:
        raise ValueError("an offset belongs to one partition: give --partition, too")
    parts: list[dict[str, Any]] = []
    more = False
    for number in range(len(info.partitions)) if partition is None else [partition]:
        entries = _entries(db, info, check_partition(info, number), start)
        first = list(islice(entries["batches"], limit + 1))
        more = more or len(first) > limit
        parts.append({**entries, "batches": first[:limit]})
        limit -= len(parts[-1]["batches"])
    mode = db.context.runtime.mode
    if as_json:
        print_json({"topic": topic, "mode": mode, "more": more, "partitions": parts})
        return
    columns = batch_columns(mode)
    for part in parts:
        rows = [[batch[column] for column in columns] for batch in part["batches"]]
        stable = f"last stable offset {part['last_stable']}, " if "last_stable" in part else ""
        start, end = part["start"], part["end"]
        print(f"partition {part['partition']}: log start {start}, {stable}end {end}")
        if rows:
            print_rows(f"{topic}, partition {part['partition']}", columns, rows)
    if more:
        say("there are more batches; --limit shows them")


def _entries(
    db: "planstep.Engine", info: "TopicInfo", number: int, start: str | int | datetime
) -> dict[str, Any]:
    """Returns a partition's bounds, and an iterator over its batches from `start` on."""
    views, tablet = db.context.runtime.views, info.partitions[number]
    low, end = views.whole_log(tablet)
    if isinstance(start, datetime):
        begin = views.offset_at(tablet, int(start.timestamp() * 1000))
    elif isinstance(start, int):
        begin = start
    else:
        begin = low if start == "earliest" else end
    mode = db.context.runtime.mode
    batches = (batch_fields(mode, *entry) for entry in views.entries(tablet, max(begin, low), end))
    stable = {} if (last := views.visible_to(tablet)) is None else {"last_stable": last}
    return {"partition": number, "start": low, **stable, "end": end, "batches": batches}
