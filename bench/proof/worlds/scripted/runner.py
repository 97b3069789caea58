"""Runs a scripted scenario in the simulated world, one message a turn, with power losses as planned.

    client ─ commit ─▶ World, a turn an event ─▶ results ─▶ client
                          ▲
                          └ Cut(event, moment, host)

A host that loses power also loses the messages on their way to it, and opens its store as the next generation.
Host 0 runs the client, whose memory is lost with it. A restarted client acts like a real one: it asks for its
transaction's outcome, by id, and runs only refused transactions again.

After the last step the world goes on until nothing is under way and dropped tablets are cleaned. Then it is
compared with the serial execution (serial_model.py). online_invariants.py checks each turn.

Next: scenarios.py.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from .....coordinator.plan import COMMITTED, PLANNED, REFUSED, OutcomeRow
from .....errors import PlanstepError
from .....host.host import Host
from .....host.inputs import Commit, Input, Tick
from .....proto.ids import COORDINATOR_ID, tx_text
from .....proto.messages import Clean, Resolve
from .....proto.reasons import cause_of
from .....proxy.deterministic import Result
from .....store import MemoryStore
from .....tablets.participant import DROPPED, TxRecord
from .....tablets.partition import EMPTY, Bounds, standing
from .....tablets.shard import Row
from ...simulator.faults import HEALED
from ...simulator.world import World
from ..final_invariants import differences, real_time
from ..online_invariants import Watch
from ..serial_model import Serial, stored_rows
from .power_cuts import Cut, PowerCuts

_TICK_MS = 500.0
_LOOK_MS = 20.0
_AWAY_MS = 1.0
"""Longer than a frame takes, so that frames on their way to a crashed host are lost."""
_MS_MAX = 200_000
_EVENTS_MAX = 20_000
_CLEAN_KEYS = 1_000


@dataclass
class Want:
    """A transaction that a client wants done once. `parts` is called for each attempt, to read anew.

    `ahead`: topic writes are staged before the commit. `gives_up`: it is rolled back once they are staged.
    `blind`: after an unknown outcome the client writes again with the same producer's numbers, without asking.
    `may_fail`: another transaction may come first.
    """

    parts: Callable[["Rebooted"], dict[int, Any]]
    ahead: bool = False
    gives_up: bool = False
    blind: bool = False
    may_fail: bool = False
    tries: list[bytes] = field(default_factory=list)
    ended: str = ""


class Rebooted(PowerCuts, World):
    """Runs one scenario. Invariant: events depend only on steps, hosts, placement and cuts."""

    def __init__(
        self,
        steps: list[list[Want]],
        hosts: int,
        separate: bool,
        cuts: tuple[Cut, ...],
        again: tuple[int, int] | None,
    ) -> None:
        self._plan(cuts, again)
        self.requests: dict[bytes, dict[int, Any]] = {}
        self._steps = steps
        self._unanswered: dict[bytes, Want] = {}
        self._resolving: dict[bytes, Want] = {}
        super().__init__(7, hosts, HEALED, separate=separate, tick_ms=_TICK_MS)
        self._watch = Watch(self, self.requests)
        self.answered = self._take_answer

    def _take(self, number: int) -> list[Input]:
        """Takes one message; commits submitted at the same time share a turn."""
        inbox = self.inboxes[number]
        joined = [type(a) is Tick or type(a) is type(b) is Commit for a, b in pairwise(inbox)]
        self.turn_inputs = [*joined, False].index(False) + 1
        return super()._take(number)

    def crash(self, number: int, away_ms: float | None = _AWAY_MS) -> None:
        super().crash(number, away_ms)
        if number == 0:
            self._client_comes_again()

    # the client ----------------------------------------------------------------------------

    def _attempt(self, want: Want) -> None:
        parts = want.parts(self)
        if want.ahead:
            slices = {t: (0, p.slices) for t, p in parts.items() if getattr(p, "slices", ())}
            staged = {
                t: parts[t]._replace(slices=(), staged=len(s)) for t, (_, s) in slices.items()
            }
            tx = self.commit_ahead([slices], {**parts, **staged})
        else:
            tx = self.commit(parts)
        want.tries.append(tx)
        self._unanswered[tx] = want
        self.requests[tx] = parts

    def _next_input(self, tx: bytes) -> Input:
        want = self._unanswered.get(tx)
        if want is not None and want.gives_up:
            del self._unanswered[tx], self.ahead[tx]
            want.ended = "given up"
        return super()._next_input(tx)

    def _take_answer(self, result: Result) -> None:
        self._watch.answered(result)
        want = self._unanswered.pop(result.tx, None)
        if want is None:
            self.violations.append(f"{tx_text(result.tx)} was answered to a client that is gone")
        elif result.reason is None:
            want.ended = "committed"
        elif cause_of(result.reason) in ("refused", "withdrawn", "lost"):
            self._attempt(want)
        else:
            want.ended = "aborted"

    def _client_comes_again(self) -> None:
        waiting = {**self._unanswered, **self._resolving}
        self._unanswered, self._resolving = {}, {}
        for tx, want in waiting.items():
            if want.blind:
                self._attempt(want)
            else:
                self._resolving[tx] = want
                self.deliver(COORDINATOR_ID, Resolve(tx))

    def _look_for_ends(self) -> None:
        """Records the outcomes that the coordinator knows, and asks again for the others."""
        for tx, want in list(self._resolving.items()):
            state = self._state(tx)
            if state is None:
                self.deliver(COORDINATOR_ID, Resolve(tx))
            elif state != PLANNED:
                del self._resolving[tx]
                if state == REFUSED and want.gives_up:
                    want.ended = "given up"
                elif state == REFUSED:
                    self._attempt(want)
                else:
                    want.ended = "committed" if state == COMMITTED else "aborted"

    def _state(self, tx: bytes) -> int | None:
        row = self.read(COORDINATOR_ID, b"o" + tx)
        return None if row is None else OutcomeRow._make(row).state

    # the whole -----------------------------------------------------------------------------

    def go(self) -> "Rebooted":
        """Runs to the end and compares; puts what it finds into `violations`."""
        try:
            for step in self._steps:
                for want in step:
                    self._attempt(want)
                self._until(partial(_all_ended, step))
            self._until(self._clean_dropped)
            self.settle()
        except (PlanstepError, AssertionError) as error:
            cause = error.__cause__ or error
            self.violations.append(f"a host stopped: {type(cause).__name__}: {cause}")
        else:
            self._compare()
        return self

    def _until(self, over: Callable[[], bool]) -> None:
        until = self.now + _MS_MAX
        while not over():
            self.pass_ms(_LOOK_MS)
            self._look_for_ends()
            if self.now > until or self.events > _EVENTS_MAX:
                raise AssertionError(
                    f"no end without a fault: {self.under_way() or 'a client waits'}"
                )

    def _clean_dropped(self) -> bool:
        """Cleans dropped tablets, as maintenance does; returns True once nothing is left of them."""
        rows = [key for s in self.stores for key, _ in s.scan(b"\x30\0\0\0", b"\x50\0\0\0")]
        dropped = [int.from_bytes(key[:4], "big") for key in rows if key[4:] == DROPPED]
        for tablet in dropped:
            self.deliver(tablet, Clean(_CLEAN_KEYS))
        return not dropped

    def under_way(self) -> str:
        proxy = self.nodes[0].proxy
        assert proxy is not None
        return super().under_way() or ("what went ahead, at the proxy" if proxy.staging else "")

    def _compare(self) -> None:
        serial = Serial(self, self.requests)
        self.violations += self._watch.violations + serial.wrong
        self.violations += differences(stored_rows(self), serial.model)
        self.violations += real_time(self, serial.order, [])
        for number, want in enumerate(want for step in self._steps for want in step):
            states = [self._state(tx) for tx in want.tries]
            committed, ended = states.count(COMMITTED), want.ended
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

    # reads, for the scripts -----------------------------------------------------------------

    def position(self, tablet: int, consumer: str) -> int:
        """Returns the offset where a consumer goes on: after its committed and all trimmed records."""
        known = standing(self.read(tablet, b"c" + consumer.encode()), None)
        return max(known.position, Bounds._make(self.read(tablet, b"m") or EMPTY).start)

    def version(self, tablet: int, key: bytes) -> tuple[int, int] | None:
        row = self.read(tablet, b"r" + key)
        return Row._make(row).version if row else None


def _all_ended(step: Iterable[Want]) -> bool:
    return all(want.ended for want in step)


class Forgetful(Rebooted):
    """Plants a bug: a restarted host has forgotten its prepared transactions."""

    def _host(self, number: int, store: MemoryStore) -> Host:
        turn = store.begin()
        for key, row in store.scan(b"\x30\0\0\0", b"\x50\0\0\0"):
            if key[4:5] == b"t" and not TxRecord._make(row).step:
                turn.delete(key)
        store.commit(turn)
        return super()._host(number, store)
