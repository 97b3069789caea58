"""Runs a store without an engine through every kind of failure that a turn can meet, then through a power loss.

    seed ─▶ turns, failing writes and syncs, deaths, crashes, checkpoints, segment changes ─▶ trace
    trace, point ─▶ image ─▶ opened as a reader, opened as an owner, opened again: judged

Next: steps.py, the same through the whole public interface.
"""

import random
import shutil
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from ....errors import IoError, PlanstepError, StoreClosed
from ....store import DiskStore
from ....store.files import Files
from ....store.readers.readonly import ReadOnlyStore
from ....store.verify import verify
from .failing import FastFiles
from .images import Allowed
from .recorder import Recorder, Trace, watch_mark, watch_tables
from .stores import TABLETS, Contents, contents, table_file, write

SEGMENT_BYTES = 8 << 10


class Run:
    """A seeded workload. Invariant: `held` is the store's content."""

    def __init__(self, root: Path, seed: int, durability: str) -> None:
        self.folder, self.durability = root / "host-0", durability
        self.rng = random.Random(f"{seed} {durability}")
        self.files = Recorder(root)
        self.trace: Trace = self.files.trace
        self.held: Contents = {}
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
                self.files.fail = "sync"  # a checkpoint syncs the log at durability "os" only
                self.checkpoint()
                self.files.fail = ""
            else:
                self.turn("" if what == "turn" else what)
        self.store.crash()

    def open(self) -> None:
        while True:
            with suppress(IoError):  # an injected failure that was meant for another operation
                self.store = _open(self.folder, self.files, self.durability)
                break
        watch_tables(self.store, self.files, self.note_checkpoint)
        watch_mark(self.store, self.files)
        self.held = contents(self.store)
        self.trace.append(("opened", self.held))

    def note_checkpoint(self, what: str, args: tuple[Any, ...]) -> None:
        """Records that a checkpoint's turns surely survive; its state says up to which turn."""
        if what == "checkpoint":
            self.trace.append(("kept", self.store.last_turn - args[3][0]))

    def checkpoint(self) -> None:
        with suppress(IoError):  # it fails until the next turn has moved to a new segment
            self.store.checkpoint()

    def reopen(self, how: str) -> None:
        if how == "close":
            self.store.close()
        self.store.crash()
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
            payloads = {name: rng.randbytes(SEGMENT_BYTES)}  # does not fit, so a new segment begins
        after = {k: v for k, v in {**self.held, **changes, **payloads}.items() if v is not None}
        if after == self.held:
            return
        self.trace.append(("begin", after))
        self.files.fail = fail
        try:
            write(self.store, changes, payloads)
        except StoreClosed:
            self.reopen("crash")
        except IoError:
            self.trace.append(("refused",))
            assert contents(self.store) == self.held
        else:
            self.trace.append(("acknowledged",))
            self.held = after
        self.files.fail = ""


def judge(root: Path, allowed: Allowed, durability: str, rng: random.Random) -> str:
    """Opens an image and returns what is wrong with it, "" if nothing. Removes the image."""
    folder = root / "host-0"
    store: DiskStore | None = None
    try:
        if wrong := _read(folder, allowed):
            return f"a reader: {wrong}"
        store = _open(folder, FastFiles(), durability)
        content = contents(store)
        if wrong := allowed.judge(content):
            return wrong
        if rng.random() < 0.2:
            store.crash()
            store = _open(folder, FastFiles(), durability)
            if contents(store) != content:
                return "opened a second time, it holds something else"
            write(store, {TABLETS[0]: "more"})
            store.close()
            if problems := verify(folder):
                return f"verify: {problems[0]}"
            store = _open(folder, FastFiles(), durability)
            if contents(store) != {**content, TABLETS[0]: "more"}:
                return "what was written after the power loss is not there"
        return ""
    except PlanstepError as error:
        return f"it does not open, or cannot be read: {error!r}"
    finally:
        if store is not None:
            store.crash()
        shutil.rmtree(root, ignore_errors=True)


def _open(folder: Path, files: Files, durability: str) -> DiskStore:
    return DiskStore.open(folder, files=files, durability=durability, segment_bytes=SEGMENT_BYTES)


def _read(folder: Path, allowed: Allowed) -> str:
    """Returns what is wrong with a reader's view, if there is a store that a reader can open."""
    if not ((folder / "meta.pb").exists() and table_file(folder).exists()):
        return ""
    with closing(ReadOnlyStore.open(folder)) as store:
        return allowed.judge(contents(store))
