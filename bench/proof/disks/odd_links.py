"""Sends damaged frames to the real owner of a store, over its socket, while another process goes on committing.

    one link after the other: Hello, a few valid frames, one that is damaged, valid ones ─▶ ended, or all answered

A link whose bytes are malformed has to be ended by the owner. Any other is ended with a reason, or its last frame
is answered. Valid frames name the tablets that there are, and ids that the link was given: so they get far.

Next: false_owner.py.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import msgpack

from planstep.proto import frames
from planstep.proto.batch import encode_batch
from planstep.proto.frame_checks import MalformedFrame
from planstep.proto.ids import PARTITION, SHARD, tx_id
from planstep.proto.kafka.request_rules import RULES as KAFKA
from planstep.proto.pulsar.request_rules import RULES as PULSAR
from planstep.runtime.processes.calls import CALLS
from planstep.runtime.processes.ids import BLOCK, address_of

from .mutating import mutate
from .odd_frames import DAMAGES, drawn_frame, joined, whole_frame
from .owner_struck import OddLink, Struck, Wrong


class _Drawn:
    """Draws valid frames of one link, by the ids and tablets that there are."""

    def __init__(self, random: Random, struck: Struck, welcome: frames.Welcome) -> None:
        self.random, self.mode = random, struck.mode
        self.places = struck.places
        self.welcome = welcome
        self._next = iter(range(welcome.ids[0], sum(welcome.ids)))

    def tx(self) -> bytes:
        return tx_id(self.welcome.generation, next(self._next))

    def foreign_tx(self) -> bytes:
        """Draws an id of another link, of the owner, or of nobody."""
        first = self.welcome.ids[0]
        before = self.random.randrange(max(1, first - _NEWEST), first)
        number = self.random.choice([before, first - 1, 1 << 50])
        return tx_id(self.welcome.generation, number)

    def frame(self) -> Any:
        kind = self.random.choice(_MODE_KINDS if self.mode != "deterministic" else _KINDS)
        return self.mine(drawn_frame(self.random, kind))

    def mine(self, frame: Any) -> Any:
        """Has a drawn frame name this link's transactions and the odd tablets."""
        known = self.places
        if hasattr(frame, "tx"):
            frame = frame._replace(tx=self.tx())
        if hasattr(frame, "topic"):
            frame = frame._replace(topic=known.topic, consumer="c")
        match frame:
            case frames.Commit() if not known.shards:
                parts = {t: p for t, p in frame.parts.items() if t >> 28 == PARTITION}
                frame = frame._replace(parts=self._there(parts))
            case frames.Commit():
                frame = frame._replace(parts=self._there(frame.parts))
            case frames.Stage():
                frame = frame._replace(slices=self._there(frame.slices))
            case frames.Watch() | frames.Unwatch():
                frame = frame._replace(tablets=known.partitions)
            case frames.Floor():
                frame = frame._replace(floors=tuple((t, 0) for t in known.partitions))
            case frames.Call():
                name = self.random.choice(_CALLS)
                frame = frame._replace(name=name)
            case frames.Deliver():
                frame = frame._replace(
                    requests=tuple((*self._request(one), cause) for _, one, cause in frame.requests)
                )
        return frame

    def _request(self, message: Any) -> tuple[int, Any]:
        """Returns a tablet that takes a drawn request, and the request, which mostly names what there is."""
        known, random = self.places, self.random
        places = _PLACES[self.mode].get(type(message))
        tablets = [
            tablet
            for tablet in (*known.partitions, *known.coordinators)
            if places is None or tablet >> 28 in places
        ]
        if hasattr(message, "client"):
            message.client = address_of(self.welcome.generation, self.welcome.connection)
        named: dict[str, Any] = {
            **dict.fromkeys(("group", "subscription", "name"), "c"),
            "records": 1,
            "data": encode_batch([b"v"], None, None, 1_700_000_000_000),
            "partitions": known.partitions,
            "subscriptions": tuple((tablet, "c") for tablet in known.partitions),
            "offsets": tuple((tablet, random.choice([0, 1, 7])) for tablet in known.partitions),
            "coordinator": random.choice([*known.coordinators, 0]),
        }
        for name in message.__slots__:
            if name in named and random.random() < 0.9:
                setattr(message, name, named[name])
            elif name in _SMALL and random.random() < 0.8:
                setattr(message, name, random.choice([-1, 0, 0, 1, 2]))
        return random.choice(tablets or known.partitions), message

    def _there(self, parts: Any) -> Any:
        """Gives parts to odd tablets of their kinds."""
        places = {
            PARTITION: iter(self.places.partitions),
            SHARD: iter(self.places.shards),
        }
        given = {}
        for tablet, part in parts.items():
            place = next(places.get(tablet >> 28, iter(())), None)
            if place is not None:
                given[place] = part
        return given or parts


_PLACES = {"deterministic": {}, "kafka": KAFKA.places, "pulsar": PULSAR.places}
_LAST = 1 << 40
_NEWEST = 1_000 * BLOCK
"""Ids that were given so long ago may be any process's: the owner does not know any more whose they are."""
_SMALL = ("most", "least", "producer", "epoch", "generation")
_KINDS = [
    frames.Commit, frames.Commit, frames.Commit, frames.Stage, frames.Stage, frames.Rollback, frames.Watch,
    frames.Unwatch, frames.NewIds, frames.Join, frames.Leave, frames.Given, frames.Claim, frames.Free,
    frames.Floor, frames.Call,
]  # fmt: skip
_MODE_KINDS = [*_KINDS, *[frames.Deliver] * 8]
_CALLS = [*CALLS, "no such call"]

# damage ------------------------------------------------------------------------------------

_Damage = Callable[["_Drawn", OddLink], bytes]


def _bytes(drawn: _Drawn, link: OddLink) -> bytes:
    return drawn.random.choice(DAMAGES)(drawn.random, joined(drawn.frame()))


def _cut_off(drawn: _Drawn, link: OddLink) -> bytes:
    data = joined(drawn.frame())
    return data[: drawn.random.randrange(1, len(data))]


def _oversized(drawn: _Drawn, link: OddLink) -> bytes:
    lengths = [0, 1, 7, (64 << 20) + 1, (1 << 30) + (64 << 20) + 1, 0x7FFFFFFF, 0xFFFFFFFF]
    whole, head = drawn.random.choice(lengths), drawn.random.choice(lengths)
    return whole.to_bytes(4, "little") + head.to_bytes(4, "little") + joined(drawn.frame())[8:]


def _unknown_kind(drawn: _Drawn, link: OddLink) -> bytes:
    code = drawn.random.choice([0, 16, 18, 64, 99, -1, 1 << 40, *frames.OF_OWNER])
    return whole_frame(msgpack.packb((code, 1, (2, 3))))


def _of_the_owner(drawn: _Drawn, link: OddLink) -> bytes:
    kind = drawn.random.choice([kind for kind in frames.OF_OWNER.values()])
    return joined(drawn_frame(drawn.random, kind))


def _hello_again(drawn: _Drawn, link: OddLink) -> bytes:
    return joined(link.hello())


def _reordered(drawn: _Drawn, link: OddLink) -> bytes:
    """Swaps pieces of two frames, or sends the second half first."""
    one, other = joined(drawn.frame()), joined(drawn.frame())
    at = drawn.random.randrange(1, len(one))
    return drawn.random.choice([one[at:] + one[:at], one[:at] + other + one[at:], other + one[at:]])


def _repeated(drawn: _Drawn, link: OddLink) -> bytes:
    return joined(drawn.frame()) * drawn.random.choice([2, 3, 20])


def _wrong_tablet(drawn: _Drawn, link: OddLink) -> bytes:
    kind = drawn.random.choice(
        [frames.Commit, frames.Stage, frames.Join, frames.Claim, frames.Floor]
    )
    frame = drawn_frame(drawn.random, kind)
    if hasattr(frame, "tx"):
        frame = frame._replace(tx=drawn.tx())
    return joined(frame)


def _foreign_tx(drawn: _Drawn, link: OddLink) -> bytes:
    kind = drawn.random.choice([frames.Commit, frames.Stage, frames.Rollback])
    frame = drawn.mine(drawn_frame(drawn.random, kind))._replace(tx=drawn.foreign_tx())
    if kind is not frames.Rollback:
        link.malformed = link.malformed or "an id that the link was not given"
    return joined(frame)


def _garbage(drawn: _Drawn, link: OddLink) -> bytes:
    return drawn.random.randbytes(drawn.random.choice([1, 8, 9, 100, 5_000]))


WRONG: dict[str, _Damage] = {
    "damaged bytes": _bytes,
    "wrong types": lambda drawn, link: DAMAGES[4](drawn.random, joined(drawn.frame())),
    "cut off": _cut_off,
    "oversized": _oversized,
    "unknown kind": _unknown_kind,
    "of the owner": _of_the_owner,
    "hello again": _hello_again,
    "reordered": _reordered,
    "repeated": _repeated,
    "wrong tablet": _wrong_tablet,
    "foreign transaction": _foreign_tx,
    "garbage": _garbage,
}  # fmt: skip
_NAMES = [*WRONG, *["damaged bytes"] * 4, *["wrong types"] * 6]


def _wrong_first(random: Random, link: OddLink) -> bytes:
    """Draws a first frame that is no valid one: of an unknown version, of another store, damaged."""
    hello = link.hello(
        settings=random.choice([(), (("durability", "os"),), (("hosts", 7),), (("mode", "x"),)])
    )
    way = random.randrange(5)
    if way == 0:
        odd: Any = random.choice([(0, 0), (2, 9), (7, 7), ((1 << 32) - 1, (1 << 32) - 1)])
        return joined(hello._replace(versions=odd))
    if way == 1:
        return joined(hello._replace(store=random.randbytes(16)))
    if way == 2:
        return joined(hello) + joined(frames.NewIds())
    return (
        mutate(random, joined(hello)) if way == 3 else random.choice(DAMAGES)(random, joined(hello))
    )


def strike(struck: Struck, random: Random) -> str:
    """Sends one damaged frame on a link of its own, among valid ones; returns what went wrong, or ""."""
    link = OddLink(struck)
    name = "hello"
    try:
        if random.random() < 0.1:
            link.send(_wrong_first(random, link))
        else:
            welcome = link.welcomed()
            if welcome is None:
                return f"a valid link is refused: {link.reason}"
            name = _send(_Drawn(random, struck, welcome), link)
        struck.counts[name] += 1
        wrong = _ends(link)
    except (Wrong, MalformedFrame, OSError) as error:
        wrong = repr(error)
    finally:
        link.close()
    return f"{name}: {wrong}" if wrong else ""


def _send(drawn: _Drawn, link: OddLink) -> str:
    """Sends a damaged frame among valid ones; returns the name of the damage."""
    random = drawn.random
    name = random.choice(_NAMES)
    for data in [joined(drawn.frame()) for _ in range(random.randrange(4))]:
        link.send(data)
    link.send(WRONG[name](drawn, link))
    if random.random() < 0.5 and not link.cut:
        link.send(joined(drawn.frame()))
    return name


def _ends(link: OddLink) -> str:
    """Waits for the link's end, or an answer behind all; returns what is wrong with that."""
    if link.cut and not link.malformed:
        return ""  # the owner waits for the rest, and the link is closed here
    link.send(joined(frames.Call(_LAST, "no such call")))
    for _ in link.received(lambda frame: getattr(frame, "number", 0) == _LAST):
        pass
    if link.malformed and not link.ended:
        return f"a link stays though it sent a malformed {link.malformed:.200}"
    return ""
