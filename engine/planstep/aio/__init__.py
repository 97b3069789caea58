"""Offers the API to asyncio. Next: engine.py."""

from .engine import AsyncEngine, Opening, open_async
from .handles import AsyncSnapshotView, AsyncTable, AsyncTopic, AsyncWriter
from .reader import AsyncLeased, AsyncReader
from .transaction import AsyncCommitHandle, AsyncTransaction

__all__ = [
    "AsyncCommitHandle",
    "AsyncEngine",
    "AsyncLeased",
    "AsyncReader",
    "AsyncSnapshotView",
    "AsyncTable",
    "AsyncTopic",
    "AsyncTransaction",
    "AsyncWriter",
    "Opening",
    "open_async",
]
