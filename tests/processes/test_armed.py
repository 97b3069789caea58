"""Tests what a link's own thread waits for, by epoll and by what other systems have."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from process_kit import Other

import planstep
from planstep.runtime.processes import awake
from planstep.runtime.processes.armed import Armed, BySelector, Poller, new_poller
from planstep.runtime.processes.awake import Awake
from planstep.runtime.processes.nudge import Nudge


class Scene:
    """A socket with its other end, and who waits for it."""

    def __init__(self, poller: Poller) -> None:
        self.near, self.far = socket.socketpair()
        self.nudge = Nudge()
        self.writes = False
        self.armed = Armed(self.nudge, lambda: self.writes, poller)
        self.armed.use(self.near)

    def nudged(self) -> bool:
        """Waits, as a nudge comes in any case."""
        self.nudge.set()
        return self.armed.wait()

    def close(self) -> None:
        self.armed.close()
        self.nudge.close()
        self.near.close()
        self.far.close()


@pytest.fixture(params=[new_poller, BySelector])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    scene = Scene(request.param())
    yield scene
    scene.close()


def test_a_socket_is_waited_for_while_it_is_armed(scene: Scene) -> None:
    scene.far.send(b"1")
    assert not scene.nudged()
    scene.armed.arm()
    assert scene.armed.wait()  # without a nudge: what came before it was armed counts
    scene.armed.disarm()
    assert not scene.nudged()


def test_it_is_armed_while_another_thread_waits(scene: Scene) -> None:
    found: list[bool] = []
    waiter = threading.Thread(target=lambda: found.append(scene.armed.wait()))
    waiter.start()
    scene.far.send(b"1")
    scene.armed.arm()
    waiter.join()
    assert found == [True]


def test_a_writable_socket_ends_the_wait_only_while_something_is_to_be_written(
    scene: Scene,
) -> None:
    scene.writes = True
    scene.armed.look()
    assert not scene.armed.wait()  # it came without a nudge, and is not readable
    scene.writes = False
    scene.armed.look()
    scene.armed.arm()
    scene.far.send(b"1")
    assert scene.armed.wait()


def test_a_socket_that_has_ended_is_left(scene: Scene) -> None:
    scene.armed.arm()
    scene.far.close()
    assert scene.armed.wait()
    scene.armed.use(None)
    assert not scene.nudged()
    near, far = socket.socketpair()
    with near, far:
        scene.armed.use(near)  # still armed
        far.send(b"1")
        assert scene.armed.wait()
        scene.armed.use(None)


# waits without sleeping --------------------------------------------------------------------------


class Looks:
    """Counts looks, and finds something at the given one of each wait, else when it sleeps."""

    def __init__(self, awake: Awake, at: int | None) -> None:
        self.awake, self.at = awake, at
        self.slept = 0

    def wait(self, seconds: float | None = None) -> bool:
        """Waits once; returns whether it looked without sleeping."""
        looked = slept = 0

        def look(timeout: float | None) -> list[int]:
            nonlocal looked, slept
            if timeout == 0:
                looked += 1
                return [1] if looked == self.at else []
            slept += 1
            assert timeout == seconds
            return [2]

        found = self.awake.wait(look, seconds)
        assert found == ([2] if slept else [1]) and slept <= 1
        return looked > 0


@pytest.fixture
def processors(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda count: monkeypatch.setattr(awake, "_processors", lambda: count)


def test_it_stays_awake_as_long_as_that_pays(processors: Callable[[int], None]) -> None:
    processors(2)
    looks = Looks(Awake(), at=1)
    assert all(looks.wait() for _ in range(100))
    looks.at = None
    assert looks.wait()
    for sleeps in (16, 32, 64, 64):
        assert [looks.wait() for _ in range(sleeps + 1)] == [False] * sleeps + [True]
    for _ in range(64):
        assert not looks.wait()
    looks.at = 1
    assert all(looks.wait() for _ in range(100))
    looks.at = None
    assert looks.wait()
    assert [looks.wait() for _ in range(17)] == [False] * 16 + [True]


def test_it_sleeps_for_short_waits_and_with_one_processor(
    processors: Callable[[int], None],
) -> None:
    processors(2)
    assert not Looks(Awake(), at=1).wait(0.0001)
    processors(1)
    assert not Looks(Awake(), at=1).wait()


# a connection that ends --------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["_own.use", "_unanswered.lost"])
def test_a_connection_has_ended_before_the_own_thread_goes_on_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A thread that sends finds out first, and is slow."""
    with Other(tmp_path / "s") as owner, planstep.open(tmp_path / "s") as db:
        owner.run("db.create_topic('t')")
        link: Any = db.context.runtime.link
        holder, name = getattr(link, what.split(".")[0]), what.split(".")[1]
        call, ended = getattr(holder, name), link._socket

        def late(*given: Any) -> Any:
            link._awake.set()
            patience = time.monotonic() + 0.5
            while link._socket is ended and time.monotonic() < patience:
                time.sleep(0.001)
            return call(*given)

        def ends() -> None:
            monkeypatch.setattr(holder, name, late)
            raise BrokenPipeError

        monkeypatch.setattr(link._output, "send", ends)
        for n in range(20):
            tx = db.transaction()
            tx.write("t", b"%d" % n)
            assert tx.submit().result(60)
        assert link._socket is not ended and len(db.topic("t").read()) == 20
