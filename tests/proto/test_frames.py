"""Tests the frames between processes of one store: all kinds, all cuts of a stream, and what is malformed."""

import re
import tracemalloc
from random import Random
from typing import Any

import msgpack
import pytest

from planstep.bench.proof.disks.decoders import STREAMS, stream
from planstep.bench.proof.disks.mutating import bombs
from planstep.bench.proof.disks.odd_frames import (
    HOSTS,
    decode_stream,
    drawn_frame,
    joined,
    opening,
    split_frame,
    whole_frame,
)
from planstep.proto import frames as f
from planstep.proto.batch import encode_batch
from planstep.proto.frame_checks import Limits, MalformedFrame
from planstep.proto.frame_codec import Decoder, FrameTooLarge, NoCommonVersion, encode
from planstep.proto.ids import CATALOGUE_ID, COORDINATOR_ID, PARTITION, SHARD, tablet_id, tx_id
from planstep.proto.kafka import messages as k
from planstep.proto.messages import (
    ADD,
    CLEANED,
    CREATE,
    NOBODY,
    PUT,
    CataloguePart,
    PartitionPart,
    ShardPart,
)
from planstep.proto.shell import Answer

TX = tx_id(3, 17)
P, Q, S = tablet_id(PARTITION, 0, 1), tablet_id(PARTITION, 1, 2), tablet_id(SHARD, 1, 3)
BATCH = encode_batch([b"a", b"b"])
KEY = b"\x06k\x00\x00"
ALL = [(kinds, kind, code) for kinds in (f.OF_ATTACHED, f.OF_OWNER) for code, kind in kinds.items()]
OPEN = joined(opening(f.OF_ATTACHED))


def commit(parts: Any, **fields: Any) -> bytes:
    return joined(f.Commit(TX, parts, 1, **fields))


def taken(data: bytes, limits: Limits | None = None, hosts: int = HOSTS) -> list[Any]:
    """Returns the frames of an attached process behind its first one."""
    decoder = Decoder(f.OF_ATTACHED, limits or Limits(), hosts)
    list(decoder.feed(OPEN))
    return list(decoder.feed(data))


def refusal(data: bytes, limits: Limits | None = None) -> str:
    with pytest.raises(MalformedFrame) as refused:
        taken(data, limits)
    return str(refused.value)


# whole frames ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "kind", "code"), ALL, ids=lambda one: getattr(one, "__name__", "")
)
def test_every_kind_round_trips_however_the_stream_is_cut(kinds: Any, kind: Any, code: int) -> None:
    first = [] if code in f.OPENING else [opening(kinds)]
    for n in range(20):
        frame = drawn_frame(Random(n), kind)
        data = b"".join(map(joined, [*first, frame]))
        assert decode_stream(data, kinds) == [*first, frame]
    for cut in range(len(data) + 1):
        decoder = Decoder(kinds, hosts=HOSTS)
        assert [*decoder.feed(data[:cut]), *decoder.feed(data[cut:])] == [*first, frame]


def test_every_class_has_one_code() -> None:
    ours = [one for one in vars(f).values() if getattr(one, "__module__", "") == f.__name__]
    classes = {one for one in ours if hasattr(one, "_fields")} - {f.Result, f.ErrorForm}
    kinds = [*f.OF_ATTACHED.values(), *f.OF_OWNER.values()]
    assert set(kinds) == classes and len(kinds) == len(classes)
    assert not set(f.OF_ATTACHED) & set(f.OF_OWNER)


def test_payload_is_sent_from_where_it_is_and_received_as_views_of_one_buffer() -> None:
    value = b"v" * 1_000
    parts = {
        P: PartitionPart(slices=((BATCH, 2), (BATCH, 2))),
        S: ShardPart(writes=((KEY, PUT, value),)),
    }
    frame = f.Commit(TX, parts, 1)
    _, *payloads = encode(frame)
    assert [one is BATCH or one is value for one in payloads] == [True] * 3
    (again,) = taken(joined(frame))
    (one, _), (two, _) = again.parts[P].slices
    assert type(one) is type(two) is memoryview and one.obj is two.obj and one.readonly
    assert (
        again.parts[S].writes == ((KEY, PUT, value),) and type(again.parts[S].writes[0][2]) is bytes
    )
    assert type(again.parts[P]) is PartitionPart and type(again.parts[S]) is ShardPart


def test_a_buffer_that_is_used_again_changes_no_frame_that_came_from_it() -> None:
    data = bytearray(commit({P: PartitionPart(slices=((BATCH, 2),))}))
    (frame,) = taken(data)
    data[:] = bytes(len(data))
    assert frame.parts[P].slices == ((BATCH, 2),)


# damaged frames ----------------------------------------------------------------------------


@pytest.mark.parametrize("which", STREAMS)
def test_a_damaged_stream_gives_frames_or_says_what_is_malformed(which: str) -> None:
    """Row `badinput` feeds many more."""
    wrong = [why for n in range(1_000) if (why := stream(Random(f"{which} {n}"), which))]
    assert wrong == []


def test_a_check_that_is_missing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: Any, length: Any) -> Any:
        return self.payload[:length]

    monkeypatch.setattr("planstep.proto.frame_checks.Reading.take", careless)
    which = "stream of attached"
    assert any(stream(Random(f"{which} {n}"), which) for n in range(500))


@pytest.mark.parametrize(("name", "data"), [one for one in bombs() if "msgpack" in one[0]])
def test_what_claims_more_than_it_is_takes_no_memory(name: str, data: bytes) -> None:
    head, _ = split_frame(commit({P: PartitionPart()}))
    claims = data * max(1, 4_000 // len(data))
    tracemalloc.start()
    for bomb in (whole_frame(claims), whole_frame(head[:-1] + claims)):
        assert refusal(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20 or peak < 64 * len(claims)


def test_lists_that_claim_within_lists_take_memory_for_what_is_there_only() -> None:
    bomb = b"\xdc\x40\x00" * 20_000  # 1,024 lists of 16,384 each would be 128 MiB
    tracemalloc.start()
    assert "not msgpack" in refusal(whole_frame(bomb))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_large_frame_takes_memory_as_it_arrives() -> None:
    decoder = Decoder(f.OF_ATTACHED)
    list(decoder.feed(OPEN))
    head, _ = split_frame(commit({P: PartitionPart()}))
    tracemalloc.start()
    list(decoder.feed((1 << 30).to_bytes(4, "little") + len(head).to_bytes(4, "little") + head))
    list(decoder.feed(bytes(100_000)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_lengths_are_refused_before_anything_else_arrives() -> None:
    limits = Limits(head=100, frame=200)
    for whole, head, ok in [
        (200, 100, True),
        (201, 100, False),
        (200, 101, False),
        (9, 10, False),
        (9, 0, False),
    ]:
        lengths = whole.to_bytes(4, "little") + head.to_bytes(4, "little")
        if ok:
            assert taken(lengths, limits) == []
        else:
            assert "the limits are 200 and 100" in refusal(lengths, limits)


def test_who_is_not_known_yet_sends_little() -> None:
    decoder = Decoder(f.OF_ATTACHED)
    with pytest.raises(MalformedFrame, match="the limits are 65,536"):
        list(decoder.feed((65_537).to_bytes(4, "little") + (100).to_bytes(4, "little")))


def test_behind_a_malformed_frame_nothing_is_taken() -> None:
    decoder = Decoder(f.OF_ATTACHED)
    got = decoder.feed(OPEN + whole_frame(b"\xc1") + joined(f.Bye()))
    assert type(next(got)) is f.Hello
    for _ in range(2):
        with pytest.raises(MalformedFrame, match="not msgpack"):
            next(got)
        got = decoder.feed(joined(f.Bye()))


def test_the_first_frame_opens_the_link_and_no_other_does() -> None:
    with pytest.raises(MalformedFrame, match="another kind comes first"):
        list(Decoder(f.OF_ATTACHED).feed(joined(f.Bye())))
    assert refusal(OPEN) == "frame Hello: another kind comes once"
    with pytest.raises(MalformedFrame, match="of the unknown kind 1"):
        list(Decoder(f.OF_OWNER).feed(OPEN))
    assert f.Refused in map(type, Decoder(f.OF_OWNER).feed(joined(f.Refused("no"))))


def test_versions_are_compared_before_anything_that_another_version_may_change() -> None:
    for versions, common in [((1, 1), 1), ((1, 9), 1), ((0, 1), 1), ((2, 3), None), ((0, 0), None)]:
        assert f.common_version(versions) == common
        hello = whole_frame(msgpack.packb([f.HELLO, f.MAGIC, versions, "of", "another", "form"]))
        with pytest.raises(MalformedFrame) as refused:
            list(Decoder(f.OF_ATTACHED).feed(hello))
        assert isinstance(refused.value, NoCommonVersion) is (common is None)
        if isinstance(refused.value, NoCommonVersion):
            assert refused.value.versions == versions
            assert f"speaks versions {versions[0]} to {versions[1]}" in str(refused.value)
    hello = whole_frame(msgpack.packb([f.HELLO, b"HTTP", (1, 1)]))
    with pytest.raises(MalformedFrame, match="frame Hello: it does not begin as one"):
        list(Decoder(f.OF_ATTACHED).feed(hello))


PART = PartitionPart[Any]
WRONG: list[tuple[Any, str]] = [
    ({}, "Commit.parts: dict of length 0 in place of 1 to"),
    ({P: ShardPart()}, "[partition 1 on host 0]: tuple of length 4 in place of a tuple of 12 fields"),
    ({tablet_id(PARTITION, 2, 1): PART()}, "parts: partition 1 on host 2, but the store has 2 hosts"),
    ({COORDINATOR_ID: PART()}, "[coordinator 0 on host 0]: no transaction has a part there"),
    ({CATALOGUE_ID + 1: PART()}, "[catalogue 1 on host 0]: no transaction has a part there"),
    ({"x": PART()}, "parts: str of length 1 in place of a tablet's id"),
    ({P: PART(ranges=(("c", 0, 1), ("c", 5, 4)))}, ".ranges[1]: a range from 5 to 4"),
    ({P: PART(ranges=(("c", -1, 4),))}, ".ranges[0][1]: -1 in place of a number from 0 to"),
    ({P: PART(acks=(("", 0, 4),))}, ".acks[0][0]: str of length 0 is no name"),
    ({P: PART(slices=((BATCH, 3),))}, ".slices[0]: 3 records are said, the batch has 2"),
    ({P: PART(slices=((b"x" * 99, 1),))}, ".slices[0]: bytes that should be a batch are not one"),
    ({P: PART(slices=((BATCH[:-1], 2),))}, ".slices[0]: bytes that should be a batch are not one"),
    ({P: PART(producer=(b"p", 3, 2))}, ".producer: numbers from 3 to 2"),
    ({P: PART(producer=(b"p" * 401, 1, 2))}, ".producer[0]: bytes of length 401 in place of bytes of"),
    ({P: PART(dedupe=1)}, ".dedupe: 1 in place of True or False"),  # type: ignore[arg-type]
    ({P: PART(staged=True)}, ".staged: True in place of a number"),
    ({P: PART(trim=1 << 63)}, ".trim: 9223372036854775808 in place of a number"),
    ({P: PART(seeks=(("c", None, None),))}, ".seeks[0][2]: None in place of True or False"),  # type: ignore[arg-type]
    ({S: ShardPart(reads=((b"", None),))}, ".reads[0]: bytes of length 0 in place of a key"),
    ({S: ShardPart(reads=((KEY, (1, 2, 3)),))}, ".reads[0]: tuple of length 3 in place of"),  # type: ignore[arg-type]
    ({S: ShardPart(ranges=((b"", KEY, 9, 7, 0),))}, ".ranges[0]: a range of 7 rows with the limit 9"),
    ({S: ShardPart(writes=((KEY, 6, b""),))}, ".writes[0]: 6 in place of an operation"),
    ({S: ShardPart(writes=((KEY, PUT, "v"),))}, ".writes[0]: str of length 1 in place of a row's value"),  # type: ignore[arg-type]
    ({S: ShardPart(writes=((b"k" * 481, PUT, b""),))}, ".writes[0]: bytes of length 481 in place of a key"),
    ({S: ShardPart(writes=((KEY, ADD, b"\xc0"),))}, ".writes[0]: an operand that is no finite number"),
    ({S: ShardPart(writes=((KEY, ADD, msgpack.packb(float("inf"))),))}, "no finite number"),
    ({S: ShardPart(writes=((KEY, ADD, b"\x91" * 2_000),))}, "no finite number"),
    ({CATALOGUE_ID: CataloguePart(PARTITION, "t", 3, "json", 0)}, "for 0 hosts, but the store has 2"),
    ({CATALOGUE_ID: CataloguePart(9, "t", 3, "json", 2)}, "tablets are of kind 9"),
    ({CATALOGUE_ID: CataloguePart(SHARD, "t", 0, "json", 2, CREATE)}, "nothing is made of no parts"),
    ({CATALOGUE_ID: CataloguePart(SHARD, "t", 0, "json", 2, CLEANED, 7)}, "only maintenance cleans"),
    ({CATALOGUE_ID: CataloguePart(SHARD, "../t", 1, "json", 2)}, ".name: str of length 4 is no name"),
    (
        {CATALOGUE_ID: CataloguePart(SHARD, "t", 1, "json", 2, options=(("o", msgpack.Timestamp(1)),))},
        ".options[0][1]: Timestamp in place of a plain value",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "why"), WRONG)
def test_what_a_tablet_relies_on_in_a_part_is_checked(parts: Any, why: str) -> None:
    assert why in refusal(commit(parts))


def test_the_kind_and_the_place_of_what_is_wrong_are_named() -> None:
    assert refusal(joined(f.Watch((P, 0)))) == "frame Watch.tablets[1]: 0 in place of a tablet's id"
    assert refusal(joined(f.Rollback(b"x"))) == (
        "frame Rollback.tx: bytes of length 1 in place of bytes of length 12 to 12"
    )
    assert refusal(joined(f.Call(1, "n" * 201))).startswith("frame Call.name: str of length 201 in")
    nested: Any = ()
    for _ in range(16):
        nested = (nested,)
    assert "values nest more than 16 deep" in refusal(joined(f.Call(1, "n", (nested,))))
    head, payload = split_frame(commit({P: PART(slices=((BATCH, 2),))}))
    assert (
        refusal(whole_frame(head, payload + b"x"))
        == "frame Commit: 1 bytes of payload belong to no field"
    )
    assert "of payload left" in refusal(whole_frame(head, payload[:-1]))


def test_details_are_checked() -> None:
    def of_owner(frame: Any) -> None:
        list(Decoder(f.OF_OWNER).feed(joined(opening(f.OF_OWNER)) + joined(frame)))

    with pytest.raises(MalformedFrame, match=re.escape("results[0].details: tuple of length 1")):
        of_owner(f.Results((f.Result(TX, 1, 0, {P: (1,)}),)))  # type: ignore[dict-item]


def test_clients_send_requests_and_get_answers_and_no_other_messages() -> None:
    good = k.Produce(5, 5, None, 7, 3, 0, b"data", 4)
    assert taken(joined(f.Deliver(((P, good, NOBODY),)))) == [f.Deliver(((P, good, NOBODY),))]
    for message, why in [
        (
            k.Marker(5, "w1", 7, 3, False, 12, 2),
            "Deliver.requests[0]: Marker is not for this frame",
        ),
        (Answer(1, P, ""), "Answer is not for this frame"),
        (k.Produce(5, 5, None, 7, 3, 0, "data", 4), "Produce.data: str"),  # type: ignore[arg-type]
        (k.Join(5, 1 << 63, "g", "m"), "Join.request: 9223372036854775808 in place of"),
    ]:
        why = why.replace("Produce.", "requests[0].").replace("Join.", "requests[0].")
        assert why in refusal(joined(f.Deliver(((P, message, NOBODY),))))


# limits ------------------------------------------------------------------------------------


def test_limits_of_a_transaction() -> None:
    many = {P: PART(slices=((BATCH, 2),) * 2), Q: PART(slices=((BATCH, 2),) * 2)}
    assert len(taken(commit(many), Limits(slices=4, tablets=2))) == 1
    assert "more than 3 slices" in refusal(commit(many), Limits(slices=3))
    assert "in place of 1 to 1 tablets' parts" in refusal(commit(many), Limits(tablets=1))
    seen = {S: ShardPart(ranges=((b"", KEY, 8, 7, 0),) * 2)}
    assert len(taken(commit(seen), Limits(range_rows=14))) == 1
    assert "a range of 7 rows" in refusal(commit(seen), Limits(range_rows=13))
    row = {S: ShardPart(writes=((KEY, PUT, b"v" * 300),))}
    assert len(taken(commit(row), Limits(row=300))) == 1
    assert "in place of a row's value" in refusal(commit(row), Limits(row=299))


def test_what_no_peer_would_take_is_not_sent() -> None:
    frame = f.Commit(TX, {P: PART(slices=((BATCH, 2),))}, 1)
    whole = sum(map(len, encode(frame))) - 8
    assert encode(frame, Limits(frame=whole))
    with pytest.raises(FrameTooLarge, match="frame Commit: a head of"):
        encode(frame, Limits(frame=whole - 1))
    with pytest.raises(FrameTooLarge, match="the limits are 20,"):
        encode(frame, Limits(head=20))
