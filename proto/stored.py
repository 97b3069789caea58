"""What a row may be: the one vocabulary of values that a turn changes, the log holds and a table gives back.

    put(key, value: Stored) ─▶ Turn ─▶ log record, Layer ─▶ LMDB       nobody looks into it
    get(key) ─▶ AnyRow, or None                                    the line that reads says what it is

A core puts NamedTuples and finds tuples of the same fields: in memory the very object, out of a record what
msgpack made of it. Hence a reading line names the tuple (`bounds: BoundsRow = space.get(META) or EMPTY`), and
`_make` gives the class back where a name is wanted.

Next: messages.py.
"""

from typing import Any, TypeAlias

Stored: TypeAlias = "bool | int | float | str | bytes | tuple[Stored, ...] | list[Stored] | None"
"""What msgpack keeps as it is."""

AnyRow: TypeAlias = Any
"""A row as it is read: what its key says, which types do not see. Never passed on as such."""
Versioned: TypeAlias = tuple[int, *tuple[Stored, ...]]
"""A row that snapshots read as of a step: the step that wrote it stands first."""
