"""Turns a host between two turns into a value: its store's rows, its links' queues, its proxy's open commits.

    Host ─ freeze ─▶ Frozen ─ thaw ─▶ Host, over a store with that content, as after a crash

The rest of a host's memory follows from its store. Delivered messages of a link count as acknowledged, and the
others are numbered from 1 again. So two hosts that differ only in the number of past messages, or in data
that only counters read, have the same `key`.

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
    """A frozen host. `values`: the store's rows without those of links; `queues`: by target host, the messages not
    yet taken, oldest first; `open`: the proxy's open commits."""

    number: int
    generation: int
    values: dict[bytes, Any]
    next_address: int
    open: dict[bytes, Any]
    queues: dict[int, tuple[bytes, ...]]
    key: bytes


class _Store(MemoryStore):
    """A store that can be filled with the rows of another one."""

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
    mine = 0 if number else generation  # only host 0's generation has an effect
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
    """Returns the host after a crash: the proxy's open commits are lost, stored rows stay."""
    return frozen(host.number, host.generation + 1, host.values, host.next_address, {}, host.queues)


def without(host: Frozen, target: int, taken: int) -> Frozen:
    """Returns the host without the first `taken` messages to `target`, which are acknowledged."""
    queues = dict(host.queues)
    queues[target] = queues[target][taken:]
    if not queues[target]:
        del queues[target]
    return frozen(host.number, host.generation, host.values, host.next_address, host.open, queues)


def _copy(entry: Any) -> Any:
    """Copies an open commit without its timing: it repeats at any tick."""
    result = dataclasses.replace(entry.result, details=dict(entry.result.details))
    again = type(entry.again)()
    return dataclasses.replace(
        entry, waiting=dict(entry.waiting), result=result, touched=0, again=again
    )


@lru_cache(1 << 16)
def plain(data: bytes) -> bytes:
    """Returns a message without its cause, which only counters read."""
    code, target, _, _, *fields = msgpack.unpackb(data, use_list=False)
    packed: bytes = msgpack.packb((code, target, *fields))
    return packed
