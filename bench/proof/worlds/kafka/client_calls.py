"""Calls a client's core; an application's steps yield these functions.

    partial(commit, handle=…, tx=…) ─▶ Process ─▶ Client.call ─▶ (core, the call's id) ─▶ its end is sent back

Next: coverage.py.
"""

from typing import Any

from .....proxy.kafka.client import Client as Core


def commit(core: Core, call: bytes, handle: int, tx: bytes, offsets: Any) -> None:
    core.commit(call, handle, tx, offsets)


def abort(core: Core, call: bytes, handle: int, tx: bytes) -> None:
    core.abort(call, handle, tx)


def plain(core: Core, call: bytes, batches: Any) -> None:
    core.plain(call, batches)


def ask(core: Core, call: bytes, target: int, make: Any) -> None:
    core.ask(call, target, make)
