"""Tests row `shared`: its worlds, the judge on wrong states, planted bugs, and calls that block."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from planstep.bench.proof.rows import shared as row
from planstep.bench.proof.rows.registry import RowOptions, RowResult
from planstep.bench.proof.simulator.acting import DOWN, UP
from planstep.bench.proof.simulator.bucket import NONE, Bucket
from planstep.bench.proof.simulator.fiber import Fiber, FiberLock, Killed, current
from planstep.bench.proof.simulator.shared_world import SharedWorld
from planstep.bench.proof.worlds.mutants.mutant import Mutant, function_of, mutate
from planstep.bench.proof.worlds.replicated.history import History
from planstep.bench.proof.worlds.replicated.kafka import play_kafka
from planstep.bench.proof.worlds.replicated.planted import BY_NAME, PLANTED
from planstep.bench.proof.worlds.replicated.seed import SharedWorkloads, play, until_up
from planstep.bench.proof.worlds.replicated.swarm import draw_settings
from planstep.coordinator.plan import ABORTED, COMMITTED
from planstep.errors import IoError
from planstep.proto.ids import COORDINATOR_ID, tablet_prefix
from planstep.proto.messages import PUT, PartitionPart, ShardPart
from planstep.proxy.deterministic import Result
from planstep.shared.entry import BEGIN, NO_CHAIN, TURN, Entry, Owner, seal
from planstep.shared.settings import Replicate
from planstep.store import MemoryStore
from planstep.store.turn import encode_changes

SEEDS = range(1, 7)
TX = b"one of them."


def test_worlds_are_well_and_machines_take_over(tmp_path: Path) -> None:
    reached: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for seed in SEEDS:
        played = play(seed, tmp_path)
        assert played.violations == []
        reached += played.reached
        faults += played.faults
    assert reached["terms"] > 12 and reached["turns"] > 100
    assert reached["snapshot made"] and reached["restored"] and reached["read confirmed"]
    assert len(faults) > 10
    assert [*tmp_path.iterdir()] == []


def test_the_same_seed_plays_the_same_way(tmp_path: Path) -> None:
    assert play(3, tmp_path, 60) == play(3, tmp_path, 60) != play(4, tmp_path, 60)


def test_worlds_of_mode_kafka_are_well_and_machines_take_over(tmp_path: Path) -> None:
    reached: Counter[str] = Counter()
    for seed in (6, 12, 18):
        played = play_kafka(seed, tmp_path, 40)
        assert played.violations == []
        reached += played.reached
    assert reached["terms"] > 3 and reached["turns"] > 100


def test_the_same_seed_of_mode_kafka_plays_the_same_way(tmp_path: Path) -> None:
    assert play_kafka(12, tmp_path, 20) == play_kafka(12, tmp_path, 20)


# the judge ----------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.faulted: Counter[str] = Counter()

    def of_world(self, delay_ms: float, call: object, *args: object) -> None:
        raise AssertionError("nothing is late here")

    def wait(self, ms: float) -> None:
        pass


def slot(turn: int) -> str:
    return f"log/{turn:020d}"


def entry(
    turn: int, before: bytes = NO_CHAIN, kind: int = TURN, rows: dict[bytes, object] | None = None
) -> Entry:
    changes = encode_changes({b"k%d" % turn: (turn,)} if rows is None else rows)
    return seal(kind, bytes(16), Owner(1, bytes(16)), turn, before, 0, changes=changes)


@pytest.fixture
def bucket() -> Bucket:
    return Bucket(Clock(), random.Random(1))


def written(bucket: Bucket, history: History) -> tuple[Entry, Entry]:
    first = entry(1, kind=BEGIN)
    second = entry(2, first.chain)
    bucket.create(slot(2), second.data)
    assert history.entries == []
    bucket.create(slot(1), first.data)
    assert [one.turn for one in history.entries] == [1, 2] and history.wrong == []
    return first, second


def test_a_slot_keeps_what_it_had(bucket: Bucket) -> None:
    history = History(bucket)
    first, second = written(bucket, history)
    for data in (second.data, entry(2, first.chain, BEGIN).data):
        del bucket.objects[slot(2)]
        bucket.create(slot(2), data)
    assert (history.again, history.voids) == (1, 0)
    (text,) = history.wrong
    assert text == "J1: slot 2 has held another entry before"
    bucket.create(f"floor/{3:020d}", b"")
    del bucket.objects[slot(2)]
    bucket.create(slot(2), entry(2, first.chain, BEGIN).data)
    assert history.voids == 1 and len(history.wrong) == 1


def test_a_turn_that_does_not_follow_is_noticed(bucket: Bucket) -> None:
    history = History(bucket)
    written(bucket, history)
    bucket.create(slot(3), entry(3, bytes(range(16))).data)
    assert history.wrong == ["J1: turn 3 does not follow the turns before it"]


@pytest.mark.parametrize(
    ("row_there", "wrong"),
    [
        (None, True),
        ((ABORTED, 4, 1, 0, ()), True),
        ((COMMITTED, 4, 2, 0, ()), True),
        ((COMMITTED, 4, 1, 0, ()), False),
    ],
)
def test_what_is_told_committed_is_in_the_history(
    bucket: Bucket, row_there: object, wrong: bool
) -> None:
    history = History(bucket)
    rows = {} if row_there is None else {tablet_prefix(COORDINATOR_ID) + b"o" + TX: row_there}
    bucket.create(slot(1), entry(1, kind=BEGIN, rows=rows).data)
    history.answered(Result(TX, step=4, n=1))
    history.answered(Result(TX, reason=(0, "failed")))
    assert len(history.wrong) == wrong


def test_a_folder_is_a_prefix(bucket: Bucket) -> None:
    history = History(bucket)
    written(bucket, history)
    store = MemoryStore()
    assert list(history.folder(store, "it")) == []
    for key, wrong in ((b"k1", []), (b"k2", []), (b"k3", ["J3: it has turn 3"])):
        turn = store.begin()
        turn.put(key, (int(key[1:]),))
        store.commit(turn)
        found = list(history.folder(store, "it"))
        assert len(found) == len(wrong) and all(text in found[0] for text in wrong)
    other = MemoryStore()
    turn = other.begin()
    turn.put(b"k1", (7,))
    other.commit(turn)
    assert "J3: it is no prefix of the history at turn 1" in next(history.folder(other, "it"))


# machines ----------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SharedWorld]:
    world = SharedWorld(1, tmp_path, 2, Replicate("file:///bucket"))
    with world.real_calls():
        world.act(None)
        world.open(world.machines[0], takeover=False)
        until_up(world)
        yield world


def test_a_frozen_machine_goes_on_as_soon_as_it_is_spared(world: SharedWorld) -> None:
    machine = world.machines[0]
    seen: list[int] = []
    machine.frozen_until = world.now + 3_000
    with world.at(machine):
        for number in range(3):
            world.after(1.0, seen.append, number)
    world.pass_ms(10)
    assert seen == []
    world.heal()
    world.pass_ms(1)
    assert seen == [0, 1, 2]


def test_no_client_goes_on_from_what_a_closing_engine_withdraws(world: SharedWorld) -> None:
    machine = world.machines[0]
    begun = []
    with world.at(machine):
        work = SharedWorkloads(world, draw_settings(1, 10))
        tablet = work.at.inputs[0]
        pieces = [{tablet: (number, ((b"ahead", 1),))} for number in range(2)]
        commit = {tablet: PartitionPart(slices=((b"last", 1),), staged=2)}
        world.bucket.ways = replace(NONE, slow=1.0)
        begun.append(world.commit_ahead(pieces, commit))
        world.task(world.close, machine)
        while machine.status == UP:
            begun.append(world.commit_ahead(pieces, commit))
            world.pass_ms(20)
    assert len(begun) > 3
    reasons = [world.results[tx].reason for tx in begun if tx in world.results]
    assert not any(reason and "lost" in reason for reason in reasons)


def test_an_engine_closes_though_its_last_write_fails(world: SharedWorld) -> None:
    machine = world.machines[0]
    with world.at(machine):
        log = world.stores[0]._log
        write_close = log.write_close

        def fail() -> None:
            machine.files.failing = IoError("made to fail")
            write_close()

        log.write_close = fail
        world.task(world.close, machine)
        world.pass_ms(1_000)
        assert world.stores == [] and machine.status == DOWN
        assert machine.files.failing is None


def test_a_write_that_fails_before_the_append_fails_its_turn_alone(
    world: SharedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise IoError("made to fail before it is sent")

    with world.at(world.machines[0]):
        work = SharedWorkloads(world, draw_settings(1, 10))
        put = {work.at.shards[0]: ShardPart(writes=((b"k", PUT, b"v"),))}
        log = world.stores[0]._log
        with monkeypatch.context() as patched:
            patched.setattr(log, "append", fail)
            first = world.commit(put)
            world.pass_ms(20)
        second = world.commit(put)
        world.pass_ms(100)
        assert world.results[first].reason == (0, "failed")
        assert world.results[second].reason is None


# planted bugs, and the row ------------------------------------------------------------------------


@pytest.mark.parametrize("mutant", [one.mutant for one in PLANTED], ids=lambda mutant: mutant.name)
def test_a_planted_bug_fits_the_source(mutant: Mutant) -> None:
    assert mutate(mutant) != function_of(mutant).__code__


@pytest.mark.parametrize(
    "name",
    ["exists-is-mine", "overwriting-puts", "acknowledged-first", "local-first", "ids-reused"],
)
def test_a_planted_bug_is_noticed(tmp_path: Path, name: str) -> None:
    result = row._hunt(tmp_path, row.Hunt(name, 1))
    assert not result.violations and {*result.figures["tried"]} == {name}


def test_the_row_plays_seeds_and_plants_bugs(
    options: RowOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["exists-is-mine", "ids-reused"]
    monkeypatch.setattr(row, "QUICK_SEEDS", 3)
    monkeypatch.setattr(row, "BY_NAME", {name: BY_NAME[name] for name in names})
    result = row.run(replace(options, row="shared"))
    assert result.violations == []
    assert (result.runs, result.seeds) == (3, (1, 3))
    assert result.figures["planted and caught"] == "2 of 2"
    assert result.events > 1_000


def test_one_seed_is_repeated(options: RowOptions) -> None:
    with BY_NAME["exists-is-mine"].removed():
        result = row.run(replace(options, seed=1, runs=1, row="shared"))
    (text,) = result.violations
    assert text.startswith("seed 1, mode deterministic: J")
    assert text.endswith("again: planstep check shared --seed 1 --runs 1")


def test_the_control_needs_every_bug(options: RowOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["exists-is-mine", "ids-reused"]
    monkeypatch.setattr(row, "BY_NAME", {name: BY_NAME[name] for name in names})
    result = row.control(options)
    assert len(result.violations) == result.runs == 2
    monkeypatch.setattr(row, "TRIED_MAX", 1)
    harmless = BY_NAME["ids-reused"]._replace(said=("nothing that is ever said",))
    monkeypatch.setattr(row, "BY_NAME", {"ids-reused": harmless})
    result = row.control(options)
    assert result.violations == [] and result.figures["not_noticed"] == ["ids-reused"]


def test_a_full_run_has_to_come_to_all(
    options: RowOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row, "gather", lambda *_: RowResult(row.SEEDS, figures=_nothing()))
    result = row.run(options)
    assert any("faults 'machine killed'" in text for text in result.violations)
    assert any("no seed has come to it: restored" in text for text in result.violations)


def _nothing() -> dict[str, Counter[str]]:
    return {"reached": Counter(), "tried": Counter()}


# calls that block ---------------------------------------------------------------------------------


def test_a_fiber_pauses_and_goes_on() -> None:
    seen: list[object] = []

    def call(word: str) -> None:
        seen.append(current())
        fiber.pause()
        seen.append(word)

    fiber = Fiber(call, "done")
    fiber.resume()
    assert seen == [fiber] and not fiber.done and current() is None
    fiber.resume()
    fiber.resume()
    assert seen[1:] == ["done"] and fiber.done


def test_a_fiber_that_is_killed_unwinds_and_says_nothing() -> None:
    seen: list[str] = []

    def call() -> None:
        try:
            fiber.pause()
        except Killed:
            seen.append("killed")
            with pytest.raises(Killed):
                fiber.pause()
            raise ValueError("made of it") from None

    fiber = Fiber(call)
    fiber.resume()
    fiber.kill()
    never = Fiber(call)
    never.kill()
    assert seen == ["killed"] and fiber.done and never.done


def test_an_error_of_a_fiber_is_raised_in_the_world() -> None:
    def call() -> None:
        raise ValueError("an error")

    with pytest.raises(ValueError, match="an error"):
        Fiber(call).resume()


def test_a_lock_of_fibers_waits_in_their_time() -> None:
    waited: list[float] = []
    lock = FiberLock(waited.append)
    with lock:
        assert lock.locked()
        assert not lock.acquire(blocking=False)
        assert not lock.acquire(timeout=0.005)
    assert sum(waited) >= 5 and not lock.locked()
    assert lock.acquire()
    lock.release()
    with pytest.raises(AssertionError):
        lock.release()
