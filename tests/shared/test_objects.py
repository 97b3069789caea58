"""Tests object stores beneath shared logs (shared_log.Objects) with names that logs do not have, but snapshots."""

from shared_kit import Backing, InFolder

PART, OTHER = "snap/7-x/tables-0", "snap/8-y/manifest"


def test_names_may_have_folders(backing: Backing) -> None:
    objects = backing.objects()
    assert objects.names("snap/") == [] and objects.get(PART) is None
    assert objects.create(PART, b"part") and objects.create(OTHER, b"manifest")
    assert not objects.create(PART, b"other")
    objects.sync(PART)
    assert objects.get(PART) == b"part"
    assert objects.names("snap/") == [PART, OTHER]
    assert objects.names("snap/8-y/") == [OTHER]
    assert backing.open().floor() == 1


def test_names_begin_behind_a_start(backing: Backing) -> None:
    objects = backing.objects()
    names = [f"{folder}/{n:020d}" for folder in ("log", "run/x") for n in range(9)]
    for name in names:
        objects.create(name, b"")
    assert objects.names("log/", names[4]) == names[5:9]
    assert objects.names("log/", names[8]) == []
    assert objects.names("run/", names[14]) == names[15:]
    assert objects.names("run/", names[4]) == names[9:]
    assert objects.names("log/") == names[:9]


def test_what_is_removed_is_gone_with_its_folders(backing: Backing) -> None:
    objects = backing.objects()
    for name in (PART, "snap/7-x/manifest", OTHER):
        objects.create(name, b"")
    for name in (PART, PART, "snap/9/none"):
        objects.remove(name)
    assert objects.names("snap/") == ["snap/7-x/manifest", OTHER]
    objects.remove("snap/7-x/manifest")
    assert objects.names("snap/") == [OTHER]
    if isinstance(backing, InFolder):
        assert [path.name for path in (backing.path / "snap").iterdir()] == ["8-y"]
    assert objects.create(PART, b"again") and objects.get(PART) == b"again"


def test_sizes_are_those_of_all_objects(backing: Backing) -> None:
    objects = backing.objects()
    before = objects.sizes()
    objects.create(PART, b"part")
    objects.create(f"log/{1:020d}", b"a turn")
    assert objects.sizes() == {**before, PART: 4, f"log/{1:020d}": 6}
