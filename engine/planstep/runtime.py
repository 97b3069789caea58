"""The runtime: hosts, the threads that run their turns, and the reads that never enter one.

    commit ─▶ inbox ─▶ whoever finds the host idle runs the turn over all that waits ─▶ futures

With one host the committing thread runs the turn itself; those that arrive during its sync wait for
the host's lock and share the next turn: that is the group commit. With several hosts each has a
thread, and between them only frames of bytes travel (network.py). A service thread ticks, writes
checkpoints, and runs what was submitted without waiting.

Reads look at the last released step: rows through the store and the history (views.py).
Next: api/engine.py, the face.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import Any

from .coordinator.plan import PLANNED, STATES
from .errors import (
    Aborted,
    AlreadyExists,
    EngineClosed,
    HostStopped,
    IoError,
    NotSupported,
    PlanstepError,
    Undetermined,
)
from .host import Arrived, Deliver, Host, Input, Tick
from .host import Commit as CommitInput
from .network import Network
from .outcome import Commit, Outcome, failure
from .proto.ids import (
    CATALOGUE_ID,
    COORDINATOR_ID,
    PARTITION,
    PROXY,
    SHARD,
    Place,
    host_of,
    tablet_id,
    tablet_prefix,
    tx_parse,
    tx_text,
)
from .proto.messages import CataloguePart, Resolve
from .store import Store
from .views import Snapshot, Views

_TURN_INPUTS = 1000
_TURN_BYTES = 4 << 20
_TICK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the catalogue has it: `partitions` are its tablets, in order."""

    id: int
    name: str
    partitions: tuple[int, ...]
    format: str


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table as the catalogue has it: `shards` are its tablets, in order."""

    id: int
    name: str
    shards: tuple[int, ...]
    format: str


class Node:
    """A host with its inbox and its turn lock."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.inbox: deque[Input] = deque()
        self.lock = threading.Lock()
        self.changed = threading.Condition()
        self.wake = threading.Event()
        self.thread: threading.Thread | None = None
        self.down = False


class Runtime:
    """One engine's hosts. Invariant: every future is ended by a durable turn or by a failure."""

    def __init__(
        self,
        stores: list[Store],
        *,
        network: Network | None = None,
        trace: str = "summary",
        reopen: Any = None,
    ) -> None:
        self.hosts = len(stores)
        self.generation = stores[0].generation
        self.trace = trace
        self._reopen = reopen
        self._proxy = tablet_id(PROXY, 0, self.generation & 0xFFFFF)
        self._counter = 0
        self._counter_lock = threading.Lock()
        self._futures: dict[bytes, Future[Commit]] = {}
        self._answers: dict[bytes, Commit | BaseException] = {}
        self._closed = False
        self._stopping = threading.Event()
        self.network = network or Network()
        self.network.deliver = self._deliver
        self.committed = 0
        self.conflicts = 0
        self.nodes = [Node(self._host(i, store)) for i, store in enumerate(stores)]
        self.views = Views(self.nodes)
        self._topics: dict[str, TopicInfo] = {}
        self._tables: dict[str, TableInfo] = {}
        self._names: dict[int, tuple[str, str, int]] = {}
        self._load_catalogue()
        self._submitted = threading.Event()
        for node in self.nodes:
            if self.hosts > 1:
                self._start(node)
        self._service = threading.Thread(target=self._serve, name="planstep-service", daemon=True)
        self._service.start()

    def _host(self, number: int, store: Store) -> Host:
        proxy = self._proxy if number == 0 else None
        return Host(number, store, self.hosts, proxy=proxy, trace=self.trace == "messages")

    def _start(self, node: Node) -> None:
        name = f"planstep-host-{node.host.number}"
        node.thread = threading.Thread(target=self._loop, args=(node,), name=name, daemon=True)
        node.thread.start()

    # turns ---------------------------------------------------------------------------------

    def _turn(self, node: Node) -> None:
        """Runs one turn over what waits; the caller holds the node's lock."""
        inputs: list[Input] = []
        size = 0
        inbox = node.inbox
        while inbox and len(inputs) < _TURN_INPUTS and size < _TURN_BYTES:
            item = inbox.popleft()
            inputs.append(item)
            if isinstance(item, CommitInput):
                for part in item.parts.values():
                    for piece in getattr(part, "slices", ()):
                        size += len(piece[0])
            elif isinstance(item, Arrived):
                size += len(item.data)
        if not inputs or node.down:
            return
        try:
            released = node.host.run(inputs, time.time_ns() // 1_000_000)
        except IoError as error:
            self._fail(inputs, Aborted(f"the turn could not be made durable: {error}"))
            inbox.extendleft(reversed([i for i in inputs if type(i) is Arrived]))
            return
        except HostStopped as error:
            self._fail(inputs, error)
            self._stop_everything(error)
            return
        except PlanstepError as error:
            self._fail(inputs, error)
            return
        except Exception as error:
            node.host.stopped = error
            self._fail(inputs, HostStopped(f"the engine stopped: {error}"))
            self._stop_everything(error)
            raise
        except BaseException:
            # Interrupted: the turn was taken back whole; somebody else will run these inputs.
            inbox.extendleft(reversed(inputs))
            self._submitted.set()
            raise
        for target, data in released.frames:
            self.network.send(node.host.number, target, data)
        for item, cause in released.failures:
            self._fail([item], cause)
        for result in released.results:
            if result.reason is None:
                self.committed += 1
                place = Place(result.step, result.n)
                self._answers[result.tx] = Commit(result.tx, place, result.details)
            else:
                self.conflicts += 1
                self._answers[result.tx] = failure(result.tx, result.reason, self._name_of)
        with node.changed:
            node.changed.notify_all()
        if node.host.number:
            with self.nodes[0].changed:
                self.nodes[0].changed.notify_all()

    def _fail(self, inputs: Iterable[Input], error: BaseException) -> None:
        for item in inputs:
            if isinstance(item, CommitInput):
                self._answers[item.tx] = error

    def _stop_everything(self, error: BaseException) -> None:
        for tx in list(self._futures):
            self._answers.setdefault(
                tx, Undetermined(f"transaction {tx_text(tx)}: {error}; reopen and ask its outcome")
            )

    def _answer(self) -> None:
        """Ends the futures that have an answer. Never under a turn lock: callbacks may commit.

        Two threads may meet here, and an interrupt may leave some: each step may be repeated.
        """
        while self._answers:
            for tx, answer in self._answers.copy().items():
                future = self._futures.get(tx)
                if future is not None and not future.done():
                    try:
                        if isinstance(answer, BaseException):
                            future.set_exception(answer)
                        else:
                            future.set_result(answer)
                    except InvalidStateError:
                        pass  # another thread was faster
                self._futures.pop(tx, None)
                self._answers.pop(tx, None)

    def _pump(self, node: Node, future: "Future[Any] | None", tx: bytes = b"") -> None:
        """The caller runs turns until its own future is done, or nothing waits."""
        while node.inbox if future is None else not future.done():
            try:
                with node.lock:
                    if tx in self._answers:
                        continue
                    if node.host.stopped is not None or node.down:
                        self._fail(list(node.inbox), EngineClosed("the engine is closed"))
                        node.inbox.clear()
                        if future is not None:
                            self._answers.setdefault(tx, EngineClosed("the engine is closed"))
                        return
                    if future is None or not future.done():
                        self._turn(node)
            finally:
                self._answer()

    def _loop(self, node: Node) -> None:
        while not self._stopping.is_set() and not node.down:
            node.wake.wait(0.5)
            node.wake.clear()
            while node.inbox and not node.down and not self._stopping.is_set():
                try:
                    with node.lock:
                        if node.down or node.host.stopped is not None:
                            return
                        self._turn(node)
                finally:
                    self._answer()

    def _deliver(self, target: int, data: bytes) -> None:
        node = self.nodes[target]
        if not node.down:
            node.inbox.append(Arrived(data))
            node.wake.set()

    def _serve(self) -> None:
        last = 0.0
        while not self._stopping.is_set():
            if self.hosts > 1:
                self._stopping.wait(_TICK_SECONDS)
                self.network.tick()
            else:
                self._submitted.wait(0.25)
                self._submitted.clear()
            if self._stopping.is_set():
                return
            self._answer()  # what an interrupted caller left
            now = time.monotonic()
            ticking = self.hosts > 1 and now - last >= 0.1
            if ticking:
                last = now
            for node in self.nodes:
                if node.down:
                    continue
                if self.hosts == 1:
                    if node.inbox:
                        self._pump(node, None)
                elif ticking:
                    node.inbox.append(Tick())
                    node.wake.set()
                try:
                    if node.host.store.checkpoint_due(now):
                        node.host.store.checkpoint()
                except PlanstepError:
                    pass  # the store keeps its layer and tries again; stats() says how often

    # transactions ---------------------------------------------------------------------------

    def new_tx(self) -> bytes:
        """A fresh transaction id: (engine generation, counter), known from begin."""
        with self._counter_lock:
            self._counter += 1
            return self.generation.to_bytes(4, "big") + self._counter.to_bytes(8, "big")

    def _enqueue(self, tx: bytes, parts: dict[int, Any]) -> "Future[Commit]":
        if self._closed:
            raise EngineClosed("the engine is closed")
        stopped = self.nodes[0].host.stopped
        if stopped is not None:
            raise HostStopped(f"the engine stopped: {stopped}; reopen it")
        future: Future[Commit] = Future()
        future.set_running_or_notify_cancel()  # a commit cannot be withdrawn, so nor cancelled
        self._futures[tx] = future
        self.nodes[0].inbox.append(CommitInput(tx, parts))
        return future

    def submit(self, tx: bytes, parts: dict[int, Any]) -> "Future[Commit]":
        """Commits without waiting; the service thread runs the turn if nobody else does."""
        future = self._enqueue(tx, parts)
        (self.nodes[0].wake if self.hosts > 1 else self._submitted).set()
        return future

    def commit(self, tx: bytes, parts: dict[int, Any], timeout: float | None = None) -> Commit:
        """Commits and waits. Conflict, Aborted, or Undetermined after `timeout` seconds."""
        future = self._enqueue(tx, parts)
        if self.hosts == 1:
            try:
                self._pump(self.nodes[0], future, tx)
            except BaseException:
                self._submitted.set()  # interrupted: it goes on without this thread
                raise
        else:
            self.nodes[0].wake.set()
        try:
            return future.result(timeout)
        except TimeoutError:
            raise Undetermined(
                f"transaction {tx_text(tx)} was not answered within {timeout} s; it goes on, and "
                f"outcome({tx_text(tx)!r}) tells how it ended"
            ) from None

    def _tell(self, target: int, message: Any) -> None:
        node = self.nodes[host_of(target)]
        node.inbox.append(Deliver(target, message))
        try:
            with node.lock:
                while node.inbox and node.host.stopped is None:
                    self._turn(node)
        finally:
            self._answer()

    def outcome(self, tx: bytes | str) -> Outcome:
        """How a transaction ended, from what is durable."""
        tx = tx_parse(tx) if isinstance(tx, str) else tx
        store = self.nodes[0].host.store
        prefix = tablet_prefix(COORDINATOR_ID)
        running = tx in self._futures  # asked first: once it is gone its record is there
        record = store.get(prefix + b"o" + tx)
        if record is not None:
            return _outcome(tx, record)
        if running:
            return Outcome(tx_text(tx), "open", None, 0, ())
        forgotten = store.get(prefix + b"f")
        state = "expired" if forgotten is not None and tx <= forgotten else "unknown"
        return Outcome(tx_text(tx), state, None, 0, ())

    def resolve(self, tx: bytes | str) -> Outcome:
        """Refuses a transaction that is not planned; never decides a planned one."""
        tx = tx_parse(tx) if isinstance(tx, str) else tx
        self._tell(COORDINATOR_ID, Resolve(tx))
        return self.outcome(tx)

    def transactions(self, limit: int = 100) -> list[Outcome]:
        """The newest transactions that the coordinator remembers."""
        prefix = tablet_prefix(COORDINATOR_ID)
        store = self.nodes[0].host.store
        rows = store.scan(prefix + b"o", prefix + b"p", reverse=True, limit=limit)
        return [_outcome(key[5:], record) for key, record in rows]

    def recorded(self, tx: bytes) -> list[tuple[int, int, int, str]]:
        """(host, turn, tablet, message) in order, where trace="messages" recorded it."""
        rows = [
            (turn, node.host.number, tablet, name)
            for node in self.nodes
            for turn, events in node.host.recorded(tx)
            for tablet, name in events
        ]
        return [(host, turn, tablet, name) for turn, host, tablet, name in rows]

    # names ----------------------------------------------------------------------------------

    def _load_catalogue(self) -> None:
        prefix = tablet_prefix(CATALOGUE_ID)
        for key, (first, tablets, form, _) in self.nodes[0].host.store.scan(
            prefix + b"n", prefix + b"o"
        ):
            name = key[6:].decode()
            kind = "topic" if key[5] == PARTITION else "table"
            if key[5] == PARTITION:
                self._topics[name] = TopicInfo(first, name, tablets, form)
            else:
                self._tables[name] = TableInfo(first, name, tablets, form)
            for part, tablet in enumerate(tablets):
                self._names[tablet] = (kind, name, part)

    def _name_of(self, tablet: int) -> tuple[str, str, int]:
        return self._names.get(tablet, ("tablet", f"{tablet:#x}", 0))

    def topics(self) -> dict[str, TopicInfo]:
        return self._topics

    def tables(self) -> dict[str, TableInfo]:
        return self._tables

    def _create(self, kind: int, name: str, parts: int, form: str) -> None:
        part = CataloguePart(kind, name, parts, form, self.hosts)
        self.commit(self.new_tx(), {CATALOGUE_ID: part})
        self._load_catalogue()

    def create_topic(self, name: str, partitions: int, format: str) -> TopicInfo:
        if name in self._topics:
            raise AlreadyExists(f"topic {name!r} exists already; pass exist_ok=True to accept that")
        self._create(PARTITION, name, partitions, format)
        return self._topics[name]

    def create_table(self, name: str, shards: int, format: str) -> TableInfo:
        if name in self._tables:
            raise AlreadyExists(f"table {name!r} exists already; pass exist_ok=True to accept that")
        self._create(SHARD, name, shards, format)
        return self._tables[name]

    # reads ----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The last released step, pinned until `close`."""
        return self.views.snapshot()

    def __getattr__(self, name: str) -> Any:
        if name in ("read_row", "scan_rows", "bounds", "position", "last_sequence", "read_slices"):
            return getattr(self.views, name)
        raise AttributeError(name)

    def wait_published(self, tablets: Iterable[int], seen: dict[int, int], timeout: float) -> bool:
        """Waits until one of the partitions has a released end beyond `seen`; False at time-out."""
        deadline = time.monotonic() + timeout
        watched = list(tablets)
        node = self.nodes[0]
        while True:
            with node.changed:
                if any(self.views.end(tablet) > seen.get(tablet, 0) for tablet in watched):
                    return True
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    return False
                node.changed.wait(min(left, 0.5))

    # the end --------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Counters of all hosts together, and of each."""
        per_host = []
        for node in self.nodes:
            counters = node.host.store.counters
            values = {name: getattr(counters, name) for name in counters.__dataclass_fields__}
            values["messages"] = node.host.messages
            per_host.append(values)
        total: dict[str, Any] = {
            name: sum(host.get(name, 0) for host in per_host) for name in per_host[0]
        }
        return {
            "hosts": self.hosts,
            "generation": self.generation,
            "step": self.nodes[0].host.step_released,
            "transactions": {"committed": self.committed, "conflicts": self.conflicts},
            "store": total,
            "per_host": per_host,
        }

    def stop_host(self, number: int) -> None:
        """Closes one host while the others run (hosts > 1); `start_host` brings it back."""
        node = self.nodes[number]
        with node.lock:
            node.down = True
            node.inbox.clear()
            node.host.store.close()
        node.wake.set()
        if node.thread is not None:
            node.thread.join()

    def start_host(self, number: int) -> None:
        if self._reopen is None:
            raise NotSupported("this engine cannot reopen a single host")
        node = self.nodes[number]
        node.host = self._host(number, self._reopen(number))
        node.down = False
        self._start(node)

    def close(self) -> None:
        """Ends the threads, lets what was committed finish, checkpoints and closes the stores."""
        if self._closed:
            return
        self._closed = True
        deadline = time.monotonic() + 5.0
        while self._futures and self.hosts > 1 and time.monotonic() < deadline:
            time.sleep(0.005)
        if self.hosts == 1:
            self._pump(self.nodes[0], None)
        self._stopping.set()
        self._submitted.set()
        for node in self.nodes:
            node.wake.set()
            with node.changed:
                node.changed.notify_all()
        for thread in [self._service, *(node.thread for node in self.nodes)]:
            if thread is not None and thread is not threading.current_thread():
                thread.join()
        for node in self.nodes:
            with node.lock:
                if not node.down:
                    node.down = True
                    node.host.store.close()
        self._stop_everything(EngineClosed("the engine was closed"))
        self._answer()


def _outcome(tx: bytes, record: Any) -> Outcome:
    state, step, n, when_ms, participants = record
    place = Place(step, n) if step else None
    assert state != PLANNED or place is not None
    return Outcome(tx_text(tx), STATES[state], place, when_ms, participants)
