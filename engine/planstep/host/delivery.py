"""Decides where each message of a core goes, and counts what it costs.

                      to a tablet of this host        to one of another        from and to a client
    shared            within the turn                 after it is durable      within the turn
    shared, with rtt  within the turn                 after it is durable      after that, half an rtt later
    separate          after it is durable, over the   after it is durable      after that, half an rtt later
                      host's link to itself

Messages that are durable before they leave, and must not be lost, go over a link (links.py): numbered, kept until
they are acknowledged. Datagrams, and messages from and to a client of this process, may be lost with the process.
With placement "separate" a tablet stands for a server of its own: messages from its neighbours
arrive as bytes, over the same links.

Next: links.py, inputs.py.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection
from typing import Any

from ..proto.ids import (
    HOST,
    HOST_MASK,
    HOST_SHIFT,
    KIND_SHIFT,
    PROXY,
    host_of,
    tablet_id,
    tablet_prefix,
)
from ..proto.messages import (
    DATAGRAMS,
    NOBODY,
    Cause,
    Done,
    Message,
    Plan,
    decode,
    encode,
    size_of,
)
from ..proto.shell import Answer, Keys
from ..store import Store
from .inputs import Decided, DelayedDeliver, Deliver, Released, Spent
from .links import Link, open_link

Waiting = tuple[int, Message, Cause]
RequestOf = Callable[[Message, int], tuple[Any, ...] | None]
"""(message, target) → the key shared by messages of a turn that are one request to a host; None: there is none."""


class Delivery:
    """Routes and counts the messages of a turn. Invariants: all it holds but the links belongs to the running turn;
    nothing leaves before `release`; `mark` and `undo` take all of it back."""

    def __init__(
        self,
        number: int,
        hosts: int,
        store: Store,
        keys: Keys,
        *,
        separate: bool = False,
        rtt_ms: float = 0.0,
        request_of: RequestOf | None = None,
    ) -> None:
        self.number = number
        self.separate = separate
        self.half_ms = rtt_ms / 2
        self.async_clients = separate or rtt_ms > 0  # clients run outside of turns
        self.waiting: deque[Waiting] = deque()
        self.delayed: list[DelayedDeliver] = []
        self.answers: list[tuple[int, Answer, Cause]] = []
        self.spent: defaultdict[bytes | None, Spent] = defaultdict(Spent)
        self.steps: defaultdict[tuple[int, str], int] = defaultdict(int)
        self.now_ms = 0  # of the running turn
        self.on_reserve = False
        self.handling = ""  # the message that a tablet with a shell is handling
        self.visible: dict[int, None] = {}
        self.entries: dict[int, None] = {}
        """Tablets whose logs this turn appended to."""
        self.cause: Cause = NOBODY
        self.sender = 0  # the tablet or proxy whose message or input is being handled
        self.links: dict[int, Link] = {}
        self.leftover: list[bytes] = []  # on the link to itself, from an engine that was "separate"
        self._keys = keys
        self._request_of = request_of
        self._datagrams: dict[int, list[Waiting]] = {}
        self.planned = 0  # hops that led to the step that is closed next
        self.reached: dict[bytes, int] = {}  # hops that led to what a transaction's proxy heard
        self._requests: dict[tuple[Any, ...], None] = {}  # requests to brokers counted in this turn
        own = tablet_prefix(tablet_id(HOST, number, 0))
        for other in range(hosts):
            to = bytes([other])
            o = own + b"O" + to
            rows = store.scan(o, o + b"\xff" * 9)
            if other == number and not separate and not rows:
                continue
            last, received = store.get(own + b"N" + to) or 0, store.get(own + b"I" + to) or 0
            link = open_link(number, other, rows, last, received)
            if other == number and not separate:
                self.leftover = [data for n, data in link.queue if n > received]
                self._own_link = link
            else:
                self.links[other] = link

    # input ---------------------------------------------------------------------------------

    def deliver_leftover(self) -> None:
        """Delivers, before anything else, messages between tablets of this host from when they were separate."""
        link = self._own_link
        for data in self.leftover:
            self.waiting.append(decode(data))
        link.acknowledged = link.durable
        link.drop_acknowledged(self._keys)
        self._keys.put(b"I" + bytes([self.number]), link.durable)

    # messages of the cores -----------------------------------------------------------------

    def send(self, target: int, message: Message) -> None:
        tx, hops = self.cause
        tx = getattr(message, "tx", tx)
        to_client = target >> KIND_SHIFT == PROXY
        from_client = self.sender >> KIND_SHIFT == PROXY
        if from_client:
            self.spent[tx].requests += 1
        elif not to_client:
            self._count(target, message, tx)
        cause = (tx, hops)
        if to_client:
            if type(message) is Answer:
                self.answers.append((target, message, cause))
                return
            if type(message) is Done or type(message) is Decided:
                spent = self.spent[tx]
                spent.decided = spent.visible = True
            from_client, host = True, 0
        else:
            host = (target & HOST_MASK) >> HOST_SHIFT
        if host == self.number and not (self.separate or (self.async_clients and from_client)):
            self.waiting.append((target, message, cause))
        elif host == self.number and from_client:
            self._later(self.half_ms, target, message, cause)
        elif isinstance(message, DATAGRAMS):
            self._datagrams.setdefault(host, []).append((target, message, cause))
        else:
            data = encode(target, message, (tx, hops + 1))
            self.spent[tx].tablet_bytes += len(data)
            self.links[host].push(self._keys, data)

    def after_durable(self, target: int, message: Message) -> None:
        """Sends in the next turn at the earliest, in any placement; a crash loses the message."""
        if host_of(target) == self.number and not self.separate:
            self._count(target, message, self.cause[0])
            self.delayed.append(DelayedDeliver(0.0, Deliver(target, message, self.cause)))
        else:
            self.send(target, message)

    def wake(self, delay_ms: float, target: int, message: Message) -> None:
        """Delivers a tablet's message to itself, after a delay."""
        self.delayed.append(DelayedDeliver(delay_ms, Deliver(target, message, self.cause)))

    def _later(self, delay_ms: float, target: int, message: Message, cause: Cause) -> None:
        if self.async_clients:
            self.spent[cause[0]].client_bytes += size_of(message)
        self.delayed.append(DelayedDeliver(delay_ms, Deliver(target, message, cause)))

    # counting ------------------------------------------------------------------------------

    def _count(self, target: int, message: Message, tx: bytes | None) -> None:
        if type(message) is Plan:
            share = 1 / len(message.entries)
            for entry in message.entries:
                self.spent[entry.tx].messages += share
            return
        request = None if self._request_of is None else self._request_of(message, target)
        if request is None:
            self.spent[tx].messages += 1
        elif request not in self._requests:  # else another partition of it
            self._requests[request] = None
            self.spent[tx].messages += 1

    def changed(self, target: int, message: Message) -> None:
        """Counts a message whose handling has changed something in the tablet."""
        tx, hops = self.cause
        times = 1
        if type(message) is Plan:
            for entry in message.entries:
                self._change(entry.tx, target, hops)
            times = len(message.entries)
        else:
            self._change(getattr(message, "tx", tx), target, hops)
        self.stepped(target, type(message).__name__, times)

    def stepped(self, target: int, message: str, times: int = 1) -> None:
        self.steps[target >> KIND_SHIFT, message] += times
        self.entries[target] = None

    def _change(self, tx: bytes | None, target: int, hops: int) -> Spent:
        spent = self.spent[tx]
        if spent.tablets is None:
            spent.tablets = {target: None}
        else:
            spent.tablets[target] = None
        spent.hops = max(spent.hops, hops)
        return spent

    def closing(self, coordinator: int, requests: Collection[bytes]) -> None:
        """Counts the step that the coordinator closes, and writes, over this turn's requests."""
        self.sender = coordinator
        self.cause = (None, self.planned)
        for tx in requests:
            self._change(tx, coordinator, self.planned).planned = True
        self.stepped(coordinator, "PlanRequest", len(requests))

    # the turn's end ------------------------------------------------------------------------

    def mark(self) -> tuple[Any, ...]:
        return (
            {target: link.mark() for target, link in self.links.items()} if self.links else None,
            len(self.delayed),
            len(self.answers),
        )

    def undo(self, mark: tuple[Any, ...]) -> None:
        links, later, answers = mark
        for target, link_mark in (links or {}).items():
            self.links[target].undo(link_mark)
        del self.delayed[later:]
        del self.answers[answers:]
        self.waiting.clear()
        self._datagrams.clear()
        self.planned = 0

    def forget(self) -> None:
        """Forgets costs and visible partitions of a turn that was not made durable."""
        self.spent = defaultdict(Spent)
        self.steps = defaultdict(int)
        self.visible = {}
        self.entries = {}
        self._requests.clear()

    def before_commit(self, superseded: bool) -> None:
        for link in self.links.values():
            if link.staged or superseded:
                link.drop_acknowledged(self._keys)

    def release(self, released: Released, again: bool, syncs: int) -> None:
        """Releases what the durable turn sent; messages of a transaction that wrote are one durable hop further."""
        spent, self.spent = self.spent, defaultdict(Spent)
        released.spent, released.syncs = spent, syncs
        released.steps, self.steps = self.steps, defaultdict(int)
        released.entries, self.entries = len(self.entries), {}
        self.planned = 0
        self._requests.clear()
        if self.leftover:
            self.leftover = []
        if self.visible:
            released.visible, self.visible = self.visible, {}
        if self.delayed:
            for item in self.delayed:
                item.deliver.cause = self._further(item.deliver.cause, spent)
            released.delayed, self.delayed = self.delayed, []
        if self.answers:
            released.answers = [
                (client, answer, self._further(cause, spent))
                for client, answer, cause in self.answers
            ]
            self.answers = []
        for result in released.results:
            hops = self.reached.pop(result.tx, 0)
            mine = spent.get(result.tx)
            if mine is not None and (mine.appends or mine.tablets):  # inlines `wrote`
                hops = max(hops, mine.hops + 1)
            released.hops[result.tx] = hops
        if self.links:
            self._release_frames(released, again)

    def _release_frames(self, released: Released, again: bool) -> None:
        spent = released.spent
        for target, link in self.links.items():
            link.committed()
            datagrams = []
            for to, message, cause in self._datagrams.pop(target, []):
                data = encode(to, message, self._further(cause, spent))
                if cause[0] in spent:
                    spent[cause[0]].tablet_bytes += len(data)
                datagrams.append(data)
            released.frames.extend((target, data) for data in link.frames(datagrams, again))

    def _further(self, cause: Cause, spent: dict[bytes | None, Spent]) -> Cause:
        tx, hops = cause
        mine = spent.get(tx)
        return (tx, hops + 1) if mine is not None and mine.wrote else cause
