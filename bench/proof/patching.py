"""One part of the engine in place of another, for as long as this process lives.

    child ── exchange(Table, "checkpoint", …) ──▶ the engine, with a point to be killed at, or a bug planted

Types forbid to exchange methods, rightly; to do so on purpose is what proving takes, and this is the one place.
What is to be put back again takes unittest.mock.patch.object.

Next: rows/killpoints.py, which watches, and rows/bitflip.py, which plants.
"""

from typing import Any


def exchange(owner: Any, name: str, value: Any) -> None:
    """`owner` is a module, a class, or an object; AttributeError where it has nothing of that name."""
    getattr(owner, name)
    setattr(owner, name, value)
