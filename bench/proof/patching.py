"""Replaces a part of the engine by another one, for the rest of the process's life.

    child ── exchange(Table, "checkpoint", …) ──▶ the engine, with a kill point or a planted bug

Type checkers rightly forbid replacing methods; proofs need it, so it is done in this one place. For temporary
replacements use unittest.mock.patch.object.

Next: rows/killpoints.py, which watches, and rows/bitflip.py, which plants.
"""

from typing import Any


def exchange(owner: Any, name: str, value: Any) -> None:
    """Replaces an attribute of a module, class or object; raises AttributeError if it has none of that name."""
    getattr(owner, name)
    setattr(owner, name, value)
