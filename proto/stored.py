"""Defines the types of rows, from a core through the turn, the log and the tables, and back.

    put(key, value: Stored) ─▶ Turn ─▶ log record, Layer ─▶ LMDB       opaque on the way
    get(key) ─▶ AnyRow, or None                                    the reading line names the type

A core puts NamedTuples. It gets back the same object from memory, or the plain tuple that msgpack decoded.
So a reading line annotates the tuple's type (`bounds: BoundsRow = space.get(META) or EMPTY`); `_make` restores
the class if fields are needed by name.

Next: messages.py.
"""

from typing import Any, TypeAlias

Stored: TypeAlias = "bool | int | float | str | bytes | tuple[Stored, ...] | list[Stored] | None"
"""The values that msgpack stores and returns unchanged."""

AnyRow: TypeAlias = Any
"""A row as it is read: its type follows from its key, which no type checker sees. Annotate it at once."""
Versioned: TypeAlias = tuple[int, *tuple[Stored, ...]]
"""A row that snapshots read as of a step; its first field is the step that wrote it."""
