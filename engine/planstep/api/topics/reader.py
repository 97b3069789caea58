"""Implements the reader: it returns batches of one consumer, each with a transaction that consumes it.

    with db.reader("clicks", consumer="resharder") as reader:
        for tx, batch in reader:                    waits for records; Ctrl-C, or close() elsewhere, ends it
            tx.write_batch("by-user", batch.values, keys=batch.keys)
            tx.submit()                             or tx.commit(), which waits

A batch is of one partition. Several may be in flight: a reader reads the next one while the one before is
committed, and waits when `in_flight` of them are. `read` returns None only when there is nothing to read. A batch
that is rolled back, or ends in a Conflict, is read again. Readers of one consumer, in any threads of this process,
share the partitions: consumer_group.py.

Next: batch_search.py.
"""

import time
import weakref
from collections.abc import Iterator
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ...closing import Closing
from ...errors import NotSupported, TransactionClosed
from ...proto.keys import check_name
from ...runtime.wait_primitives import wait_for
from ..arguments import brief, seconds, whole
from ..transaction.snapshot_reader import check_limits
from .batch_search import BatchSearch, ReaderOptions, Wait
from .leased_transaction import Leased

if TYPE_CHECKING:
    from ..context import Context

_IN_FLIGHT = 4


def window_of(context: "Context", topic: str, consumer: str, in_flight: int | None) -> int:
    """Checks how many batches a reader may have in flight. NotSupported, ValueError."""
    if in_flight is None:
        return _IN_FLIGHT
    if whole("in_flight", in_flight, 1) > 1 and _one_at_a_time(context, topic, consumer):
        raise NotSupported(
            f'mode "{context.runtime.mode}": a reader of {consumer!r} has one transaction at a time, so '
            f"in_flight={in_flight} is not supported: leave it out and end each batch before the next read, or "
            "open more readers"
        )
    return in_flight


def _one_at_a_time(context: "Context", topic: str, consumer: str) -> bool:
    individual = consumer in context.topic(topic).individual
    return context.runtime.hooks.one_at_a_time(individual)


class Reader(Closing):
    """Reads batches for one consumer. Threads may share it.

    Invariant: it holds leases from its first batch until `close`, or until it is garbage-collected.
    """

    def __init__(
        self,
        context: "Context",
        topic: str,
        consumer: str,
        options: ReaderOptions,
        name: str,
    ) -> None:
        context.check_writable()
        context.look()
        check_name(consumer)
        check_limits(options.max_records, options.max_bytes)
        in_flight = whole("in_flight", options.in_flight, 1)
        lease_seconds = seconds("lease_seconds", options.lease_seconds)
        if not lease_seconds:
            raise ValueError("lease_seconds is more than 0 seconds")
        self.topic = topic
        self.consumer = consumer
        if _one_at_a_time(context, topic, consumer):
            in_flight = 1
        if options.ack not in ("list", "each"):
            raise ValueError(f'ack={brief(options.ack)}: choose "list" or "each"')
        if options.ack == "each":
            context.runtime.hooks.check_ack_each(consumer in context.topic(topic).individual)
        self.group, self.member = context.groups.join(
            context.topic(topic), consumer, lease_seconds, name, in_flight, party=options
        )  # the workers of one `process` have the same options object
        self.closed = False
        self.search = BatchSearch(context, self.group, self.member, options, repr(self))
        weakref.finalize(self, self.group.collected.append, self.member).atexit = False

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def max_records(self) -> int:
        """The most records of a batch."""
        return self.search.max_records

    @max_records.setter
    def max_records(self, most: int) -> None:
        self.search.max_records = most

    @property
    def max_bytes(self) -> int:
        """About the most bytes of a batch."""
        return self.search.max_bytes

    @max_bytes.setter
    def max_bytes(self, most: int) -> None:
        self.search.max_bytes = most

    @property
    def partitions(self) -> list[int]:
        """The partitions that this reader leases now; none for an individual consumer."""
        return [lane.number for lane in self.group.lanes if lane.owner is self.member]

    @property
    def in_flight(self) -> int:
        """The number of batches whose transactions have not ended."""
        return self.member.flights

    def read(self, timeout: float = 0.0) -> Leased | None:
        """Returns the next batch and its transaction; None when there is nothing to read within `timeout` seconds.

        While `in_flight` batches are under way it waits for room, whatever the `timeout`. Before it returns None
        it waits for the batches that this reader has submitted: one may fail, and is read again then. LeaseLost
        when no batch of a full reader ends for `lease_seconds`. In a future's callback, which runs on a thread of
        the engine, it waits for neither.
        """
        return self._next(Wait(time.monotonic() + seconds("timeout", timeout), self.member.lapsed))

    def _wait(self) -> Leased | None:
        """Returns the next batch, however long that takes; None when a policy or `until_idle` ends the wait."""
        return self._next(Wait(None, self.member.lapsed))

    def _next(self, wait: Wait) -> Leased | None:
        while True:
            leased, pause = self.search.attempt(wait)
            if leased is not None or not pause:
                return leased
            queue: SimpleQueue[None] = SimpleQueue()
            with self.group.watch(self.member, partial(queue.put, None)):
                leased, pause = self.search.attempt(wait)  # what came before the watch began
                if leased is not None or not pause:
                    return leased
                wait_for(queue, pause)

    def idle(self) -> bool:
        """Returns whether all records are consumed, and no reader has a batch in flight."""
        return self.search.idle()

    def keep_alive(self) -> None:
        """Renews the leases of a batch that takes longer than `lease_seconds`."""
        self.search.check()
        self.group.renew(self.member)

    def close(self) -> None:
        """Gives its partitions to other readers, which read the batches again that were not submitted."""
        if not self.closed:
            self.closed = True
            self.group.leave(self.member)

    def __iter__(self) -> Iterator[Leased]:
        while not self.closed:
            try:
                leased = self._wait()
            except TransactionClosed:
                return  # closed meanwhile
            if leased is None:
                return
            yield leased

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<Reader{name} of {self.consumer!r} on topic {self.topic!r}>"
