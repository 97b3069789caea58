"""Computes the successors of a state in a small world of mode "pulsar", with the real tablets.

    two clients ──NewTxn, registrations, EndTxn──▶ coordinator ──ends──▶ partition with a subscription
         └──────────Send, Ack──────────────────────────────────────────▶

    State ── deliver · deliver twice · deliver, and crash · lose · crash · time-out · ask again ──▶ States

Coordinator and partition are on hosts of their own; a turn takes one message. Any message under way may be the
next one. A tablet is its rows, made anew for each turn; of a coordinator its memory, too, until it crashes. Time
is left out: a time-out comes at any moment, once, and what is repeated is late. What is asked again while a
message is under way counts as a repeat.

A client sends one batch and acknowledges the first record, in one transaction. Of two that commit one conflicts.

Next: pulsar_invariants.py.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import msgpack

from .....coordinator.pulsar.ends import ENDS
from .....coordinator.pulsar.states import COMMITTING, DECIDED, TIMED_OUT, row_of
from .....coordinator.pulsar.transactions import TIME, Transactions
from .....proto.ids import PARTITION, TRANSACTIONS, tablet_id
from .....proto.pulsar import messages as m
from .....proto.pulsar.settings import PulsarSettings
from .....proto.shell import Answer, Wake
from .....tablets.pulsar.partition import Partition
from .world import DELIVER, DELIVER_CRASH, DELIVER_TWICE, Move

COORDINATOR, LOG = tablet_id(TRANSACTIONS, 0, 0), tablet_id(PARTITION, 0, 10)
TABLETS = COORDINATOR, LOG
NAME = "g"
_CLIENTS = 1_000
_NOW_MS, _LATER_MS = 1_000, 1_000_000
_SETTINGS = PulsarSettings(deduplication=True, snapshot_transactions=1)
_TURNS_KEPT = 60_000
NEW, ADD_PARTITION, ADD_SUBSCRIPTION, SEND, ACK, COMMIT, ABORT = range(7)
"""Requests of a client, under their numbers."""

CONFLICT = "an acknowledgement conflicts"
LATE_SEND = "a message comes behind its transaction's end"
END_AGAIN = "an end comes again"
BETWEEN = "a coordinator crashes between a decision and its end"
EXPIRED = "a transaction times out"
UNKNOWN = "a client that asks again is told that nobody knows its transaction"
TWO_IDS = "a client has opened two transactions by asking twice"
LATE_END = "a commit comes behind the time-out"


@dataclass(frozen=True)
class Scene:
    """`commits`: what each client asks for. The rest: how many of each fault."""

    name: str
    commits: tuple[bool, ...] = (True, True)
    crashes: int = 1
    repeats: int = 1
    losses: int = 0
    timeouts: int = 1


class Space:
    """A tablet's rows during a turn. Payloads are not kept."""

    def __init__(self, rows: dict[bytes, Any]) -> None:
        self.rows = dict(rows)

    def get(self, key: bytes) -> Any:
        return self.rows.get(key)

    def put(self, key: bytes, value: Any) -> None:
        self.rows[key] = value

    def delete(self, key: bytes) -> None:
        del self.rows[key]

    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, Any]]:
        keys = sorted((key for key in self.rows if begin <= key < end), reverse=reverse)
        return [(key, self.rows[key]) for key in keys[:limit]]

    def append_payload(self, data: bytes) -> int:
        return 0

    def drop_payload(self, address: int, length: int) -> None:
        raise AssertionError("nothing is trimmed here")


class _Shell:
    settings = _SETTINGS
    hosts = 1
    cause = None

    def __init__(self, epoch: int, now_ms: int) -> None:
        self.epoch, self.now_ms = epoch, now_ms
        self.sent: list[tuple[int, Any]] = []
        self.soon_after: list[Any] = []

    def send(self, target: int, message: Any) -> None:
        self.sent.append((target, message))

    after_durable = send

    def later(self, delay_ms: float, message: Any) -> None:
        if not delay_ms:
            self.soon_after.append(message)

    def appended(self, share: float = 1.0, visible: bool = False) -> None: ...

    def decided(self) -> None: ...


class Host(NamedTuple):
    """A tablet between two turns. `memory`: the coordinator's (waiting requests, counts, ends and theirs)."""

    rows: dict[bytes, Any]
    epoch: int
    memory: Any
    key: bytes


class Client(NamedTuple):
    """A client. `waits`: its requests without an answer; `told`: how its transaction ended, "" so far."""

    commits: bool
    id: m.TxnID = m.NO_TXN
    waits: tuple[int, ...] = (NEW,)
    failed: bool = False
    told: str = ""


class State(NamedTuple):
    """`net`: messages under way, as (text, target, message), sorted."""

    hosts: tuple[Host, Host]
    net: tuple[tuple[str, int, Any], ...]
    clients: tuple[Client, ...]
    crashes: int
    repeats: int
    losses: int
    timeouts: int

    @property
    def key(self) -> bytes:
        texts = [text for text, *_ in self.net]
        rest = repr((texts, *self[2:])).encode()
        return blake2b(b"".join([h.key for h in self.hosts]) + rest, digest_size=16).digest()


def _host(rows: dict[bytes, Any], epoch: int, memory: Any) -> Host:
    """Freezes a tablet. The order of a coordinator's log does not count: it gives the same rows."""
    told = rows.items()
    if memory is not None:
        kept = {key: row for key, row in rows.items() if key[:1] not in b"lL"}
        told = {
            k: (*row[:-1], len(row[-1])) if k[:1] == b"t" else row for k, row in kept.items()
        }.items()
    whole = msgpack.packb((sorted(told), epoch)) + repr(memory).encode()
    return Host(rows, epoch, memory, blake2b(whole, digest_size=16).digest())


class PulsarMoves:
    """Makes states and their successors. `reached` counts notable events by name."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.reached: Counter[str] = Counter()
        self._turns: dict[tuple[bytes, str, int], tuple[Host, list[tuple[int, Any]]]] = {}

    def first(self) -> State:
        """Returns the first state: two records, a subscription, and each client's NewTxn under way."""
        hosts = [_host({}, 1, None), _host({}, 1, None)]
        send = m.Send(1, 1, *m.NO_TXN, "", -1, b"two", 2)
        for message in (send, m.Seek(1, 2, NAME, 0, individual=True)):
            hosts[1], _ = self._turn(hosts[1], LOG, message, _NOW_MS)
        scene = self.scene
        clients = tuple(Client(commits) for commits in scene.commits)
        faults = scene.crashes, scene.repeats, scene.losses, scene.timeouts
        state = State((hosts[0], hosts[1]), (), clients, *faults)
        for number in range(len(clients)):
            state = self._ask(state, number, (NEW,))
        return state

    def is_quiet(self, state: State) -> bool:
        return not state.net

    def moves(self, state: State) -> Iterator[Move]:
        """Yields all possible next events; host 0 is the coordinator's, 1 the partition's, -1 a client."""
        faults = {
            DELIVER_CRASH: state.crashes,
            DELIVER_TWICE: state.repeats,
            "lose": state.losses,
        }
        for at, (_, target, _) in enumerate(state.net):
            host = TABLETS.index(target)
            yield Move(DELIVER, host, at)
            yield from (Move(what, host, at) for what, left in faults.items() if left)
        if state.crashes:
            yield from (Move("crash", host) for host in range(len(TABLETS)))
        if not state.net or state.repeats:
            yield Move("tick", 0)
            for number, client in enumerate(state.clients):
                if client.waits:
                    yield Move("ask again", -1, number)
        if state.timeouts and any(key[:1] == b"d" for key in state.hosts[0].rows):
            yield Move("time-out", 0)

    def take(self, state: State, move: Move) -> State:
        what = move.what
        if what == "crash":
            return self._crash(state, move.host)._replace(crashes=state.crashes - 1)
        if what == "time-out":
            state = state._replace(timeouts=state.timeouts - 1)
            return self.handle(state, COORDINATOR, Wake(TIME), _LATER_MS)
        if what in ("tick", "ask again"):
            if state.net:
                state = state._replace(repeats=state.repeats - 1)
            if what == "tick":
                return self.handle(state, COORDINATOR, Wake(ENDS), _LATER_MS)
            return self._ask(state, move.parcel, state.clients[move.parcel].waits)
        _, target, message = state.net[move.parcel]
        if what == DELIVER_TWICE:
            state = state._replace(repeats=state.repeats - 1)
        else:
            net = state.net[: move.parcel] + state.net[move.parcel + 1 :]
            state = state._replace(net=net)
        if what == "lose":
            return state._replace(losses=state.losses - 1)
        if what == DELIVER_CRASH:  # durable, and nothing of it has left
            host, _ = self._turn(state.hosts[move.host], target, message, _NOW_MS)
            state = _with_host(state, move.host, host)
            return self._crash(state, move.host)._replace(crashes=state.crashes - 1)
        return self.handle(state, target, message)

    # tablets ---------------------------------------------------------------------------------

    def handle(self, state: State, target: int, message: Any, now_ms: int = _NOW_MS) -> State:
        """Delivers a message to a tablet, in a turn."""
        number = TABLETS.index(target)
        before = state.hosts[number]
        host, sent = self._turn(before, target, message, now_ms)
        self.reached[END_AGAIN] += type(message) is m.EndTxnOnPartition and host is before
        return self._send(_with_host(state, number, host), sent)

    def _turn(
        self, host: Host, target: int, message: Any, now_ms: int
    ) -> tuple[Host, list[tuple[int, Any]]]:
        """Runs a turn, or reuses an equal one."""
        what = host.key, repr(message), now_ms
        if what not in self._turns:
            if len(self._turns) >= _TURNS_KEPT:
                self._turns.clear()
            self._turns[what] = _run(host, target, message, now_ms)
        return self._turns[what]

    def _crash(self, state: State, number: int) -> State:
        """Crashes a host and starts it again: its memory is lost, and what was under way to it."""
        host = state.hosts[number]
        if number == 0 and any(
            key[:1] == b"t" and row_of(row).state in DECIDED for key, row in host.rows.items()
        ):
            self.reached[BETWEEN] += 1
        net = tuple(item for item in state.net if item[1] != TABLETS[number])
        state = state._replace(net=net)
        if number:
            return state
        begun, sent = _run(_host(host.rows, host.epoch + 1, None), COORDINATOR, None, _NOW_MS)
        return self._send(_with_host(state, number, begun), sent)

    def _send(self, state: State, sent: list[tuple[int, Any]]) -> State:
        """Adds messages to those under way; equal ones are one.

        Clients take answers at once: what they ask for then may be under way for as long as one likes.
        """
        for target, message in sent:
            if target not in TABLETS:
                state = self._answered(state, target - _CLIENTS, message)
        new = {
            (f"{target:x} {message!r}", target): message
            for target, message in sent
            if target in TABLETS
        }
        net = {(text, target): message for text, target, message in state.net} | new
        return state._replace(net=tuple((*key, net[key]) for key in sorted(net)))

    # clients ---------------------------------------------------------------------------------

    def _ask(self, state: State, number: int, requests: tuple[int, ...]) -> State:
        client = state.clients[number]
        sent = [_request(number, client.id, request) for request in requests]
        return self._send(state, sent)

    def _answered(self, state: State, number: int, answer: Answer) -> State:
        """Takes the next steps of a client after an answer; one that it does not wait for changes nothing."""
        client, request = state.clients[number], answer.request
        if request == NEW and not answer.error and client.id not in (m.NO_TXN, answer.value):
            self.reached[TWO_IDS] += 1
        if request not in client.waits:
            return state
        waits = tuple(other for other in client.waits if other != request)
        client = client._replace(waits=waits)
        then: tuple[int, ...] = ()
        if request in (COMMIT, ABORT):
            self._note_end(state, answer)
            told = {"": "aborted" if request == ABORT else "committed"}
            unknown = "unknown" if answer.error == "TransactionNotFound" else "aborted"
            client = client._replace(told=told.get(answer.error, unknown))
        elif answer.error:
            self.reached[CONFLICT] += answer.error == "TransactionConflict"
            self.reached[LATE_SEND] += request == SEND
            client = client._replace(failed=True)
        elif request == NEW:
            client = client._replace(id=m.TxnID(*answer.value))
            then = ADD_PARTITION, ADD_SUBSCRIPTION
        elif request in (ADD_PARTITION, ADD_SUBSCRIPTION):
            then = (request + 2,)
        if not waits and not then and not client.told:
            then = (COMMIT if client.commits and not client.failed else ABORT,)
        client = client._replace(waits=(*waits, *then))
        clients = (*state.clients[:number], client, *state.clients[number + 1 :])
        return self._ask(state._replace(clients=clients), number, then)

    def _note_end(self, state: State, answer: Answer) -> None:
        self.reached[UNKNOWN] += answer.error == "TransactionNotFound"
        self.reached[LATE_END] += answer.error == "InvalidTxnStatus"

    def note(self, state: State) -> None:
        for key, row in state.hosts[0].rows.items():
            if key[:1] == b"t" and row_of(row).why == TIMED_OUT:
                self.reached[EXPIRED] += row_of(row).state != COMMITTING


def _with_host(state: State, number: int, host: Host) -> State:
    hosts = (host, state.hosts[1]) if number == 0 else (state.hosts[0], host)
    return state._replace(hosts=hosts)


def _request(number: int, id: m.TxnID, request: int) -> tuple[int, Any]:
    """Returns a client's request and the tablet that it is for."""
    who = _CLIENTS + number, request
    if request == NEW:
        return COORDINATOR, m.NewTxn(*who, 60_000)
    if request == ADD_PARTITION:
        return COORDINATOR, m.AddPartitionToTxn(*who, *id, (LOG,))
    if request == ADD_SUBSCRIPTION:
        return COORDINATOR, m.AddSubscriptionToTxn(*who, *id, ((LOG, NAME),))
    if request == SEND:
        return LOG, m.Send(*who, *id, f"client {number}", 0, b"one", 1)
    if request == ACK:
        return LOG, m.Ack(*who, *id, NAME, ((0, 1),))
    return COORDINATOR, m.EndTxn(*who, *id, request == COMMIT)


def _run(host: Host, target: int, message: Any, now_ms: int) -> tuple[Host, list[tuple[int, Any]]]:
    """Runs a turn of a tablet made from its rows and its memory; without a message it only begins."""
    space, shell = Space(host.rows), _Shell(host.epoch, now_ms)
    own: Any = (space, shell)
    if target == LOG:
        partition: Any = Partition(LOG, *own)
        for waiting in _with_soon(shell, message):
            partition.handle(waiting)
        return host if space.rows == host.rows else _host(space.rows, host.epoch, None), shell.sent
    coordinator: Any = Transactions(COORDINATOR, *own)
    if host.memory is None:
        coordinator.begin()
    else:
        _remember(coordinator, host.memory)
    if message is not None:
        coordinator.handle(message)
    return _host(space.rows, host.epoch, _memory_of(coordinator)), shell.sent


def _with_soon(shell: _Shell, message: Any) -> Iterator[Any]:
    """Yields a message, and those that the tablet sends to itself without a delay."""
    yield message
    while shell.soon_after:
        yield shell.soon_after.pop(0)


def _memory_of(coordinator: Any) -> Any:
    """Returns a coordinator's memory, without times."""
    assert not coordinator._deciding, "a log without a buffer"  # noqa: SLF001
    ends = coordinator.ends
    ending = {least: ending._replace(sent_ms=0) for least, ending in ends.ending.items()}
    return (
        dict(coordinator._waiters),  # noqa: SLF001
        coordinator._counts,  # noqa: SLF001
        ending,
        ends.waiting,
        ends._counts,  # noqa: SLF001
    )


def _remember(coordinator: Any, memory: Any) -> None:
    ends = coordinator.ends
    waiters, counts, ending, waiting, of_ends = memory
    coordinator._waiters.update(waiters)  # noqa: SLF001
    coordinator._counts.update(counts)  # noqa: SLF001
    ends.ending.update(ending)
    ends.waiting.update(waiting)
    ends._counts.update(of_ends)  # noqa: SLF001
