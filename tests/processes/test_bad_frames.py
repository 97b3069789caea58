"""Frames of a process that breaks the rules end its link, and cost no other process anything."""

import os
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kit import until
from process_kit import Other

import planstep
from planstep.proto import frames
from planstep.proto.batch import encode_batch
from planstep.proto.frame_codec import Decoder, encode
from planstep.proto.ids import tx_id, tx_parse
from planstep.proto.kafka.messages import AddPartitions, Join, Produce
from planstep.proto.messages import PartitionPart
from planstep.proto.pulsar.messages import NewTxn
from planstep.runtime.group_commit import Waiter
from planstep.runtime.processes.ids import address_of
from planstep.store.process_socket import connect


class Liar:
    """A link that sends what the test says."""

    def __init__(self, db: planstep.Engine) -> None:
        self.socket, _ = connect(Path(db.path) / "host-0")
        self.socket.settimeout(60)
        self._decoder = Decoder(frames.OF_OWNER)
        self._received: deque[Any] = deque()
        store: Any = db.context.runtime.nodes[0].host.store
        self.hello = frames.Hello(frames.VERSIONS, store.store_id, os.getpid(), "liar")

    def begin(self) -> frames.Welcome:
        self.send(self.hello)
        welcome = self.receive()
        assert isinstance(welcome, frames.Welcome)
        return welcome

    def send(self, *sent: Any) -> None:
        self.socket.sendall(b"".join(b"".join(encode(frame)) for frame in sent))

    def receive(self) -> Any:
        """Returns the next frame, None once the owner has ended the link."""
        while not self._received:
            data = self.socket.recv(1 << 16)
            if not data:
                return None
            self._received.extend(self._decoder.feed(data))
        return self._received.popleft()

    def is_refused(self, *, text: str) -> None:
        frame = self.receive()
        assert isinstance(frame, frames.Stopped) and text in str(frame.error.arguments)
        assert self.receive() is None


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[planstep.Engine]:
    with planstep.open(tmp_path / "s") as db:
        db.create_table("n")
        yield db


@contextmanager
def liar(db: planstep.Engine) -> Iterator[Liar]:
    one = Liar(db)
    try:
        yield one
    finally:
        one.socket.close()


def parts_of(db: planstep.Engine, key: str) -> Any:
    tx = db.transaction()
    tx.put("n", key, 1)
    parts = tx.life.contents.parts()
    tx.rollback()
    return parts


def test_an_id_that_another_process_was_given_is_refused(owner: planstep.Engine) -> None:
    """Else that process's own commit would be the second one of the id."""
    with Other(owner.path) as other, liar(owner) as one:
        other.run("tx = db.transaction(); tx.put('n', 'mine', 1)")
        one.begin()
        one.send(frames.Commit(tx_parse(other("tx.id")), parts_of(owner, "theirs"), 1))
        one.is_refused(text="id")
        other.run("tx.commit()")
        assert dict(owner.table("n").scan()) == {"mine": 1}


def test_the_answer_of_another_process_is_not_given_away(owner: planstep.Engine) -> None:
    """A commit that is handed in again to a later owner is answered to its own process only."""
    runtime = owner.context.runtime
    tx = tx_id(runtime.generation - 1, 5)
    with liar(owner) as first, liar(owner) as other:
        assert runtime.server is not None
        peer = runtime.server.peers[first.begin().connection]
        other.begin()
        waiter = runtime.replies.waiting[tx] = Waiter(tx, 0, peer)
        other.send(frames.Commit(tx, parts_of(owner, "theirs"), 1, True))
        other.is_refused(text="another process")
        assert waiter.future is peer
        del runtime.replies.waiting[tx]
    assert dict(owner.table("n").scan()) == {}


def test_nothing_is_done_for_a_link_that_is_refused(owner: planstep.Engine) -> None:
    tx = tx_id(owner.context.runtime.generation - 1, 5)
    commit = frames.Commit(tx, parts_of(owner, "theirs"), 1)
    with liar(owner) as one:
        one.send(one.hello._replace(store=bytes(16)), commit, frames.NewIds())
        refused = one.receive()
        assert isinstance(refused, frames.Refused) and "replaced" in refused.text
        assert one.receive() is None
    with Other(owner.path) as other:
        other.run("db.table('n').put('mine', 1)")
    assert dict(owner.table("n").scan()) == {"mine": 1}


def test_the_answers_of_another_client_are_not_taken_away(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "k", mode="kafka") as db:
        db.create_topic("t")
        (partition,) = db.context.runtime.names.topics["t"].partitions
        with Other(tmp_path / "k") as other, liar(db) as one:
            other.run("db.topic('t').write(b'a')")
            welcome = one.begin()
            address = other("db.context.runtime.address")
            assert address != address_of(welcome.generation, welcome.connection)
            data = encode_batch([b"x"])
            produce = Produce(address, 1, None, 1, 0, 0, data, 1)
            one.send(frames.Deliver(((partition, produce, (None, 0)),)))
            one.is_refused(text="address")
            other.run("db.topic('t').write(b'b')")
        assert db.topic("t").read().values == [b"a", b"b"]


_LINK = address_of(1, 1)
_BATCH = encode_batch([b"x"])


@pytest.mark.parametrize(
    "request_",
    [
        Produce(_LINK, 1, None, -1, 0, 0, _BATCH, 1),  # a producer without a number
        Produce(_LINK, 1, None, 1, 0, 0, _BATCH, 2),  # more records than there are
        Produce(_LINK, 1, None, 1, 0, 0, b"x", 1),
        Join(_LINK, 1, "g", "m"),  # it is for a group coordinator
        AddPartitions(_LINK, 1, "w", 1, 0, (7,)),
        NewTxn(_LINK, 1, 1_000),  # it is of another mode
        None,  # a commit of mode "deterministic"
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_request_that_no_client_sends_stops_no_owner(tmp_path: Path, request_: Any) -> None:
    with planstep.open(tmp_path / "k", mode="kafka") as db:
        db.create_topic("t")
        (partition,) = db.context.runtime.names.topics["t"].partitions
        with liar(db) as one:
            welcome = one.begin()
            assert (welcome.generation, welcome.connection) == (1, 1)
            deliver = frames.Deliver(((partition, request_, (None, 0)),))
            part = PartitionPart(slices=((_BATCH, 1),))
            commit = frames.Commit(tx_id(1, welcome.ids[0]), {partition: part}, 1)
            one.send(commit if request_ is None else deliver)
            one.is_refused(text="frame")
        db.topic("t").write(b"a")
        assert db.topic("t").read().values == [b"a"]


def test_the_link_of_another_process_is_not_taken_over(owner: planstep.Engine) -> None:
    with Other(owner.path) as other, liar(owner) as one:
        first = tuple(other("db.context.runtime.linked"))
        one.send(one.hello._replace(first=first))
        refused = one.receive()
        assert isinstance(refused, frames.Refused) and "another process" in refused.text


def test_a_process_keeps_its_ids_over_its_links_to_one_owner(owner: planstep.Engine) -> None:
    with Other(owner.path) as other:
        other.run("tx = db.transaction(); tx.put('n', 'k', 1)")
        runtime = owner.context.runtime
        assert runtime.server is not None
        (peer,) = runtime.server.peers.values()
        peer.socket.shutdown(socket.SHUT_RDWR)
        until(lambda: runtime.server is not None and peer.number not in runtime.server.peers)
        other.run("tx.commit()")
        assert dict(owner.table("n").scan()) == {"k": 1}
