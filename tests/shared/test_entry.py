"""Tests that an entry, or a root, reads back as it was sealed, and that any damage to its bytes is found."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_kit import ROOT, STORE, history, nonce

from planstep.crc import crc32
from planstep.errors import Corruption, FormatError
from planstep.shared.entry import (
    BEGIN,
    HEADER_SIZE,
    OVERHEAD,
    TURN,
    Entry,
    Owner,
    chain_of,
    read_entry,
    seal,
)
from planstep.shared.root import encode_root, read_root
from planstep.shared.shared_log import Root

NUMBERS = st.integers(0, (1 << 64) - 1)
SIXTEEN = st.binary(min_size=16, max_size=16)
PART = st.binary(max_size=40)


def sample(payload: bytes = b"payload") -> Entry:
    """An entry with bytes in each of its parts."""
    owner = Owner(3, nonce("owner"))
    parts = {"changes": b"changes", "dropped": b"dropped", "payloads": [payload]}
    return seal(TURN, STORE, owner, 12, history(1)[0].chain, 345, **parts)  # type: ignore[arg-type]


@given(
    st.sampled_from([BEGIN, TURN]),
    st.builds(Owner, NUMBERS, SIXTEEN),
    st.tuples(SIXTEEN, NUMBERS, SIXTEEN, NUMBERS),
    st.tuples(PART, PART, st.lists(PART, max_size=3)),
)
def test_an_entry_reads_back_as_it_was_sealed(
    kind: int,
    owner: Owner,
    place: tuple[bytes, int, bytes, int],
    parts: tuple[bytes, bytes, list[bytes]],
) -> None:
    store_id, turn, before, address = place
    changes, dropped, payloads = parts
    entry = seal(
        *(kind, store_id, owner, turn, before, address),
        changes=changes,
        dropped=dropped,
        payloads=payloads,
    )
    assert read_entry(entry.data, "here") == entry
    assert entry.payload == b"".join(payloads)
    assert len(entry.data) == OVERHEAD + len(changes) + len(dropped) + len(entry.payload)


def test_an_entry_that_is_sealed_again_has_the_same_bytes() -> None:
    assert sample().data == sample().data


def test_each_flipped_bit_of_an_entry_is_found() -> None:
    entry = sample()
    for at in range(len(entry.data)):
        for bit in range(8):
            data = bytearray(entry.data)
            data[at] ^= 1 << bit
            with pytest.raises(Corruption, match="slot 12"):
                read_entry(bytes(data), "slot 12")
            assert chain_of(bytes(data)) != entry.chain


def test_an_entry_that_is_cut_off_or_has_more_bytes_is_found() -> None:
    data = sample().data
    for length in range(len(data)):
        with pytest.raises(Corruption, match="slot 12"):
            read_entry(data[:length], "slot 12")
    with pytest.raises(Corruption, match="behind it"):
        read_entry(data + b"\0", "slot 12")


def test_the_header_of_another_entry_is_found() -> None:
    one = sample()
    other = seal(
        *(TURN, STORE, one.owner, 13, one.chain, 7),
        changes=b"CHANGES",
        dropped=b"DROPPED",
        payloads=[b"PAYLOAD"],
    )
    assert len(other.data) == len(one.data)
    head, body = other.data[:HEADER_SIZE], one.data[HEADER_SIZE:]
    with pytest.raises(Corruption, match="turn 13 is damaged"):
        read_entry(head + body, "slot 13")


def test_a_kind_that_a_newer_version_may_have_is_refused() -> None:
    data = bytearray(sample().data)
    data[4:8] = pack("<I", 3)
    data[HEADER_SIZE - 4 : HEADER_SIZE] = pack("<I", crc32(bytes(data[: HEADER_SIZE - 4])))
    body = crc32(bytes(data[HEADER_SIZE:-4]), crc32(bytes(data[: HEADER_SIZE - 4])))
    data[-4:] = pack("<I", body)
    with pytest.raises(Corruption, match="unknown kind, 3"):
        read_entry(bytes(data), "slot 12")


def test_an_id_of_another_length_is_a_bug_and_not_padded() -> None:
    with pytest.raises(AssertionError):
        seal(TURN, STORE, Owner(1, b"short"), 1, bytes(16), 0)
    with pytest.raises(AssertionError):
        seal(TURN, STORE + b".", Owner(1, nonce("a")), 1, bytes(16), 0)


@given(SIXTEEN, st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_a_root_reads_back_as_it_was_encoded(store_id: bytes, mode: str) -> None:
    root = Root(store_id, mode, 1)
    assert read_root(encode_root(root), "here") == root


def test_damage_to_a_root_is_found() -> None:
    data = encode_root(ROOT)
    for at in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            with pytest.raises(Corruption, match="the root"):
                read_root(bytes(flipped), "the root")
        with pytest.raises(Corruption, match="the root"):
            read_root(data[:at], "the root")
    with pytest.raises(Corruption, match="the root"):
        read_root(data + b"\0", "the root")


def test_a_root_of_a_newer_version_is_refused() -> None:
    with pytest.raises(FormatError, match=r"format 2.*use a newer one"):
        read_root(encode_root(ROOT._replace(format=2)), "the root")
