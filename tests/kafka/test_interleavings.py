"""Tests producers that share transactional ids, in random interleavings with loss, repeats, time and restarts.

Invariants: each identity is given to one producer only; an older identity gets nothing done; a decision never
changes; the log's states follow each other as the table allows; once everything heals nothing is left open.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
from coordinator_kit import Coordinator, P

from planstep.coordinator.kafka.states import (
    CAME_FROM,
    EPOCH_MAX,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
)
from planstep.proto.batched_log import decode_entry
from planstep.proto.kafka.messages import Marker
from planstep.proto.shell import Answer

NAMES = ("a", "b")
DECIDED = {PREPARE_COMMIT: True, PREPARE_ABORT: False}


class Producer:
    """An incarnation of a producer; it sends one request at a time, and repeats it at random."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.identity: tuple[int, int] | None = None
        self.dead = False
        self.waits = False


class World:
    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.version = 1 + seed % 2
        self.c = Coordinator(protocol_version=self.version, log_batching=seed % 4 > 1)
        self.c.tablet.begin()
        self.producers = [Producer(self.draw.choice(NAMES)) for _ in range(5)]
        self.newest: dict[str, tuple[int, int]] = {}
        """By name: the last identity given; an older one must get nothing done."""
        self.owner: dict[tuple[int, int], Producer] = {}
        self.markers: list[tuple[int, Marker]] = []
        self.decisions: dict[tuple[str, int, int, int], bool] = {}
        self.requests: dict[int, tuple[Producer, Callable[[Answer], None]]] = {}
        self.near_the_end = seed % 3 == 0

    # the producers ---------------------------------------------------------------------------

    def identify(self, producer: Producer, answer: Answer, goes_on: bool) -> None:
        if answer.error in ("PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING"):
            producer.dead = True
        elif not answer.error:
            owner = self.owner.setdefault(answer.value, producer)
            assert owner is producer, f"{answer.value} was given twice"
            newest = self.newest.get(producer.name)
            assert newest is None or newest <= answer.value, "identities rise"
            self.newest[producer.name] = producer.identity = answer.value

    def done(self, producer: Producer, identity: tuple[int, int], answer: Answer) -> None:
        if not answer.error:
            assert self.newest[producer.name] == identity, "an older identity got something done"
        elif answer.error in ("PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING"):
            producer.dead = True

    def ended(self, producer: Producer, identity: tuple[int, int], answer: Answer) -> None:
        self.done(producer, identity, answer)
        if not answer.error and answer.value != identity:
            assert self.version == 2
            self.identify(producer, answer, True)

    def act(self) -> None:
        producer = self.draw.choice(self.producers)
        if producer.waits:
            return
        if producer.dead:
            self.producers.remove(producer)
            self.producers.append(Producer(self.draw.choice(NAMES)))
            return
        c, name, own = self.c, producer.name, producer.identity
        if own is None or self.draw.random() < 0.15:
            c.init(name, self.draw.choice((50, 60_000)), *(own or (-1, -1)))
            self.ask(producer, lambda answer: self.identify(producer, answer, own is not None))
        elif self.draw.random() < 0.6:
            c.add(*own, *self.draw.sample(P, 2), name=name)
            self.ask(producer, lambda answer: self.done(producer, own, answer))
        else:
            c.end(*own, self.draw.random() < 0.6, self.version, name=name)
            self.ask(producer, lambda answer: self.ended(producer, own, answer))

    def ask(self, producer: Producer, then: Callable[[Answer], None]) -> None:
        producer.waits = True
        self.requests[self.c.requests] = producer, then

    def answers(self) -> None:
        """Delivers answers in the order in which they were given, which tells the order of requests."""
        for answer in self.c.drain(Answer):
            producer, then = self.requests.pop(answer.request)
            producer.waits = False
            then(answer)

    # everything else -------------------------------------------------------------------------

    def collect(self) -> None:
        markers = self.c.markers()
        for marker, tablet in zip(markers, self.c.targets, strict=True):
            row = self.c.row(marker.name)
            which = marker.name, marker.producer, marker.epoch, row.start_ms
            assert self.decisions.setdefault(which, marker.commit) == marker.commit
            if self.draw.random() < 0.8:  # otherwise lost
                self.markers.append((tablet, marker))

    def deliver(self) -> None:
        if self.markers:
            tablet, marker = self.draw.choice(self.markers)
            if self.draw.random() < 0.7:  # otherwise repeated
                self.markers.remove((tablet, marker))
            error = self.draw.choice(("", "", "", "KAFKA_STORAGE_ERROR"))
            self.c.mark(marker, tablet, error)

    def restart(self) -> None:
        self.check_log()
        self.c.restart()
        self.requests.clear()
        for producer in self.producers:
            producer.waits = False  # asks anew in any case
        for name in NAMES:
            # An answer under way may be lost: the row may be ahead of the answers.
            row = self.c.row(name)
            if row is not None and self.near_the_end and row.epoch < EPOCH_MAX - 9:
                if row.state not in (ONGOING, *PREPARED):
                    self.c.force(name, epoch=EPOCH_MAX - 4)

    def turn(self) -> None:
        """Does one random thing; one delivery in twenty is undone, as by a failed turn."""
        what = self.draw.choices(
            (self.act, self.deliver, lambda: self.c.wait(self.draw.choice((1, 30, 400)))),
            weights=(10, 5, 3),
        )[0]
        if what == self.deliver and self.draw.random() < 0.05:
            rows, mark = dict(self.c.keys.rows), self.c.tablet.mark()
            sent, timers = [*self.c.shell.sent], [*self.c.shell.timers]
            markers = [*self.markers]
            what()
            self.c.keys.rows, self.markers = rows, markers
            self.c.shell.sent, self.c.shell.timers = sent, timers
            self.c.tablet.undo(mark)
        else:
            what()
        self.answers()
        self.collect()

    def check_log(self) -> None:
        """Checks that the states of each id in the log follow each other as the table allows."""
        last: dict[str, Any] = {}
        for _, entry in self.c.keys.scan(b"l", b"m"):
            for name, *state in decode_entry(entry):
                if state == [None]:
                    last.pop(name)
                    continue
                before = last.get(name)
                assert before is None or before[2] in CAME_FROM[state[2]], (before, state)
                if before is not None and before[2] in DECIDED:
                    assert state[2] == before[2] + 2, "decided otherwise"
                last[name] = state
        for name, state in last.items():
            row = self.c.row(name)
            assert row is None or self.near_the_end or list(row.logged()) == state

    def heal(self) -> None:
        for _ in range(4):
            self.c.wait(500)
            self.c.mark_all()
        self.c.wait(500, only="flush")
        for name in NAMES:
            row = self.c.row(name)
            assert row is None or row.state not in PREPARED, row
        assert not self.c.tablet.markers.ending and not self.c.tablet.rows.pending


@pytest.mark.parametrize("seed", range(48))
def test_random_interleavings(seed: int) -> None:
    world = World(seed)
    for _ in range(4):
        for _ in range(60):
            world.turn()
        world.restart()
        world.collect()
    world.heal()
    world.check_log()


@pytest.mark.parametrize("epoch", [0, EPOCH_MAX - 2, EPOCH_MAX - 1])
def test_many_that_go_on_from_one_epoch_have_one_winner(epoch: int) -> None:
    c = Coordinator(log_batching=True)
    c.init()
    c.tablet.rows.log.flush()
    c.force(epoch=epoch)
    requests = []
    for _ in range(5):
        c.init(producer=0, epoch=epoch)
        requests.append(c.requests)
    c.tablet.rows.log.flush()
    answers = [c.answer(request) for request in requests]
    identity = (1, 0) if epoch == EPOCH_MAX - 1 else (0, epoch + 1)
    assert [(a.error, a.value) for a in answers if a] == [
        ("", identity),
        *[("CONCURRENT_TRANSACTIONS", None)] * 4,
    ]


def test_many_new_producers_have_one_winner_each_time() -> None:
    c = Coordinator(log_batching=True)
    for epoch in range(4):
        requests = []
        for _ in range(5):
            c.init()
            requests.append(c.requests)
        c.tablet.rows.log.flush()
        identities = [a.value for request in requests if (a := c.answer(request)) and not a.error]
        assert identities == [(0, epoch)]
