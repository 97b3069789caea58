"""A scripted scenario over real hosts, one message a turn, with a power loss wherever the plan says.

    client ─ Commit ─▶ queue ─ one event ─▶ Host.run ─▶ frames, later, results ─▶ queue, client
                                  ▲
         Cut(event, moment, host) ┘  before · lost (the append) · kept, and nobody hears of it · after

Everything waits in one queue, first in first out, so that a run is its scenario and its cuts. A host that
loses power loses what was on its way to it, and opens its store as the next generation; the one that runs
the client, host 0, takes the client's memory along. A client that comes again does what a real one does:
it asks how its transaction ended, by its id, and only what is refused for ever is run once more.

When a scenario's steps are over the world goes on until nothing is under way, then it is compared with
what the outcomes explain.

Next: scenarios.py.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

from .....coordinator.plan import COMMITTED, PLANNED, REFUSED
from .....errors import IoError, PlanstepError
from .....host.host import Host
from .....host.inputs import (
    Ahead,
    Arrived,
    Commit,
    Deliver,
    Input,
    Released,
    Rollback,
    Tick,
)
from .....proto.ids import (
    COORDINATOR_ID,
    PROXY,
    host_of,
    tablet_id,
    tablet_prefix,
    tx_id,
    tx_text,
)
from .....proto.messages import Resolve, Withdraw
from .....proxy.deterministic import Result
from .....store import MemoryStore, Turn
from .....tablets.participant import TxRecord
from .....tablets.partition import EMPTY, Bounds, standing
from .....tablets.shard import Row
from .model import differences, explained, outcomes, stored

Moment: TypeAlias = Literal["before", "lost", "kept", "after"]
MOMENTS: tuple[Moment, ...] = ("before", "lost", "kept", "after")
_TICK_MS = 500
_TICKS_MAX = 400
_EVENTS_MAX = 20_000


class Cut(NamedTuple):
    """A host loses power at an event; at one that is another host's, only `before` is possible."""

    event: int
    moment: Moment
    host: int


@dataclass
class Want:
    """What a client wants done once. `parts` is asked again for each attempt: it reads what it needs.

    `ahead`: topic writes go ahead of the commit. `gives_up`: it is rolled back once they are there.
    `blind`: who does not know the end writes again, with the same producer's numbers, and asks nobody.
    `may_fail`: another one may have been first.
    """

    parts: Callable[["Rebooted"], dict[int, Any]]
    ahead: bool = False
    gives_up: bool = False
    blind: bool = False
    may_fail: bool = False
    tries: list[bytes] = field(default_factory=list)
    ended: str = ""


class Rebooted:
    """Invariants: all that happens follows from the arguments; `events` counts turns and nothing else."""

    def __init__(
        self,
        steps: list[list[Want]],
        hosts: int,
        separate: bool,
        cuts: tuple[Cut, ...] = (),
        again: tuple[int, int] | None = None,
    ) -> None:
        self.hosts = hosts
        self.separate = separate
        self.cuts = cuts
        self.again = again
        """(events later, host): behind the first cut comes another one, wherever that is by then."""
        self.now_ms = 1_000
        self.events = self.reboots = 0
        self.turns: list[int] = []
        """By event, whose turn it was."""
        self.asked: dict[bytes, dict[int, Any]] = {}
        self.violations: list[str] = []
        self._steps = steps
        self._open: dict[bytes, Want] = {}
        self._resolving: dict[bytes, Want] = {}
        self._staged: dict[bytes, dict[int, Any]] = {}
        self._queue: deque[tuple[int, list[Input]]] = deque()
        self._counter = 0
        self.stores = [MemoryStore(bytes([i]) * 16) for i in range(hosts)]
        self.nodes = [self._host(number) for number in range(hosts)]

    # hosts ---------------------------------------------------------------------------------

    def _host(self, number: int) -> Host:
        store = self.stores[number]
        proxy = tablet_id(PROXY, 0, store.generation) if number == 0 else None
        return Host(number, store, self.hosts, proxy=proxy, separate=self.separate)

    def crash(self, number: int) -> None:
        self.reboots += 1
        self._queue = deque(item for item in self._queue if item[0] != number)
        self.stores[number] = self._reopened(self.stores[number])
        self.nodes[number] = self._host(number)
        for one in range(self.hosts) if number == 0 else [number]:
            for tablet, tx in self.nodes[one].staged_before(self.stores[0].generation):
                self._put(one, Deliver(tablet, Withdraw(tx)))
        if number == 0:
            self._client_comes_again()

    def _reopened(self, store: MemoryStore) -> MemoryStore:
        return store.crash()

    def _put(self, number: int, *inputs: Input) -> None:
        self._queue.append((number, list(inputs)))

    def _event(self) -> None:
        number, inputs = self._queue.popleft()
        event = self.events
        self.events += 1
        self.turns.append(number)
        moment = None
        for cut in self.cuts:
            if cut.event != event:
                continue
            if cut.host != number:
                self.crash(cut.host)
            else:
                moment = cut.moment
            if self.again is not None:
                later, host = self.again
                self.again = None
                self.cuts = (*self.cuts, Cut(event + 1 + later, "kept", host))
        if moment == "before":
            self.crash(number)
            return
        if moment == "lost":
            self._lose(number, inputs)
            self.crash(number)
            return
        released = self.nodes[number].run(inputs, self.now_ms)
        if moment == "kept":
            self.crash(number)
            return
        self._release(number, released)
        if moment == "after":
            self.crash(number)

    def _lose(self, number: int, inputs: list[Input]) -> None:
        """The turn runs, and the power goes while it is written."""
        store: Any = self.stores[number]

        def commit(turn: Turn, show: Any = None) -> None:
            if turn.net() or turn.payloads or turn.dropped:
                raise IoError("the power went")

        store.commit = commit
        try:
            self.nodes[number].run(inputs, self.now_ms)
        except IoError:
            pass
        finally:
            del store.commit

    def _release(self, number: int, released: Released) -> None:
        for item, error in released.failures:
            self.violations.append(f"{type(item).__name__} was not taken: {error!r}")
        for result in released.results:
            self._told(result)
        for target, data in released.frames:
            self._put(target, Arrived(data))
        for later in released.later:
            self._put(number, later.deliver)

    # the client ----------------------------------------------------------------------------

    def _begin(self, want: Want) -> Input:
        self._counter += 1
        tx = tx_id(self.stores[0].generation, self._counter)
        parts = want.parts(self)
        want.tries.append(tx)
        self._open[tx] = want
        self.asked[tx] = parts
        if not want.ahead:
            return Commit(tx, parts)
        slices = {t: (0, part.slices) for t, part in parts.items() if getattr(part, "slices", ())}
        self._staged[tx] = {
            tablet: part._replace(slices=(), staged=len(part.slices)) if tablet in slices else part
            for tablet, part in parts.items()
        }
        return Ahead(tx, slices)

    def _told(self, result: Result) -> None:
        tx = result.tx
        want = self._open.get(tx)
        if want is None:
            self.violations.append(f"{tx_text(tx)} was answered twice, or to a client that is gone")
            return
        if not result.step and result.reason is None:
            parts = self._staged.pop(tx)
            if want.gives_up:
                self._put(0, Rollback(tx))
                del self._open[tx]
                want.ended = "given up"
            else:
                self._put(0, Commit(tx, parts))
            return
        del self._open[tx]
        if result.reason is None:
            want.ended = "committed"
        elif result.reason[1] in ("refused", "withdrawn", "lost"):
            self._put(0, self._begin(want))
        else:
            want.ended = "aborted"

    def _client_comes_again(self) -> None:
        self._staged.clear()
        left = {**self._open, **self._resolving}
        self._open, self._resolving = {}, {}
        for tx, want in left.items():
            if want.blind:
                self._put(0, self._begin(want))
            else:
                self._resolving[tx] = want
                self._put(0, Deliver(COORDINATOR_ID, Resolve(tx)))

    def _look_for_ends(self) -> None:
        """How those ended that the client asks for; one that was not answered yet is asked for again."""
        known = {one.tx: one.state for one in outcomes(self.stores[0])}
        for tx, want in list(self._resolving.items()):
            state = known.get(tx)
            if state is None:
                self._put(0, Deliver(COORDINATOR_ID, Resolve(tx)))
            elif state != PLANNED:
                del self._resolving[tx]
                if state == REFUSED and want.gives_up:
                    want.ended = "given up"
                elif state == REFUSED:
                    self._put(0, self._begin(want))
                else:
                    want.ended = "committed" if state == COMMITTED else "aborted"

    # the whole -----------------------------------------------------------------------------

    def run(self) -> "Rebooted":
        """To the end, and compares; what is wrong is in `violations`."""
        try:
            for step in self._steps:
                self._put(0, *[self._begin(want) for want in step])
                self._until(partial(_all_ended, step))
            self._until(lambda: not self._queue and not any(self._left()))
        except _Endless as error:
            self.violations.append(f"{error}: {'; '.join(self._left()) or 'a client waits'}")
        except (PlanstepError, AssertionError) as error:
            cause = error.__cause__ or error
            self.violations.append(f"a host stopped: {type(cause).__name__}: {cause}")
        else:
            self._compare()
        return self

    def _until(self, over: Callable[[], bool]) -> None:
        ticks = 0
        while True:
            while self._queue:
                self._event()
                if self.events > _EVENTS_MAX:
                    raise _Endless("messages without an end")
            self._look_for_ends()
            if over():
                return
            if self._queue:
                continue
            ticks += 1
            if ticks > _TICKS_MAX:
                raise _Endless(f"no end after {ticks * _TICK_MS // 1000} s without a fault")
            self.now_ms += _TICK_MS
            for number, node in enumerate(self.nodes):
                if node.ticks:
                    self._put(number, Tick())

    def _left(self) -> Iterator[str]:
        """What is under way, or was left behind."""
        proxy = self.nodes[0].proxy
        assert proxy is not None
        if proxy.open or proxy.staging:
            yield "the proxy has open transactions"
        for number, host in enumerate(self.nodes):
            for target, link in host.links.items():
                if link.queue and link.queue[-1][0] > link.acknowledged:
                    yield f"host {target} has not taken what host {number} sent it"
        for number, store in enumerate(self.stores):
            for key, _ in store.scan(b"\x20\0\0\0", b"\x50\0\0\0"):
                if key[4:5] in (b"t", b"q") or (key[4:5] == b"s" and len(key) == 17):
                    yield f"host {number} keeps {key[:4].hex()} {key[4:]!r}"

    def _compare(self) -> None:
        known = outcomes(self.stores[0])
        must, wrong = explained(known, self.asked)
        self.violations += wrong
        found = stored(self.stores)
        self.violations += differences(must, found)
        states = {one.tx: one.state for one in known}
        for number, want in enumerate(want for step in self._steps for want in step):
            committed = sum(states.get(tx) == COMMITTED for tx in want.tries)
            ended = want.ended
            good = {
                "committed": committed == 1 or (want.blind and committed > 0),
                "aborted": want.may_fail and not committed,
                "given up": want.gives_up and not committed,
            }
            if not good[ended]:
                self.violations.append(
                    f"want {number} was said to be {ended}, and {committed} of its "
                    f"{len(want.tries)} tries are committed"
                )
            if want.tries and ended == "aborted" and states.get(want.tries[-1]) == COMMITTED:
                self.violations.append(f"want {number}: its end has changed")

    # reads, for the scripts -----------------------------------------------------------------

    def read(self, tablet: int, key: bytes) -> Any:
        return self.stores[host_of(tablet)].get(tablet_prefix(tablet) + key)

    def position(self, tablet: int, consumer: str) -> int:
        """Where a consumer goes on: behind what it has committed, and what was trimmed."""
        known = standing(self.read(tablet, b"c" + consumer.encode()), None)
        return max(known.position, Bounds._make(self.read(tablet, b"m") or EMPTY).start)

    def version(self, tablet: int, key: bytes) -> tuple[int, int] | None:
        row = self.read(tablet, b"r" + key)
        return Row._make(row).version if row else None


def _all_ended(step: Iterable[Want]) -> bool:
    return all(want.ended for want in step)


class _Endless(Exception):
    pass


class Forgetful(Rebooted):
    """The planted bug: a host that starts again has forgotten what it had prepared."""

    def _reopened(self, store: MemoryStore) -> MemoryStore:
        again = super()._reopened(store)
        turn = again.begin()
        for key, row in again.scan(b"\x30\0\0\0", b"\x50\0\0\0"):
            if key[4:5] == b"t" and not TxRecord._make(row).step:
                turn.delete(key)
        again.commit(turn)
        return again
