"""Says what rows on disks must know of each mode: its settings, and how what a dead process left open ends.

    mode, variant ─▶ settings_of          a variant: a version of kafka's protocol, a way of pulsar's snapshots
    an opened store ─▶ end_open ─▶ is_unsettled? no ─▶ all is shown as it stays ─▶ left: nothing

A mode is one entry of MODES. What its face can, tables for example, its hooks say.

Next: engines.py.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from ....api.engine import Engine
from ....api.open_engine import Mode
from ....proto.kafka.settings import KafkaSettings
from ....proto.mode_settings import ModeSettings
from ....proto.pulsar.settings import PulsarSettings
from . import pulsar_ends

CONSUMER = "c"


def _settled(db: Engine) -> bool:
    return False


@dataclass(frozen=True)
class ModeOnDisks:
    """Describes a mode. `variants`: the settings that are drawn, with time-outs that a check can wait for.

    `lag`: how many transactions back the newest one is whose records are certain to be shown. `hides`: an open
    transaction hides what others have written behind it. `reads`: writers of load.py read, too, for a consumer
    each. `end_open`: ends what earlier processes of these workers left open; `times_out`: without it that ends by
    itself within seconds. `left`: what must not be left once nothing is unsettled.
    """

    variants: Mapping[str, ModeSettings | None]
    lag: int = 1
    hides: bool = False
    reads: bool = False
    times_out: bool = False
    end_open: Callable[[Engine, Iterable[str]], None] = lambda db, workers: None
    is_unsettled: Callable[[Engine], bool] = _settled
    left: Callable[[Engine], Iterable[str]] = lambda db: ()


def mode_of(db: Engine) -> ModeOnDisks:
    mode: Any = db.mode
    return MODES[mode]


def settings_of(mode: Mode, variant: str) -> dict[str, ModeSettings]:
    """Returns a mode's settings as a parameter of `open`, none if the mode has none."""
    settings = MODES[mode].variants[variant]
    return {} if settings is None else {mode: settings}


def variant_of(mode: Mode, number: int) -> str:
    """Returns the mode's variant of this number; they are drawn in turn."""
    variants = list(MODES[mode].variants)
    return variants[number % len(variants)]


# kafka ---------------------------------------------------------------------------------------


def _kafka(version: int) -> KafkaSettings:
    """Returns settings in which version 1 promises as much as 2, because no request is sent twice.

    Its client repeats a refused request, not a late one.
    """
    return KafkaSettings(
        protocol_version=version,
        request_timeout_ms=2_000 if version == 1 else 1_000,
        delivery_timeout_ms=2_000,
        max_block_ms=2_000,
        retry_backoff_ms=5,
        concurrent_backoff_ms=2,
        add_partitions_backoff_ms=2,
        marker_retry_ms=20,
    )


def _make_ready(db: Engine, workers: Iterable[str]) -> None:
    for worker in workers:
        db.context.runtime.hooks.ready(worker)


def _position_waits(db: Engine) -> bool:
    """Returns whether a position waits for its transaction's end; first it waits for the records."""
    runtime: Any = db.context.runtime
    tablets = [tablet for info in runtime.names.topics.values() for tablet in info.partitions]
    for tablet in tablets:
        runtime.hooks.wait_stable(tablet)
    return any(runtime.views.committed(tablet, CONSUMER)[1] for tablet in tablets)


# pulsar --------------------------------------------------------------------------------------


def _pulsar(snapshots: str, batched: bool) -> PulsarSettings:
    """Returns settings with a snapshot after every second end, and segments of a few ids."""
    return PulsarSettings(
        snapshots=snapshots,
        log_batching=batched,
        ack_log_batching=batched,
        transaction_timeout_ms=TIMEOUT_MS,
        operation_timeout_ms=2_000,
        request_timeout_ms=1_000,
        retry_backoff_ms=5,
        end_retry_ms=20,
        participant_timeout_ms=200,
        snapshot_transactions=2,
        snapshot_interval_ms=100,
        snapshot_segment_bytes=64,
        ack_log_index_min_lag=2,
        deduplication=True,
    )


TIMEOUT_MS = 2_000
"""Nobody but an operator ends what a dead process left open, until its time-out."""

MODES: dict[Mode, ModeOnDisks] = {
    "deterministic": ModeOnDisks({"": None}),
    "kafka": ModeOnDisks(
        {f"version {version}": _kafka(version) for version in (1, 2)},
        hides=True,
        lag=2,  # a commit is answered before its records are shown, the next one after that
        end_open=_make_ready,
        is_unsettled=_position_waits,
    ),
    "pulsar": ModeOnDisks(
        {
            "single": _pulsar("single", False),
            "parts, batched logs": _pulsar("parts", True),
            "segmented": _pulsar("segmented", False),
        },
        hides=True,
        reads=True,
        times_out=True,
        end_open=pulsar_ends.abort_open,
        is_unsettled=pulsar_ends.is_live,
        left=pulsar_ends.left,
    ),
}
assert MODES.keys() == {*get_args(Mode)}, "a mode that no row on disks knows"
