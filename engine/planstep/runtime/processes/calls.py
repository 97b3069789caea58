"""Lists the functions that attached processes may call at the store's owner: one closed table, by name.

Next: attached.py.
"""

from collections.abc import Callable
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from ...proto.ids import COORDINATOR_ID
from ...proto.messages import Resolve
from . import schema_calls

if TYPE_CHECKING:
    from ..runtime import Runtime


def _checked_tx(tx: Any) -> bytes:
    if type(tx) is not bytes or len(tx) != 12:
        raise ValueError("a transaction's id has 12 bytes")
    return tx


def _resolve(runtime: "Runtime", tx: Any) -> None:
    runtime.tell(COORDINATOR_ID, Resolve(_checked_tx(tx)))


def _costs(runtime: "Runtime", tx: Any) -> tuple[Any, ...] | None:
    ledger = runtime.ledger
    costs = ledger.total if tx is None else ledger.of(_checked_tx(tx))
    return None if costs is None else astuple(costs)


def _state(runtime: "Runtime", tx: Any) -> str:
    return runtime.outcomes.of(_checked_tx(tx)).state


def _sent(runtime: "Runtime") -> tuple[tuple[bytes, float], ...]:
    return tuple(runtime.outcomes.sent().items())


def _switch_log_batching(runtime: "Runtime", on: Any, logs: Any) -> None:
    if type(on) is not bool or logs not in ("transactions", "pending acks", "both"):
        raise ValueError(f"logs is no kind of logs: {logs!r:.100}")
    runtime.hooks.switch_log_batching(on, logs)


def _buffers(runtime: "Runtime", *tablets: Any) -> tuple[Any, ...]:
    if not all(type(tablet) is int and runtime.hooks.takes(tablet) for tablet in tablets):
        raise ValueError("these are not partitions of the store")
    return tuple(runtime.hooks.administration.buffers(tablets))


CALLS: dict[str, Callable[..., Any]] = {
    "abort_left_open": lambda runtime: runtime.hooks.administration.abort_left_open(),
    "buffers": _buffers,
    "confirm": lambda runtime: runtime.confirm(),
    "costs": _costs,
    "create_consumer": schema_calls.create_consumer,
    "create_topic": schema_calls.create_topic,
    "drop_consumer": schema_calls.drop_consumer,
    "drop_topic": schema_calls.drop_topic,
    "is_assigned": lambda runtime, tx: _checked_tx(tx) < runtime.new_tx(),
    "phases": lambda runtime, tx: runtime.ledger.phases(_checked_tx(tx)),
    "resolve": _resolve,
    "sent": _sent,
    "state": _state,
    "stats": lambda runtime: runtime.stats(),
    "switch_log_batching": _switch_log_batching,
}
