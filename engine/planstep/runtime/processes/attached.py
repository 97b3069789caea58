"""Attaches this process to the owner of a store: connects, agrees on settings, and makes a runtime of it.

    connect ─▶ Hello ─▶ Welcome ─▶ views of the folder, which follow it ─▶ a runtime whose inputs go over the link

Next: ../open_runtime.py.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from ...errors import IoError, NotSupported, OwnerSilent, PlanstepError
from ...host.modes import MODES
from ...proto import frames
from ...proto.frame_checks import MalformedFrame
from ...proto.frame_codec import Decoder, encode
from ...proto.frames import OF_OWNER, VERSIONS, Welcome
from ...store import process_socket
from ...store.owner_lock import program_name
from .error_form import error_of

_SECONDS = 10.0
"""For an owner to answer a Hello."""
_LOOK_SECONDS = 0.2


class Accepted(NamedTuple):
    """A link that its owner has accepted."""

    socket: socket.socket
    decoder: Decoder
    welcome: Welcome
    owner: process_socket.Peer


Options = TypeVar("Options")


def agreed(options: Options, mode: str, welcome: Welcome) -> Options:
    """Returns the options of opening with the settings that the owner has. NotSupported where they are none."""
    said = dict(welcome.settings)
    try:
        changes: Any = {
            "durability": said["durability"],
            "group_commit": said["group_commit"],
            "placement": said["placement"],
            "trace": said["trace"],
            "rtt_ms": 1000 * said["rtt"],
            "snapshots": (said["snapshot_bytes"], max(1, round(1000 * said["snapshot_seconds"]))),
            "settings": _settings(mode, said),
        }
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise NotSupported(
            f"the store's owner has settings that this process does not understand: {error!r:.200}; use one "
            "version of planstep in all processes of a store"
        ) from error
    changed: Options = replace(cast(Any, options), **changes)
    return changed


def _settings(mode: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the mode's own settings, by its name; TypeError, ValueError."""
    kinds: list[tuple[str, Any]] = [("durability", str), ("placement", str), ("trace", str)]
    kinds += [("group_commit", bool)]
    kinds += [("snapshot_bytes", int), ("snapshot_seconds", (int, float)), ("rtt", (int, float))]
    for name, kind in kinds:
        if not isinstance(said[name], kind):
            raise TypeError(f"{name} is {said[name]!r:.100}")
    return {mode: type(MODES[mode].settings())(**said[mode])} if mode in said else {}


class OwnerGone(IoError):
    """The owner's end of the link has closed before it accepted: it ends, or was killed."""


def attach(
    folder: Path,
    store_id: bytes,
    settings: Mapping[str, Any],
    hosts: int,
    first: tuple[int, int] | None = None,
    ended: Callable[[], bool] = lambda: False,
) -> Accepted:
    """Connects to the owner of a store, and has it accept this process. `settings`: those that the caller gave;
    `first`: the generation and number of this engine's first link; `ended`: nobody waits for it any more.

    NobodyListens, OwnerGone: try again; OwnerSilent; ForeignPeer; the error for which the owner refuses; IoError.
    """
    link, owner = process_socket.connect(folder)
    try:
        hello = frames.Hello(
            VERSIONS, store_id, os.getpid(), program_name(), tuple(settings.items()), first
        )
        deadline = time.monotonic() + _SECONDS
        decoder = Decoder(OF_OWNER, hosts=hosts)
        link.settimeout(_SECONDS)
        try:
            for buffer in encode(hello):
                link.sendall(buffer)  # it is the first, and small: the socket has room
            welcome = _answer(link, decoder, deadline, ended)
        except TimeoutError:
            raise OwnerSilent(
                f"process {owner.pid}, which owns the store, does not answer: it is stopped, very busy, or out "
                "of file descriptors; try again, or end it"
            ) from None
        except (ConnectionError, MalformedFrame) as error:
            raise OwnerGone(f"the store's owner has closed the link: {error}") from error
        return Accepted(link, decoder, welcome, owner)
    except BaseException:
        link.close()
        raise


def _answer(
    link: socket.socket, decoder: Decoder, deadline: float, ended: Callable[[], bool]
) -> Welcome:
    while True:
        link.settimeout(min(_LOOK_SECONDS, max(0.001, deadline - time.monotonic())))
        try:
            data = link.recv(1 << 16)
        except TimeoutError:
            if ended() or time.monotonic() >= deadline:
                raise
            continue
        if not data:
            raise ConnectionResetError("it ended")
        for frame in decoder.feed(data):
            match frame:
                case frames.Welcome():
                    return frame
                case frames.Refused(text, form):
                    text = text or "the store's owner refuses this process"
                    raise PlanstepError(text) if form is None else error_of(form)
