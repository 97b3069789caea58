"""Reports which entries of a log an earlier program, without the buffered writer, could not read.

    switch batching off ─▶ live transactions end, their entries go ─▶ no batched entries are left: downgrade

PIP-160 leaves these steps to the operator; a report shows when the last one may be taken.

Next: batched_log.py.
"""

from typing import NamedTuple

from .batched_log import Rows, entries_of


class LogReport(NamedTuple):
    """Counts the entries of one log."""

    batching: bool | None
    """Whether the next record is gathered with others; None if only the log's owner knows."""
    entries: int
    records: int
    """The records that are not deleted."""
    batched: int
    """The entries that only the buffered writer's readers know, also if they hold a single record."""
    oldest: int | None
    """The number of the first entry; None if there is none."""
    last_batched: int | None
    """The number of the last batched entry; None if an earlier program could read the log."""

    @property
    def text(self) -> str:
        """One line for people."""
        how = {True: "on", False: "off", None: "as its owner's settings say"}
        batching = f"batching is {how[self.batching]}"
        if self.oldest is None:
            return f"{batching}, no entries: no batched entries are left"
        entries = f"{self.entries} {'entry' if self.entries == 1 else 'entries'}"
        since = f"{batching}, {entries} from {self.oldest} on, {self.records} live records"
        if self.last_batched is None:
            return f"{since}: no batched entries are left"
        return f"{since}: {self.batched} batched, the last of them is {self.last_batched}"


def report(space: Rows, batching: bool | None, prefix: bytes = b"") -> LogReport:
    """Reports on the log behind `prefix`. Raises FormatError if an entry cannot be read."""
    entries = entries_of(space, prefix)
    batched = [entry.number for entry in entries if entry.batched]
    return LogReport(
        batching,
        len(entries),
        sum(len(entry.records) for entry in entries),
        len(batched),
        entries[0].number if entries else None,
        batched[-1] if batched else None,
    )
