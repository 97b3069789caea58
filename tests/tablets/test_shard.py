"""Tests the shard and the catalogue alone: conditions and updates of rows at a place."""

from typing import Any

import msgpack
import pytest
from dict_space import DictSpace

from planstep.proto.ids import CATALOGUE, PARTITION, SHARD, TABLETS_MAX, tablet_id
from planstep.proto.messages import (
    ADD,
    ALTER,
    CLEANED,
    CREATE_CONSUMER,
    DELETE,
    DROP,
    DROP_CONSUMER,
    MAX,
    MIN,
    PUT,
    PUT_IF_ABSENT,
    CataloguePart,
    ShardPart,
)
from planstep.proto.ranges import range_digest
from planstep.proto.reasons import kept_as
from planstep.tablets.catalogue import SEQUENCE, Catalogue
from planstep.tablets.shard import Shard


def pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


class Tablet:
    """Commits each part at a step of its own, or returns the reason for which it is refused."""

    core: Any
    step = 0

    def committed(self, body: Any) -> Any:
        reason = self.core.check(body, False)
        if reason is None:
            self.step += 1
            self.core.apply(body, self.step, 0)
            return None
        return tuple(kept_as(0, reason)[1:])


class Table(Tablet):
    def __init__(self) -> None:
        self.space = DictSpace()
        self.core = Shard(tablet_id(SHARD, 0, 1), self.space, lambda target, message: None)

    def commit(self, *writes: tuple[bytes, int, Any], **part: Any) -> Any:
        packed = tuple((key, op, b"" if op == DELETE else pack(value)) for key, op, value in writes)
        body = ShardPart(writes=packed, **part)
        return self.committed(body)

    def value(self, key: bytes) -> Any:
        row = self.space.get(b"r" + key)
        return None if row is None else msgpack.unpackb(row[2])


@pytest.fixture
def table() -> Table:
    return Table()


def test_updates_are_evaluated_at_their_place(table: Table) -> None:
    assert table.commit((b"n", ADD, 3), (b"n", MAX, 2), (b"n", MIN, 5), (b"n", ADD, 0.5)) is None
    assert table.value(b"n") == 3.5
    assert table.commit((b"n", PUT_IF_ABSENT, 9), (b"m", PUT_IF_ABSENT, 9)) is None
    assert (table.value(b"n"), table.value(b"m")) == (3.5, 9)
    assert table.commit((b"n", DELETE, None), (b"none", DELETE, None)) is None
    assert table.value(b"n") is None


@pytest.mark.parametrize("old", ["text", True, None, [1]])
def test_what_is_no_number_takes_no_update(table: Table, old: Any) -> None:
    table.commit((b"k", PUT, old))
    assert table.commit((b"k", ADD, 1)) == ("type", b"k", "number", "other")
    assert table.commit((b"k", PUT, 1), (b"k", ADD, 1)) is None  # of rows that it writes itself
    assert table.value(b"k") == 2


def test_bytes_that_msgpack_does_not_know_are_no_number(table: Table) -> None:
    table.space.put(b"rk", (1, 0, b"\xc1"))
    assert table.commit((b"k", MAX, 1)) == ("type", b"k", "number", "other")


def test_a_sum_beyond_64_bits_is_refused_never_wrapped(table: Table) -> None:
    table.commit((b"k", PUT, (1 << 64) - 1))
    assert table.commit((b"k", ADD, 1)) == ("overflow", b"k", "64 bits", "more")
    assert table.commit((b"k", ADD, "one")) == ("overflow", b"k", "64 bits", "more")
    assert table.commit((b"k", ADD, -1)) is None
    assert table.commit((b"k", ADD, 1.0)) is None and table.value(b"k") == float(1 << 64)


def test_a_row_must_be_as_it_was_read(table: Table) -> None:
    table.commit((b"k", PUT, 1))
    assert table.commit((b"x", PUT, 1), reads=((b"k", (1, 0)), (b"none", None))) is None
    assert table.commit(reads=((b"k", None),)) == ("key", b"k", None, (1, 0))
    assert table.commit(reads=((b"none", (1, 0)),)) == ("key", b"none", (1, 0), None)


def test_a_range_must_hold_what_it_held(table: Table) -> None:
    table.commit((b"a", PUT, 1), (b"b", PUT, 1))
    digest = range_digest([(b"a", 1, 0), (b"b", 1, 0)])
    whole = ((b"a", b"z", 10, *digest),)
    assert table.commit((b"zz", PUT, 1), ranges=whole) is None
    table.commit((b"c", PUT, 1))
    assert table.commit((b"zz", PUT, 1), ranges=whole) == ("phantom", b"a", 2, 3)


def test_who_waits_for_whom(table: Table) -> None:
    must_wait_for = table.core.must_wait_for
    put, read = ShardPart(writes=((b"k", PUT, b""),)), ShardPart(reads=((b"k", None),))
    scan, other = ShardPart(ranges=((b"a", b"l", 1, 0, 0),)), ShardPart(writes=((b"z", PUT, b""),))
    drop = ShardPart(drop=True)
    for one, two in ((drop, other), (put, put), (put, read), (put, scan)):
        assert must_wait_for(one, two) and must_wait_for(two, one)
    for one, two in ((read, scan), (other, scan), (other, put)):
        assert not must_wait_for(one, two)


# names ------------------------------------------------------------------------------------------


class Names(Tablet):
    def __init__(self) -> None:
        self.space = DictSpace()
        address = tablet_id(CATALOGUE, 0, 0)
        self.core = Catalogue(address, self.space, lambda target, message: None)

    def commit(self, name: str, **part: Any) -> Any:
        body = CataloguePart(PARTITION, name, part.pop("parts", 2), "bytes", 2, **part)
        return self.committed(body)


def test_of_two_who_make_one_name_the_second_comes_too_late() -> None:
    names = Names()
    assert names.commit("t") is None
    assert names.commit("t") == ("exists", "t")
    assert names.core.must_wait_for(None, None)  # all transactions on names wait for each other


def test_a_name_that_was_dropped_meanwhile_is_gone_and_another_of_that_name_is_not_meant() -> None:
    names = Names()
    names.commit("t")
    assert names.commit("t", op=ALTER, id=1, options=(("retention_ms", 5),)) is None
    assert names.commit("t", op=CREATE_CONSUMER, id=1, consumer="c") is None
    assert names.commit("t", op=CREATE_CONSUMER, id=1, consumer="c") == ("exists", "c")
    assert names.commit("t", op=DROP_CONSUMER, id=1, consumer="c") is None
    assert names.commit("t", op=CREATE_CONSUMER, id=1, consumer="c") is None
    assert names.commit("t", op=DROP, id=1) is None
    assert names.commit("t") is None
    assert names.commit("t", op=DROP, id=1) == ("gone", PARTITION, "t")
    assert names.commit("t", op=DROP, id=3) is None
    for first in (1, 3):
        assert names.commit("t", op=CLEANED, id=first) is None
    assert list(names.space.rows) == [SEQUENCE]


def test_numbers_of_tablets_run_out_and_none_is_used_again() -> None:
    names = Names()
    names.commit("t")
    names.commit("t", op=DROP, id=1)
    names.commit("t")
    assert names.space.get(b"n" + bytes([PARTITION]) + b"t")[0] == 3
    names.space.put(SEQUENCE, TABLETS_MAX - 2)
    assert names.commit("u", parts=3) == ("full", "u", 3, 2)
    assert names.commit("u", parts=2) is None
