"""The topic partition: a log of published records only, positions of consumers, producers' numbers.

Keys, behind the tablet's prefix (the table of the talk, with places):

    b<offset 8>     (address, length, records, step, n)   one slice, published at that offset
    c<consumer>     (step, n, position)                   what this consumer has committed
    p<producer id>  (last sequence, step)                 published at most once
    s<tx>           (proxy, (address, length, records)…)  staged ahead of the proposal, in order
    m               (step, n, log start, log end)

Publishing moves no bytes: the slice was appended to the host's log when it was staged, and now gets
the next offset. Offsets are contiguous, so readers need no filter.

Next: shard.py.
"""

from typing import Any

from ..proto.messages import PartitionPart, Reason, Stage, Staged
from .participant import Participant

META = b"m"


class Partition(Participant):
    """Invariants: entries tile [log start, log end); positions never fall."""

    __slots__ = ()

    def check(self, body: Any, early: bool) -> Reason | None:
        body = PartitionPart(*body)
        space = self.space
        _, _, start, end = space.get(META) or (0, 0, 0, 0)
        for consumer, begin, stop in body.ranges:
            position = space.get(b"c" + consumer.encode())
            actual = max(position[2] if position else 0, start)
            # Early, a range further on may still become the next one; a range behind never will.
            if begin < actual or (not early and begin != actual):
                return ("position", consumer, begin, actual)
            if not early and not begin <= stop <= end:
                return ("range", consumer, stop, end)
        if body.producer is not None:
            producer, first, last = body.producer
            known = space.get(b"p" + producer)
            if known is not None and first <= known[0] and not (body.dedupe and last <= known[0]):
                return ("sequence", producer, first, known[0])
        return None

    def take(self, message: Any) -> None:
        if type(message) is not Stage:
            super().take(message)
        tx = message.tx
        if self.space.get(b"t" + tx) is not None:
            return  # a repeat from before the proposal
        held = self._ahead(tx)
        if message.first == len(held):
            held = (*held, *self._append(message.slices))
            self.space.put(b"s" + tx, (message.proxy, *held))
        # Behind a gap nothing is said: what is missing comes again. After the end of a transaction
        # a late repeat is kept, and the proxy, which knows it no more, withdraws it.
        if message.first <= len(held):
            self.send(message.proxy, Staged(tx, self.id, len(held)))

    def ask_about(self, tx: bytes) -> None:
        """Also of what was sent ahead: its proxy is told once more, and may know it no more."""
        held = self.space.get(b"s" + tx)
        if held is not None:
            self.send(held[0], Staged(tx, self.id, len(held) - 1))
        super().ask_about(tx)

    def _ahead(self, tx: bytes) -> tuple[Any, ...]:
        held = self.space.get(b"s" + tx)
        return () if held is None else held[1:]

    def _append(self, slices: Any) -> tuple[tuple[int, int, int], ...]:
        append = self.space.append_payload
        return tuple((append(data), len(data), count) for data, count in slices)

    def stage(self, tx: bytes, part: PartitionPart) -> PartitionPart:
        if not part.slices and not part.staged:
            return part
        ahead: tuple[Any, ...] = ()
        if part.staged and self.lacks(tx, part) is None:
            ahead = self._ahead(tx)
            self.space.delete(b"s" + tx)
            part = part._replace(staged=0)
        return part._replace(slices=(*ahead, *self._append(part.slices)))

    def lacks(self, tx: bytes, part: Any) -> Reason | None:
        staged = PartitionPart(*part).staged
        held = len(self._ahead(tx)) if staged else 0
        return None if held == staged else ("lost", staged, held)

    def unstage(self, tx: bytes) -> None:
        held = self._ahead(tx)
        if held:
            for address, length, _ in held:
                self.space.drop_payload(address, length)
            self.space.delete(b"s" + tx)

    def discard(self, body: Any) -> None:
        for address, length, _ in PartitionPart(*body).slices:
            self.space.drop_payload(address, length)

    def apply(self, body: Any, step: int, n: int) -> Any:
        body = PartitionPart(*body)
        space = self.space
        for consumer, _, stop in body.ranges:
            key = b"c" + consumer.encode()
            space.put_version(key, space.get(key), (step, n, stop), step)
        if body.producer is not None:
            producer, _, last = body.producer
            key = b"p" + producer
            known = space.get(key)
            if known is not None and last <= known[0]:
                self.discard(body)  # a repeat of what was published: accepted, without effect
                return None
            space.put(key, (last, step))
        if not body.slices:
            return None
        old = space.get(META)
        _, _, start, begin = old or (0, 0, 0, 0)
        end = begin
        for address, length, count in body.slices:
            space.put(b"b" + end.to_bytes(8, "big"), (address, length, count, step, n))
            end += count
        space.put_version(META, old, (step, n, start, end), step)
        return (begin, end)

    def meets(self, earlier: Any, later: Any) -> bool:
        a, b = PartitionPart(*earlier), PartitionPart(*later)
        if a.slices and b.slices:
            return True  # publishing is ordered per partition
        if a.producer is not None and b.producer is not None and a.producer[0] == b.producer[0]:
            return True
        if not a.ranges or not b.ranges:
            return False
        consumers = {consumer: None for consumer, _, _ in a.ranges}
        return any(consumer in consumers for consumer, _, _ in b.ranges)
