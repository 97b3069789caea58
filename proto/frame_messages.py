"""Writes and reads the messages of modes in frames: clients' requests to tablets, and the answers.

    write   messages.encode of each ─▶ payload, its length ─▶ head
    read    messages.decode ─▶ may a client send it? ─▶ each field against the type that its class says

Left out: whether a request's client is the link that sent it; the owner compares the addresses.
Next: frames.py.
"""

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias, cast

from . import messages
from .frame_checks import (
    INT_MAX,
    Check,
    MalformedFrame,
    Reading,
    Within,
    checker,
    shown,
    walk,
)
from .frame_parts import Tx, read_tablet
from .messages import Cause, Message, Resolve
from .shell import Answer

Sent: TypeAlias = tuple[int, Message, Cause]
"""(target, message, cause)."""
_read_cause = checker(tuple[Tx | None, Annotated[int, Within(0, 1 << 32)]])
_read_client = checker(Annotated[int, Within(0, INT_MAX)])
_of_classes: dict[type, Check] = {}
"""The check of each class of messages; made when the first one comes."""


def write_messages(sent: tuple[Sent, ...], payloads: list[Any]) -> tuple[int, ...]:
    encoded = [messages.encode(*one) for one in sent]
    payloads += encoded
    return tuple(map(len, encoded))


def _is_request(kind: type) -> bool:
    """Returns whether clients send messages of that class; the others are tablets' own."""
    return kind is Resolve or {"client", "request"} <= set(getattr(kind, "__slots__", ()))


def _is_answer(kind: type) -> bool:
    return kind is Answer


def read_requests(lengths: Any, reading: Reading) -> tuple[Sent, ...]:
    return _read(lengths, reading, _is_request, read_tablet)


def read_answers(lengths: Any, reading: Reading) -> tuple[Sent, ...]:
    return _read(lengths, reading, _is_answer, _read_client)


def _read(
    lengths: Any, reading: Reading, allowed: Callable[[type], bool], read_target: Check
) -> tuple[Sent, ...]:
    most = reading.limits.tablets
    if type(lengths) is not tuple or not 0 < len(lengths) <= most:
        raise MalformedFrame(f"{shown(lengths)} in place of 1 to {most:,} messages")
    sent = []
    for n, length in enumerate(lengths):
        try:
            target, message, cause = _decoded(reading.take(length))
            if not allowed(type(message)):
                raise MalformedFrame(f"{type(message).__name__} is not for this frame")
            _check_of(type(message))(message, reading)
            sent.append((read_target(target, reading), message, _read_cause(cause, reading)))
        except MalformedFrame as error:
            raise error.inside(f"[{n}]") from None
    return tuple(sent)


def _decoded(data: memoryview) -> Sent:
    try:
        walk(data)
        return messages.decode(cast(bytes, data))
    except Exception as error:  # msgpack raises errors of many classes
        raise MalformedFrame(f"{error!s:.100}") from None


def _check_of(kind: type) -> Check:
    check = _of_classes.get(kind)
    if check is None:
        check = _of_classes[kind] = checker(kind)
    return check
