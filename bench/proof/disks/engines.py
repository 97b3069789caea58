"""Opens the whole engine over files of a check's own, reads what it shows, and abandons it.

    open_engine ─▶ what planstep.open gives, with short segments and other files
    content_of  ─▶ topics, tables, positions, as plain data
    abandon     ─▶ what a killed process leaves: nothing is written, nothing finished

Next: modes.py, steps.py.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ....api.engine import Engine
from ....api.open_engine import Durability, Mode, Settings
from ....api.slots import Slot
from ....errors import EngineClosed, PlanstepError
from ....runtime.open_runtime import open_runtime
from ....runtime.open_stores import OpenOptions
from ....shared.settings import Replicate
from ....store import DiskStore
from ....store.files import Files
from ....store.verify import verify
from .contents import records
from .modes import CONSUMER, mode_of, settings_of, variant_of

SEGMENT_BYTES = 16 << 10
WORKER = "w"
_STABLE_SECONDS = 30.0

Content = dict[str, Any]
"""topic → [[oldest offset, [value, …]] of each partition], table → {key: value}, positions(topic) → [offset, …]."""


class LeftBehind(Exception):
    """Something of a transaction is there although all have ended."""


def open_engine(
    path: Path,
    files: Files,
    *,
    mode: Mode = "deterministic",
    hosts: int = 1,
    durability: Durability = "full",
    segment_bytes: int = SEGMENT_BYTES,
    variant: str = "",
    replicate: Replicate | None = None,
) -> Engine:
    """Opens an engine like planstep.open, over the given files; the engine is not shared with other callers.

    A replicated store is taken over.
    """
    of_mode: dict[str, Any] = settings_of(mode, variant or variant_of(mode, 0))
    settings = Settings(mode=mode, hosts=hosts, durability=durability, **of_mode)
    settings.check()
    options = OpenOptions(
        mode=mode,
        hosts=hosts,
        durability=durability,
        settings=settings.of_modes,
        files=files,
        segment_bytes=segment_bytes,
        replicate=replicate,
        takeover=replicate is not None,
    )
    runtime = open_runtime(path, options)
    slot = Slot()
    slot.engine = db = Engine(str(path), runtime, settings, slot)
    return db


def stores_of(db: Engine) -> list[DiskStore]:
    stores: list[Any] = [node.host.store for node in db.context.runtime.nodes]
    return stores


def abandon(db: Engine) -> None:
    """Ends the engine as a killed process would: threads end, descriptors are closed, nothing more is written."""
    runtime = db.context.runtime
    for node in runtime.nodes:
        with node.lock:
            node.down = True
            node.inbox.clear()
    runtime.turns.stop_everything(EngineClosed("the engine was abandoned"))
    runtime.replies.answer()
    with suppress(PlanstepError):  # from work that was still under way
        db.close()
    for store in stores_of(db):
        store.crash()


def problems(path: Path) -> list[str]:
    """Returns the problems of a store that is closed."""
    hosts = sorted(path.glob("host-*"))
    return [f"{host.name}, verify: {problem}" for host in hosts for problem in verify(host)]


def positions(topic: str) -> str:
    """Returns the key under which `content_of` has CONSUMER's next offsets in the topic."""
    return f"positions of {topic}"


def content_of(db: Engine) -> Content:
    """Returns all that users see; in mode deterministic, from one snapshot. Topics must be utf8."""
    wait_stable(db)
    with db.context.open_view() as view:
        return content_in(db, view)


def content_in(db: Engine, view: Any) -> Content:
    """Returns all that an open view shows of the topics and tables that there are now."""
    content: Content = {}
    for name in sorted(db.topics()):
        bounds, content[name], content[positions(name)] = view.bounds(name), [], []
        for partition, position in sorted(view.position(name, CONSUMER).items()):
            start, entries = bounds[partition][0], read_all(view, name, partition)
            if not db.context.runtime.hooks.has_places:
                # Offsets are of markers too: count the consumed records.
                start, position = 0, sum(offset < position for offset, _ in entries)
            content[name].append([start, [value for _, value in entries]])
            content[positions(name)].append(position)
    for name in sorted(db.tables()):
        content[name] = {str(key): value for key, value in view.scan(name)}
    return content


def read_all(view: Any, topic: str, partition: int) -> list[tuple[int, str]]:
    """Returns (offset, value) of each record of a partition."""
    return [(record.offset, str(record.value)) for record in records(view, topic, partition)]


def end_what_was_open(db: Engine, workers: Iterable[str] = (WORKER,)) -> None:
    """Ends the transactions that earlier incarnations of the workers left open."""
    mode_of(db).end_open(db, workers)


def wait_stable(db: Engine) -> None:
    """Waits until commits are visible as a whole; a mode may reply before that. LeftBehind if it is not as it
    should be then."""
    mode, until = mode_of(db), time.monotonic() + _STABLE_SECONDS
    while mode.is_unsettled(db):
        if time.monotonic() > until:
            raise LeftBehind("a transaction has no end")
        time.sleep(0.001)
    for what in mode.left(db):
        raise LeftBehind(what)
