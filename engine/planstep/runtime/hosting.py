"""Makes an engine's hosts over its stores: at opening, when one starts again, when this process becomes the owner.

    stores ─▶ a generation: transaction ids, proxy, hosts ─▶ what the one before left is taken up
                                                             staged, not committed ─▶ withdrawn
                                                             messages on their way ─▶ delivered

Next: runtime.py.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from ..errors import NotSupported
from ..host.host import Host
from ..host.inputs import Deliver
from ..host.links import check_ends
from ..host.versions import BYTES_MAX, MS_MAX, History
from ..proto.ids import PROXY, tablet_id, tx_id
from ..proto.messages import Withdraw
from ..proto.mode_settings import ModeSettings
from ..store import Store
from .group_commit import Node
from .turn_loop import TurnLoop

Reopen = Callable[[int], Store]
"""Opens the store of one host again."""


class Hosting:
    """The hosts of one engine. Invariant: `nodes` stay the same; each has the newest host made for it."""

    def __init__(
        self,
        stores: Sequence[Store],
        mode: str,
        *,
        trace: str = "summary",
        reopen: Reopen | None = None,
        separate: bool = False,
        rtt_ms: float = 0.0,
        settings: ModeSettings | None = None,
        snapshots: tuple[int, int] = (BYTES_MAX, MS_MAX),
    ) -> None:
        """`snapshots`: the bytes and milliseconds of overwritten versions that a host keeps for them."""
        self._mode = mode
        self._number = len(stores)
        self._trace = trace
        self._reopen = reopen
        self._separate = separate
        self._rtt_ms = rtt_ms
        self._settings = settings
        self._snapshots = snapshots
        self._begin(stores[0].generation)
        self.nodes = [Node(host) for host in self._over(stores)]

    def _begin(self, generation: int) -> None:
        """Begins the ids of a generation. Who takes one has its generation and number in one step, without a lock:
        leaving one needs memory, and ids are asked for where there may be none.
        """
        self.generation = generation
        self.proxy = tablet_id(PROXY, 0, generation & 0xFFFFF)
        self._numbers = itertools.count(1)
        self.ids: Iterator[bytes] = map(partial(tx_id, generation), self._numbers)

    @property
    def async_clients(self) -> bool:
        """Clients are outside of the hosts' turns."""
        return self._separate or self._rtt_ms > 0

    def new_block(self, number: int) -> int:
        """Takes so many transaction ids, one behind the other, for another process; returns the first counter."""
        while True:
            block = list(itertools.islice(self._numbers, number))  # one step for other threads
            if block[-1] - block[0] == number - 1:
                return block[0]

    @contextmanager
    def between_turns(self) -> Iterator[None]:
        """Holds all hosts' locks: no turn runs meanwhile."""
        with ExitStack() as turns:
            for node in self.nodes:
                turns.enter_context(node.lock)
            yield

    def take_up(self, turns: TurnLoop) -> None:
        """Takes up what earlier engines left, before the first read. The caller is `between_turns`."""
        for node in self.nodes:
            # An engine that was closed properly has taken back what its clients left open.
            if self._number > 1 or not node.host.store.clean:
                left = node.host.staged_before(self.generation)
                node.inbox.extendleft(
                    Deliver(tablet, Withdraw(tx)) for tablet, tx in reversed(left)
                )
                if left:
                    turns.submitted.set()
        for node in self.nodes:
            if node.host.delivery.leftover:  # of tablets with placement "separate"
                turns.deliver_leftover(node)

    def replace(self, stores: Sequence[Store], *, separate: bool) -> None:
        """Begins a generation over stores of which this process has just become the owner. The caller is
        `between_turns`. After an error it may have changed in part.
        """
        self._begin(stores[0].generation)
        self._reopen = None
        self._separate = separate
        for node, host in zip(self.nodes, self._over(stores), strict=True):
            host.wait_for_clients(time.time_ns() // 1_000_000)
            node.host = host

    def restart(self, node: Node) -> None:
        """Opens the store of a host that was stopped, and makes the host again. NotSupported."""
        if self._reopen is None:
            raise NotSupported("this engine cannot reopen a single host")
        number = node.host.number
        node.host = self._host(number, self._reopen(number))

    def _over(self, stores: Sequence[Store]) -> list[Host]:
        hosts = [self._host(number, store) for number, store in enumerate(stores)]
        check_ends([host.links for host in hosts])
        return hosts

    def _host(self, number: int, store: Store) -> Host:
        return Host(
            number,
            store,
            self._number,
            proxy=self.proxy if number == 0 else None,
            trace=self._trace,
            mode=self._mode,
            separate=self._separate,
            rtt_ms=self._rtt_ms,
            settings=self._settings,
            history=History(*self._snapshots, threading.RLock(), time.monotonic),
        )
