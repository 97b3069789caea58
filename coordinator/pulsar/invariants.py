"""Compares a coordinator's rows with its log, which must agree after every turn.

    the log's records, undeleted ──replayed──▶ transactions == the rows t      d: the open ones by their deadlines

A host starts from the rows and never replays; the log is what Pulsar would start from.

Next: transactions.py.
"""

from ...errors import FormatError
from ...proto.batched_log import Rows, entries_of
from .states import OPEN, Transaction, applied, row_of


def live_rows(space: Rows) -> dict[int, Transaction]:
    """Returns the live transactions by number, as the rows have them."""
    rows = space.scan(b"t", b"u")
    return {int.from_bytes(key[1:], "big"): row_of(value) for key, value in rows}


def replayed(space: Rows) -> dict[int, Transaction]:
    """Returns the live transactions by number, as the log has them; FormatError if it cannot be read."""
    rows: dict[int, Transaction] = {}
    for entry in entries_of(space):
        for position, record in zip(entry.positions(), entry.records.values(), strict=True):
            rows[record[2]] = applied(rows.get(record[2]), record, position)
    return rows


def violations(space: Rows) -> list[str]:
    """Returns a line for each disagreement between a coordinator's rows, and of them with its log.

    An empty list is what any turn must leave.
    """
    rows = live_rows(space)
    try:
        log = replayed(space)
    except FormatError as error:
        return [str(error)]
    except AssertionError as error:
        return [f"the log cannot be replayed: {error}"]
    lines = [
        f"transaction {least}: the log has {log.get(least)}, the rows have {rows.get(least)}"
        for least in sorted({**log, **rows})
        if log.get(least) != rows.get(least)
    ]
    due = [key[1:] for key, _ in space.scan(b"d", b"e")]
    open_ones = [(row.deadline_ms, least) for least, row in rows.items() if row.state == OPEN]
    expected = [at.to_bytes(8, "big") + least.to_bytes(8, "big") for at, least in sorted(open_ones)]
    if due != expected:
        lines.append(f"{len(due)} deadlines are tracked, {len(expected)} transactions are open")
    highest = space.get(b"i")
    if rows and (highest is None or highest < max(rows)):
        lines.append(f"the highest number given is {highest}, transaction {max(rows)} is live")
    entries = {key[1:] for key, _ in space.scan(b"l", b"m")}
    lines += [
        f"entry {int.from_bytes(key[1:], 'big')} is gone, its deleted records are marked"
        for key, _ in space.scan(b"v", b"w")
        if key[1:] not in entries
    ]
    ended = [key[1:] for key, _ in space.scan(b"e", b"f")]
    in_order = [value.to_bytes(8, "big") for _, value in space.scan(b"f", b"g")]
    first, after = space.get(b"E") or (0, 0)
    if ended != sorted(in_order) or len(ended) != after - first:
        lines.append(f"{len(ended)} ended ones are kept, {len(in_order)} in order")
    lines += [
        f"transaction {least} is live and ended"
        for least in rows
        if space.get(b"e" + least.to_bytes(8, "big")) is not None
    ]
    return lines
