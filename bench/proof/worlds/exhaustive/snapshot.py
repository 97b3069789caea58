"""A host between two turns, as a value: what its store holds, what is left on its links, what its proxy has open.

    Host ─ freeze ─▶ Frozen ─ thaw ─▶ Host, over a store with that content, as after a crash

All else that a host has in memory follows from its store. What a link has delivered counts as acknowledged,
and its numbers begin anew with what is left: two hosts that differ only in how many messages there have
been cannot be told apart, and have the same `key`. Nor can those that differ in what counters only see.

Next: world.py.
"""

import dataclasses
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgpack

from .....host.host import Host
from .....proto.ids import HOST, PROXY, tablet_id, tablet_prefix
from .....store import MemoryStore
from .....store.layers import GONE

_LINK_ROWS = (b"O", b"N", b"I")


class Frozen(NamedTuple):
    """`values`: the store's rows, but for those of links; `queues`: for each host the messages that it has not
    taken, oldest first; `open`: the proxy's."""

    number: int
    generation: int
    values: dict[bytes, Any]
    next_address: int
    open: dict[bytes, Any]
    queues: dict[int, tuple[bytes, ...]]
    key: bytes


class _Store(MemoryStore):
    """A store that can be made from what another held."""

    def load(self, values: dict[bytes, Any], next_address: int) -> None:
        self._layer.update(values)
        self._next = next_address

    def values(self) -> dict[bytes, Any]:
        return {
            key: value
            for key, value in self._layer.values.items()
            if value is not GONE and not (key[0] >> 4 == HOST and key[4:5] in _LINK_ROWS)
        }

    @property
    def next_address(self) -> int:
        return self._next


def frozen(
    number: int,
    generation: int,
    values: dict[bytes, Any],
    next_address: int,
    opened: dict[bytes, Any],
    queues: dict[int, tuple[bytes, ...]],
) -> Frozen:
    memory = [
        (
            tx,
            sorted(entry.parts.items()),
            list(entry.waiting),
            entry.planned,
            (entry.result.step, entry.result.n, entry.result.reason),
            sorted(entry.result.details.items()),
        )
        for tx, entry in opened.items()
    ]
    rows = sorted(values.items())
    links = [(target, [plain(data) for data in queue]) for target, queue in sorted(queues.items())]
    mine = 0 if number else generation  # nothing depends on other hosts' generations
    packed: bytes = msgpack.packb((number, mine, rows, next_address, memory, links))
    key = blake2b(packed, digest_size=16).digest()
    return Frozen(number, generation, values, next_address, opened, queues, key)


def new(number: int) -> Frozen:
    return frozen(number, 1, {}, 0, {}, {})


def freeze(number: int, host: Host) -> Frozen:
    store = host.store
    assert isinstance(store, _Store)
    opened = host.proxy.open if host.proxy is not None else {}
    copied = {tx: _copy(entry) for tx, entry in opened.items()}
    queues = {
        other: tuple(data for _, data in link.queue)
        for other, link in host.links.items()
        if link.queue
    }
    return frozen(number, store.generation, store.values(), store.next_address, copied, queues)


def thaw(host: Frozen, hosts: int, separate: bool) -> Host:
    number = host.number
    store = _Store(bytes([number]) * 16, host.generation)
    values = dict(host.values)
    own = tablet_prefix(tablet_id(HOST, number, 0))
    for target, queue in host.queues.items():
        to = bytes([target])
        for n, data in enumerate(queue, 1):
            values[own + b"O" + to + n.to_bytes(8, "big")] = data
        values[own + b"N" + to] = len(queue)
    store.load(values, host.next_address)
    proxy = None if number else tablet_id(PROXY, 0, host.generation)
    made = Host(number, store, hosts, proxy=proxy, separate=separate)
    if made.proxy is not None:
        made.proxy.open = {tx: _copy(entry) for tx, entry in host.open.items()}
    return made


def crashed(host: Frozen) -> Frozen:
    """The proxy is gone with what it had open; all else is as the store has it."""
    return frozen(host.number, host.generation + 1, host.values, host.next_address, {}, host.queues)


def without(host: Frozen, target: int, taken: int) -> Frozen:
    """The first `taken` messages for a host are acknowledged and gone."""
    queues = dict(host.queues)
    queues[target] = queues[target][taken:]
    if not queues[target]:
        del queues[target]
    return frozen(host.number, host.generation, host.values, host.next_address, host.open, queues)


def _copy(entry: Any) -> Any:
    """What the proxy has open; when to repeat is left out: at any tick."""
    result = dataclasses.replace(entry.result, details=dict(entry.result.details))
    again = type(entry.again)()
    return dataclasses.replace(
        entry, waiting=dict(entry.waiting), result=result, touched=0, again=again
    )


@lru_cache(1 << 16)
def plain(data: bytes) -> bytes:
    """A message without its cause, which only counters look at."""
    code, target, _, _, *fields = msgpack.unpackb(data, use_list=False)
    packed: bytes = msgpack.packb((code, target, *fields))
    return packed
