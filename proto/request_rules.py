"""Checks requests of a mode's clients: which kind of tablet takes each, and which numbers it may have.

    a request ─▶ is it one of the mode's? ─▶ does its target take it? ─▶ its numbers, its batch ─▶ MalformedFrame

A tablet that gets what no client sends raises, and its host stops. So it is found out before anything is queued.

Left out: whether the tablets exist, which the owner knows; `named` lists them.
Next: kafka/request_rules.py, pulsar/request_rules.py.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .batch import Batch
from .frame_checks import MalformedFrame, shown
from .ids import GROUPS, PARTITION, kind_of

NUMBER_MAX = 1 << 62


class RequestRules(NamedTuple):
    """Describes what clients of a mode send. `places`: the kinds of tablets that take each class of requests."""

    places: Mapping[type, tuple[int, ...]]
    numbers: Mapping[tuple[type | None, str], tuple[int, int]]
    """Least and greatest values of a field of a class, or of all classes, where they are not 0 and NUMBER_MAX."""
    batches: tuple[type, ...]
    """Those with `data`, a batch of so many `records`."""
    named: Callable[[Any], tuple[int, ...]]
    """Returns the tablets that a request names besides its target."""

    def check(self, target: int, message: Any) -> None:
        """Raises MalformedFrame for a request that no client of the mode sends to such a tablet."""
        kind = type(message)
        places = self.places.get(kind)
        if places is None:
            raise MalformedFrame(f"{kind.__name__} is no request here")
        if kind_of(target) not in places:
            raise MalformedFrame(f"{kind.__name__} is not for the tablet {target:#x}")
        for name in kind.__slots__:
            value = getattr(message, name)
            if type(value) is int:
                self._check_number(kind, name, value)
        if kind in self.batches:
            _check_batch(message)
        for tablet in self.named(message):
            if kind_of(tablet) not in (PARTITION, GROUPS):
                raise MalformedFrame(f"{kind.__name__} names the tablet {tablet:#x}")
        _check_offsets(message)

    def _check_number(self, kind: type, name: str, value: int) -> None:
        of_all = self.numbers.get((None, name), (0, NUMBER_MAX))
        low, high = self.numbers.get((kind, name), of_all)
        if not low <= value <= high:
            raise MalformedFrame(f"{name} of {kind.__name__} is {value}")


def _check_batch(message: Any) -> None:
    try:
        count = Batch.decode(message.data, verify=False).count
    except Exception as error:  # of several classes
        raise MalformedFrame(f"{error!s:.100}") from None
    if count != message.records or not count:
        said = shown(message.records)
        raise MalformedFrame(f"{said} records are said, the batch has {count:,}")


def _check_offsets(message: Any) -> None:
    for begin, end in getattr(message, "ranges", ()):
        if not 0 <= begin < end <= NUMBER_MAX:
            raise MalformedFrame(f"the range {begin} to {end} of {type(message).__name__}")
    for _, offset in getattr(message, "offsets", ()):
        if offset is not None and not 0 <= offset <= NUMBER_MAX:
            raise MalformedFrame(f"the offset {offset} of {type(message).__name__}")
