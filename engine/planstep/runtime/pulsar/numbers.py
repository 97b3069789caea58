"""Writes under writers' numbers in the Pulsar-style mode: the sequence ids of a producer, with deduplication on.

A partition keeps the highest number of each producer's name, and drops what is not above it (PIP-6). Without
deduplication nobody would know a number again: then only producers without a name have numbers, in memory. The
partitions of a write are not one transaction: each counts its numbers alone, and a repeat writes what is missing.

Next: ../writer_numbers.py.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import NotSupported
from ...proto.messages import Slices
from ..batch_cutting import bounded
from ..group_commit import Waiter
from ..outcome import Commit, undetermined
from ..writer_numbers import NumberedParts, WriterNumbers, writer_of

if TYPE_CHECKING:
    from .hooks import PulsarHooks


class Numbers(WriterNumbers):
    """`_made_up`: the last numbers of producers without a name, by partition's tablet."""

    _mode: "PulsarHooks"

    def __init__(self, mode: "PulsarHooks") -> None:
        super().__init__(mode)
        self._made_up: dict[str, dict[int, int]] = {}

    def made_up(self, producer: bytes) -> None:
        self._made_up[writer_of(producer)] = {}

    def last(self, snap: Any, tablet: int, producer: bytes) -> int | None:
        """Returns the last number of a producer in a partition, None when it has none. NotSupported without
        deduplication."""
        return self._last(writer_of(producer), tablet)

    def _last(self, name: str, tablet: int) -> int | None:
        if not self._mode.settings.deduplication:
            if name in self._made_up:
                return self._made_up[name].get(tablet)
            raise NotSupported(
                'mode "pulsar" keeps numbers of producers only with PulsarSettings(deduplication=True)'
            )
        return self._mode.in_place_views.highest_number(tablet, name)

    def begin(self, tx: bytes, name: str, tablets: Iterable[int]) -> dict[int, int | None]:
        return {tablet: self._last(name, tablet) for tablet in tablets}

    def write(self, tx: bytes, name: str, parts: NumberedParts, timeout: float | None) -> Commit:
        mode, runtime = self._mode, self._runtime
        runtime.turns.check_open()
        slices = {tablet: part.slices for tablet, part in parts.items()}
        batches = bounded(slices, mode.gathering.bytes)
        numbers = {
            tablet: _last_numbers(part.producer[2], batches[tablet])
            for tablet, part in parts.items()
            if part.producer is not None
        }
        mode.client.admit(tx, batches, timeout)
        with mode.client.locked():
            waiter = runtime.replies.waiting[tx] = Waiter(tx, 0, None)
            call = mode.client.call(partial(mode.requests.ended_plain, tx, batches))
            mode.client.core.plain(call, name, batches, numbers, tx)
        mode.client_transactions.deliver_requests()
        runtime.threads.wait_for(waiter, timeout)
        if waiter.answer is None:
            raise undetermined(tx, timeout)
        done = waiter.result()
        if name in self._made_up:
            for tablet, part in parts.items():
                if part.producer is not None:
                    self._made_up[name][tablet] = part.producer[2]
        return done

    def end(self, tx: bytes) -> None:
        pass  # it holds nothing


def _last_numbers(last: int, batches: Slices) -> Sequence[int]:
    """Returns the number of each batch's last record; the numbers of the records follow each other."""
    numbers = []
    for _, records in reversed(batches):
        numbers.append(last)
        last -= records
    return numbers[::-1]
