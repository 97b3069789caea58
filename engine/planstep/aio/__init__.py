"""The face for asyncio. Next: engine.py."""

from .engine import AsyncEngine, Opening
from .handles import AsyncSnapshotView, AsyncTable, AsyncTopic, AsyncWriter
from .transaction import AsyncTransaction

__all__ = [
    "AsyncEngine",
    "AsyncSnapshotView",
    "AsyncTable",
    "AsyncTopic",
    "AsyncTransaction",
    "AsyncWriter",
    "Opening",
]
