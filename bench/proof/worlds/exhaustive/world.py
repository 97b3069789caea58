"""Computes the successors of a state in a world small enough to search completely, with real hosts.

    State ── ask for · deliver · deliver and keep · lose · crash · crash behind the sync · tick ──▶ States
      └ hosts, frozen: their stores' rows, and the proxy's open commits

Hosts are made anew for each turn (snapshot.py). Datagrams are a set: any of them may be next, be lost or come
twice. Links are taken at their promise: they deliver the sender's oldest message that the receiver has not taken,
in a frame that may come twice. The simulator tests that links keep this promise over lost and reordered frames.

Time is left out: a tick means that everything that can be late is late. A tick is free when no message is under
way, and otherwise counts as a repeat. Ids are given in the order of submission, so that equal
transactions are interchangeable: that is the symmetry.

Next: scene.py, invariants.py.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgpack

from .....host.inputs import Arrived, Commit, Deliver, Input, Released, Tick
from .....proto.ids import host_of, tablet_prefix, tx_id
from .....proto.messages import Ask, Done, PartitionPart, ReadSet, decode, encode
from .....proto.records_pb2 import LinkFrame
from ...patching import exchange
from .scene import Scene, parts_of
from .snapshot import Frozen, crash, freeze, plain, thaw, without

NOW_MS = 10_000
"""The constant time of every turn: whatever waits has waited long enough when a tick comes."""
_DATAGRAM, _LOCAL = 0, 1
_ALL = -1
_TURNS_KEPT = 60_000
_STEPS_MAX = 400
DELIVER, DELIVER_ALL, DELIVER_TWICE = "deliver", "deliver all", "deliver twice"
DELIVER_CRASH = "deliver, and crash behind the sync"
ASKED = "a participant asks how its transaction ended"
TWICE = "a vote arrives twice"
BETWEEN = "a crash falls between a plan and its execution"
Decision = tuple[bytes, int, bool, int, int]
"""(transaction, tablet, committed, step, n), as reported by the tablet."""


class State(NamedTuple):
    """A state of the world.

    `net`: datagrams (host, kind, bytes), sorted; `pending`: kinds not submitted yet; `submitted`: (tx, kind);
    `decided`: decisions that tablets reported; `answers`: (tx, committed, step, n), to clients.
    """

    hosts: tuple[Frozen, ...]
    net: tuple[tuple[int, int, bytes], ...]
    pending: tuple[str, ...]
    submitted: tuple[tuple[bytes, str], ...]
    decided: tuple[Decision, ...]
    answers: tuple[tuple[bytes, bool, int, int], ...]
    crashes: int
    repeats: int
    losses: int

    @property
    def key(self) -> bytes:
        rest: bytes = msgpack.packb(
            (
                [(host, kind, plain(data)) for host, kind, data in self.net],
                self.pending,
                self.submitted,
                self.decided,
                self.answers,
                self[6:],
            )
        )
        return blake2b(b"".join([h.key for h in self.hosts]) + rest, digest_size=16).digest()


class _TurnResult(NamedTuple):
    """A turn's results: the host after it, and everything that it sent or decided."""

    host: Frozen
    decided: tuple[Decision, ...]
    answers: tuple[tuple[bytes, bool, int, int], ...]
    parcels: tuple[tuple[int, int, bytes], ...]
    notes: tuple[str, ...]
    taken: tuple[tuple[int, int], ...]


class Move(NamedTuple):
    """One event at `host`: about the datagram at index `parcel` of `net`, or the link from host `source`."""

    what: str
    host: int
    parcel: int = _ALL
    source: int = _ALL
    kind: str = ""


class Small:
    """Makes states and their successors. `reached` counts notable events by name."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.reached: Counter[str] = Counter()
        self._turns: dict[tuple[bytes, bytes], _TurnResult] = {}
        self._take: dict[str, Callable[[State, Move], State]] = {
            "ask for": self._ask,
            "ask for all": self._ask,
            "tick": self._tick,
            "crash": self._crash,
            DELIVER_ALL: self._deliver_all,
            "lose": self._lose,
        }

    # from state to state -------------------------------------------------------------------

    def first(self) -> State:
        """Returns the first state: two records in the partition, no message under way."""
        hosts = tuple(map(Frozen, range(self.scene.hosts)))
        budget = self.scene.crashes, self.scene.repeats, self.scene.losses
        state = State(hosts, (), (), (), (), (), *budget)
        records = PartitionPart((), ((b"first", 1), (b"second", 1)))
        state = self._turn(state, 0, [Commit(tx_id(1, 0), {self.scene.tablets[0]: records})])
        state = self.calm(state)
        pending = tuple(sorted(self.scene.kinds))
        self.reached.clear()
        return state._replace(pending=pending, decided=(), answers=())

    def calm(self, state: State) -> State:
        """Delivers all messages under way."""
        for _ in range(_STEPS_MAX):
            waiting = self.waiting(state)
            if not waiting:
                return state
            state = self.take(state, Move(DELIVER_ALL, min(waiting)))
        raise AssertionError(f"scene {self.scene.name}: messages without end")

    def waiting(self, state: State) -> Counter[int]:
        """Returns, by host, the number of datagrams and links with a message for it."""
        return Counter(
            [host for host, *_ in state.net]
            + [to for frozen in state.hosts for to in frozen.queues]
        )

    def moves(self, state: State) -> Iterator[Move]:
        """Yields all possible next events."""
        for kind in dict.fromkeys(state.pending):
            yield Move("ask for", 0, kind=kind)
        if len(state.pending) > 1:
            yield Move("ask for all", 0)
        arrivals = [Move(DELIVER, host, i) for i, (host, *_) in enumerate(state.net)]
        for source, frozen in enumerate(state.hosts):
            arrivals += [Move(DELIVER, host, source=source) for host in frozen.queues]
        for move in arrivals:
            yield from _arrivals(state, move)
        for host, several in self.waiting(state).items():
            if several > 1:
                yield Move(DELIVER_ALL, host)
        for host in range(self.scene.hosts):
            if state.crashes:
                yield Move("crash", host)
            if not arrivals or state.repeats:
                yield Move("tick", host)

    def take(self, state: State, move: Move) -> State:
        return self._take.get(move.what, self._deliver)(state, move)

    def _ask(self, state: State, move: Move) -> State:
        """Submits the kind that the move names, or all that are left, in one turn."""
        pending, submitted = list(state.pending), list(state.submitted)
        inputs: list[Input] = []
        for kind in (move.kind,) if move.kind else state.pending:
            pending.remove(kind)
            tx = tx_id(state.hosts[0].generation, len(submitted) + 1)
            submitted.append((tx, kind))
            inputs.append(Commit(tx, parts_of(self.scene, kind)))
        state = state._replace(pending=tuple(pending), submitted=tuple(submitted))
        return self._turn(state, 0, inputs)

    def _tick(self, state: State, move: Move) -> State:
        if self.waiting(state):
            state = state._replace(repeats=state.repeats - 1)
        return self._turn(state, move.host, [Tick()])

    def _crash(self, state: State, move: Move) -> State:
        self._note_crash(state, move.host)
        return self._crash_host(state, move.host)

    def _deliver_all(self, state: State, move: Move) -> State:
        number, net = move.host, state.net
        inputs = [_input(item) for item in net if item[0] == number]
        for other, frozen in enumerate(state.hosts):
            if number in frozen.queues:
                inputs.append(_frame(other, number, frozen.queues[number]))
        state = state._replace(net=tuple(item for item in net if item[0] != number))
        return self._turn(state, number, inputs)

    def _lose(self, state: State, move: Move) -> State:
        return _without_datagram(state, move.parcel)._replace(losses=state.losses - 1)

    def _deliver(self, state: State, move: Move) -> State:
        """Delivers a datagram or a link's next message; a datagram that comes twice stays under way."""
        number, twice = move.host, move.what == DELIVER_TWICE
        if move.parcel == _ALL:
            frame = _frame(move.source, number, state.hosts[move.source].queues[number][:1])
            inputs: list[Input] = [frame, frame] if twice else [frame]
            if twice:
                self._note_repeat(frame)
        else:
            inputs = [_input(state.net[move.parcel])]
            if not twice:
                state = _without_datagram(state, move.parcel)
        if twice:
            state = state._replace(repeats=state.repeats - 1)
        if move.what == DELIVER_CRASH:
            return self._crash_host(self._turn(state, number, inputs, heard=False), number)
        return self._turn(state, number, inputs)

    def _turn(self, state: State, number: int, inputs: list[Input], heard: bool = True) -> State:
        turn = self._cached_turn(number, state.hosts[number], inputs)
        for note in turn.notes:
            self.reached[note] += 1
        hosts = list(state.hosts)
        hosts[number] = turn.host
        for source, taken in turn.taken:
            hosts[source] = without(hosts[source], number, taken)
        state = state._replace(hosts=tuple(hosts))
        if turn.decided:
            state = state._replace(decided=tuple(sorted({*state.decided, *turn.decided})))
        if not heard:
            return state
        answers = tuple(sorted((*state.answers, *turn.answers)))
        return state._replace(answers=answers, net=tuple(sorted({*state.net, *turn.parcels})))

    def _cached_turn(self, number: int, frozen: Frozen, inputs: list[Input]) -> "_TurnResult":
        """Runs a turn, or reuses an equal one: a turn is a function of the host and its inputs."""
        what = b"".join([_identity(item) for item in inputs])
        turn = self._turns.get((frozen.key, what))
        if turn is None:
            if len(self._turns) >= _TURNS_KEPT:
                self._turns.clear()
            turn = self._turns[frozen.key, what] = self._run(number, frozen, inputs)
        return turn

    def _run(self, number: int, frozen: Frozen, inputs: list[Input]) -> "_TurnResult":
        host = thaw(frozen, self.scene.hosts, self.scene.separate)
        decided: list[Decision] = []
        notes: list[str] = []
        send = host.delivery.send

        def watched(target: int, message: Any) -> None:
            kind = type(message)
            if kind is Done:
                at = (message.step, message.n)
                decided.append((message.tx, message.tablet, message.committed, *at))
            elif kind is Ask:
                notes.append(ASKED)
            send(target, message)

        exchange(host.delivery, "send", watched)
        released = host.run(inputs, NOW_MS)
        if released.failures:
            raise released.failures[0][1]
        answers = tuple((r.tx, r.reason is None, r.step, r.n) for r in released.results)
        parcels = tuple(_parcels(number, released))
        taken = tuple((other, link.received) for other, link in host.links.items() if link.received)
        return _TurnResult(freeze(host), tuple(decided), answers, parcels, tuple(notes), taken)

    def _crash_host(self, state: State, number: int) -> State:
        """Crashes a host: it loses its memory and the messages under way to it."""
        hosts = list(state.hosts)
        hosts[number] = crash(hosts[number])
        net = tuple(item for item in state.net if item[0] != number)
        return state._replace(hosts=tuple(hosts), net=net, crashes=state.crashes - 1)

    # notable events ------------------------------------------------------------------------

    def _note_repeat(self, item: Arrived) -> None:
        frame = LinkFrame.FromString(item.data)
        if any(type(decode(part)[1]) is ReadSet for part in frame.messages):
            self.reached[TWICE] += 1

    def _note_crash(self, state: State, number: int) -> None:
        for tablet in self.scene.tablets:
            queue = tablet_prefix(tablet) + b"q"
            if host_of(tablet) == number and queue in state.hosts[number].values:
                self.reached[BETWEEN] += 1


def _arrivals(state: State, move: Move) -> Iterator[Move]:
    """Yields the ways in which a message may arrive, or be lost."""
    yield move
    if state.crashes:
        yield move._replace(what=DELIVER_CRASH)
    if state.repeats and (move.parcel == _ALL or state.net[move.parcel][1] == _DATAGRAM):
        yield move._replace(what=DELIVER_TWICE)
    if state.losses and move.parcel != _ALL and state.net[move.parcel][1] == _DATAGRAM:
        yield move._replace(what="lose")


def _without_datagram(state: State, parcel: int) -> State:
    """Removes a datagram from the net."""
    return state._replace(net=state.net[:parcel] + state.net[parcel + 1 :])


def _parcels(number: int, released: Released) -> Iterator[tuple[int, int, bytes]]:
    """Yields a turn's datagrams and local messages; links' messages are in the store as well."""
    for target, data in released.frames:
        for part in LinkFrame.FromString(data).datagrams:
            yield target, _DATAGRAM, part
    for later in released.delayed:
        item = later.deliver
        yield number, _LOCAL, encode(item.target, item.message, item.cause)


def _input(item: tuple[int, int, bytes]) -> Input:
    return Deliver(*decode(item[2]))


def _frame(source: int, target: int, messages: tuple[bytes, ...]) -> Arrived:
    frame = LinkFrame(source=source, target=target, first=1)
    frame.messages.extend(messages)
    return Arrived(frame.SerializeToString())


def _identity(item: Input) -> bytes:
    """Returns bytes that identify an input."""
    if isinstance(item, Arrived):
        return b"a" + _plain_frame(item.data)
    if isinstance(item, Deliver):
        return b"d" + plain(encode(item.target, item.message))
    if isinstance(item, Commit):
        return b"c" + item.tx + repr(item.parts).encode()
    return b"t"


@lru_cache(1 << 16)
def _plain_frame(data: bytes) -> bytes:
    frame = LinkFrame.FromString(data)
    messages = [plain(part) for part in frame.messages]
    packed: bytes = msgpack.packb((frame.source, frame.first, messages))
    return packed
