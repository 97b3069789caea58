"""Runs the real runtime of a process that shares a store: its threads are fibers, its sockets and folder simulated.

    Runtime ─▶ ThreadPool.begin_thread ─▶ a fiber of this process       service · link · following · processes
    Link, Server ─▶ streams.py          DiskStore, views, lock ─▶ one_folder.py
    killed ─▶ its connections end, its lock is free, its fibers end where they wait

What is real: the runtime, its turns and answers, the link and the next owner, the owner's server and its peers, the
shares of lanes, and what follows the mark.

Left out: opening real folders, names of topics and tables (any tablet is known), checkpoints, maintenance.
Next: attached_world.py.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from ....errors import IoError, OwnerSilent, StoreInUse
from ....runtime import change_of_owner
from ....runtime import runtime as runtime_module
from ....runtime.catalog import Names
from ....runtime.maintenance import Maintenance
from ....runtime.mode_hooks import ModeHooks
from ....runtime.open_stores import OpenOptions
from ....runtime.processes import attached, awake, incoming, link, next_owner, peer, server
from ....runtime.processes.attached import OwnerGone, attach
from ....runtime.processes.next_owner import NextOwner
from ....runtime.runtime import Runtime
from ....runtime.shares_of_links import SharesOfLinks
from ....runtime.thread_pool import ThreadPool
from ....store import process_socket
from ....store.process_socket import NobodyListens, Peer
from .fiber import Fiber, FiberLock, current
from .one_folder import PATH, Disk, View
from .streams import Nudge, Poller, Stream, connect, select_for
from .waits import Clock, in_virtual_time

if TYPE_CHECKING:
    from .attached_world import AttachedWorld

_SAID = {"mode": "deterministic", "durability": "full"}
_LIMIT_SECONDS = 60.0
_AGAIN_MS = 20.0
OPENING, UP, CLOSING, GONE = "opening", "up", "closing", "gone"


class ProcessFiber(Fiber):
    """A fiber of a process, whose code runs in it."""

    process: "Process"


class Thread:
    """A thread of the runtime (threading.Thread)."""

    def __init__(self, world: "AttachedWorld", fiber: Fiber) -> None:
        self._world, self._fiber = world, fiber

    def is_alive(self) -> bool:
        return not self._fiber.done

    def join(self) -> None:
        while self.is_alive():
            self._world.rest(1.0)


class FiberThreads(ThreadPool):
    """Runs the runtime's threads as fibers; no checkpoints."""

    def begin(self) -> None:
        self.begin_thread("service", self._serve)

    def begin_thread(
        self, name: str, target: Any, *args: Any, wake: Callable[[], object] | None = None
    ) -> Any:
        process = here()
        if wake is not None:
            self._wakes.append(wake)
        thread: Any = Thread(process.world, process.spawn(self._last, target, *args))
        self._threads.append(thread)
        return thread


class AnyName(Names):
    """Names of a store in which any tablet is there."""

    def has_tablet(self, tablet: int) -> bool:
        return True

    def of_tablet(self, tablet: int) -> tuple[str, str, int]:
        return "tablet", f"{tablet:#x}", 0


class Process:
    """A process. `number` is its id for others, and is given once."""

    def __init__(self, world: "AttachedWorld", number: int) -> None:
        self.world = world
        self.number = number
        self.status = OPENING
        self.runtime: Runtime
        self.streams: list[Stream] = []
        self.links = 0
        """How often it has connected to an owner."""
        self.fibers: list[ProcessFiber] = []

    @property
    def owns(self) -> bool:
        return self.status in (UP, CLOSING) and self.runtime.server is not None

    @property
    def linked(self) -> bool:
        """Returns whether its link to the owner is whole, at both ends."""
        return bool(self.streams) and not (
            self.streams[-1].closed or self.streams[-1].other.closed or self.streams[-1].is_cut
        )

    def spawn(self, call: Callable[..., object], *args: Any) -> ProcessFiber:
        """Starts a call of this process."""
        fiber = ProcessFiber(self._run, call, args)
        fiber.process = self
        self.fibers.append(fiber)
        self.world.after(0.0, fiber.resume)
        return fiber

    def _run(self, call: Callable[..., object], args: Any) -> None:
        try:
            call(*args)
        except Exception as error:
            self.world.wrong(f"B33: process {self.number}: {error!r}, by {error.__cause__!r}")
        finally:
            self.fibers = [other for other in self.fibers if other is not current()]

    # its life ------------------------------------------------------------------------------

    def open(self) -> None:
        """Owns the store, or attaches to its owner, as opening does; in a fiber of this process."""
        while not self._open():
            self.world.rest(_AGAIN_MS)
        self.status = UP

    def _open(self) -> bool:
        folder = self.world.folder
        try:
            lock = folder.take_lock(self.number)
        except StoreInUse:
            with suppress(NobodyListens, OwnerGone, OwnerSilent):
                self._attach()
                return True
            return False
        self.world.rest(self.world.fate.uniform(1, 30))
        store = folder.own(lock)
        store.begin_to_show()
        self._begin([store])
        self.runtime.share(dict(_SAID))
        return True

    def _attach(self) -> None:
        accepted = attach(Disk.folder, bytes(16), {}, 1)
        said = accepted.welcome
        self._begin([self.world.folder.view()], (said.generation, said.connection))
        runtime = self.runtime
        runtime.follow(PATH, _LIMIT_SECONDS)
        runtime.attach(accepted, NextOwner(runtime, {}, OpenOptions()))

    def _begin(self, stores: list[Any], linked: tuple[int, int] | None = None) -> None:
        self.runtime = runtime = Runtime(
            stores,
            ModeHooks,
            read_only=linked is not None,
            linked=linked,
        )
        runtime.consumers = self.world.lanes
        runtime.nodes[0].lock = FiberLock(self.world.rest)  # type: ignore[assignment]

    def kill(self) -> None:
        """Ends the process wherever it is."""
        world = self.world
        self.status = GONE
        lost = world.fate.random() < 0.5
        for stream in self.streams:
            stream.die(lost)
        lock, listener = world.folder.lock, world.folder.listener
        if listener is not None and listener.pid == self.number:
            listener.close()
        for fiber in list(self.fibers):
            fiber.kill()
        if lock is not None and lock.pid == self.number:
            lock.close()

    def close(self) -> None:
        """Closes the engine; in a fiber of this process, which ends then."""
        self.status = CLOSING
        self.runtime.close()
        self.status = GONE
        for stream in self.streams:
            stream.close()

    # what the real code calls --------------------------------------------------------------

    def connect(self, _folder: Path, timeout: float = 1.0) -> tuple[Stream, Peer]:
        """Connects to the owner (process_socket.connect)."""
        world = self.world
        world.rest(world.net.uniform(0.05, 1))
        listener = world.folder.listener
        stream = connect(world, listener, self.number, world.number())
        assert listener is not None
        self.links += 1
        self.streams = [*(one for one in self.streams if not one.closed), stream]
        owner = world.processes[listener.pid]
        owner.streams = [*(one for one in owner.streams if not one.closed), stream.other]
        return stream, Peer(listener.pid, 0)


def here() -> Process:
    """Returns the process whose code runs now."""
    fiber = current()
    assert isinstance(fiber, ProcessFiber)
    return fiber.process


def _take_stores(views: list[View], lock: Any, _options: OpenOptions, _ended: Any) -> list[Disk]:
    """Opens the store over the tables of a view, for a process that has just got the lock."""
    world = here().world
    world.rest(world.fate.uniform(1, 30))
    if world.fate.random() < world.fates.opening_fails:
        world.faulted["opening fails"] += 1
        lock.close()
        raise IoError("made to fail")
    return [world.folder.own(lock)]


@contextmanager
def real_processes(world: "AttachedWorld") -> Iterator[None]:
    """Leads what the runtime asks for into this world: time, threads, sockets, the lock, the store."""
    modules = [
        module
        for name, module in sorted(sys.modules.items())
        if name.startswith(runtime_module.__package__)
    ]
    pid = SimpleNamespace(getpid=lambda: here().number)
    shares = partial(SharesOfLinks, clock=Clock(world).monotonic)
    replaced: tuple[tuple[Any, str, Any], ...] = (
        (runtime_module, "ThreadPool", FiberThreads),
        (runtime_module, "Names", AnyName),
        (change_of_owner, "Names", AnyName),
        (Maintenance, "begin", lambda _: None),
        (change_of_owner, "take_stores", _take_stores),
        (incoming, "select", select_for(world)),
        (link, "new_poller", partial(Poller, world)),
        (link, "interrupting_nobody", nullcontext),
        (awake, "_processors", lambda: 2),
        (server, "new_poller", partial(Poller, world)),
        (link, "Nudge", lambda: Nudge(world.number())),
        (server, "Nudge", lambda: Nudge(world.number())),
        (server, "SharesOfLinks", shares),
        (process_socket, "connect", lambda *args: here().connect(*args)),
        (attached, "os", pid),
        (attached, "program_name", lambda: "simulated"),
        (peer, "os", pid),
        (next_owner, "OwnerLock", lambda *_, **__: world.folder.take_lock(here().number)),
        (next_owner, "random", world.fate),
    )
    with ExitStack() as stack:
        stack.enter_context(in_virtual_time(world, modules))
        for module, name, value in replaced:
            stack.enter_context(patch.object(module, name, value))
        try:
            yield
        finally:
            for process in list(world.processes.values()):
                if process.status != GONE:
                    process.kill()
