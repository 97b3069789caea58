"""The whole engine over files of our own: opened, looked at, abandoned.

    open_engine ─▶ what planstep.open gives, with short segments and other files
    shown       ─▶ topics, tables, positions, as plain data
    abandon     ─▶ what a killed process leaves: nothing is written, nothing finished

Next: steps.py.
"""

import time
from pathlib import Path
from typing import Any

from ....api.engine import Engine
from ....api.open_engine import Durability, Mode, Settings, Slot
from ....errors import EngineClosed, PlanstepError
from ....proto.kafka.settings import KafkaSettings
from ....runtime.open_stores import open_runtime
from ....store import DiskStore
from ....store.files import Files
from ....store.verify import verify

SEGMENT_BYTES = 16 << 10
CONSUMER, WORKER = "c", "w"
_STABLE_SECONDS = 30.0

Shown = dict[str, Any]
"""topic → [[oldest offset, [value, …]] of each partition], table → {key: value},
positions(topic) → [offset, …]."""


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
    runtime = open_runtime(
        path,
        mode=mode,
        hosts=hosts,
        durability=durability,
        settings=settings.of_modes,
        files=files,
        segment_bytes=segment_bytes,
    )
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


def verified(path: Path) -> list[str]:
    """Returns the problems of a store that is closed."""
    hosts = sorted(path.glob("host-*"))
    return [f"{host.name}, verify: {problem}" for host in hosts for problem in verify(host)]


def positions(topic: str) -> str:
    """Returns the name under which `shown` has where CONSUMER goes on in the topic."""
    return f"positions of {topic}"


def shown(db: Engine) -> Shown:
    """Returns all that users see, in mode deterministic of one snapshot. Topics are utf8."""
    if db.mode == "kafka":
        return _shown_kafka(db)
    found: Shown = {}
    topics, tables = sorted(db.topics()), sorted(db.tables())
    with db.snapshot() as view:
        for name in topics:
            parts = []
            for partition, (start, end) in sorted(view.bounds(name).items()):
                values: list[str] = []
                while start + len(values) < end:
                    batch = view.read(name, start + len(values), partition)
                    if not batch:  # fewer than the bounds say
                        break
                    values += [str(value) for value in batch.values]
                parts.append([start, values])
            found[name] = parts
            found[positions(name)] = [
                offset for _, offset in sorted(view.position(name, CONSUMER).items())
            ]
        for name in tables:
            found[name] = {str(key): value for key, value in view.scan(name)}
    return found


def _shown_kafka(db: Engine) -> Shown:
    """Counts records in place of offsets, since markers have offsets too."""
    wait_stable(db)
    found: Shown = {}
    for name, topic in sorted(db.topics().items()):
        found[name], found[positions(name)] = [], []
        for partition, position in sorted(topic.position(CONSUMER).items()):
            batch = topic.read(0, partition=partition, max_records=10_000)
            found[name].append([0, [str(value) for value in batch.values]])
            found[positions(name)].append(sum(at < position for _, at in batch.offsets))
    return found


def end_what_was_open(db: Engine) -> None:
    """Commits or aborts what an earlier incarnation of the worker left open, in mode kafka."""
    if db.mode == "kafka":
        db.context.runtime.hooks.ready(WORKER)


def wait_stable(db: Engine) -> None:
    """Waits until commits can be read whole, which mode kafka answers before."""
    runtime: Any = db.context.runtime
    for info in runtime.names.topics.values() if db.mode == "kafka" else ():
        for tablet in info.partitions:
            runtime.hooks.wait_stable(tablet)
            until = time.monotonic() + _STABLE_SECONDS
            while runtime.views.committed(tablet, CONSUMER)[1]:
                if time.monotonic() > until:
                    raise TimeoutError("a position waits for its transaction's end")
                time.sleep(0.001)
