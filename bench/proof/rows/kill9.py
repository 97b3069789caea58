"""Row `kill9`: kills the engine with SIGKILL at any moment, a thousand times, while readers live on.

    parent ── fork ─▶ writer: open, check all, then 3 streams at once ── each acknowledged ─▶ pipe
       │   └─ fork ─▶ reader: an engine of its own, opened before the kill
       └─ SIGKILL ─▶ the next writer opens the store: acknowledged ≤ stored ≤ acknowledged + 1 a stream,
                     and nothing torn; the reader follows, and a view that it holds stays as it was
                     what is open in place ends: by the mode's means, mostly, else by its time-out

The writer sends a line after each commit that returned, so all lines that the parent reads were promised.
One writer after the other takes over a store; only the last one closes it, then it is verified. The plan follows
from the seed; the moment at which a signal hits the engine does not, on any machine.

A killed process loses no page cache: row powerloss covers the loss of power.

Next: ../disks/forked.py, ../disks/streams.py.
"""

import math
import os
import random
import threading
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ....api import open_engine
from ....api.engine import Engine
from ....api.open_engine import Durability, Mode, Placement
from ....errors import PlanstepError
from ....runtime import open_stores
from ....store.files import Files
from ....store.verify import verify
from ..disks.contents import difference
from ..disks.engines import content_in
from ..disks.forked import Child, Say, Silent, keep_busy, small_steps
from ..disks.modes import MODES, settings_of
from ..disks.streams import STREAMS, Stream, count, make, view
from ..parallel import gather
from ..patching import exchange
from .registry import RowOptions, RowResult

KILLS = 1_000
ACKNOWLEDGED = 20_000
READERS = 300
_VERIFIED_EACH = 25
_READER_LIVES = 4
_LATE_SECONDS = 0.3
_WAITING = 0.1
"""The share of openings that wait for time-outs, where that is short."""
_OPENING = "opening_seconds_max"


class KilledStore(NamedTuple):
    """A store that is killed again and again."""

    mode: Mode
    hosts: int
    placement: Placement = "shared"
    durability: Durability = "full"
    disk: bool = False
    variant: str = ""
    individual: bool = False
    """The kind of the consumer."""

    def __str__(self) -> str:
        where = "on a disk" if self.disk else "in memory"
        variant = f" {self.variant}" * bool(self.variant)
        hosts = f"{self.hosts} hosts, {self.placement}"
        return f"{self.mode}{variant}, {hosts}, {self.durability}, {where}"


LANES = (
    KilledStore("deterministic", 1, disk=True),
    KilledStore("deterministic", 3, disk=True),
    KilledStore("deterministic", 1),
    KilledStore("deterministic", 3),
    KilledStore("deterministic", 1, durability="os"),
    KilledStore("deterministic", 3, placement="separate"),
    KilledStore("kafka", 1),
    KilledStore("kafka", 3),
    KilledStore("pulsar", 1, variant="segmented", individual=True),
    KilledStore("pulsar", 3, variant="parts, batched logs"),
)
"""A kill looks the same to a disk and to memory; the disk is slower, so a kill more often meets a sync."""


class Work(NamedTuple):
    lane: KilledStore
    folder: Path
    kills: int
    seed: int
    late: bool = False


def run(options: RowOptions) -> RowResult:
    kills = options.of(KILLS, least=len(LANES))
    works = []
    for number, lane in enumerate(LANES):
        folder = (options.folder if lane.disk else options.memory) / f"kill9-{number}"
        share = kills // len(LANES) + (number < kills % len(LANES))
        if share:
            works.append(Work(lane, folder, share, options.seed * 100 + number))
    result = gather(options, kill_again, works)
    acknowledged, readers = result.events, result.faults["kill beside a reader"]
    result.figures |= {"acknowledged": acknowledged, "readers": readers}
    if options.runs is None:
        scale = kills / KILLS
        result.reaches(
            [
                ("kills", result.runs, kills),
                ("acknowledged transactions", acknowledged, int(ACKNOWLEDGED * scale)),
                ("kills beside a reader", readers, int(READERS * scale)),
            ]
        )
    return result


def control(options: RowOptions) -> RowResult:
    """Plants a log that reports a record as durable, and writes it a moment later."""
    lane = LANES[2]
    result = kill_again(Work(lane, options.memory / "late", 8, options.seed, late=True))
    return result.planted("acknowledged lost", "were synced, says the file")


class LateFiles(Files):
    """Plants the bug: `write` returns before anything is written, except at the beginning of a file."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, bytes, int]] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._write_late, daemon=True).start()

    def write(self, fd: int, buffers: Sequence[bytes], offset: int, sync: bool) -> None:
        if not offset:
            super().write(fd, buffers, offset, sync)
            return
        with self._lock:
            due = time.monotonic() + _LATE_SECONDS
            self._waiting.append((due, os.dup(fd), b"".join(buffers), offset))

    def _write_late(self) -> None:
        while True:
            with self._lock:
                if self._waiting and self._waiting[0][0] <= time.monotonic():
                    _, fd, data, offset = self._waiting.pop(0)
                    os.pwrite(fd, data, offset)
                    os.close(fd)
            time.sleep(0.0005)


# a child's work --------------------------------------------------------------------------------


def _open(lane: KilledStore, folder: Path) -> Engine:
    settings: Any = settings_of(lane.mode, lane.variant) if lane.variant else {}
    return open_engine.open(
        folder,
        mode=lane.mode,
        hosts=lane.hosts,
        placement=lane.placement,
        durability=lane.durability,
        **settings,
    )


def _write(work: Work, waits: bool, say: Say, listen: int) -> None:
    """Writes until it is killed. `waits`: what was open ends by its time-out."""
    lane = work.lane
    small_steps()
    if work.late:
        exchange(open_stores, "Files", LateFiles)
    began = time.monotonic()
    db = _open(lane, work.folder)
    seconds = time.monotonic() - began
    make(db, lane.individual)
    counts, offsets = _say_counts(db, seconds, say, not waits)
    keep_busy(db)

    def go_on(stream: Stream) -> None:
        try:
            while True:
                stream.step()
                say(f"a {stream.number} {stream.n}")
                stream.tidy()
        except BaseException as error:
            say(f"x stream {stream.number} ended: {error!r}")
            os._exit(1)

    streams = [Stream(db, k, counts[k], offsets[k]) for k in range(STREAMS)]
    threads = [threading.Thread(target=go_on, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    threads[0].join()


def _view(lane: KilledStore, folder: Path, say: Say, listen: int) -> None:
    """Reads again and again through an engine opened before the kill, and through a view that it holds."""
    with open_engine.open(folder, read_only=True) as db, db.context.open_view() as held:
        holds = db.context.runtime.hooks.has_tables  # else each read is of the present
        before = content_in(db, held) if holds else {}
        while True:
            if holds and (now := content_in(db, held)) != before:
                say(f"x a view changed: {difference(before, now)}")
            say(f"r {' '.join(map(str, view(db)))}")
            if not os.read(listen, 1):
                return


def _close(lane: KilledStore, folder: Path, say: Say, listen: int) -> None:
    db = _open(lane, folder)
    _say_counts(db, 0.0, say)
    db.close()


def _say_counts(
    db: Engine, seconds: float, say: Say, end: bool = True
) -> tuple[list[int], list[list[int]]]:
    counts, offsets = count(db, end)
    say(f"o {seconds:.4f} {' '.join(map(str, counts))}")
    return counts, offsets


# the parent's ----------------------------------------------------------------------------------


class Killer:
    """One store's kills. Invariant: `acknowledged` counts, by stream, the transactions promised or seen stored."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.result = RowResult(figures={"stores_verified": 0})
        self.acknowledged = [0] * STREAMS
        self.writer: Child | None = None
        self.reader: Child | None = None
        self.read: list[int] = []
        """What the reader showed last."""
        self.reader_lives = 0

    def wrong(self, text: str) -> None:
        self.result.violations.append(f"{self.work.lane}, kill {self.result.runs + 1}: {text}")

    def take_line(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        if kind == "a":
            stream, n = map(int, rest.split())
            if n != self.acknowledged[stream] + 1:
                self.wrong(f"stream {stream}: {n} behind {self.acknowledged[stream]}")
            self.acknowledged[stream] = n
            self.result.events += 1
        elif kind == "o":
            seconds, *counts = rest.split()
            self.result.add(RowResult(most={_OPENING: float(seconds)}))
            self._compare(list(map(int, counts)))
        else:
            self.wrong(rest)

    def _compare(self, counts: list[int]) -> None:
        for stream, (promised, there) in enumerate(zip(self.acknowledged, counts, strict=True)):
            if there < promised:
                self.wrong(f"stream {stream}: {promised - there} of {promised} acknowledged lost")
            elif there > promised + 1:
                self.wrong(f"stream {stream}: {there} are there of {promised} and one under way")
            self.result.faults["unacknowledged that counts"] += there == promised + 1
        self.acknowledged = counts

    def kill(self, draw: random.Random) -> None:
        work = self.work
        waits = MODES[work.lane.mode].times_out and draw.random() < _WAITING
        self.result.faults["opening that waits for time-outs"] += waits
        child = self.writer = Child(partial(_write, work, waits))
        if draw.random() < 0.2:
            what, moment = "kill while it opens", 0.05
        else:
            what, moment = "kill while it commits", 0.003
            self._take_lines(child.lines(), draw.randrange(5, 50))
            if draw.random() < 0.6 and not work.late:
                self._begin_to_read()
        self._take_lines(child.lines(time.monotonic() + draw.uniform(0.0, moment)))
        self._take_lines(child.kill())
        if child.code != -9:
            self.wrong(f"the writer ended with exit code {child.code} before it was killed")
        self.result.runs += 1
        self.result.faults[what] += 1
        self._read_on()

    def _take_lines(self, lines: Iterable[str], acknowledged: float = math.inf) -> None:
        """Takes lines in, until so many transactions of them were acknowledged."""
        until = self.result.events + acknowledged
        for line in lines:
            self.take_line(line)
            if self.result.events >= until:
                return

    def _begin_to_read(self) -> None:
        if self.reader is not None or not self.result.most:  # no writer has opened a store yet
            return
        self.reader = Child(partial(_view, self.work.lane, self.work.folder))
        self.reader_lives = _READER_LIVES
        self.read = [0] * STREAMS
        self._take_read(self.reader.line())

    def _read_on(self) -> None:
        """Checks what a reader shows after the store's owner died, or was followed by another: all that was
        acknowledged, where commits are shown before they are answered, and no more than may be there."""
        if self.reader is None:
            return
        self.reader.tell()
        if not self._take_read(self.reader.line()):
            return
        behind = MODES[self.work.lane.mode].lag - 1
        for stream, (promised, shown) in enumerate(zip(self.acknowledged, self.read, strict=True)):
            if not promised - behind <= shown <= promised + 1:
                self.wrong(f"stream {stream}: a reader saw {shown} of {promised} acknowledged")
        self.result.faults["kill beside a reader"] += 1
        self.reader_lives -= 1
        if not self.reader_lives:
            self.end_reader()

    def _take_read(self, line: str) -> bool:
        """Takes a reader's line in. It ends a reader that shows less than before."""
        kind, _, rest = line.partition(" ")
        shown = list(map(int, rest.split())) if kind == "r" else []
        if not shown:
            self.wrong(f"a reader: {line}")
        elif any(now < before for before, now in zip(self.read, shown, strict=True)):
            self.wrong(f"a reader saw {self.read}, and behind the kill {shown}")
        else:
            self.read = shown
            return True
        self.end_reader()
        return False

    def end(self) -> None:
        """Ends all children, whatever happened before."""
        self.end_reader()
        if self.writer is not None:
            self.writer.kill()

    def end_reader(self) -> None:
        if self.reader is not None:
            self.reader.kill()
            self.reader = None

    def verify(self) -> None:
        for number in range(self.work.lane.hosts):
            folder = self.work.folder / f"host-{number}"
            if (folder / "table" / "data.mdb").exists():
                for problem in verify(folder):
                    self.wrong(f"host {number}: {problem}")
                self.result.figures["stores_verified"] += 1

    def finish(self) -> None:
        """Opens the store once more, closes it in order, and verifies it."""
        child = Child(partial(_close, self.work.lane, self.work.folder))
        self._take_lines(child.wait())
        if child.code != 0:
            self.wrong(f"closing ended with exit code {child.code}")
        self.verify()


def kill_again(work: Work) -> RowResult:
    """Kills one store again and again."""
    killer = Killer(work)
    try:
        for number in range(work.kills):
            killer.kill(random.Random(f"{work.seed}/{number}"))
            if not work.late and number % _VERIFIED_EACH == _VERIFIED_EACH - 1:
                killer.verify()
            if killer.result.violations:
                break  # later kills would report the same
        else:
            killer.finish()
    except Silent as silent:
        killer.wrong(str(silent))
    except (OSError, PlanstepError) as error:
        killer.wrong(f"the check: {error!r}")
    finally:
        killer.end()
    return killer.result
