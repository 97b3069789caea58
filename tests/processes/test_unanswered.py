"""Tests what an attached process hands in again: a machine against owners that die at any moment, and a model."""

from collections import Counter
from random import Random

import pytest

from planstep.proxy.attached import Attached, Unanswered


class World:
    """An attached process, and owners of a store one after the other.

    The model: `open` has the commits and stages that the process waits for, `reached` those that an owner may have.
    `done` is the store: an owner does a commit that is not there.
    """

    def __init__(self, seed: int, *, looks: bool = True) -> None:
        self.random = Random(seed)
        self.looks = looks
        self.machine = Attached(1)
        self.generation = 1
        self.count = 0
        self.line: list[Unanswered | bytes] = []
        self.answers: list[bytes] = []
        self.done: Counter[bytes] = Counter()
        self.order: list[bytes] = []
        self.alive = True
        self.heard = True  # the process has not noticed the owner's end
        self.open: dict[bytes, bool] = {}  # → it is a commit
        self.reached: set[bytes] = set()
        self.answered: Counter[bytes] = Counter()
        self.failed: set[bytes] = set()

    def tx(self) -> bytes:
        self.count += 1
        return self.count.to_bytes(12, "big")

    def step(self) -> None:
        self.random.choice(
            [
                self.send,
                self.send,
                self.stage,
                self.serve,
                self.serve,
                self.hear,
                self.hear,
                self.end,
                self.next,
            ]
        )()
        commits = [tx for tx, is_commit in self.open.items() if is_commit]
        stages = [tx for tx, is_commit in self.open.items() if not is_commit]
        assert self.machine.unanswered == [*stages, *commits]

    def send(self) -> None:
        tx = self.tx()
        now = self.machine.sent(tx, {}, 7)
        assert now == self.heard
        self.open[tx] = True
        if now:
            self.give(Unanswered(tx, {}, 7, False))

    def give(self, item: Unanswered | bytes) -> None:
        self.line.append(item)
        if isinstance(item, Unanswered):
            self.reached.add(item.tx)

    def stage(self) -> None:
        tx = self.tx()
        if self.machine.staged(tx):
            assert self.heard
            self.open[tx] = False
            self.give(tx)
        else:
            assert not self.heard

    def serve(self) -> None:
        """The owner does one that has reached it, in a turn that is durable before anything is answered."""
        if not (self.alive and self.line):
            return
        item = self.line.pop(0)
        if isinstance(item, bytes):
            self.answers.append(item)
            return
        assert item.again or not self.done[item.tx] or not self.looks, (
            "one that may be done is said to be new"
        )
        if not (self.looks and item.again and self.done[item.tx]):
            self.done[item.tx] += 1
            self.order.append(item.tx)
        self.answers.append(item.tx)

    def hear(self) -> None:
        if self.answers and self.heard:
            tx = self.answers.pop(0)
            assert self.machine.answered(tx)
            assert not self.machine.answered(tx), "an answer counts once"
            del self.open[tx]
            self.answered[tx] += 1

    def end(self) -> None:
        """The owner dies, or only the link breaks; the process notices it sooner or later."""
        if self.alive:
            self.alive = False
            self.line = self.line[: self.random.randint(0, len(self.line))]
            if self.random.random() < 0.5:  # it gets to the rest of what had reached it
                self.alive = True
                while self.line:
                    self.serve()
                self.alive = False
        elif self.heard:
            while self.answers and self.random.random() < 0.5:
                self.hear()
            self.lose()

    def lose(self) -> None:
        self.heard = False
        self.line, self.answers = [], []
        ended = self.machine.lost()
        assert ended == [tx for tx, is_commit in self.open.items() if not is_commit]
        for tx in ended:
            del self.open[tx]
            self.failed.add(tx)

    def next(self) -> None:
        if self.heard:
            return
        self.generation += self.random.randint(0, 2)
        again = self.machine.resumed(self.generation)
        assert [one.tx for one in again] == list(self.open), "all that is not answered, in order"
        assert all(one.again == (one.tx in self.reached) for one in again)
        self.alive = self.heard = True
        for one in again:
            self.give(one)

    def finish(self) -> None:
        """Goes on with a living owner until all is answered."""
        if not self.alive and self.heard:
            self.lose()
        self.next()
        while self.open:
            self.serve()
            self.hear()


@pytest.mark.parametrize("seed", range(200))
def test_each_commit_is_done_and_answered_once(seed: int) -> None:
    world = World(seed)
    for _ in range(world.random.randint(1, 300)):
        world.step()
    world.finish()
    commits = set(world.done)
    assert set(world.done.values()) <= {1}
    assert set(world.answered) >= commits and set(world.answered.values()) <= {1}
    assert len(world.answered) + len(world.failed) <= world.count
    assert world.order == sorted(world.order), "in the order in which they were sent"
    assert not world.machine.unanswered


def test_owners_that_do_not_look_do_some_twice() -> None:
    twice = 0
    for seed in range(50):
        world = World(seed, looks=False)
        for _ in range(200):
            world.step()
        world.finish()
        twice += max(world.done.values(), default=0) > 1
    assert twice > 40


def test_one_request_of_a_transaction_at_a_time() -> None:
    machine = Attached(1)
    assert machine.staged(b"a") and machine.answered(b"a")
    assert machine.sent(b"a", {})
    with pytest.raises(AssertionError):
        machine.sent(b"a", {})
    with pytest.raises(AssertionError):
        machine.staged(b"a")


def test_generations_never_go_back() -> None:
    machine = Attached(3)
    with pytest.raises(AssertionError):
        machine.resumed(4)  # nothing was lost
    assert machine.lost() == []
    with pytest.raises(AssertionError):
        machine.resumed(2)
    assert machine.resumed(3) == [], "the same owner, over another link"
