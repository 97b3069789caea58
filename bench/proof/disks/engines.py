"""The whole engine over files of our own: opened, looked at, abandoned.

    open_engine ─▶ what planstep.open gives, with short segments and other files
    shown       ─▶ topics, tables, positions of one snapshot, as plain data
    abandon     ─▶ what a killed process leaves: nothing is written, nothing finished

Next: user_story.py.
"""

from pathlib import Path
from typing import Any

from ....api.engine import Engine
from ....api.open_engine import Durability, Mode, Settings, Slot
from ....errors import EngineClosed, PlanstepError
from ....proto.kafka.settings import KafkaSettings
from ....runtime.open_stores import OpenOptions, open_runtime
from ....store import DiskStore
from ....store.files import Files

SEGMENT_BYTES = 16 << 10
CONSUMER = "c"

Shown = dict[str, Any]
"""topic → [[oldest offset, [value, …]] of each partition], table → {key: value}, "positions" → [offset, …]."""


def open_engine(
    path: Path,
    files: Files,
    *,
    mode: Mode = "deterministic",
    hosts: int = 1,
    durability: Durability = "full",
    segment_bytes: int = SEGMENT_BYTES,
    kafka: KafkaSettings | None = None,
) -> Engine:
    """As planstep.open, but for what stands below it; the engine is this caller's alone."""
    settings = Settings(
        mode=mode, hosts=hosts, durability=durability, kafka=kafka or KafkaSettings()
    )
    settings.check()
    options = OpenOptions(
        mode=mode,
        hosts=hosts,
        durability=durability,
        settings=settings.of_modes,
        files=files,
        segment_bytes=segment_bytes,
    )
    runtime = open_runtime(path, options)
    slot = Slot()
    slot.engine = db = Engine(str(path), runtime, settings, slot)
    return db


def stores_of(db: Engine) -> list[DiskStore]:
    found: list[Any] = [node.host.store for node in db.context.runtime.nodes]
    return found


def abandon(db: Engine) -> None:
    """The process is gone: threads end, descriptors are closed, nothing more is written."""
    runtime = db.context.runtime
    for node in runtime.nodes:
        with node.lock:
            node.down = True
            node.inbox.clear()
    runtime.turns.stop_everything(EngineClosed("the engine was abandoned"))
    runtime.replies.answer()
    try:
        db.close()
    except PlanstepError:
        pass  # of what lingered
    for store in stores_of(db):
        store.crash()


def shown(db: Engine) -> Shown:
    """All that users see, in one snapshot. Topics are utf8."""
    found: Shown = {}
    topics, tables = sorted(db.topics()), sorted(db.tables())
    with db.snapshot() as view:
        for name in topics:
            parts = []
            for partition, (start, end) in sorted(view.bounds(name).items()):
                values: list[str] = []
                while start + len(values) < end:
                    at = start + len(values)
                    batch = view.read(name, at, partition)
                    if not batch:  # markers, of mode kafka
                        break
                    values += [str(value) for value in batch.values]
                parts.append([start, values])
            found[name] = parts
        for name in tables:
            found[name] = {str(key): value for key, value in view.scan(name)}
        if "in" in topics:
            positions = view.position("in", CONSUMER)
            found["positions"] = [offset for _, offset in sorted(positions.items())]
    return found
