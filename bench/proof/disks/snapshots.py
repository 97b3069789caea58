"""Makes snapshots of a replicated store, restores them, and tells what a store holds, for checks.

    commit ─▶ held: a digest of all rows and payload ─▶ snapshot ─▶ restored elsewhere ─▶ held: the same?

Next: ../rows/shared_restore.py.
"""

import os
from contextlib import closing
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ....api import open_engine
from ....api.engine import Engine
from ....runtime import open_runtime, replication, snapshotting
from ....runtime.replication import ReplicatedFolder
from ....runtime.snapshotting import Snapshotter, restore_whole
from ....shared.manifest import MANIFEST, SNAP, STEM
from ....shared.owner import Ownership
from ....shared.registry import open_shared_log
from ....shared.settings import Replicate
from ....shared.shared_log import Root, SharedLog
from ....shared.snapshots import Snapshots
from ....store import DiskStore
from ....store.meta import REPLICATED, Meta
from ....store.snapshot_making import make_snapshot
from ....store.turn import encode_changes
from ..patching import exchange
from .engines import read_all, stores_of
from .stores import resolve

WARM = open_runtime.__name__, replication.__name__, snapshotting.__name__
"""They are imported once, before the first fork."""
_PART_BYTES = 8 << 10
_ROWS, _KEPT_RECORDS = 40, 30
_NEVER = 1 << 50


def open_owner(folder: Path, url: str) -> Engine:
    """Opens the store as its owner, who makes no snapshot by itself."""
    settings = Replicate(url, snapshot_bytes=_NEVER)
    return open_engine.open(folder, replicate=settings, takeover=True)


def prepare(db: Engine) -> None:
    db.create_topic("log", format="utf8")
    db.create_table("rows")


def commit(db: Engine, n: int) -> None:
    """Commits the `n`-th transaction: a row, and often a record; old ones are trimmed."""
    with db.transaction() as tx:
        tx.put("rows", n % _ROWS, f"{n} " * (1 + n % 20))
        if n % 3:
            tx.write("log", f"record {n} " * (1 + n % 150), partition=0)
        tx.commit()
    if n % 25 == 24:
        with db.context.open_view() as view:
            _, end = view.bounds("log")[0]
        db.topic("log").trim(max(0, end - _KEPT_RECORDS), partition=0)


def held(store: Any) -> str:
    """Returns a digest of all that a store holds, and its place."""
    rows = {key: resolve(store, value) for key, value in store.scan(b"", b"\xff" * 9)}
    place = f"{store.last_turn} {store.next_address}".encode()
    return blake2b(place + encode_changes(rows), digest_size=16).hexdigest()


def held_in(folder: Path, url: str) -> str:
    """Returns `held` of a folder that is closed."""
    log, root = open_shared_log(url, None)
    log.close()
    store = DiskStore.open(folder / "host-0", shared_id=root.store_id)
    try:
        return held(store)
    finally:
        store.crash()


def shown(db: Engine) -> Any:
    """Returns all that users see."""
    with db.context.open_view() as view:
        return read_all(view, "log", 0), dict(view.scan("rows"))


def small_parts() -> None:
    """Lets snapshots have several parts and packs, in a child."""
    exchange(snapshotting, "make_snapshot", partial(make_snapshot, part_bytes=_PART_BYTES))


def snapshot(db: Engine, url: str) -> int:
    """Makes a snapshot of the last checkpoint, trims the log behind the one before, and returns the turn."""
    (store,) = stores_of(db)
    log, root = open_shared_log(url, None)
    with closing(log):
        snapshots = _snapshots(url, log, root)
        Snapshotter(store, Replicate(url)).make_now(log, snapshots)
        return next(snapshots.newest_first()).turn


def snapshot_to_keep(db: Engine, url: str) -> int:
    """Makes a snapshot of the last checkpoint, and returns its turn. Everything else stays."""
    (store,) = stores_of(db)
    log, root = open_shared_log(url, None)
    with closing(log):
        snapshots = _snapshots(url, log, root)
        store.checkpoint()
        newest = next(snapshots.newest_first(), None)
        made, _ = make_snapshot(store, snapshots, newest, log.floor, part_bytes=_PART_BYTES)
        return made.turn


def _snapshots(url: str, log: SharedLog, root: Root) -> Snapshots:
    assert log.objects is not None
    return Snapshots(log.objects, url, root.store_id)


def restored(url: str, turn: int, folder: Path, *, to_the_end: bool) -> tuple[str, str]:
    """Restores the newest snapshot up to a turn; returns what the store holds then, and with the log's tail."""
    log, root = open_shared_log(url, None)
    with closing(log):
        snapshots = _snapshots(url, log, root)
        manifest = next(snapshots.newest_first(turn))
        meta = Meta(REPLICATED, root.store_id, root.mode, 1, folder_id=os.urandom(16))
        assert restore_whole(snapshots, manifest, folder, meta), "the snapshot is damaged"
        store = DiskStore.open(folder / "host-0", shared_id=root.store_id)
        try:
            then = held(store)
            if to_the_end:
                Ownership(log, root.store_id, bytes(16)).catch_up(ReplicatedFolder(store))
            return then, held(store)
        finally:
            store.crash()


def without_parts(url: str) -> list[str]:
    """Lists the manifests that are there, and whose snapshot is not whole."""
    log, root = open_shared_log(url, None)
    with closing(log):
        assert log.objects is not None
        snapshots = _snapshots(url, log, root)
        whole = {manifest.stem for manifest in snapshots.newest_first()}
        names = [name for name in log.objects.names(SNAP) if name.endswith(MANIFEST)]
        stems = [name.removeprefix(SNAP).removesuffix(MANIFEST) for name in names]
        return [stem for stem in stems if stem not in whole]


def leftovers(url: str) -> list[str]:
    """Lists parts of snapshots without a manifest."""
    log, _ = open_shared_log(url, None)
    with closing(log):
        assert log.objects is not None
        names = log.objects.names(SNAP)
        stems = {name.removeprefix(SNAP).partition("/")[0] for name in names}
        return [
            stem
            for stem in stems
            if STEM.fullmatch(stem) and f"{SNAP}{stem}{MANIFEST}" not in names
        ]
