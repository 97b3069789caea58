"""Turns a host between two turns into a value: its store's rows, its links' queues, its proxy's open commits.

    Host ─ freeze ─▶ Frozen ─ thaw ─▶ Host, over a store with that content, as after a crash

The rest of a host's memory follows from its store. Delivered messages of a link count as acknowledged, and the
others are numbered from 1 again. So two hosts that differ only in the number of past messages, or in data
that only counters read, have the same `key`.

Next: world.py.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

import msgpack

from .....host.host import Host
from .....proto.ids import HOST, PROXY, tablet_id, tablet_prefix
from .....store import MemoryStore
from .....store.layers import GONE

_LINK_ROWS = (b"O", b"N", b"I")


@dataclass(frozen=True, eq=False)
class Frozen:
    """A frozen host. `values`: the store's rows without those of links; `open`: the proxy's open commits;
    `queues`: by target host, the messages not yet taken, oldest first. Two with one `key` are equal."""

    number: int
    generation: int = 1
    values: dict[bytes, Any] = field(default_factory=dict)
    next_address: int = 0
    open: dict[bytes, Any] = field(default_factory=dict)
    queues: dict[int, tuple[bytes, ...]] = field(default_factory=dict)

    @cached_property
    def key(self) -> bytes:
        memory = [
            (
                tx,
                sorted(entry.parts.items()),
                list(entry.waiting),
                entry.planned,
                (entry.result.step, entry.result.n, entry.result.reason),
                sorted(entry.result.details.items()),
            )
            for tx, entry in self.open.items()
        ]
        rows = sorted(self.values.items())
        links = [(to, [plain(data) for data in queue]) for to, queue in sorted(self.queues.items())]
        mine = 0 if self.number else self.generation  # only host 0's generation has an effect
        whole = self.number, mine, rows, self.next_address, memory, links
        packed: bytes = msgpack.packb(whole)
        return blake2b(packed, digest_size=16).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class _Store(MemoryStore):
    """A store that can be filled with the rows of another one."""

    def load(self, values: dict[bytes, Any], next_address: int) -> None:
        self._layer.update(values)
        self._next = next_address


def freeze(host: Host) -> Frozen:
    store = host.store
    assert isinstance(store, MemoryStore)
    values, _, next_address = store.picture()
    for key, value in [*values.items()]:
        if value is GONE or (key[0] >> 4 == HOST and key[4:5] in _LINK_ROWS):
            del values[key]
    opened = host.proxy.open if host.proxy is not None else {}
    copied = {tx: _copy(entry) for tx, entry in opened.items()}
    queues = {
        other: tuple(data for _, data in link.queue)
        for other, link in host.links.items()
        if link.queue
    }
    return Frozen(host.number, store.generation, values, next_address, copied, queues)


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
    thawed = Host(number, store, hosts, proxy=proxy, separate=separate)
    if thawed.proxy is not None:
        thawed.proxy.open = {tx: _copy(entry) for tx, entry in host.open.items()}
    return thawed


def crash(host: Frozen) -> Frozen:
    """Returns the host after a crash: the proxy's open commits are lost, stored rows stay."""
    return replace(host, generation=host.generation + 1, open={})


@lru_cache(60_000)
def without(host: Frozen, target: int, taken: int) -> Frozen:
    """Returns the host without the first `taken` messages to `target`, which are acknowledged."""
    queues = {**host.queues, target: host.queues[target][taken:]}
    return replace(host, queues={to: queue for to, queue in queues.items() if queue})


def _copy(entry: Any) -> Any:
    """Copies an open commit without its timing: it repeats at any tick."""
    result = replace(entry.result, details=dict(entry.result.details))
    backoff = type(entry.backoff)()
    return replace(entry, waiting=dict(entry.waiting), result=result, touched=0, backoff=backoff)


@lru_cache(1 << 16)
def plain(data: bytes) -> bytes:
    """Returns a message without its cause, which only counters read."""
    code, target, _, _, *fields = msgpack.unpackb(data, use_list=False)
    packed: bytes = msgpack.packb((code, target, *fields))
    return packed
