"""Tests an engine that becomes the owner of its store in place of a process that was killed."""

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kit import Child, background, until
from process_kit import Other

import planstep
from planstep.errors import Corruption, EngineClosed, OwnedElsewhere, ProtocolError, StoreInUse
from planstep.host.inputs import CommitAgain
from planstep.proto.ids import tx_id, tx_text
from planstep.runtime import change_of_owner, open_stores
from planstep.runtime.change_of_owner import become_owner
from planstep.runtime.consistent_cut import open_views
from planstep.runtime.group_commit import Waiter
from planstep.runtime.open_stores import OpenOptions
from planstep.runtime.wait_primitives import CommitFuture
from planstep.store import DiskStore
from planstep.store.owner_lock import OwnerLock
from planstep.store.readers.released_mark import read_mark

OWNER = """
import os, pickle, signal, sys, planstep
from planstep.store import DiskStore

db = planstep.open(sys.argv[1], hosts=int(sys.argv[2]), replicate=sys.argv[3] or None)
db.create_topic("in", partitions=4, exist_ok=True)
db.create_table("t", shards=3, exist_ok=True)
print("open", flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "commit":
        for n in range(int(words[1]), int(words[2])):
            with db.transaction() as tx:
                tx.put("t", f"k{n % 50}", n)
                tx.put("t", "last", n)
                tx.write("in", b"%d" % n, partition=n % 4)
    elif words[0] == "checkpoint":
        for node in db._runtime.nodes:
            node.host.store.checkpoint()
    elif words[0] == "die":  # with a turn that is durable, and that nobody was shown
        DiskStore._visible = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        db.table("t").put("last", "unseen")
    elif words[0] == "stage":
        tx = db.transaction()
        tx.write("in", b"s" * 2000, partition=1)
        tx.flush()
        print(tx.id, end=" ")
    elif words[0] == "submit":  # of another process; it hears nothing
        for n, (tx, parts) in enumerate(pickle.loads(bytes.fromhex(words[1]))):
            future = db._runtime.transactions.submit(tx, parts)
            if n % 4 == 3:
                future.result()
    print(db._runtime.generation, flush=True)
"""
HOSTS = [pytest.param(1, id="one host"), pytest.param(3, id="three hosts")]


class Owner(Child):
    """The owner of a store, in another process."""

    def __init__(self, path: Path, hosts: int = 1, replicate: str = "") -> None:
        super().__init__(OWNER, path, hosts, replicate)
        assert self.line() == "open"

    def ask(self, *words: object) -> str:
        self.tell(" ".join(map(str, words)))
        return self.line()


Attach = Callable[[Path], planstep.Engine]


def newest_turn(db: Any) -> int:
    """Returns the newest turn of host 0 that its owner shows."""
    while True:
        with suppress(EngineClosed):  # a newer view has just taken the place of this one
            turn: int = db._runtime.nodes[0].host.store.mark().turn
            return turn


@pytest.fixture
def attach(monkeypatch: pytest.MonkeyPatch) -> Iterator[Attach]:
    """Opens a store that another process owns, so that this one may become the owner."""
    opened: list[planstep.Engine] = []

    def attach(path: Path) -> planstep.Engine:
        with monkeypatch.context() as patched:
            patched.setattr(open_stores, "open_views", partial(open_views, ownable=True))
            db = planstep.open(path, read_only=True)
        db.context.settings = replace(db.context.settings, read_only=False)
        opened.append(db)
        return db

    yield attach
    for db in opened:
        db.close()


def own(db: planstep.Engine, wait: float = 10, **options: Any) -> None:
    path = Path(db.path)
    lock = OwnerLock(path / "host-0" / "lock", wait, share=True)
    become_owner(db._runtime, path, lock, OpenOptions(**options))


def rows(db: planstep.Engine) -> dict[Any, Any]:
    with db.snapshot() as snap:
        return dict(snap.scan("t"))


@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("checkpointed", [False, True])
def test_an_engine_goes_on_as_the_owner(
    tmp_path: Path, attach: Attach, hosts: int, checkpointed: bool
) -> None:
    with Owner(tmp_path / "s", hosts) as owner:
        owner.ask("commit", 0, 70)
        if checkpointed:
            owner.ask("checkpoint")
        db = attach(tmp_path / "s")
        before, old = rows(db), db.snapshot()
        records = old.read("in").values
        generation = int(owner.ask("commit", 70, 100))
        with pytest.raises(StoreInUse):
            own(db, wait=0)
        owner.kill()
        own(db)
    assert before["last"] == 69
    assert rows(db)["last"] == 99
    assert db._runtime.generation > generation
    ids = []
    for n in range(100, 130):
        with db.transaction() as tx:
            tx.put("t", "last", n)
            tx.write("in", b"%d" % n, partition=n % 4)
        ids.append(tx.id)
    assert len(set(ids)) == 30 and all(id.startswith(f"{db._runtime.generation}-") for id in ids)
    db.create_table("more")
    db.table("more").put("k", 1)
    assert db.topic("in").read(partition=1)[-1].value == b"129"
    held = rows(db)
    assert dict(old.scan("t")) == before and old.read("in").values == records
    follows = db._runtime.followed
    assert follows is not None and follows._older and follows.pin() is None
    old.close()
    until(lambda: not follows._older)  # nothing is kept for the former owner's content any more
    assert not list((tmp_path / "s").glob("host-*/leases/*"))
    db.close()
    with planstep.open(tmp_path / "s") as again:
        assert rows(again) == held and again.table("more").get("k") == 1
        assert again._runtime.generation == db._runtime.generation + 1
        assert len(again.topic("in").read()) == 130


@pytest.mark.parametrize("hosts", HOSTS)
def test_what_others_staged_is_taken_back(tmp_path: Path, attach: Attach, hosts: int) -> None:
    with Owner(tmp_path / "s", hosts) as owner:
        tx = owner.ask("stage").split()[0]
        db = attach(tmp_path / "s")
        assert staged(db)
        owner.kill()
        own(db)
    db.topic("in").write(b"x", partition=1)
    until(lambda: not staged(db))
    assert db.outcome(tx).state in ("unknown", "refused")
    assert [record.value for record in db.topic("in").read()] == [b"x"]


def staged(db: planstep.Engine) -> list[Any]:
    return [one for node in db._runtime.nodes for one in node.host.staged_before(1 << 31)]


def test_those_that_wait_for_records_get_those_of_the_new_owner(
    tmp_path: Path, attach: Attach
) -> None:
    with Owner(tmp_path / "s") as owner:
        db = attach(tmp_path / "s")
        with background(partial(db.topic("in").read, partition=2, timeout=60)) as (read,):
            until(lambda: db._runtime.turns.watches.watched)
            owner.kill()
            own(db)
            assert not read.done()
            db.topic("in").write(b"x", partition=2)
            assert [record.value for record in read.result(60)] == [b"x"]
        assert not db._runtime.turns.watches.watched


def test_one_that_cannot_become_the_owner_reads_on(tmp_path: Path, attach: Attach) -> None:
    """The lock is free again, for others or for another try."""
    with Owner(tmp_path / "s") as owner:
        owner.ask("commit", 0, 20)
        db = attach(tmp_path / "s")
        owner.kill()
    (segment,) = (tmp_path / "s" / "host-0").glob("log-*")
    data = segment.read_bytes()
    segment.write_bytes(data[:300] + bytes(100) + data[400:])
    for _ in range(2):
        with pytest.raises(Corruption):
            own(db)
        assert rows(db)["last"] == 19
    segment.write_bytes(data)
    own(db)
    db.table("t").put("last", 20)
    assert rows(db)["last"] == 20


@pytest.mark.parametrize("taken", [1, 2])
def test_the_locks_of_all_hosts_are_needed(
    tmp_path: Path, attach: Attach, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    monkeypatch.setattr(change_of_owner, "_LOCK_SECONDS", 0.05)
    with Owner(tmp_path / "s", 3) as owner:
        owner.ask("commit", 0, 20)
        db = attach(tmp_path / "s")
        owner.kill()
    lock = OwnerLock(tmp_path / "s" / f"host-{taken}" / "lock")
    with pytest.raises(StoreInUse):
        own(db)
    assert rows(db)["last"] == 19
    lock.close()
    own(db)
    db.table("t").put("last", 20)
    assert rows(db)["last"] == 20


def test_others_see_what_the_next_owner_sees(
    tmp_path: Path, attach: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has a turn that the former owner never showed. All see it from one moment on: looks wait."""
    path = tmp_path / "s"
    run_over, begin = change_of_owner._run_over, DiskStore.begin_to_show
    before: list[Any] = []
    looks: list[Any] = []

    def seen_by_others() -> Any:
        mark = read_mark(path / "host-0" / "released", db._runtime.nodes[0].host.store.store_id)
        return None if mark is None else mark.turn

    def run_over_seen(*arguments: Any, **options: Any) -> None:
        before.extend([seen_by_others() - shown, rows(db)["last"]])
        run_over(*arguments, **options)

    def begin_looked_at(self: DiskStore) -> None:
        begin(self)
        if not looks:
            looks.extend(stack.enter_context(background(partial(rows, db))))
            with pytest.raises(TimeoutError):
                looks[0].result(0.2)

    with Owner(path) as owner, ExitStack() as stack:
        owner.ask("commit", 0, 20)
        db = attach(path)
        owner.tell("die")
        until(lambda: owner.process.poll() is not None)
        shown = seen_by_others()
        monkeypatch.setattr(change_of_owner, "_run_over", run_over_seen)
        monkeypatch.setattr(DiskStore, "begin_to_show", begin_looked_at)
        own(db)
        assert before == [0, 19]
        assert looks[0].result(60)["last"] == rows(db)["last"] == "unseen"


def test_many_kills(tmp_path: Path, attach: Attach) -> None:
    """Each owner is killed amid its commits; all that it acknowledged is there, each once."""
    acknowledged = 0
    random = Random(1)
    for _ in range(6):
        with Owner(tmp_path / "s") as owner:
            db = attach(tmp_path / "s")
            turn = newest_turn(db) + random.randrange(30)
            owner.tell(f"commit {acknowledged} {acknowledged + 400}")
            until(lambda db=db, turn=turn: newest_turn(db) >= turn)
            owner.kill()
            own(db)
        found = [int(record.value) for record in db.topic("in").read()]
        acknowledged = max(found, default=-1) + 1
        assert sorted(found) == list(range(acknowledged))
        if found:
            assert rows(db)["last"] == acknowledged - 1
        with db.transaction() as tx:
            tx.put("t", "last", acknowledged)
            tx.write("in", b"%d" % acknowledged, partition=acknowledged % 4)
        acknowledged += 1
        db.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_replicated_store_gets_a_new_term(tmp_path: Path, attach: Attach, mode: str) -> None:
    """From the same folder, so nothing is taken over from another machine."""
    url = (tmp_path / "log").as_uri()
    with Owner(tmp_path / "s", 1, url) as owner:
        term = int(owner.ask("commit", 0, 30))
        db = attach(tmp_path / "s")
        owner.kill()
        own(db, replicate=planstep.Replicate(url, mode=mode))
    assert db._runtime.generation > term and rows(db)["last"] == 29
    db.table("t").put("last", 30)
    assert db._runtime.stats()["shared_log"]["role"] == "owner"
    db.close()
    with planstep.open(tmp_path / "other", replicate=url) as other:
        assert rows(other)["last"] == 30


def test_a_replicated_store_that_another_machine_has_taken_over(
    tmp_path: Path, attach: Attach
) -> None:
    url = (tmp_path / "log").as_uri()
    with Owner(tmp_path / "s", 1, url) as owner:
        owner.ask("commit", 0, 30)
        db = attach(tmp_path / "s")
        owner.kill()
    with planstep.open(tmp_path / "other", replicate=url, takeover=True) as other:
        other.table("t").put("last", 77)
        with pytest.raises(OwnedElsewhere):
            own(db, replicate=planstep.Replicate(url))
    assert rows(db)["last"] == 77  # the folder has got by then what the shared log had besides
    OwnerLock(tmp_path / "s" / "host-0" / "lock").close()


@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("seed", range(4))
def test_commits_under_way_are_done_once(
    tmp_path: Path, attach: Attach, hosts: int, seed: int
) -> None:
    """Some had reached the owner when it was killed, and some of these had been done."""
    random = Random(seed)
    with Owner(tmp_path / "s", hosts) as owner:
        generation = int(owner.ask("commit", 0, 40))
        db = attach(tmp_path / "s")
        runtime = db._runtime
        commits: list[tuple[bytes, Any]] = []
        for n in range(60):
            tx = db.transaction()
            tx.add("t", "sum", 1)
            tx.write("in", b"mine-%d" % n, partition=random.randrange(4))
            commits.append((tx_id(generation, 10_000 + n), tx.life.contents.parts()))
            tx.rollback()
        reached = random.randint(4, len(commits))
        turn = newest_turn(db)
        owner.tell(f"submit {pickle.dumps(commits[:reached]).hex()}")
        until(lambda: newest_turn(db) > turn + random.randrange(reached // 4))
        owner.kill()
        futures = {tx: CommitFuture() for tx, _ in commits}
        for tx, future in futures.items():
            runtime.replies.waiting[tx] = Waiter(tx, 0, future)
        own(db)
        runtime.turns.hand_in_again([CommitAgain(tx, parts) for tx, parts in commits])
        done: dict[bytes, Any] = {}
        for n, (tx, future) in enumerate(futures.items()):
            try:
                done[tx] = n, future.result(60)
            except ProtocolError as error:  # a host had asked about it before it was handed in
                assert error.retryable and hosts > 1 and db.outcome(tx_text(tx)).state == "refused"
    assert db.table("t").get("sum") == len(done) > 40
    records = {(r.partition, r.offset): r.value for r in db.topic("in").read()}
    assert len(records) == 40 + len(done)
    for tx, (n, commit) in done.items():
        (((_, partition), offsets),) = commit.published.items()
        assert offsets is not None and offsets[1] - offsets[0] == 1
        assert records[partition, offsets[0]] == b"mine-%d" % n
        outcome = db.outcome(tx_text(tx))
        assert (outcome.state, outcome.place) == ("committed", commit.place)
    tx, (_, commit) = done.popitem()
    again = CommitFuture()
    runtime.turns.enqueue_again(CommitAgain(tx, dict(commits)[tx]), again, 0)
    runtime.turns.poke(runtime.nodes[0])
    assert again.result(60).published == commit.published
    assert db.table("t").get("sum") == len(done) + 1
    assert not runtime.replies.waiting and not runtime.admission.bytes


def test_one_that_opens_and_closes_on_and_on_leaves_the_store_to_others(tmp_path: Path) -> None:
    """Its name stands in the lock meanwhile, though another process may have it."""
    with planstep.open(tmp_path / "s") as db:
        db.create_table("n")
    with Other(tmp_path / "s") as other:
        writes = other.begin("[db.table('n').put('other', n) for n in range(3000)]")
        owners = []
        for n in range(60):
            with planstep.open(tmp_path / "s") as db:
                db.table("n").put("this", n)
                owners.append(db.owner)
        assert set(owners) <= {other.pid, os.getpid()} and other.pid in owners
        writes()
        assert other("db.owner") == other.pid


def test_a_number_in_the_lock_that_is_this_process_by_chance(tmp_path: Path) -> None:
    """In containers, programs often have the number 1."""
    with Other(tmp_path / "s") as owner:
        owner.run("db.create_table('n')")
        lock = tmp_path / "s" / "host-0" / "lock"
        lock.write_text(lock.read_text().replace(str(owner.pid), str(os.getpid())))
        with planstep.open(tmp_path / "s") as db:
            db.table("n").put("x", 1)
        assert owner("db.table('n').get('x')") == 1
        with pytest.raises(planstep.StoreInUse, match="another process"):
            planstep.open(tmp_path / "s", attach=False)
