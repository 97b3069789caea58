"""Tests transactions over topics and tables, one scenario at a time.

SCENARIOS.md says which published scenario each one re-creates.
"""

import time
from concurrent.futures import Future
from typing import Any

import msgpack
import pytest
from world import World, records, world

from planstep.errors import Conflict, OffsetOutOfRange
from planstep.proto.ids import tablet_prefix
from planstep.proto.messages import ADD, PUT, PartitionPart, ShardPart


def consume(begin: int, end: int, consumer: str = "c") -> PartitionPart:
    return PartitionPart(ranges=((consumer, begin, end),))


def outcome(future: "Future[Any]") -> str:
    try:
        future.result(60)
    except Conflict:
        return "conflict"
    return "committed"


def test_topics_tables_and_positions_commit_together(w: World) -> None:
    w.write(w.a[0], b"1", b"2", b"3")
    done = w.commit(
        {
            w.a[0]: consume(0, 2),
            w.b[1]: PartitionPart(slices=records(b"x")),
            w.b[2]: PartitionPart(slices=records(b"y", b"z")),
            w.rows[3]: ShardPart(writes=((b"k", PUT, b"v"),)),
        }
    )
    assert done.details[w.b[1]] == (0, 1) and done.details[w.b[2]] == (0, 2)
    assert w.position(w.a[0]) == 2 and w.end(w.b[2]) == 2
    place, value = w.get(3, b"k")
    assert (place, value) == (done.place, b"v")


def test_a_false_predicate_anywhere_leaves_nothing_anywhere(w: World) -> None:
    w.write(w.a[0], b"1")
    w.put(0, b"k", b"old")
    with pytest.raises(Conflict) as error:
        w.commit(
            {
                w.a[0]: consume(0, 1),
                w.b[1]: PartitionPart(slices=records(b"x")),
                w.rows[0]: ShardPart(reads=((b"k", None),), writes=((b"k", PUT, b"new"),)),
            }
        )
    assert error.value.name == "rows" and error.value.retryable
    assert w.position(w.a[0]) == 0 and w.end(w.b[1]) == 0 and w.get(0, b"k")[1] == b"old"


def test_a_range_is_consumed_by_one_of_two(w: World) -> None:
    w.write(w.a[0], b"1", b"2")
    both = [
        w.submit({w.a[0]: consume(0, 2), w.b[i]: PartitionPart(slices=records(b"x"))})
        for i in (1, 2)
    ]
    assert sorted(map(outcome, both)) == ["committed", "conflict"]
    assert w.position(w.a[0]) == 2
    assert w.end(w.b[1]) + w.end(w.b[2]) == 1


def test_three_on_one_consumer_the_first_wins(w: World) -> None:
    w.write(w.a[0], b"1")
    three = [w.submit({w.a[0]: consume(0, 1), w.rows[i]: _add(b"n")}) for i in range(3)]
    assert sorted(map(outcome, three)) == ["committed", "conflict", "conflict"]


def test_two_consumers_do_not_conflict(w: World) -> None:
    w.write(w.a[0], b"1")
    both = [w.submit({w.a[0]: consume(0, 1, name), w.rows[1]: _add(b"n")}) for name in "cd"]
    assert list(map(outcome, both)) == ["committed", "committed"]
    assert msgpack.unpackb(w.get(1, b"n")[1]) == 2


def test_ranges_that_cannot_be_are_refused(w: World) -> None:
    w.write(w.a[0], b"1", b"2", b"3")
    w.commit({w.a[0]: consume(0, 2)})
    for begin, end in ((0, 2), (0, 3), (1, 2), (3, 3)):
        with pytest.raises(Conflict) as error:
            w.commit({w.a[0]: consume(begin, end)})
        assert error.value.expected == begin and error.value.actual == 2
    with pytest.raises(OffsetOutOfRange):
        w.commit({w.a[0]: consume(2, 4)})
    with pytest.raises(OffsetOutOfRange):
        w.commit({w.a[0]: consume(2, 1)})
    w.commit({w.a[0]: consume(2, 3)})


def test_a_number_of_a_producer_is_published_once(w: World) -> None:
    def write(first: int, last: int, dedupe: bool = False) -> Any:
        part = PartitionPart(slices=records(b"r"), producer=(b"p", first, last), dedupe=dedupe)
        return w.commit({w.a[0]: part, w.rows[1]: _add(b"n")})

    write(1, 5)
    with pytest.raises(Conflict) as error:
        write(5, 6)
    assert error.value.producer == b"p" and error.value.actual == 5
    write(1, 5, dedupe=True)
    write(6, 6, dedupe=True)
    assert w.end(w.a[0]) == 2


def test_the_later_of_two_on_one_producer_aborts_whole(w: World) -> None:
    def ask(first: int) -> "Future[Any]":
        return w.submit(
            {
                w.a[0]: PartitionPart(slices=records(b"r"), producer=(b"p", first, first)),
                w.b[first]: PartitionPart(slices=records(b"s")),
            }
        )

    assert outcome(ask(3)) == "committed"
    assert outcome(ask(2)) == "conflict"
    assert (w.end(w.a[0]), w.end(w.b[3]), w.end(w.b[2])) == (1, 1, 0)


def test_order_after_commit_is_the_order_of_places(w: World) -> None:
    futures = [
        w.submit({w.a[0]: PartitionPart(slices=records(b"%d" % i)), w.rows[i % 4]: _add(b"n")})
        for i in range(12)
    ]
    done = [future.result(60) for future in futures]
    by_place = sorted(done, key=lambda commit: commit.place)
    by_offset = sorted(done, key=lambda commit: commit.details[w.a[0]])
    assert by_place == by_offset
    assert [c.details[w.a[0]] for c in by_offset] == [(i, i + 1) for i in range(12)]


def test_a_hundred_over_all_partitions_at_once(w: World) -> None:
    futures = [
        w.submit(
            {
                **{tablet: PartitionPart(slices=records(b"x")) for tablet in (*w.a, *w.b)},
                w.rows[i % 4]: _add(b"n"),
            }
        )
        for i in range(30)
    ]
    assert {outcome(future) for future in futures} == {"committed"}
    assert {w.end(tablet) for tablet in (*w.a, *w.b)} == {30}
    assert sum(msgpack.unpackb(w.get(i, b"n")[1]) for i in range(4)) == 30


def test_counters_do_not_conflict_reads_do(w: World) -> None:
    futures = [w.submit({w.rows[0]: _add(b"n")}) for _ in range(10)]
    assert {outcome(future) for future in futures} == {"committed"}
    place, _ = w.get(0, b"n")
    read = ShardPart(reads=((b"n", tuple(place)),), writes=((b"n", PUT, b"\x01"),))
    both = [w.submit({w.rows[0]: read, w.rows[1]: _add(b"m")}) for _ in range(2)]
    assert sorted(map(outcome, both)) == ["committed", "conflict"]


def test_the_outcome_is_known_by_id(w: World) -> None:
    done = w.put(0, b"k", b"v")
    known = w.runtime.outcomes.of(done.tx)
    assert (known.state, known.place) == ("committed", done.place)
    tx = w.runtime.new_tx()
    assert w.runtime.outcomes.of(tx).state == "unknown"
    assert w.runtime.outcomes.resolve(tx).state == "refused"
    assert w.runtime.outcomes.resolve(done.tx).state == "committed"


def test_no_side_keys_are_left(w: World) -> None:
    w.write(w.a[0], b"1")
    for begin in (0, 0):  # the second one is refused
        outcome(w.submit({w.a[0]: consume(begin, 1), w.b[1]: PartitionPart(slices=records(b"x"))}))

    def leftovers() -> list[Any]:
        rows: list[Any] = []
        for node in w.runtime.nodes:
            for tablet in (*w.a, *w.b, *w.rows):
                at = tablet_prefix(tablet)
                for kind, behind in ((b"q", b"r"), (b"t", b"u")):
                    rows += node.host.store.scan(at + kind, at + behind)
        return rows

    deadline = time.monotonic() + 60  # the tablet's question makes up for a lost withdrawal
    while leftovers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not leftovers()


def test_one_host_can_go_and_come_back_while_the_others_run(tmp_path: Any) -> None:
    with world(4, tmp_path / "s") as w:
        on = {tablet >> 20 & 0xFF: tablet for tablet in w.a}
        w.write(on[1], b"1")
        w.runtime.stop_host(2)
        w.write(on[1], b"2")
        late = w.submit(
            {on[1]: PartitionPart(slices=records(b"3")), on[2]: PartitionPart(slices=records(b"3"))}
        )
        w.write(on[3], b"3")
        assert not late.done()
        w.runtime.start_host(2)
        assert late.result(30).details[on[2]] == (0, 1)
        assert w.end(on[1]) == 3


def test_an_open_transaction_delays_nobody() -> None:
    with world(1) as w:
        w.write(w.a[0], b"1")
        tx = w.runtime.new_tx()  # begun, and never committed
        w.commit({w.a[0]: consume(0, 1)})
        assert w.position(w.a[0]) == 1
        assert w.runtime.outcomes.of(tx).state == "unknown"


def test_chains_in_one_turn_share_one_sync() -> None:
    """A hundred conflicting transactions are decided in memory, with one sync for the whole turn."""
    with world(1) as w:
        w.write(w.a[0], b"1")
        node = w.runtime.nodes[0]
        before = w.runtime.stats()["store"]["syncs"]
        with node.lock:
            futures = [w.submit({w.a[0]: consume(0, 1), w.rows[0]: _add(b"n")}) for _ in range(100)]
            w.runtime.turns.turn(node)
        w.runtime.replies.answer()
        assert sorted(map(outcome, futures)) == ["committed"] + ["conflict"] * 99
        assert w.runtime.stats()["store"]["syncs"] - before == 1


def test_one_sync_for_three_partitions_and_two_shards(tmp_path: Any) -> None:
    with world(1, tmp_path / "s") as w:
        before = w.runtime.stats()["store"]["syncs"]
        w.commit(
            {
                **{w.a[i]: PartitionPart(slices=records(b"x")) for i in range(3)},
                **{w.rows[i]: ShardPart(writes=((b"k", PUT, b"v"),)) for i in range(2)},
            }
        )
        assert w.runtime.stats()["store"]["syncs"] - before == 1


def _add(key: bytes) -> ShardPart:
    return ShardPart(writes=((key, ADD, msgpack.packb(1)),))
