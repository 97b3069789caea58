"""Tests a partition against a plain list of everything written to it, with each transaction's outcome.

The model keeps no state of producers and no last stable offset: it searches its list each time. After any
sequence of batches in and out of order, repeated and late ones, markers and their repeats, trims, restarts:

- each answer is the one that the list gives;
- read_committed shows the records of committed transactions, and plain ones, below the first open one's;
- the last stable offset never goes back and is never below the start; no offset is given out twice;
- a sequence number of an epoch is written at most once.
"""

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from partition_kit import COORDINATOR, EPOCH, FENCED, ORDER, STATE, Log, value_of

from planstep.proto.kafka.messages import Marked, Marker, Produce, Register
from planstep.proto.shell import Answer

ASKED = "asked"


@dataclass
class Written:
    """A batch, or a marker if it has no records; `tx` is a transaction's number or None."""

    offset: int
    producer: int
    epoch: int
    sequence: int
    records: int
    tx: int | None = None
    coordinator_epoch: int = -1

    @property
    def behind(self) -> int:
        return self.offset + max(1, self.records)


@dataclass
class Model:
    version: int
    written: list[Written] = field(default_factory=list)
    outcomes: dict[int, bool] = field(default_factory=dict)  # of batches that have one
    start: int = 0
    transactions: int = 0
    held: list[Produce] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.written[-1].behind if self.written else 0

    @property
    def stable(self) -> int:
        undecided = (w.offset for w in self.written if w.tx is not None and self.is_open(w.tx))
        return min(undecided, default=self.end)

    def is_open(self, tx: int) -> bool:
        return tx not in self.outcomes

    def of(self, producer: int) -> list[Written]:
        return [w for w in self.written if w.producer == producer]

    def open_of(self, producer: int) -> int | None:
        transactions = {w.tx for w in self.of(producer) if w.tx is not None and self.is_open(w.tx)}
        assert len(transactions) <= 1
        return next(iter(transactions), None)

    def epoch_of(self, producer: int) -> int:
        return max((w.epoch for w in self.of(producer)), default=-1)

    def produce(self, request: Produce) -> "str | int":
        """Returns the immediate answer."""
        producer, epoch = request.producer, request.epoch
        ongoing = self.open_of(producer) is not None and epoch == self.epoch_of(producer)
        if self.version == 2 and request.name is not None and not ongoing:
            self.held.append(request)
            return ASKED
        return self.append(request)

    def append(self, request: Produce) -> "str | int":
        producer, epoch, first = request.producer, request.epoch, request.sequence
        batches = [w for w in self.of(producer) if w.records and w.epoch == epoch]
        known, tx = self.epoch_of(producer), self.open_of(producer)
        for batch in batches[-5:]:
            if epoch == known and (batch.sequence, batch.records) == (first, request.records):
                return batch.offset
        if epoch < known:
            return EPOCH
        following = batches[-1].sequence + batches[-1].records if batches else 0
        anything = known == -1 and (self.version == 1 or request.name is None)
        if first != following and not anything:
            return ORDER
        if tx is not None and request.name is None:
            return STATE
        if request.name is not None and tx is None:
            self.transactions += 1
            tx = self.transactions
        offset = self.end
        self.written.append(Written(offset, producer, epoch, first, request.records, tx))
        return offset

    def marker(self, message: Marker) -> str:
        producer, epoch = message.producer, message.epoch
        known, tx = self.epoch_of(producer), self.open_of(producer)
        markers = [w for w in self.of(producer) if not w.records]
        if epoch < known or (self.version == 2 and epoch == known and tx is not None):
            return EPOCH
        if message.coordinator_epoch < max((w.coordinator_epoch for w in markers), default=-1):
            return FENCED
        if self.version == 2 and epoch == known:
            # Noted, though not written: a former coordinator is shut out from here on.
            if markers:
                markers[-1].coordinator_epoch = message.coordinator_epoch
            return ""
        self.written.append(
            Written(self.end, producer, epoch, -1, 0, None, message.coordinator_epoch)
        )
        if tx is not None:
            self.outcomes[tx] = message.commit
        return ""

    def let_go(self, producer: int) -> list[Produce]:
        """Returns the producer's held requests in order of arrival, and holds them no longer."""
        requests = [request for request in self.held if request.producer == producer]
        self.held = [request for request in self.held if request.producer != producer]
        return requests

    def trim(self, offset: int) -> int:
        self.start = max(self.start, min(offset, self.stable))
        return self.start

    def visible(self, committed: bool) -> list[tuple[int, str]]:
        upper = self.stable if committed else self.end
        return [
            (w.offset + i, value_of(w.producer, w.epoch, w.sequence + i))
            for w in self.written
            if not committed or w.tx is None or self.outcomes.get(w.tx)
            for i in range(w.records)
            if self.start <= w.offset + i < upper
        ]


class Run:
    """Runs clients with correct sequence numbers over a network that repeats, delays and reorders."""

    def __init__(self, seed: int, version: int) -> None:
        self.draw = random.Random(seed)
        self.log, self.model = Log(version), Model(version)
        self.epochs, self.sequences = [0] * 4, [0] * 4
        self.coordinator_epoch = 1
        self.end = 0  # of the log, as the last answer showed it
        self.answers: Counter[str] = Counter()
        self.late: list[Any] = []

    def deliver(self, message: Any) -> None:
        if isinstance(message, Produce):
            self._produce(message)
        else:
            self._mark(message)
        if self.draw.random() < 0.4:
            self.late.append(message)

    def _produce(self, request: Produce) -> None:
        model, producer = self.model, request.producer
        waiting = [held.epoch for held in model.held if held.producer == producer]
        before, expected = model.let_go(producer), model.produce(request)
        sent = self.log.tell(request)
        if expected != ASKED or request.epoch == max(waiting, default=request.epoch):
            model.held = before + model.held
        elif request.epoch < max(waiting):
            model.held = [held for held in model.held if held is not request] + before
            expected = EPOCH
        else:
            assert [(item.request, item.error) for item in sent[:-1]] == [
                (held.request, EPOCH) for held in before
            ]
            sent = sent[-1:]
        (got,) = sent
        if expected == ASKED:
            assert type(got) is Register and (got.producer, got.epoch) == (producer, request.epoch)
        else:
            self._answered([got], [request], [expected])

    def _answered(
        self, sent: list[Any], requests: list[Produce], expected: "list[str | int]"
    ) -> None:
        assert all(type(item) is Answer for item in sent)
        for item in sent:
            self.answers[item.error or ("duplicate" if item.value < self.end else "written")] += 1
        self.end = self.model.end
        got = [(item.request, item.error or item.value) for item in sent]
        assert got == [(r.request, e) for r, e in zip(requests, expected, strict=True)]

    def registered(self, producer: int) -> None:
        """Delivers the coordinator's answer for the held requests, or a late one."""
        waiting = [held.epoch for held in self.model.held if held.producer == producer]
        epoch = self.draw.choice([*waiting, self.epochs[producer]])
        error = self.draw.choice(["", "", "", "PRODUCER_FENCED"])
        requests = self.model.let_go(producer) if epoch in waiting else []
        expected: list[str | int] = [EPOCH] * len(requests)  # a broker's answer
        if not error:
            requests.sort(key=lambda request: request.sequence)
            expected = [self.model.append(request) for request in requests]
        self._answered(
            self.log.tell(self.log.registered(producer, epoch, error)), requests, expected
        )

    def _mark(self, message: Marker) -> None:
        model, producer = self.model, message.producer
        end, expected = model.end, model.marker(message)
        written = model.end > end
        mine = [held for held in model.held if held.producer == producer]
        late = [held for held in mine if held.epoch < message.epoch]
        requests = model.let_go(producer) if written and late else []
        *others, marked = self.log.tell(message)
        self._answered(others, requests, [STATE] * len(requests))
        assert type(marked) is Marked and marked.error == expected
        self.answers[expected] += 1
        self.end = model.end

    def step(self) -> None:
        draw, producer = self.draw, self.draw.randrange(4)
        chance = draw.random()
        if chance < 0.5:
            self._new_batch(producer)
        elif chance < 0.62:
            if self.late:
                self.deliver(self.late.pop(draw.randrange(len(self.late))))
        elif chance < 0.78:
            if self.log.version == 2:
                self.registered(producer)
        elif chance < 0.93:
            self._new_marker(producer)
        elif chance < 0.98:
            offset = draw.randrange(self.model.end + 3)
            assert self.log.trim(offset) == self.model.trim(offset)
        else:
            self.log.restart()
            self.model.held = []

    def _new_batch(self, producer: int) -> None:
        draw = self.draw
        records = draw.randrange(1, 4)
        sequence = self.sequences[producer]
        self.sequences[producer] += records
        # Producer 3 writes outside transactions; the others rarely do.
        name = None if producer == 3 or draw.random() < 0.05 else "t"
        request = self.log.request(
            producer, sequence, records, name=name, epoch=self.epochs[producer]
        )
        if draw.random() < 0.1:
            self.late.append(request)  # others overtake it
        else:
            self.deliver(request)
            if self.log.version == 2 and draw.random() < 0.6:
                self.registered(producer)
        if draw.random() < 0.5:  # a client that knows of a refusal begins there again
            last = [w for w in self.model.of(producer) if w.epoch == self.epochs[producer]]
            batches = [w for w in last if w.records]
            behind = batches[-1].sequence + batches[-1].records if batches else 0
            self.sequences[producer] = behind

    def _new_marker(self, producer: int) -> None:
        draw, version = self.draw, self.log.version
        if draw.random() < 0.1:
            self.coordinator_epoch += 1
        if version == 2 or draw.random() < 0.2:
            self.epochs[producer] += 1
            self.sequences[producer] = 0
        marker = Marker(
            COORDINATOR,
            "t",
            producer,
            self.epochs[producer],
            draw.random() < 0.5,
            self.coordinator_epoch,
            version,
        )
        self.deliver(marker)
        if draw.random() < 0.1:
            self.deliver(replace(marker, coordinator_epoch=self.coordinator_epoch - 1))

    def compare(self) -> None:
        log, model = self.log, self.model
        assert log.bounds == (model.start, model.end, model.stable)
        for committed in (True, False):
            assert log.read(committed=committed)[0] == model.visible(committed)
        begin = self.draw.randrange(model.end + 1)
        expected = [item for item in model.visible(True) if item[0] >= begin]
        assert log.read(begin)[0] == expected
        at, pieces, most = begin, [], self.draw.randrange(1, 4)
        while max(at, model.start) < model.stable:
            piece, at = log.read(at, most=most)
            pieces += piece
        assert pieces == expected


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(60))
def test_a_partition_is_its_model(seed: int, version: int) -> None:
    run = Run(seed, version)
    stable = 0
    for _ in range(90):
        run.step()
        run.compare()
        assert run.model.start <= run.log.stable >= stable
        stable = run.log.stable
    numbers = [
        (w.producer, w.epoch, w.sequence + i) for w in run.model.written for i in range(w.records)
    ]
    assert len(numbers) == len(set(numbers)), "a number of an epoch is written once"


@pytest.mark.parametrize("version", [1, 2])
def test_the_runs_come_by_what_they_are_for(version: int) -> None:
    """If the runs reached too few states, the comparison would prove little."""
    counts: Counter[str] = Counter()
    for seed in range(30):
        run = Run(seed, version)
        for _ in range(90):
            run.step()
        counts += run.answers
        counts["committed"] += sum(run.model.outcomes.values())
        counts["aborted"] += len(run.log.index())
        counts["open"] += run.model.transactions - len(run.model.outcomes)
        counts["trimmed"] += run.model.start
    expected = "committed aborted open trimmed duplicate written".split()
    assert min(counts[what] for what in [*expected, ORDER, EPOCH, STATE, FENCED]) >= 10, counts
