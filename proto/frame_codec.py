"""Encodes frames as buffers to send, and decodes a stream of bytes into frames.

    length of head and payload 4 │ length of head 4 │ head: msgpack [code, field…] │ payload

    sender      encode(frame) ─▶ [lengths + head, payload…] ─▶ sendmsg      payloads are sent from where they are
    receiver    recv_into(buffer) ─▶ Decoder.feed ─▶ frames                however the stream is cut

Lengths are little endian. Payload comes as views of one buffer a frame. The buffer grows by what has arrived,
whatever the frame claims.

A malformed frame ends the link: nothing behind it can be found. Knows no socket, and no clock.
Next: ../engine/planstep/store/process_socket.py.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Any, TypeAlias

import msgpack

from .frame_checks import (
    LIMITS,
    By,
    Check,
    Limits,
    MalformedFrame,
    Reading,
    Write,
    checker,
    shown,
    unpacked,
)
from .frames import HELLO, MAGIC, OF_ATTACHED, OF_OWNER, OPENING, Frame, Kinds, common_version

Buffer: TypeAlias = bytes | bytearray | memoryview
_LENGTHS = Struct("<II")


class FrameTooLarge(MalformedFrame):
    """The frame is beyond the limits, so no peer would take it; nothing was sent."""


class NoCommonVersion(MalformedFrame):
    """The process that attaches speaks none of this program's versions; `versions` are its lowest and highest."""

    def __init__(self, versions: tuple[int, int]) -> None:
        super().__init__(f"the other process speaks versions {versions[0]} to {versions[1]}")
        self.versions = versions


# writing -----------------------------------------------------------------------------------


def _writers(kind: Any) -> list[tuple[int, Write]]:
    """Lists the fields that have payload, as (place among the fields, writer)."""
    rules = [getattr(one, "__metadata__", ()) for one in kind.__annotations__.values()]
    return [
        (n, rule.write)
        for n, of_field in enumerate(rules)
        for rule in of_field
        if isinstance(rule, By) and rule.write is not None
    ]


_CODES = {kind: code for code, kind in {**OF_ATTACHED, **OF_OWNER}.items()}
_WRITERS = {kind: _writers(kind) for kind in _CODES}


def encode(frame: Frame, limits: Limits = LIMITS) -> list[Buffer]:
    """Returns the buffers to send for a frame, its payloads as they are. FrameTooLarge."""
    kind = type(frame)
    code = _CODES[kind]
    fields = [code, MAGIC, *frame] if code == HELLO else [code, *frame]
    payloads: list[Buffer] = []
    for n, write in _WRITERS[kind]:
        fields[n + 1] = write(fields[n + 1], payloads)
    head: bytes = msgpack.packb(fields, use_bin_type=True)
    whole = len(head) + sum(map(len, payloads))
    if len(head) > limits.head or whole > limits.frame:
        raise FrameTooLarge(
            f"a head of {len(head):,} bytes and {whole - len(head):,} of payload; the limits are "
            f"{limits.head:,}, and {limits.frame:,} for both"
        ).inside(kind.__name__)
    return [_LENGTHS.pack(whole, len(head)) + head, *payloads]


# reading -----------------------------------------------------------------------------------

_CHECKS: dict[int, Check] = {code: checker(kind) for kind, code in _CODES.items()}


class Decoder:
    """Decodes what one peer sends: frames of `kinds`, on a store of that many hosts.

    Invariants: the first frame opens the link, and no other does. After a MalformedFrame every call raises it.
    """

    def __init__(self, kinds: Kinds, limits: Limits = LIMITS, hosts: int = 1) -> None:
        self._kinds, self._limits, self._hosts = kinds, limits, hosts
        self._opened = False
        self._lengths = bytearray()
        self._whole = self._head = 0  # of the frame under way; no frame is empty
        self._body = bytearray()
        self._broken: MalformedFrame | None = None

    @property
    def between(self) -> bool:
        """Returns whether the stream so far ends with a frame."""
        return not self._whole and not self._lengths

    def feed(self, data: Buffer) -> Iterator[Frame]:
        """Takes the next bytes of the stream; yields the frames that are whole now. Exhaust it. MalformedFrame."""
        if self._broken:
            raise self._broken
        view = memoryview(data)
        at, end = 0, len(view)
        while at < end:
            if not self._whole:
                if self._lengths or end - at < _LENGTHS.size:
                    lacking = _LENGTHS.size - len(self._lengths)
                    self._lengths += view[at : at + lacking]
                    at += lacking
                    if len(self._lengths) < _LENGTHS.size:
                        return
                    self._begin(self._lengths, 0)
                    self._lengths.clear()
                else:
                    self._begin(view, at)
                    at += _LENGTHS.size
            lacking = self._whole - len(self._body)
            if lacking > end - at:
                self._body += view[at:]
                return
            if self._body:
                self._body += view[at : at + lacking]
                body, self._body = self._body, bytearray()
                yield self._end(memoryview(body).toreadonly())
            else:  # most often: all of it came at once
                yield self._end(memoryview(bytes(view[at : at + lacking])))
            at += lacking

    def _begin(self, lengths: Buffer, at: int) -> None:
        whole, head = _LENGTHS.unpack_from(lengths, at)
        limits = self._limits
        most = limits.frame if self._opened else limits.opening
        if not 0 < head <= min(whole, limits.head) or whole > most:
            raise self._ended(
                MalformedFrame(
                    f"lengths of {whole:,} and {head:,}; the limits are {most:,} and {limits.head:,}"
                )
            )
        self._whole, self._head = whole, head

    def _ended(self, error: MalformedFrame) -> MalformedFrame:
        self._broken = error
        return error

    def _end(self, body: memoryview) -> Frame:
        head, self._whole = self._head, 0
        reading = Reading(body[head:], self._limits, self._hosts)
        try:
            frame = self._decoded(unpacked(body[:head]), reading)
        except MalformedFrame as error:
            raise self._ended(error) from None
        self._opened = True
        return frame

    def _decoded(self, fields: Any, reading: Reading) -> Frame:
        if type(fields) is not tuple or not fields or type(fields[0]) is not int:
            raise MalformedFrame(f"a head of {shown(fields)} in place of a code and fields")
        code, values = fields[0], fields[1:]
        kind = self._kinds.get(code)
        if kind is None:
            raise MalformedFrame(f"of the unknown kind {code}")
        try:
            if (code in OPENING) is self._opened:
                order = "comes first" if not self._opened else "comes once"
                raise MalformedFrame(f"another kind {order}")
            if code == HELLO:
                _check_hello(values)
                values = values[1:]
            frame: Frame = _CHECKS[code](values, reading)
            reading.end()
            return frame
        except MalformedFrame as error:
            raise error.inside(kind.__name__) from None


_check_versions = checker(tuple[int, int])


def _check_hello(values: tuple[Any, ...]) -> None:
    """Checks what every version's `Hello` begins with."""
    if len(values) < 2 or values[0] != MAGIC:
        raise MalformedFrame("it does not begin as one")
    low, high = _check_versions(values[1], Reading(memoryview(b""), LIMITS, 1))
    if common_version((low, high)) is None:
        raise NoCommonVersion((low, high))
