"""Runs a partition of mode "kafka" on a dict: a test sends each message, and invariants are checked after each."""

from itertools import pairwise
from typing import Any

import msgpack
from coordinator_kit import FakeShell
from dict_space import DictSpace

from planstep.proto.batch import Batch, encode_batch
from planstep.proto.ids import PARTITION, TRANSACTIONS, tablet_id
from planstep.proto.kafka.messages import (
    ABORT,
    ExpireProducers,
    Marked,
    Marker,
    Produce,
    Register,
    Registered,
    TrimTo,
)
from planstep.proto.kafka.settings import KafkaSettings
from planstep.proto.shell import Answer
from planstep.proxy.read_filter import Entry, aborted_between, visible
from planstep.runtime.kafka.views import KINDS
from planstep.tablets.kafka.partition import Partition
from planstep.tablets.kafka.producer_state import ProducerState

TABLET = tablet_id(PARTITION, 0, 1)
COORDINATOR = tablet_id(TRANSACTIONS, 0, 0)
CLIENT = 77
ORDER, EPOCH, STATE = "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE"
FENCED, GONE = "TRANSACTION_COORDINATOR_FENCED", "UNKNOWN_TOPIC_OR_PARTITION"


def position(entries: list[Entry], begin: int) -> int:
    """Returns the offset to go on from, after entries read from `begin` on, visible or not."""
    if not entries:
        return begin
    offset, row = entries[-1]
    return max(begin, offset + int(row[2]))


class StoredSpace(DictSpace):
    """Stores a tablet's rows in a dict; values pass through msgpack, as on their way to the disk."""

    def put(self, key: bytes, value: Any) -> None:
        self.rows.pop(key, None)  # the last put comes last
        self.rows[key] = msgpack.unpackb(msgpack.packb(value), use_list=False)


class PartitionShell(FakeShell):
    """Refuses what a partition never asks for; its clock stands until a test sets it."""

    def after_durable(self, target: int, message: Any) -> None:
        raise AssertionError(f"a partition answers at once: {message!r}")

    def soon(self, message: Any) -> None:
        raise AssertionError(f"a partition does all at once: {message!r}")


def value_of(producer: int, epoch: int, sequence: int) -> str:
    return f"{producer}/{epoch}/{sequence}"


class Log:
    """Runs one partition; `version` is the protocol version of the requests."""

    def __init__(self, version: int = 1, **settings: Any) -> None:
        self.version = version
        self.space = StoredSpace()
        own = KafkaSettings(protocol_version=version, **settings)
        self.shell = PartitionShell(own, now_ms=0)
        self.tablet = Partition(TABLET, self.space, self.shell)
        self.requests = 0

    def restart(self) -> None:
        self.tablet = Partition(TABLET, self.space, self.shell)

    def woken(self) -> tuple[float, list[Any]]:
        """Fires the only timer; returns its delay, and the messages sent then."""
        ((at, message),) = self.shell.timers
        self.shell.timers.clear()
        return at - self.shell.now_ms, self.tell(message)

    def tell(self, message: Any) -> list[Any]:
        """Delivers a message, checks the rows, and returns the messages sent."""
        self.shell.sent.clear()
        self.tablet.handle(message)
        self.check()
        return [sent.message for sent in self.shell.sent]

    # requests ------------------------------------------------------------------------------

    def request(
        self,
        producer: int,
        sequence: int,
        records: int = 1,
        *,
        name: str | None = "t",
        epoch: int = 0,
        ms: int = 5_000,
    ) -> Produce:
        self.requests += 1
        numbers = range(sequence, sequence + records)
        values = [value_of(producer, epoch, n % (1 << 31)).encode() for n in numbers]
        data = encode_batch(values, timestamp_ms=ms)
        return Produce(
            CLIENT, self.requests, name, producer, epoch, sequence, data, records, self.version
        )

    def produce(self, producer: int, sequence: int, records: int = 1, **more: Any) -> Any:
        """Returns the offset or the error of a batch; answers yes to version 2's question to the coordinator."""
        request = self.request(producer, sequence, records, **more)
        sent = self.tell(request)
        if type(sent[-1]) is Register:
            sent = self.tell(self.registered(producer, request.epoch))
        (answer,) = [a for a in sent if type(a) is Answer and a.request == request.request]
        return answer.error or answer.value

    def plain(self, producer: int, sequence: int, records: int = 1, **more: Any) -> Any:
        return self.produce(producer, sequence, records, name=None, **more)

    def registered(self, producer: int, epoch: int = 0, error: str = "") -> Registered:
        return Registered(COORDINATOR, "t", producer, epoch, error)

    def marker(
        self,
        producer: int,
        commit: bool,
        epoch: int = 0,
        coordinator_epoch: int = 1,
        number: int = 0,
    ) -> str:
        """Delivers a marker and returns the error of its answer."""
        who = "t", producer, epoch
        sent = self.tell(Marker(COORDINATOR, *who, commit, coordinator_epoch, self.version, number))
        marked = sent[-1]
        assert marked == Marked(TABLET, *who, marked.error, number)
        assert self.shell.sent[-1].target == COORDINATOR
        error: str = marked.error
        return error

    def commit(self, producer: int, epoch: int = 0) -> str:
        return self.marker(producer, True, epoch)

    def abort(self, producer: int, epoch: int = 0) -> str:
        return self.marker(producer, False, epoch)

    def trim(self, offset: int) -> int:
        (answer,) = self.tell(TrimTo(CLIENT, 1, offset))
        assert answer.error == ""
        start: int = answer.value
        return start

    def expire(self, before_ms: int) -> list[Any]:
        return self.tell(ExpireProducers(before_ms))

    # state ---------------------------------------------------------------------------------

    @property
    def bounds(self) -> tuple[int, int, int]:
        """(start, end, last stable offset)."""
        return self.space.get(b"m") or (0, 0, 0)

    @property
    def stable(self) -> int:
        return self.bounds[2]

    def state(self, producer: int) -> ProducerState | None:
        row = self.space.get(b"p" + producer.to_bytes(8, "big"))
        return None if row is None else ProducerState(*row)

    def index(self) -> list[tuple[int, int, int, int]]:
        return [row for _, row in self.space.scan(b"a", b"b")]

    def entries(self, begin: int, end: int) -> list[Entry]:
        """Returns the entries that hold offsets [begin, end), as a reader finds them."""
        rows = [(int.from_bytes(key[1:], "big"), row) for key, row in self.space.scan(b"b", b"c")]
        return [(at, row) for at, row in rows if at + row[2] > begin and at < end]

    def read(
        self, begin: int = 0, *, committed: bool = True, most: int = 1 << 30
    ) -> tuple[list[tuple[int, str]], int]:
        """Reads the next `most` entries; returns the visible (offset, value)s, and the reader's position then."""
        start, end, stable = self.bounds
        begin = max(begin, start)
        entries = self.entries(begin, stable if committed else end)[:most]
        behind = position(entries, begin)
        index = [row for _, row in self.space.scan(b"a" + begin.to_bytes(8, "big"), b"b")]
        aborted = aborted_between(index, begin, behind) if committed else []
        records = []
        for offset, (address, _, _, _, _, _, kind, *_) in visible(entries, aborted, KINDS):
            assert kind < 2, "no control record is shown"
            for i, value in enumerate(Batch.decode(self.space.payloads[address]).values):
                assert value is not None
                if offset + i >= begin:
                    records.append((offset + i, value.decode()))
        return records, behind

    def values(self, committed: bool = True) -> list[str]:
        return [value for _, value in self.read(committed=committed)[0]]

    def check(self) -> None:
        """Checks the invariants of the rows."""
        rows = self.space.rows
        start, end, stable = self.bounds
        assert start <= stable <= end
        entries = self.entries(0, end)
        assert len(entries) == sum(key[:1] == b"b" for key in rows)
        assert not entries or entries[0][0] <= start
        assert position(entries, start) == end
        for (a, row), (b, _) in pairwise(entries):
            assert a + row[2] == b
        opened = {key: value for key, value in rows.items() if key[:1] == b"o"}
        states = {
            int.from_bytes(key[1:], "big"): ProducerState(*row)
            for key, row in rows.items()
            if key[:1] == b"p"
        }
        assert opened == {
            b"o" + state.opened.to_bytes(8, "big"): producer
            for producer, state in states.items()
            if state.opened is not None
        }
        assert stable == (int.from_bytes(min(opened)[1:], "big") if opened else end)
        used = {row[0]: row[1] for _, row in entries if row[1]}
        assert used == {at: len(data) for at, data in self.space.payloads.items()}
        markers = {at for at, row in entries if row[6] == ABORT}
        index = self.index()
        assert {last for _, _, last, _ in index} <= markers
        assert [row[3] for row in index] == sorted(row[3] for row in index)
