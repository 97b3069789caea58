"""Tests what a snapshot's manifest and packs are on the wire, and that damaged or foreign ones are refused."""

from typing import Any

import pytest

from planstep.errors import Corruption
from planstep.shared.manifest import (
    Manifest,
    Pack,
    PackReader,
    Part,
    check_part,
    encode_manifest,
    encode_pack,
    part_of,
    read_manifest,
    stem_of,
)

STEM = stem_of(7, b"nonce..8")
PARTS = part_of(b"first"), part_of(b"second")
PACKS = (
    Pack(f"{STEM}-0000", 0, 10, 10, part_of(b"x")),
    Pack(f"{stem_of(3, b'earlier.')}-0012", 20, 40, 5, part_of(b"y")),
)
WHOLE = Manifest(
    *(STEM, b"s" * 16, b"t" * 16, 7, 44, 2, b"mark", 1_700_000_000_000, False),
    *(PARTS, PACKS, ((b"tab.", 1 << 63, 3),)),
)


def test_a_manifest_comes_back_as_it_was() -> None:
    assert read_manifest(encode_manifest(WHOLE), STEM, "m") == WHOLE
    empty = WHOLE._replace(tables=(), packs=(), digests=(), is_seed=True)
    assert read_manifest(encode_manifest(empty), STEM, "m") == empty
    assert WHOLE.bytes == 13
    assert WHOLE.names == [
        f"snap/{STEM}/tables-0000",
        f"snap/{STEM}/tables-0001",
        f"pack/{PACKS[0].name}",
        f"pack/{PACKS[1].name}",
    ]


def test_each_flipped_bit_and_each_cut_of_a_manifest_is_noticed() -> None:
    data = encode_manifest(WHOLE)
    for at in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            with pytest.raises(Corruption, match="the manifest"):
                read_manifest(bytes(flipped), STEM, "the manifest")
        with pytest.raises(Corruption, match="the manifest"):
            read_manifest(data[:at], STEM, "the manifest")
    with pytest.raises(Corruption):
        read_manifest(data + b"\0", STEM, "the manifest")


def pack(**fields: Any) -> tuple[Pack, ...]:
    return (PACKS[0]._replace(**fields),)


@pytest.mark.parametrize(
    "fields",
    [
        *({"packs": pack(name=name)} for name in ("", "../store", "/etc/passwd", "a/b", 3, b"x")),
        {"packs": pack(name=f"{STEM}-0000\n")},
        {"packs": pack(name=f"{STEM}-0000/..")},
        {"packs": pack(begin=10)},
        {"packs": pack(begin=-1)},
        {"packs": pack(end=45)},
        {"packs": pack(payload=11)},
        {"packs": pack(payload=0)},
        {"packs": pack(part=(1, "digest"))},
        {"packs": pack(part=(1,))},
        {"packs": PACKS[::-1]},
        {"packs": (PACKS[0], PACKS[0])},
        {"packs": 5},
        {"tables": ((True, b"digest"),)},
        {"tables": ((1, b"digest", 2),)},
        {"tables": None},
        {"turn": 8},
        {"turn": "7"},
        {"address": -1},
        {"term": None},
        {"store_id": b"short"},
        {"tables_id": "t" * 16},
        {"is_seed": 1},
        {"mark": None},
        {"digests": ((b"tab.", 1),)},
        {"digests": (("tab.", 1, 2),)},
    ],
)
def test_a_manifest_names_nothing_that_no_snapshot_has(fields: dict[str, Any]) -> None:
    data = encode_manifest(WHOLE._replace(**fields))
    with pytest.raises(Corruption, match="the manifest"):
        read_manifest(data, STEM, "the manifest")


@pytest.mark.parametrize("stem", ["", "..", f"{STEM}x", f"x{STEM}", stem_of(8, b"nonce..8")])
def test_a_manifest_is_that_of_its_name(stem: str) -> None:
    with pytest.raises(Corruption):
        read_manifest(encode_manifest(WHOLE), stem, "m")


def test_a_part_is_known_by_its_bytes() -> None:
    check_part(b"first", PARTS[0], "a part")
    for data in (b"firs", b"fjrst", b"first.", b""):
        with pytest.raises(Corruption, match="a part is damaged"):
            check_part(data, PARTS[0], "a part")
    with pytest.raises(Corruption):
        check_part(b"first", Part(6, PARTS[0].digest), "a part")


def test_a_pack_has_the_payload_of_its_runs_and_no_other() -> None:
    reader = PackReader(encode_pack([(5, 3), (20, 4)], [b"ab", b"c", b"defg"]), "a pack")
    assert reader.get(5, 3) == b"abc" and reader.get(6, 1) == b"b"
    assert reader.get(20, 4) == b"defg" and reader.get(22, 2) == b"fg"
    for address, length in ((4, 1), (5, 4), (8, 1), (19, 1), (20, 5), (24, 1), (1 << 40, 1)):
        with pytest.raises(Corruption, match="a pack lacks payload"):
            reader.get(address, length)


@pytest.mark.parametrize("data", [b"", b"PSP1", b"PSP1\1\0\0\0", encode_pack([(0, 2)], [b"a"])])
def test_what_is_no_pack_is_refused(data: bytes) -> None:
    with pytest.raises(Corruption, match="a pack is no pack"):
        PackReader(data, "a pack")
