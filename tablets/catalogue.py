"""The catalogue: names of topics and tables, and the tablets behind each.

Keys, behind the tablet's prefix:

    n<kind 1><name>   (id, tablets, format, step)
    s                 next tablet number, never reused: there are 2^20 of them for a store's life

Creating is a planned transaction whose one participant is the catalogue; new tablets start empty, so
nothing need be said to them. Names are keys here and name nothing on disk.

What it leaves out: alter and drop.
Next: coordinator/plan.py.
"""

from typing import Any

from ..proto.ids import TABLETS_MAX, tablet_id
from ..proto.messages import CataloguePart, Reason
from .participant import Participant

SEQUENCE = b"s"


def name_key(kind: int, name: str) -> bytes:
    return b"n" + bytes([kind]) + name.encode()


class Catalogue(Participant):
    __slots__ = ()

    def check(self, body: Any, early: bool) -> Reason | None:
        part = CataloguePart(*body)
        if self.space.get(name_key(part.kind, part.name)) is not None:
            return ("exists", part.name)
        first = self.space.get(SEQUENCE) or 1
        if first + part.parts > TABLETS_MAX:
            return ("full", part.name, part.parts, TABLETS_MAX - first)
        return None

    def apply(self, body: Any, step: int, n: int) -> Any:
        part = CataloguePart(*body)
        first = self.space.get(SEQUENCE) or 1
        tablets = tuple(
            tablet_id(part.kind, (first + i) % part.hosts, first + i) for i in range(part.parts)
        )
        self.space.put(SEQUENCE, first + part.parts)
        self.space.put(name_key(part.kind, part.name), (first, tablets, part.format, step))
        return tablets

    def meets(self, earlier: Any, later: Any) -> bool:
        return True
