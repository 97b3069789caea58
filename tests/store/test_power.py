"""The power goes at every point of recorded runs; each image opens and holds what was acknowledged.

    run ─▶ trace of writes, syncs, allocations, renames, removals ─▶ model of the disk at each point
        ─▶ images: durable sectors, and any subset of the others ─▶ open, compare

The model: a sector is dirty from its write to the sync that covers it, and may be on the disk or not;
after a failed sync it stays so for ever. Names are certain after the folder's sync. LMDB is taken as
it was after its last commit.
"""

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from storekit import TABLETS, Contents, FastFiles, contents, crash, write

from planstep.errors import IoError, PlanstepError, StoreClosed
from planstep.store import DiskStore
from planstep.store.readonly import ReadOnlyStore

SECTOR = 512
SMALL = 8 << 10
SEEDS = 20


class Recorder(FastFiles):
    """Appends to `trace` what is done; `fail` makes the next operation of that kind fail, `dead` all."""

    def __init__(self) -> None:
        self.trace: list[tuple[Any, ...]] = []
        self.names: dict[int, str] = {}
        self.fail = ""
        self.dead = False

    def _check(self, kind: str) -> None:
        if self.dead or self.fail == kind:
            self.fail = ""
            raise IoError("made to fail")

    def allocate(self, path: Path, size: int) -> None:
        self._check("allocate")
        self.trace.append(("allocate", path.name, size))
        super().allocate(path, size)

    def open(self, path: Path, write: bool) -> int:
        fd = super().open(path, write)
        self.names[fd] = path.name
        return fd

    def write(self, fd: int, buffers: Sequence[bytes], offset: int, sync: bool) -> None:
        if self.dead:
            raise IoError("dead")
        data = b"".join(buffers)
        # What fails may have been written all the same, but is not durable.
        failing, dying = self.fail == "write", self.fail == "die"
        self.trace.append(("write", self.names[fd], offset, data, sync and not (failing or dying)))
        super().write(fd, [data], offset, False)
        if failing and sync:
            self.trace.append(("lose", self.names[fd]))
        if dying:
            self.dead = True
        if failing or dying:
            self.fail = ""
            raise IoError("made to fail")

    def sync(self, fd: int) -> None:
        if self.fail == "sync":
            self.trace.append(("lose", self.names[fd]))
        self._check("sync")
        self.trace.append(("sync", self.names[fd]))

    def sync_folder(self, path: Path) -> None:
        self._check("sync_folder")
        if (path / "table").exists():  # the store's own
            self.trace.append(("sync_folder",))

    def rename(self, source: Path, target: Path) -> None:
        self._check("rename")
        self.trace.append(("rename", source.name, target.name))
        super().rename(source, target)
        for fd, name in self.names.items():
            if name == source.name:
                self.names[fd] = target.name

    def remove(self, path: Path) -> None:
        self._check("remove")
        if path.exists():
            self.trace.append(("remove", path.name))
        super().remove(path)


class Inode:
    """A file: what reads see, what is surely on the disk, and the sectors where these may differ."""

    def __init__(self, size: int) -> None:
        self.cache, self.disk = bytearray(size), bytearray(size)
        self.dirty: set[int] = set()
        self.lost: set[int] = set()

    def write(self, offset: int, data: bytes) -> set[int]:
        self.cache[offset : offset + len(data)] = data
        sectors = set(range(offset // SECTOR, (offset + len(data) - 1) // SECTOR + 1))
        self.dirty |= sectors
        self.lost -= sectors
        return sectors

    def flush(self, sectors: set[int]) -> None:
        for n in sectors:
            self.disk[n * SECTOR : (n + 1) * SECTOR] = self.cache[n * SECTOR : (n + 1) * SECTOR]
        self.dirty -= sectors

    def image(self, rng: random.Random) -> bytes:
        data = bytearray(self.disk)
        chance = rng.choice([0.0, 0.5, 0.5, 0.9, 1.0])
        for n in sorted(self.dirty | self.lost):
            if rng.random() < chance:
                data[n * SECTOR : (n + 1) * SECTOR] = self.cache[n * SECTOR : (n + 1) * SECTOR]
        return bytes(data)


class Disk:
    """The model at one point of the trace, and what a store on it may hold."""

    def __init__(self, durability: str) -> None:
        self.full = durability == "full"
        self.live: dict[str, Inode] = {}
        self.names: dict[str, Inode] = {}
        self.pending: list[tuple[Any, ...]] = []
        self.table: bytes | None = None
        self.history: list[Contents] = [{}]  # the first is surely there, the last acknowledged
        self.flying: Contents | None = None

    def step(self, event: tuple[Any, ...], whole: bool) -> None:
        """`whole` is False for the operation during which the power goes."""
        kind, *rest = event
        if kind == "allocate":
            name, size = rest
            self.live[name] = Inode(size)
            self.pending.append(("allocate", name, self.live[name]))
        elif kind == "write":
            name, offset, data, sync = rest
            sectors = self.live[name].write(offset, data)
            if sync and whole:
                self.live[name].flush(sectors)
        elif kind == "sync" and whole:
            self.live[rest[0]].flush(set(self.live[rest[0]].dirty))
        elif kind == "lose":
            inode = self.live[rest[0]]
            inode.lost |= inode.dirty
            inode.dirty = set()
        elif kind == "rename":
            self.live[rest[1]] = self.live.pop(rest[0])
            self.pending.append(event)
        elif kind == "remove":
            self.live.pop(rest[0])
            self.pending.append(event)
        elif kind == "sync_folder" and whole:
            self.names, self.pending = dict(self.live), []
        elif kind == "table" and whole:
            self.table, turns = rest
            if turns is not None:
                del self.history[: len(self.history) - 1 - turns]
        elif kind == "begin":
            (self.flying,) = rest
        elif kind == "acknowledged":
            assert self.flying is not None
            self.history = [self.flying] if self.full else [*self.history, self.flying]
            self.flying = None
        elif kind == "refused":
            self.flying = None
        elif kind == "opened" and whole:
            self.history, self.flying = [rest[0]], None

    def image(self, folder: Path, rng: random.Random) -> None:
        names = dict(self.names)
        chance = rng.choice([0.0, 0.5, 1.0])
        for kind, name, what in (
            op if len(op) == 3 else (*op, None) for op in self.pending if rng.random() < chance
        ):
            if kind == "allocate":
                names[name] = what
            elif name in names:
                inode = names.pop(name)
                if kind == "rename":
                    names[what] = inode
        (folder / "table").mkdir(parents=True)
        for name, inode in names.items():
            (folder / name).write_bytes(inode.image(rng))
        if self.table is not None:
            (folder / "table" / "data.mdb").write_bytes(self.table)

    def allowed(self) -> list[Contents]:
        return [*self.history, *([] if self.flying is None else [self.flying])]


class Run:
    """A seeded workload. Invariant: `held` is what the store shows."""

    def __init__(self, folder: Path, seed: int, durability: str) -> None:
        self.folder, self.durability = folder, durability
        self.rng = random.Random(f"{seed} {durability}")
        self.files = Recorder()
        self.held: Contents = {}
        self.since = 0
        self.open()
        checkpoints = seed % 3 == 2
        plan = ["turn"] * 18 + ["write", "write", "die", "crash", "close"]
        plan += ["sync", "sync_folder", "allocate"] + ["checkpoint"] * (4 if checkpoints else 0)
        self.rng.shuffle(plan)
        for what in plan:
            if what == "checkpoint":
                self.checkpoint()
            elif what in ("crash", "close"):
                self.reopen(what)
            elif what == "turn" and checkpoints and self.rng.random() < 0.2:
                self.files.fail = "sync"  # one is there at durability "os" only
                self.checkpoint()
                self.files.fail = ""
            else:
                self.turn("" if what == "turn" else what)
        crash(self.store)

    def open(self) -> None:
        while True:
            try:
                self.store = DiskStore.open(
                    self.folder,
                    files=self.files,
                    durability=self.durability,
                    segment_bytes=SMALL,
                )
                break
            except IoError:
                pass  # a failure that was to meet something else
        self.watch("checkpoint", lambda args: self.store.last_turn - args[3][0])
        self.watch("move", lambda args: None)
        self.watch("mark_closed", lambda args: None)
        self.held = contents(self.store)
        self.files.trace.append(("opened", self.held))

    def watch(self, name: str, behind: Callable[[Any], int | None]) -> None:
        """Each commit to LMDB goes into the trace; `behind`: turns that it leaves to the log."""
        commit = getattr(self.store._table, name)

        def watched(*args: Any) -> Any:
            answer = commit(*args)
            data = (self.folder / "table" / "data.mdb").read_bytes()
            self.files.trace.append(("table", data, behind(args)))
            return answer

        setattr(self.store._table, name, watched)

    def checkpoint(self) -> None:
        try:
            self.store.checkpoint()
        except IoError:
            pass  # and again until the next turn has gone on in a new segment

    def reopen(self, how: str) -> None:
        if how == "close":
            self.store.close()
        crash(self.store)
        self.files.dead = False
        self.open()

    def turn(self, fail: str) -> None:
        rng = self.rng
        changes: dict[bytes, Any] = {
            TABLETS[0] + bytes([rng.randrange(6)]): rng.randbytes(rng.choice([3, 40, 700]))
        }
        if rng.random() < 0.3 and self.held:
            changes[rng.choice(sorted(self.held))] = None
        name = TABLETS[1] + bytes([rng.randrange(6)])
        payloads = {name: rng.randbytes(rng.choice([1, 300, 2000]))} if rng.random() < 0.6 else {}
        if fail in ("sync", "sync_folder", "allocate"):
            payloads = {name: rng.randbytes(SMALL)}  # does not fit: a new segment
        after = {k: v for k, v in {**self.held, **changes, **payloads}.items() if v is not None}
        if after == self.held:
            return
        self.files.trace.append(("begin", after))
        self.files.fail = fail
        try:
            write(self.store, changes, payloads)
        except StoreClosed:
            self.reopen("crash")
        except IoError:
            self.files.trace.append(("refused",))
            assert contents(self.store) == self.held
        else:
            self.files.trace.append(("acknowledged",))
            self.held = after
        self.files.fail = ""


def check(folder: Path, disk: Disk, durability: str, rng: random.Random, where: str) -> None:
    disk.image(folder, rng)
    if (folder / "meta.pb").exists() and (folder / "table" / "data.mdb").exists():
        look = ReadOnlyStore.open(folder)
        assert contents(look) in disk.allowed(), f"{where}, looked at"
        look.close()
    try:
        store = DiskStore.open(
            folder, files=FastFiles(), durability=durability, segment_bytes=SMALL
        )
    except PlanstepError as error:
        raise AssertionError(f"{where}: {error!r}") from error
    try:
        found = contents(store)
        assert found in disk.allowed(), where
        if rng.random() < 0.1:
            write(store, {TABLETS[0]: where})
            crash(store)
            store = DiskStore.open(folder, files=FastFiles(), segment_bytes=SMALL)
            assert contents(store) == {**found, TABLETS[0]: where}, where
    finally:
        crash(store)
        shutil.rmtree(folder)


@pytest.mark.parametrize("durability", ["full", "os"])
def test_the_power_goes_at_every_point(quick_path: Path, durability: str) -> None:
    images = 0
    for seed in range(SEEDS):
        trace = Run(quick_path / f"run{seed}", seed, durability).files.trace
        rng = random.Random(seed)
        disk = Disk(durability)
        for at, event in enumerate(trace):
            if event[0] in ("begin", "acknowledged", "refused", "opened", "lose"):
                disk.step(event, True)
                continue
            disk_at = f"{durability}, seed {seed}, point {at}, {event[0]}"
            disk.step(event, False) if event[0] == "write" else None
            check(quick_path / "image", disk, durability, rng, disk_at)
            disk.step(event, True)
            images += 1
        for _ in range(3):
            check(quick_path / "image", disk, durability, rng, f"{durability}, seed {seed}, end")
            images += 1
    assert images >= 1_200, images
