"""Opens engines in mode "pulsar" for tests: registers it first, since no way of opening leads there yet."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

import planstep
from planstep.api import open_engine
from planstep.coordinator import plan
from planstep.coordinator.pulsar import transactions
from planstep.host import modes
from planstep.proto.ids import CATALOGUE, COORDINATOR, PARTITION, TRANSACTIONS
from planstep.proto.pulsar import messages
from planstep.proto.pulsar.settings import PulsarSettings
from planstep.runtime import open_stores
from planstep.runtime.pulsar.hooks import PulsarHooks
from planstep.tablets import catalogue
from planstep.tablets.pulsar import describe, partition

MODE = modes.Mode(
    "pulsar",
    {CATALOGUE: catalogue.Catalogue, COORDINATOR: plan.Coordinator},
    {PARTITION: partition.Partition, TRANSACTIONS: transactions.Transactions},
    modes.Words(describe.ENTRY_COLUMNS, describe.entry_fields, describe.entry_text, {}),
    settings=PulsarSettings,
    begun=(TRANSACTIONS,),
    no_space=messages.no_space,
)
QUICK = PulsarSettings(
    transaction_timeout_ms=30_000, retry_backoff_ms=5, request_timeout_ms=2_000, end_retry_ms=20
)


@contextmanager
def registered(settings: PulsarSettings) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(modes.MODES, "pulsar", MODE)
        patch.setitem(open_stores.HOOKS, "pulsar", PulsarHooks)
        patch.setattr(open_engine, "MODES_TO_COME", ())
        patch.setattr(open_engine, "Mode", Literal["deterministic", "kafka", "pulsar"])
        of_modes = property(lambda given: {"kafka": given.kafka, "pulsar": settings})
        patch.setattr(open_engine.Settings, "of_modes", of_modes)
        yield


@contextmanager
def opened(
    path: Path | str = ":memory:", *, hosts: int | None = 1, placement: Any = "shared", **own: Any
) -> Iterator[planstep.Engine]:
    """Opens an engine; `own`: settings of the mode that differ from QUICK's."""
    mode: Any = "pulsar"
    with (
        registered(replace(QUICK, **own)),
        planstep.open(path, mode=mode, hosts=hosts, placement=placement) as db,
    ):
        yield db
