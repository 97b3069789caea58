"""Tries the limits of an owner's links: many of them, silent ones, half frames, and processes that never read.

    each   what it does to the owner ─▶ meanwhile the good process commits ─▶ links gone ─▶ memory as before

Next: false_owner.py.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from planstep.proto import frames
from planstep.proto.batch import encode_batch
from planstep.proto.ids import tx_id
from planstep.proto.messages import PartitionPart
from planstep.runtime.processes import server

from ..patching import exchange
from .odd_frames import joined
from .owner_struck import ANSWER_SECONDS, OddLink, Struck, Wrong

HELLO_SECONDS = 0.5
GROWTH_MIB = 48
STILL_SECONDS = 0.5
"""A link that takes nothing for so long is not read."""
_COMMITS = 20
_WAIT_SECONDS = 60.0


def soon() -> None:
    """Has the owner wait less for those that say nothing."""
    exchange(server, "_HELLO_SECONDS", HELLO_SECONDS)


def _goes_on(struck: Struck) -> str:
    """Waits until the good process has committed some more."""
    struck.goes_on()
    deadline, done = time.monotonic() + _WAIT_SECONDS, 0
    while done < _COMMITS:
        if time.monotonic() > deadline:
            return f"the good process has committed only {done} times in {_WAIT_SECONDS:.0f} s"
        time.sleep(0.01)
        done += struck.goes_on()
    return ""


def _is_ended(link: OddLink, what: str) -> str:
    for _ in link.received(lambda frame: False):
        pass
    return "" if link.ended else f"{what} stays"


def _many(struck: Struck, open_links: list[OddLink]) -> str:
    """Opens more links than there may be."""
    refused = ""
    while not refused and len(open_links) < server.LINKS_MAX + 10:
        open_links.append(OddLink(struck))
        if open_links[-1].welcomed() is None:
            refused = open_links[-1].reason
    if len(open_links) != server.LINKS_MAX or str(server.LINKS_MAX) not in refused:
        return f"link {len(open_links)} beside the good one is refused: {refused!r}"
    return _goes_on(struck)


def _silent(struck: Struck, open_links: list[OddLink]) -> str:
    """Opens links on which nothing is said, or half of a Hello."""
    for n in range(40):
        open_links.append(OddLink(struck))
        if n % 2:
            data = joined(open_links[-1].hello())
            open_links[-1].send(data[: len(data) // 2])
    wrong = _goes_on(struck)
    return wrong or next(filter(None, (_is_ended(one, "a silent link") for one in open_links)), "")


def _half(struck: Struck, open_links: list[OddLink]) -> str:
    """Sends half of a large commit, and waits."""
    for _ in range(20):
        link = OddLink(struck)
        open_links.append(link)
        welcome = link.welcomed()
        if welcome is None:
            return f"a valid link is refused: {link.reason}"
        batch = encode_batch([bytes(1 << 20)])
        part: Any = PartitionPart(slices=((batch, 1),))
        tx = tx_id(welcome.generation, welcome.ids[0])
        data = joined(frames.Commit(tx, {struck.places.partitions[0]: part}, 1 << 20))
        link.send(data[: len(data) // 2])
    return _goes_on(struck)


def _never_reads(struck: Struck, open_links: list[OddLink], asked: Any) -> str:
    """Asks on and on, and takes no answer."""
    data = joined(asked) * 1_000
    for _ in range(3):
        link = OddLink(struck)
        open_links.append(link)
        if link.welcomed() is None:
            return f"a valid link is refused: {link.reason}"
        link.socket.settimeout(STILL_SECONDS)
        with suppress(TimeoutError):
            for _ in range(300):
                link.socket.sendall(data)
            return "a process that never reads may ask without end"
    return _goes_on(struck)


LIMITS: dict[str, Callable[[Struck, list[OddLink]], str]] = {
    "many links": _many,
    "silent links": _silent,
    "half a frame": _half,
    "calls, never reads": lambda struck, links: _never_reads(struck, links, frames.Call(1, "stats")),
    "ids, never reads": lambda struck, links: _never_reads(struck, links, frames.NewIds()),
}  # fmt: skip


def _close(links: list[OddLink]) -> None:
    for link in links:
        link.close()


def reach(struck: Struck, name: str) -> str:
    """Reaches one limit; returns what went wrong, or ""."""
    before = struck.settled(name)
    with ExitStack() as stack:
        links: list[OddLink] = []
        stack.callback(_close, links)
        try:
            wrong = LIMITS[name](struck, links)
            during = struck.state()
        except (Wrong, OSError) as error:
            return f"{name}: {error!r}"
    after = struck.settled(name)
    deadline = time.monotonic() + ANSWER_SECONDS
    while after.descriptors != before.descriptors and time.monotonic() < deadline:
        after = struck.settled(name)  # a checkpoint has files open for a moment
    grown = max(during.rss, after.rss) - before.rss >> 20
    if not wrong and grown > GROWTH_MIB:
        wrong = f"the owner has grown by {grown} MiB"
    if not wrong and after.descriptors != before.descriptors:
        wrong = f"the owner has {after.descriptors} descriptors, not {before.descriptors}"
    return f"{name}: {wrong}" if wrong else ""
