"""Reads a topic once, without a consumer and without waiting; the APIs for threads and asyncio wait between reads.

Next: consumer.py.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...errors import SnapshotTooOld
from ..columns.batch import ReadBatch
from ..transaction.snapshot_reader import look_limit

if TYPE_CHECKING:
    from ..context import Context

_TRIES = 9
"""Further tries, when retention trims records between finding the start and reading there."""


def read_now(
    context: "Context",
    name: str,
    start: int | Mapping[int, int],
    partition: int | None,
    max_records: int | None,
    max_bytes: int,
) -> tuple[ReadBatch, dict[int, int]]:
    """Returns (the batch, {}), or if it is empty (the batch, tablet → end of the partitions that were read)."""
    context.check()
    info = context.topic(name)
    most = look_limit(max_records, max_bytes)
    tries = 0
    while True:
        try:
            with context.reading() as reading:
                starts = reading.starts(info, start, partition)
                batch = reading.inspect(info, starts, most, max_bytes)
                tablets = [info.partitions[p] for p in starts]
                return batch, {} if batch else {t: reading.bounds(t)[1] for t in tablets}
        except SnapshotTooOld:  # trimmed between looking where it starts and reading there
            tries += 1
            if tries > _TRIES:
                raise
