"""Compares a partition's subscriptions with their logs, which must agree after every turn.

    the log's entries, undeleted ──replayed──▶ what is pending == the rows j, k

Next: subscriptions.py.
"""

from ...errors import FormatError
from ...proto.batched_log import Rows
from .ack_log import replayed
from .pending_rows import CUMULATIVE, PENDING
from .rows import Cursor, of_name


def violations(space: Rows) -> list[str]:
    """Returns a line for each subscription whose log disagrees with its rows.

    An empty list is what any turn must leave.
    """
    lines = []
    for key, row in space.scan(b"c", b"d"):
        name = key[1:-1].decode()
        prefix = of_name(PENDING, name)
        pending = {
            at: (most, least)
            for begin, (end, most, least) in space.scan(prefix, prefix + b"\xff" * 9)
            for at in range(int.from_bytes(begin[-8:], "big"), end)
        }
        expected = pending, space.get(of_name(CUMULATIVE, name))
        try:
            log = replayed(space, name, Cursor(*row))
        except FormatError as error:
            lines.append(f"{name}: {error}")
            continue
        if log != expected:
            lines.append(f"{name}: the log says that {log} is pending, the rows say {expected}")
    return lines
