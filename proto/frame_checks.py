"""Checks the values of a decoded frame against the types of its fields, before anybody acts on them.

    class Watch(NamedTuple):                       checker(Watch)
        tablets: Annotated[tuple[Tablet, ...], Within(1, 10)]   ─▶   ((1, 2),) ─▶ Watch((1, 2))
                                                                     ((1, "x"),) ─▶ MalformedFrame: .tablets[1]: …

A check is built once for a type, and is a function of (value, reading). It returns the value, with the classes that
msgpack does not keep. `reading` holds what a frame's fields share: its payload, the limits, the number of hosts.

msgpack allocates what a list claims before it has read the list. So `unpacked` first walks over long input without
building anything: what it then builds has a byte of input for each item.

Next: frame_parts.py.
"""

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    TypeAlias,
    Union,
    get_args,
    get_origin,
)

import msgpack

INT_MAX = (1 << 63) - 1
_WALKED_BYTES = 1 << 10
"""Input of at most so many bytes is built at once: claims within claims, 1,024 deep, take 8 MiB for a moment."""


class MalformedFrame(ValueError):
    """A frame is not what its sender may send. `where` names the field, `what` is wrong with it."""

    def __init__(self, what: str, where: str = "") -> None:
        self.what, self.where = what, where
        super().__init__(what, where)

    def __str__(self) -> str:
        return f"frame {self.where}: {self.what}" if self.where else f"frame: {self.what}"

    def inside(self, place: str) -> "MalformedFrame":
        """Puts a place in front of `where`, as the check's callers know more and more of it."""
        self.where = place + self.where
        return self


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits what one link may send; lengths in bytes. Both ends of a link have the same ones."""

    opening: int = 64 << 10
    """The first frame: whoever sends it is not known yet."""
    head: int = 64 << 20
    frame: int = (1 << 30) + (64 << 20)
    """Head and payload."""
    nesting: int = 16
    """Containers within containers, in values of any type."""
    tablets: int = 10_001
    """Tablets of a transaction: all partitions of the largest topic, and the catalogue."""
    slices: int = 10_000
    """Batches of a transaction in one frame."""
    range_rows: int = 10_000
    """Rows of the ranges that a transaction has seen: its shards read them again."""
    row: int = 16 << 20
    """One row's value."""


LIMITS = Limits()


class Reading:
    """Holds what the checks of one frame share. Payload is taken in the order of the fields that name it."""

    __slots__ = ("_at", "hosts", "limits", "payload", "range_rows", "slices")

    def __init__(self, payload: memoryview, limits: Limits, hosts: int) -> None:
        self.payload = payload
        self.limits = limits
        self.hosts = hosts
        self.slices = self.range_rows = 0
        self._at = 0

    def take(self, length: Any) -> memoryview:
        """Returns the next `length` bytes of the payload, not copied."""
        begin = self._at
        left = len(self.payload) - begin
        if type(length) is not int or not 0 <= length <= left:
            raise MalformedFrame(
                f"{shown(length)} in place of a length of at most the {left:,} bytes of payload left"
            )
        self._at = begin + length
        return self.payload[begin : self._at]

    def end(self) -> None:
        """Checks that all of the payload belongs to a field."""
        left = len(self.payload) - self._at
        if left:
            raise MalformedFrame(f"{left:,} bytes of payload belong to no field")


Check: TypeAlias = Callable[[Any, Reading], Any]
Write: TypeAlias = Callable[[Any, list[Any]], Any]
"""Returns a field's form in the head, and appends its payload to the list."""


class Within(NamedTuple):
    """Annotates a number with its least and greatest value; text, bytes and tuples with those of their length."""

    low: int
    high: int


class By(NamedTuple):
    """Annotates a type with its own check, and with how it is written if not as it is."""

    read: Check
    write: Write | None = None


def shown(value: object) -> str:
    """Describes a value of any size in few characters."""
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    size = f" of length {len(value):,}" if isinstance(value, Sized) else ""
    return type(value).__name__ + size


def walk(data: memoryview) -> None:
    """Raises an error of msgpack's for long input that claims more than it has."""
    if len(data) > _WALKED_BYTES:
        walker = msgpack.Unpacker(max_buffer_size=len(data))
        walker.feed(data)
        walker.skip()


def unpacked(data: memoryview) -> Any:
    """Decodes msgpack. It takes memory in proportion to the bytes that are there; MalformedFrame."""
    try:
        walk(data)
        return msgpack.unpackb(data, use_list=False, strict_map_key=False)
    except Exception as error:  # msgpack raises errors of many classes
        text = str(error) or type(error).__name__
        raise MalformedFrame(f"not msgpack: {text:.100}") from None


# checks ------------------------------------------------------------------------------------


def checker(kind: Any) -> Check:
    """Makes the check for a type: a number, text, bytes, tuple, NamedTuple or dataclass; Any: what msgpack has."""
    within: Within | None = None
    if get_origin(kind) is Annotated:
        kind, *rules = get_args(kind)
        for rule in rules:
            if isinstance(rule, By):
                return rule.read
            within = rule
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        (kind,) = [one for one in get_args(kind) if one is not NoneType]
        return _or_none(checker(kind))
    if origin is tuple:
        first, *more = get_args(kind)
        if more == [Ellipsis]:
            return each(checker(first), *(within or ()))
        return fields(tuple, [checker(one) for one in (first, *more)])
    if kind is int:
        return _whole(*(within or (-INT_MAX - 1, INT_MAX)))
    if kind in (str, bytes):
        return _sized(kind, *(within or (0, INT_MAX)))
    simple = {Any: _plain, bool: _flag}
    return simple.get(kind) or record(kind, kind.__annotations__)


def record(kind: Any, types: Mapping[str, Any]) -> Check:
    """Makes the check for a NamedTuple, whose fields msgpack has as a plain tuple, or for a dataclass's object."""
    checks = [checker(one) for one in types.values()]
    if hasattr(kind, "_fields"):
        assert kind._fields == tuple(types), f"{kind.__name__} has the fields {kind._fields}"
        defaults = [kind._field_defaults.get(name, ...) for name in types]
        return fields(kind._make, checks, [f".{name}" for name in types], defaults)

    def check(value: Any, reading: Reading) -> Any:
        for name, one in zip(types, checks, strict=True):
            try:
                one(getattr(value, name), reading)
            except MalformedFrame as error:
                raise error.inside(f".{name}") from None
        return value

    return check


def fields(
    make: Callable[[list[Any]], Any],
    checks: Sequence[Check],
    names: Sequence[str] = (),
    defaults: Sequence[Any] = (),
) -> Check:
    """Makes the check for a tuple of just these fields. A field that is its very default needs no check."""
    count = len(checks)
    names = names or [f"[{n}]" for n in range(count)]
    rows = list(zip(checks, defaults or [...] * count, strict=True))

    def check(value: Any, reading: Reading) -> Any:
        if type(value) is not tuple or len(value) != count:
            raise MalformedFrame(f"{shown(value)} in place of a tuple of {count} fields")
        checked: list[Any] = []
        try:
            for item, (one, default) in zip(value, rows, strict=True):
                checked.append(item if item is default else one(item, reading))
        except MalformedFrame as error:
            raise error.inside(names[len(checked)]) from None
        return make(checked)

    return check


def each(one: Check, low: int = 0, high: int = INT_MAX) -> Check:
    """Makes the check for a tuple of any number of items from `low` to `high`."""

    def check(value: Any, reading: Reading) -> Any:
        if type(value) is not tuple or not low <= len(value) <= high:
            raise MalformedFrame(f"{shown(value)} in place of a tuple of {low:,} to {high:,} items")
        n = 0
        try:
            if len(value) == 1:
                return (one(value[0], reading),)
            checked: list[Any] = []
            for item in value:
                checked.append(one(item, reading))
                n += 1
        except MalformedFrame as error:
            raise error.inside(f"[{n}]") from None
        return tuple(checked)

    return check


def _whole(low: int, high: int) -> Check:
    def check(value: Any, reading: Reading) -> Any:
        if type(value) is int and low <= value <= high:
            return value
        raise MalformedFrame(f"{shown(value)} in place of a number from {low:,} to {high:,}")

    return check


def _sized(kind: type[str] | type[bytes], low: int, high: int) -> Check:
    def check(value: Any, reading: Reading) -> Any:
        if type(value) is kind and low <= len(value) <= high:
            return value
        raise MalformedFrame(
            f"{shown(value)} in place of {kind.__name__} of length {low:,} to {high:,}"
        )

    return check


def _flag(value: Any, reading: Reading) -> Any:
    if type(value) is bool:
        return value
    raise MalformedFrame(f"{shown(value)} in place of True or False")


def _or_none(one: Check) -> Check:
    def check(value: Any, reading: Reading) -> Any:
        return None if value is None else one(value, reading)

    return check


def _plain(value: Any, reading: Reading, depth: int = 0) -> Any:
    """Checks a value of any type that msgpack stores, for its nesting and for msgpack's own types."""
    kind = type(value)
    if kind is tuple or kind is dict:
        if depth == reading.limits.nesting:
            raise MalformedFrame(f"values nest more than {depth} deep")
        items = value if kind is tuple else [part for pair in value.items() for part in pair]
        for item in items:
            _plain(item, reading, depth + 1)
    elif value is not None and kind not in (bool, int, float, str, bytes):
        raise MalformedFrame(f"{kind.__name__} in place of a plain value")
    return value
