"""Draws wrong input from a seed: almost valid bytes, and values of the wrong kind.

    mutate     a valid encoding with bits flipped, pieces cut, repeated, lengths exaggerated
    ODD        numbers, texts, bytes, containers that some argument somewhere does not take
    bombs      nesting, and claimed lengths, of which a decoder must not believe anything

Next: decoders.py.
"""

import struct
from collections.abc import Callable
from random import Random
from typing import Any

import msgpack

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 7, 1.5, -0.0, float("nan"), float("inf"), float("-inf"),
    1 << 31, 1 << 63, -(1 << 63) - 1, 1 << 200, 10**5000, 1 + 2j,
    "", "x", "x" * 600, "\ud800", "a/b", "..", ".", "\0", "a" * 200, "a" * 201, "ä", "../../etc", "~", "\n\x1b[2J",
    "CON", "a b", "-rf", "__consumer_offsets", b"", b"x", b"x" * 481, b"\xff\xfe", bytearray(b"x"),
    memoryview(b"xy"),
    (), (1,), ((1,), 2), (None,), ("",) * 300, [], [1], [[]], {}, {"a": 1}, {1: "a"}, {1: 0}, {0: -1}, {0: 1 << 63},
    {"a": b"x"}, {"a": 1.5}, {"": b""}, {1, 2}, frozenset(), range(3), object(), len, int, ..., NotImplemented,
]  # fmt: skip


def nested_value(depth: int, kind: type = tuple) -> Any:
    """Builds a value of that depth, without recursion."""
    value: Any = kind()
    for _ in range(depth):
        value = {"a": value} if kind is dict else kind((value,))
    return value


def odd_value(random: Random) -> Any:
    """Draws a value from ODD, or builds one."""
    way = random.randrange(10)
    if way < 6:
        return random.choice(ODD)
    if way == 6:
        return random.choice([1, -1]) * (1 << random.randrange(300)) + random.randrange(-1, 2)
    if way == 7:
        return "".join(chr(random.randrange(1, 0x2FF)) for _ in range(random.randrange(12)))
    if way == 8:
        return random.randbytes(random.randrange(40))
    kind = random.choice([tuple, list, dict])
    return nested_value(random.choice([1, 5, 31, 32, 33, 200, 600, 1100]), kind)


def mutate(random: Random, data: bytes, other: bytes = b"") -> bytes:
    """Changes the bytes in one to four places; the result is rarely equal to `data`."""
    changed = bytearray(data)
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        if changed:
            at, length, piece = _change(random, bytes(changed), other)
            changed[at : at + length] = piece
    return bytes(changed)


def _change(random: Random, data: bytes, other: bytes) -> tuple[int, int, bytes]:
    """Draws one change: (offset, number of bytes to replace, the new bytes)."""
    at, size = random.randrange(len(data)), len(data)
    changes: list[Callable[[], tuple[int, int, bytes]]] = [
        lambda: (at, 1, bytes([data[at] ^ 1 << random.randrange(8)])),
        lambda: (at, 1, random.choice(_TELLING)),
        lambda: (at, size, b""),
        lambda: (at, random.randrange(1, 9), b""),
        lambda: (at, 0, random.randbytes(random.randrange(1, 9))),
        lambda: (size, 0, data[at : at + 64]),
        lambda: (min(at, max(size - 4, 0)), 4, _length(random, size)),
        lambda: (at, random.randrange(1, 17), bytes(random.randrange(1, 17))),
    ]
    if other:
        cut = random.randrange(len(other))
        changes.append(lambda: (at, size, other[cut : cut + 200]))
    return random.choice(changes)()


def _length(random: Random, size: int) -> bytes:
    """Encodes a claimed length, in either byte order."""
    claimed = random.choice([0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, size, size + 1])
    return struct.pack(random.choice("<>") + "I", claimed)


_TELLING = [bytes([n]) for n in (0, 1, 0x7F, 0x80, 0xC1, 0xDB, 0xDD, 0xDF, 0xFE, 0xFF)]
"""First bytes of msgpack that claim long values, or that are not valid."""


def bombs() -> list[tuple[str, bytes]]:
    """Lists (name, bytes) of inputs that claim to be, or nest, more than they are."""
    inputs = []
    for depth in (100, 511, 512, 1023, 1025, 5_000, 100_000):
        inputs += [
            (f"json lists {depth} deep", b"[" * depth + b"]" * depth),
            (f"json dicts {depth} deep", b'{"a":' * depth + b"1" + b"}" * depth),
            (f"json lists {depth} deep, not closed", b"[" * depth),
            (f"msgpack lists {depth} deep", b"\x91" * depth + b"\xc0"),
            (f"msgpack dicts {depth} deep", b"\x81\xa1a" * depth + b"\xc0"),
            (f"encoded key {depth} deep", b"\x08" * depth + b"\x00" * depth),
        ]
    for claimed in (1 << 20, (1 << 31) - 1, (1 << 32) - 1):
        for name, tag in (("list", 0xDD), ("dict", 0xDF), ("bytes", 0xC6), ("text", 0xDB)):
            inputs.append(
                (f"msgpack {name} of {claimed:,}", bytes([tag]) + claimed.to_bytes(4, "big"))
            )
    inputs.append(("json number of 100,000 digits", b"9" * 100_000))
    inputs.append(("json text of surrogates", b'"' + rb"\ud800" * 1_000 + b'"'))
    inputs.append(("msgpack extension", msgpack.packb(msgpack.ExtType(5, b"x" * 100))))
    inputs.append(("msgpack timestamp", b"\xd7\xff" + b"\xff" * 8))
    return inputs
