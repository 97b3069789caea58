"""Tests that messages under way between separate tablets when the engine ended are processed before any read."""

from typing import Any

from planstep.proto.batch import encode_batch
from planstep.proto.messages import PUT, PartitionPart, ShardPart
from planstep.runtime.runtime import Runtime
from planstep.store import MemoryStore


def open_over(store: Any, separate: bool) -> Runtime:
    return Runtime([store], separate=separate)


def test_a_plan_on_its_way_is_executed_before_the_first_read() -> None:
    store = MemoryStore()
    runtime = open_over(store, separate=True)
    a = runtime.schema.create_topic("a", 1, "bytes").partitions[0]
    rows = runtime.schema.create_table("t", 1, "msgpack").shards[0]
    runtime.turns.network.deliver = lambda target, data: (
        None
    )  # nothing arrives any more: the process is killed
    parts: dict[int, Any] = {
        a: PartitionPart(slices=((encode_batch([b"x"]), 1),)),
        rows: ShardPart(writes=((b"k", PUT, b"v"),)),
    }
    tx = runtime.new_tx()
    runtime.transactions.submit(tx, parts)
    while runtime.outcomes.of(tx).state != "planned":
        pass
    again = open_over(store.crash(), separate=False)
    try:
        with again.snapshot() as snap:
            assert again.views.bounds(snap, a) == (0, 1)
            assert again.views.read_row(snap, rows, b"k") is not None
    finally:
        again.close()
        runtime.nodes[0].down = True
        runtime.replies.waiting.clear()  # whose answer was under way, too
        runtime.close()
