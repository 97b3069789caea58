"""Simulates the object store that carries a shared log, and each machine's way to it, with faults from one seed.

    PUT    lost · landed, unanswered · landed, and lands again later · not landed, "it exists" · met its own copy
           · not landed, unanswered, and lands later, once its machine may be gone
    others take time · fail
    way    a machine is cut off for a while · the store is full for a while

A call takes time: it is carried out at one moment, and answered at a later one. Its machine may be killed, or
sleep, between the two; what it sent lands all the same.

Next: fiber.py.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ....errors import IoError, NoSpace

_LATE_MS = 20.0, 200.0, 2_000.0
"""How late a put lands at most that was not answered."""


@dataclass(frozen=True)
class Ways:
    """Holds the odds of each fault of a call. All zero heals the store."""

    slow: float = 0.05
    fail: float = 0.03
    stray: float = 0.03
    unanswered: float = 0.04
    repeated: float = 0.04
    conflict: float = 0.03
    own_copy: float = 0.03
    full: float = 0.01


NONE = Ways(*[0.0] * 8)
CLASSES = (
    "a call is slow",
    "a call fails",
    "a put lands late",
    "a put is not answered",
    "a put lands again later",
    "a put is refused, and nothing is there",
    "a put meets its own copy",
    "the store is full",
    "a machine is cut off",
)
"""The names under which faults are counted."""


class Clock(Protocol):
    """The world, as far as calls take its time."""

    now: float
    faulted: Counter[str]

    def of_world(self, delay_ms: float, call: Callable[..., None], *args: Any) -> None: ...
    def wait(self, ms: float) -> None: ...


class Bucket:
    """The objects. `landed` is called with each that is created."""

    def __init__(self, clock: Clock, draw: random.Random) -> None:
        self.clock = clock
        self.draw = draw
        self.ways = NONE
        self.objects: dict[str, bytes] = {}
        self.landed: Callable[[str, bytes], None] = lambda name, data: None

    def create(self, name: str, data: bytes) -> bool:
        if name in self.objects:
            return False
        self.objects[name] = data
        self.landed(name, data)
        return True

    def create_later(self, name: str, data: bytes) -> None:
        delay_ms = self.draw.uniform(0, self.draw.choice(_LATE_MS))
        self.clock.of_world(delay_ms, self._arrive, name, data)

    def _arrive(self, name: str, data: bytes) -> None:
        self.create(name, data)


class Way:
    """A machine's way to the bucket (objects_log.Objects)."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self.cut_until = 0.0

    def create(self, name: str, data: bytes) -> bool:
        bucket, draw, ways = self._bucket, self._bucket.draw, self._bucket.ways
        self._go()
        if draw.random() < ways.full:
            self._count("the store is full")
            raise NoSpace("made to be full")
        if draw.random() < ways.conflict:
            self._count("a put is refused, and nothing is there")
            return False
        if draw.random() < ways.stray:
            self._count("a put lands late")
            bucket.create_later(name, data)
            self._come()
            raise IoError("no answer")
        created = bucket.create(name, data)
        if draw.random() < ways.repeated:
            self._count("a put lands again later")
            bucket.create_later(name, data)
        self._come()
        if draw.random() < ways.unanswered:
            self._count("a put is not answered")
            raise IoError("no answer")
        if created and draw.random() < ways.own_copy:
            self._count("a put meets its own copy")
            return False
        return created

    def get(self, name: str) -> bytes | None:
        self._go()
        data = self._bucket.objects.get(name)
        self._come()
        return data

    def sync(self, name: str) -> None:
        pass

    def names(self, prefix: str, start: str = "") -> list[str]:
        self._go()
        objects = self._bucket.objects
        names = sorted(name for name in objects if name.startswith(prefix) and name > start)
        self._come()
        return names

    def sizes(self) -> dict[str, int]:
        raise AssertionError("sizes are for `planstep replicate status`: no machine asks for them")

    def remove(self, name: str) -> None:
        self._go()
        self._bucket.objects.pop(name, None)
        self._come()

    def tidy(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _count(self, what: str) -> None:
        self._bucket.clock.faulted[what] += 1

    def _go(self) -> None:
        """Takes a call to the bucket. IoError: it did not get there."""
        clock, draw, ways = self._bucket.clock, self._bucket.draw, self._bucket.ways
        ms = draw.uniform(0.1, 3)
        if draw.random() < ways.slow:
            self._count("a call is slow")
            ms = draw.uniform(3, draw.choice((30, 300)))
        clock.wait(ms)
        if clock.now < self.cut_until:
            raise IoError("cut off")
        if draw.random() < ways.fail:
            self._count("a call fails")
            raise IoError("made to fail")

    def _come(self) -> None:
        """Brings the answer of a call. IoError: it did not come."""
        clock, draw = self._bucket.clock, self._bucket.draw
        clock.wait(draw.uniform(0.1, 3))
        if clock.now < self.cut_until:
            raise IoError("cut off")
