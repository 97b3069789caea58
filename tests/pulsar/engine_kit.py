"""Opens engines in mode "pulsar" for tests, with times that are short."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import planstep

QUICK = planstep.PulsarSettings(
    transaction_timeout_ms=30_000, retry_backoff_ms=5, request_timeout_ms=2_000, end_retry_ms=20
)

PLACES: list[tuple[int, Any]] = [(1, "shared"), (1, "separate"), (3, "shared"), (3, "separate")]
"""Hosts, and the placement of their tablets."""


@contextmanager
def opened(
    path: Path | str = ":memory:", *, hosts: int | None = 1, placement: Any = "shared", **own: Any
) -> Iterator[planstep.Engine]:
    """Opens an engine; `own`: settings of the mode that differ from QUICK's."""
    settings = replace(QUICK, **own)
    with planstep.open(
        path, mode="pulsar", hosts=hosts, placement=placement, pulsar=settings
    ) as db:
        yield db
