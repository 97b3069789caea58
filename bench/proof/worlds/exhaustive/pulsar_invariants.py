"""Judges a state of the small world of mode "pulsar", and what is left where nothing is under way.

    rows ─▶ markers, ids, pending, log of acknowledgements ─▶ they agree; what clients were told is so

Next: search.py.
"""

from collections.abc import Iterator
from typing import Any

from .....coordinator.pulsar import invariants
from .....proto.batched_log import entries_of
from .....proto.pulsar import messages as m
from .....tablets.pulsar import ack_log, rows
from .....tablets.pulsar.snapshots import recover
from .pulsar_world import NAME, PulsarMoves, Space, State
from .world import DELIVER, Move

_ROUNDS_MAX = 40


class SmallPulsar(PulsarMoves):
    """The small world with its judge."""

    def judge(self, state: State, before: State | None = None) -> list[str]:
        return [*_violations(state), *(_falls(before, state) if before is not None else ())]

    def ends(self, state: State) -> list[str]:
        """Lets time pass without faults; returns what never finishes, or is wrong then."""
        reached = self.reached.copy()
        try:
            return self._ends(state)
        except Exception as error:  # mostly the engine's own assertions
            return [f"B37: the engine ended with {error!r}"]
        finally:
            self.reached = reached  # events of this trial do not count

    def _ends(self, state: State) -> list[str]:
        quiet = state._replace(crashes=0, repeats=0, losses=0, timeouts=1)
        for _ in range(_ROUNDS_MAX):
            while quiet.net:
                quiet = self.take(quiet, Move(DELIVER, 0, 0))._replace(timeouts=1)
            if not list(_left(quiet)):
                break
            moves = [move for move in self.moves(quiet) if move.what != "time-out"]
            for move in moves:  # all that asks again; then, what still hangs was left by its client
                quiet = self.take(quiet._replace(repeats=1), move)
            if not quiet.net:
                for move in [move for move in self.moves(quiet) if move.what == "time-out"]:
                    quiet = self.take(quiet, move)
        left = list(_left(quiet))
        if left:
            return ["B37: for ever under way: " + ", ".join(left)]
        return [*_violations(quiet), *_whole(quiet)]


def _log(state: State) -> list[tuple[int, rows.Entry]]:
    found = Space(state.hosts[1].rows).scan(b"b", b"c")
    return [(int.from_bytes(key[1:], "big"), rows.Entry(*row)) for key, row in found]


def _acknowledged(space: Any) -> tuple[dict[Any, int], dict[Any, int]]:
    """Returns how often the log of acknowledgements has an ACK, and a COMMIT, of each id."""
    acks: dict[Any, int] = {}
    commits: dict[Any, int] = {}
    for entry in entries_of(space, rows.of_name(ack_log.LOG, NAME)):
        for op, most, least, *_ in entry.records.values():
            counted = {ack_log.ACK: acks, ack_log.COMMIT: commits}.get(op)
            if counted is not None:
                counted[most, least] = counted.get((most, least), 0) + 1
    return acks, commits


def _violations(state: State) -> Iterator[str]:
    coordinator, space = (Space(host.rows) for host in state.hosts)
    for text in invariants.violations(coordinator):
        yield f"B24: {text}"
    start, end, max_read = space.get(rows.META)
    first = [int.from_bytes(key[1:], "big") for key, _ in space.scan(b"o", b"p", limit=1)]
    if not start <= max_read <= end or max_read != min(first, default=end):
        yield f"B24: max read is {max_read} of {end}, open from {first}"
    for key in [key for letter in (b"n", b"y") for key, _ in space.scan(letter, letter + b"\xff")]:
        if coordinator.get(b"t" + key[9:17]) is None:
            yield f"B24: transaction {int.from_bytes(key[9:17], 'big')} is over, and open: {key!r}"
    yield from _markers(state, space, start, end)
    cursor = rows.Cursor(*space.get(rows.of_name(b"c", NAME)))
    pending = {
        int.from_bytes(key[-8:], "big"): (most, least)
        for key, (_, most, least) in space.scan(rows.of_name(b"j", NAME), b"k")
    }
    replayed: Any = ack_log.replayed(space, NAME, cursor)
    if replayed != (pending, None):
        yield f"B24: the log of acknowledgements gives {replayed}, pending {pending}"
    _, commits = _acknowledged(space)
    if len(commits) > 1 or any(n > 1 for n in commits.values()):
        yield f"B25: the first record is acknowledged by {commits}"
    if (cursor.position > 0) != bool(commits):
        yield f"B25: the position is {cursor.position}, committed are {commits}"


def _markers(state: State, space: Any, start: int, end: int) -> Iterator[str]:
    """Checks markers against each other and the aborted ids."""
    ended: dict[tuple[int, int], int] = {}
    aborts, batches = [], dict[str, int]()
    for offset, entry in _log(state):
        id = entry.most, entry.least
        if entry.kind in (m.COMMIT, m.ABORT):
            if id in ended:
                yield f"B25: {id} ends twice"
            ended[id] = entry.kind
            aborts += [(offset, *id)] * (entry.kind == m.ABORT)
        elif entry.kind == m.TRANSACTIONAL:
            batches[entry.producer] = batches.get(entry.producer, 0) + 1
            if id in ended:
                yield f"B24: a message of {id} lies behind its end"
    if any(n > 1 for n in batches.values()):
        yield f"B25: batches are there twice: {batches}"
    ids = recover(space, start, end)
    if (ids.ids() if ids else []) != aborts:
        yield f"B24: aborted ids {ids.ids() if ids else []}, markers {aborts}"
    yield from _told(state, space, ended)


def _told(state: State, space: Any, ended: dict[tuple[int, int], int]) -> Iterator[str]:
    """Checks what clients were told against the markers, and the log of acknowledgements."""
    _, commits = _acknowledged(space)
    for client in state.clients:
        marked = ended.get(client.id), commits.get(client.id, 0)
        if client.told == "committed" and marked != (m.COMMIT, 1):
            yield f"B8: the client of {client.id} was told that it is committed, there is {marked}"
        if client.told == "aborted" and (m.COMMIT in marked[:1] or marked[1]):
            yield f"B8: the client of {client.id} was told that it is aborted, there is {marked}"


def _falls(before: State, state: State) -> Iterator[str]:
    (_, _, was), (_, _, now) = (s.hosts[1].rows[rows.META] for s in (before, state))
    if now < was:
        yield f"B24: max read falls from {was} to {now}"
    key = rows.of_name(b"c", NAME)
    if state.hosts[1].rows[key][1] < before.hosts[1].rows[key][1]:
        yield "B24: the position falls"
    given, live = before.hosts[0].rows.get(b"i", -1), before.hosts[0].rows
    for key in state.hosts[0].rows:
        if key[:1] == b"t" and key not in live and int.from_bytes(key[1:], "big") <= given:
            yield f"B24: transaction {int.from_bytes(key[1:], 'big')} is there again"


def _left(state: State) -> Iterator[str]:
    """Yields what has not finished."""
    yield from (f"live: {key!r}" for key in state.hosts[0].rows if key[:1] == b"t")
    yield from (f"open: {key!r}" for key in state.hosts[1].rows if key[:1] in b"noyjk")
    yield from (f"a client waits for {client.waits}" for client in state.clients if client.waits)


def _whole(state: State) -> Iterator[str]:
    """Checks that message and acknowledgement of a transaction count together, or not at all."""
    space = Space(state.hosts[1].rows)
    _, commits = _acknowledged(space)
    kinds = {(e.most, e.least): e.kind for _, e in _log(state) if e.kind in (m.COMMIT, m.ABORT)}
    sent = {(e.most, e.least) for _, e in _log(state) if e.kind == m.TRANSACTIONAL}
    for client in state.clients:
        counts = [client.id in sent and kinds.get(client.id) == m.COMMIT, client.id in commits]
        if len(set(counts)) > 1:
            yield f"B11: {client.id} is torn: message {counts[0]}, acknowledgement {counts[1]}"
