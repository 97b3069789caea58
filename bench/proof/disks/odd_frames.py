"""Draws frames between processes of one store, whole ones and damaged ones, and decodes streams of them.

    drawn_frame     every kind, with contents drawn by the types of its fields
    odd_stream      an opening frame, then frames of which one is damaged: bytes, its head, or one value in its head
    decode_stream   however the stream is cut: frames that encode to what they were, or MalformedFrame

A damaged head gets correct lengths again, because otherwise they would hide the checks behind them.

Next: decoders.py.
"""

from collections.abc import Callable
from random import Random
from struct import Struct
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgpack

from planstep.proto import frames
from planstep.proto.batch import encode_batch
from planstep.proto.frame_checks import By, Within
from planstep.proto.frame_codec import Decoder, encode
from planstep.proto.frame_messages import read_answers, read_requests
from planstep.proto.frame_parts import (
    Name,
    Tablet,
    read_ahead,
    read_details,
    read_parts,
)
from planstep.proto.ids import CATALOGUE_ID, PARTITION, SHARD, tablet_id
from planstep.proto.kafka.messages import CODES as KAFKA
from planstep.proto.keys import encode_key
from planstep.proto.messages import (
    ADD,
    CLEANED,
    CREATE,
    DELETE,
    DROP_CONSUMER,
    PUT,
    CataloguePart,
    PartitionPart,
    Resolve,
    ShardPart,
)
from planstep.proto.pulsar.messages import CODES as PULSAR
from planstep.proto.shell import Answer

from .mutating import bombs, mutate
from .odd_messages import drawn_message

HOSTS = 2
_LENGTHS = Struct("<II")
_TX = bytes(range(12))
_ODD: list[Any] = [None, True, -1, 0, 1, 1 << 31, 1 << 63, 1.5, float("nan"), "", "x", "a/b", "é" * 300, b"",
                   b"x" * 12, b"x" * 600, (), (1,), ((1, 2), 3), ("",) * 300, {}, {1: 2}, {"a": ()}]  # fmt: skip
_REQUESTS = [
    kind for kind in {**KAFKA, **PULSAR}.values() if {"client", "request"} <= set(kind.__slots__)
]

# whole frames ------------------------------------------------------------------------------


def drawn_frame(random: Random, kind: Any) -> Any:
    """Draws a frame of a kind that its receiver takes."""
    values = {name: _drawn(random, one) for name, one in kind.__annotations__.items()}
    if kind is frames.Hello:
        values["versions"] = frames.VERSIONS
    return kind(**values)


def opening(kinds: frames.Kinds) -> Any:
    """Returns the first frame of a sender of these kinds."""
    if frames.HELLO in kinds:
        return frames.Hello(frames.VERSIONS, bytes(16), 7, "p")
    return frames.Welcome(1, 1, 1, (), (1, 256))


def _drawn(random: Random, kind: Any) -> Any:
    low, high = 0, 3
    if get_origin(kind) is Annotated:
        kind, rule = get_args(kind)
        if isinstance(rule, By):
            return _BY[rule.read](random)
        assert isinstance(rule, Within)
        low, high = rule.low, rule.high
        if kind is int:
            return random.choice([low, high, random.randint(low, high)])
        high = min(high, low + 3)
    if get_origin(kind) in (Union, UnionType):
        (some,) = [one for one in get_args(kind) if one is not NoneType]
        return None if random.random() < 0.3 else _drawn(random, some)
    if get_origin(kind) is tuple:
        first, *more = get_args(kind)
        if more == [Ellipsis]:
            return tuple(_drawn(random, first) for _ in range(random.randint(low, high)))
        return tuple(_drawn(random, one) for one in (first, *more))
    if kind in _SIMPLE:
        size = random.randint(low, high)
        return _SIMPLE[kind](random, size)
    return drawn_frame(random, kind)


_SIMPLE: dict[Any, Callable[[Random, int], Any]] = {
    int: lambda random, size: random.choice([0, 7, -1, (1 << 63) - 1, -(1 << 63)]),
    str: lambda random, size: "é"[:size] + "x" * (size - 1),
    bytes: lambda random, size: random.randbytes(size),
    bool: lambda random, size: random.random() < 0.5,
    Any: lambda random, size: random.choice([None, 1.5, "x", b"x", (1, ("y",)), {"a": 1, 2: ()}]),
}


def _name(random: Random) -> str:
    return random.choice(["c", "a.b-c_d", "n" * 200])


def _tablet(random: Random) -> int:
    kind = random.choice([PARTITION, SHARD])
    return tablet_id(kind, random.randrange(HOSTS), random.randrange(1, 1 << 20))


def _slices(random: Random) -> tuple[tuple[bytes, int], ...]:
    counts = [random.randrange(1, 4) for _ in range(random.randrange(3))]
    return tuple((encode_batch([random.randbytes(9)] * count), count) for count in counts)


def _spans(random: Random) -> tuple[tuple[str, int, int], ...]:
    return tuple((_name(random), n, n + random.randrange(9)) for n in range(random.randrange(3)))


def _partition_part(random: Random) -> PartitionPart[Any]:
    if random.random() < 0.3:
        return PartitionPart((), _slices(random))
    return PartitionPart(
        _spans(random),
        _slices(random),
        random.choice([None, (b"p", 3, 9)]),
        random.random() < 0.5,
        random.randrange(3),
        _spans(random),
        tuple((_name(random), at, True) for at in random.choices([None, 7], k=2)),
        random.choice([None, 0, 5]),
        random.random() < 0.1,
        random.choice([None, _TX]),
        tuple((_name(random), n) for n in range(random.randrange(3))),
        random.choice([None, 0, 8]),
    )


def _shard_part(random: Random) -> ShardPart:
    keys = [encode_key(("k", n)) for n in range(random.randrange(4))]
    number: bytes = msgpack.packb(random.choice([1, -7, 2.5]))
    values = [(PUT, b"v" * random.choice([0, 9, 256, 257, 5_000])), (DELETE, b""), (ADD, number)]
    writes = tuple((key, *random.choice(values)) for key in keys)
    if random.random() < 0.3:
        return ShardPart((), (), writes)
    return ShardPart(
        tuple((key, random.choice([None, (3, 0)])) for key in keys),
        tuple((b"", key, n + 1, n, 1 << 31) for n, key in enumerate(keys)),
        writes,
        random.random() < 0.1,
    )


def _catalogue_part(random: Random) -> CataloguePart:
    op = random.choice([op for op in range(CREATE, DROP_CONSUMER + 1) if op != CLEANED])
    options = (("retention", random.choice([None, 7, "x", (1, 2)])),)
    return CataloguePart(
        random.choice([PARTITION, SHARD]), _name(random), 3, "json", HOSTS, op, 7, options, "c"
    )


def _parts(random: Random) -> dict[int, Any]:
    parts: dict[int, Any] = {}
    for _ in range(random.randrange(1, 4)):
        tablet = _tablet(random)
        parts[tablet] = _PART[tablet >> 28](random)
    if random.random() < 0.3:
        parts[CATALOGUE_ID] = _catalogue_part(random)
    return parts


_PART: dict[int, Callable[[Random], Any]] = {PARTITION: _partition_part, SHARD: _shard_part}


def _ahead(random: Random) -> dict[int, Any]:
    return {
        tablet_id(PARTITION, 1, n): (n, _slices(random)) for n in range(1, random.randrange(2, 4))
    }


def _sent(random: Random, draw: Callable[[], Any]) -> Any:
    cause = random.choice([(None, 0), (_TX, 3)])
    return tuple((_tablet(random), draw(), cause) for _ in range(random.randrange(1, 3)))


def _request(random: Random) -> Any:
    kind = random.choice([Resolve, *_REQUESTS])
    return Resolve(_TX) if kind is Resolve else drawn_message(random, kind)


def _check(alias: Any) -> Any:
    """Returns the check of an annotated type, by which its contents are drawn."""
    return get_args(alias)[1].read


_BY: dict[Any, Callable[[Random], Any]] = {
    _check(Name): _name,
    _check(Tablet): _tablet,
    read_parts: _parts,
    read_ahead: _ahead,
    read_details: lambda random: {_tablet(random): random.choice([None, (0, 3)])},
    read_requests: lambda random: _sent(random, lambda: _request(random)),
    read_answers: lambda random: _sent(random, lambda: Answer(1, 2, "", (1, "x"))),
}

# damaged streams ---------------------------------------------------------------------------


def joined(frame: Any) -> bytes:
    return b"".join(encode(frame))


def odd_stream(random: Random, kinds: frames.Kinds) -> bytes:
    """Draws an opening frame and others, of which one is damaged."""
    codes = [code for code in kinds if code not in frames.OPENING]
    whole = [joined(drawn_frame(random, kinds[random.choice(codes)])) for _ in range(2)]
    first = joined(opening(kinds)) if random.random() < 0.95 else b""
    damaged = random.choice(DAMAGES)(random, whole[0])
    return first + damaged + whole[1]


def split_frame(frame: bytes) -> tuple[bytes, bytes]:
    """Returns a frame's head and payload."""
    _, length = _LENGTHS.unpack_from(frame)
    return frame[8 : 8 + length], frame[8 + length :]


def whole_frame(head: bytes, payload: bytes = b"") -> bytes:
    """Puts the lengths before a head and payload."""
    return _LENGTHS.pack(len(head) + len(payload), len(head)) + head + payload


def _of_head(random: Random, frame: bytes) -> bytes:
    head, payload = split_frame(frame)
    return whole_frame(mutate(random, head), payload)


def _of_payload(random: Random, frame: bytes) -> bytes:
    head, payload = split_frame(frame)
    return whole_frame(head, mutate(random, payload))


def _of_value(random: Random, frame: bytes) -> bytes:
    head, payload = split_frame(frame)
    fields = msgpack.unpackb(head, use_list=False, strict_map_key=False)
    return whole_frame(msgpack.packb(_changed(random, fields)), payload)


def _changed(random: Random, value: Any) -> Any:
    """Replaces one value somewhere within, or takes it out, or repeats it."""
    if not value or not isinstance(value, (tuple, dict)) or random.random() < 0.15:
        return random.choice(_ODD)
    if isinstance(value, dict):
        key = random.choice(list(value))
        if random.random() < 0.3:
            return {**value, random.choice([0, -1, "x", 1 << 40, 4 << 28 | 9]): value[key]}
        return {**value, key: _changed(random, value[key])}
    n = random.randrange(len(value))
    way = random.randrange(12)
    middle = () if way == 0 else (value[n],) * 2 if way == 1 else (_changed(random, value[n]),)
    return (*value[:n], *middle, *value[n + 1 :])


def _bomb(random: Random, frame: bytes) -> bytes:
    """Puts what claims more than it is in place of one value of the frame's head."""
    head, payload = split_frame(frame)
    data = random.choice(_BOMBS)
    at = random.randrange(len(head))
    return whole_frame(random.choice([data, head[:at] + data + head[at:]]), payload)


_BOMBS = [data for name, data in bombs() if "msgpack" in name]
DAMAGES: list[Callable[[Random, bytes], bytes]] = [
    mutate, _of_head, _of_head, _of_payload, _of_value, _of_value, _of_value, _of_value, _bomb,
]  # fmt: skip


def decode_stream(data: bytes, kinds: frames.Kinds) -> list[Any]:
    """Decodes a stream that is cut anywhere; raises MalformedFrame, or AssertionError for a frame that is none."""
    decoder, random, at = Decoder(kinds, hosts=HOSTS), Random(len(data)), 0
    taken = list[Any]()
    while at < len(data):
        size = random.choice([1, 7, 100, 5_000])
        for frame in decoder.feed(data[at : at + size]):
            taken.append(frame)
            first = [] if len(taken) == 1 else [opening(kinds)]
            again = list(Decoder(kinds, hosts=HOSTS).feed(b"".join(map(joined, [*first, frame]))))
            # NaN is not equal to itself, but its bytes are.
            assert joined(again[-1]) == joined(frame), f"{type(frame).__name__} is not what it was"
        at += size
    return taken
