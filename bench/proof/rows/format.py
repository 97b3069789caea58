"""Row `format`: opens, verifies, compares, extends and reopens stores of every version of the format.

    formats/*.tar.xz ─▶ unpacked ─▶ verify ─▶ reader: contents, outcomes, digests = the stored json
                                            ─▶ owner: the same; writes on; closes; opens: still the same, and more
    both once more in a process whose LMDB would make files of its version 1.0: files stay as they are

The control changes one byte of the archived store, of the archive, and one figure of an expectation.

Next: ../formats/make.py.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, cast

import planstep
from planstep.api.open_engine import Mode
from planstep.store.meta import FORMAT
from planstep.store.verify import verify

from ...children import call
from ..disks.contents import contents
from ..disks.forked import apart
from ..disks.sample import Kind, quickly, settled
from ..formats import make
from .registry import RowOptions, RowResult

_MAGIC = struct.pack("=I", 0xBEEFC0DE)
_CHOOSES = "LMDB_DEFAULT_LIB_VERSION"
_ENGINES = (None, "1")
"""Values of the variable `_CHOOSES` to run under."""


def stored() -> list[tuple[str, Kind]]:
    """Lists the names and kinds of all stored stores."""
    stores = []
    for path in sorted(make.HERE.glob("format-*.tar.xz")):
        name = path.name.removesuffix(".tar.xz")
        _, _, mode, hosts, end = name.split("-")
        stores.append((name, Kind(cast(Mode, mode), int(hosts), end)))
    return stores


def run(options: RowOptions) -> RowResult:
    result = RowResult()
    names = stored()
    versions = {name.split("-")[1] for name, _ in names}
    every = {str(n) for n in range(1, FORMAT + 1)}
    result.must(
        versions == every, f"stores of versions {sorted(versions)} ship, not {sorted(every)}"
    )
    result.must(len(names) >= 8 * FORMAT, f"only {len(names)} stored stores ship")
    for name, kind in names:
        _one(result, options, name, kind, *_archived(name))
        options.tell(f"{name}: {len(result.violations)} violations so far")
    for engine in _ENGINES:
        _other_engine(result, options, engine)
    result.figures["versions"] = len(versions)
    return result


def control(options: RowOptions) -> RowResult:
    """Changes one byte of an archived store, of an expectation, or of the archive: each must be detected."""
    result = RowResult()
    for number, (name, kind) in enumerate(stored()):
        random = Random(f"{options.seed} {name}")
        archive, expected = _archived(name)
        planted = RowResult()
        if number % 3 == 0:
            sample = make.unpacked(archive, kind)
            path = min(n for n in sample.files if "/log-" in n)
            data = bytearray(sample.files[path])
            data[100] ^= 1 << random.randrange(8)  # in the first records
            sample.files[path] = bytes(data)
            archive = make.packed(sample)
        elif number % 3 == 1:
            tablet = random.choice(sorted(expected["digests"]["host-0"]))
            expected["digests"]["host-0"][tablet][0] ^= 1
        else:
            broken = bytearray(archive)
            broken[len(broken) // 2] ^= 1
            archive = bytes(broken)
        _one(planted, options, name, kind, archive, expected)
        result.runs += 1
        if planted.violations:
            result.violations.append(planted.violations[0])
    return result if len(result.violations) == result.runs else RowResult(result.runs)


def _archived(name: str) -> tuple[bytes, dict[str, Any]]:
    """Returns a stored store and what it must show."""
    archive = (make.HERE / f"{name}.tar.xz").read_bytes()
    return archive, json.loads((make.HERE / f"{name}.json").read_text())


def _one(
    result: RowResult,
    options: RowOptions,
    name: str,
    kind: Kind,
    archive: bytes,
    expected: dict[str, Any],
) -> None:
    result.runs += 1
    store = options.memory / name
    try:
        sample = make.unpacked(archive, kind)
    except Exception as error:
        result.violations.append(f"{name}: the archive cannot be read: {error}")
        return
    try:
        for use, name_of_use in (
            (_verified, "verified"),
            (make.seen, "read"),
            (_written, "written"),
        ):
            where = f"{name}: {name_of_use}"
            shutil.rmtree(store, ignore_errors=True)
            sample.planted(store)
            ended = apart(_use, (use, store), 30.0)
            result.must(not ended.why, f"{where}: {ended.why}")
            result.events += not ended.why
            for what, new in (ended.value or {}).items():
                old = expected.get(what, {})
                for key in [key for key in sorted({**new, **old}) if new.get(key) != old.get(key)][
                    :1
                ]:
                    result.violations.append(
                        f"{where}: {what} of {key} is {new.get(key)!r:.200}, not {old.get(key)!r:.200}"
                    )
    finally:
        shutil.rmtree(store, ignore_errors=True)


def _use(task: tuple[Callable[[Path], dict[str, Any]], Path]) -> dict[str, Any]:
    use, store = task
    quickly()
    return use(store)


def _verified(store: Path) -> dict[str, Any]:
    for host in sorted(store.glob("host-*")):
        problems = verify(host)
        assert not problems, f"verify {host.name}: {problems[:3]}"
    return {}


def _written(store: Path) -> dict[str, Any]:
    """Opens the store as owner, writes to it, and reopens it: everything must be there."""
    with planstep.open(store, create=False) as db:
        deterministic = db.mode == "deterministic"
        shown = json.loads(json.dumps(contents(db, outcomes=deterministic)))
        with db.transaction() as tx:
            tx.read("of-bytes", "later", max_records=3)
            tx.write_batch("of-bytes", [b"later"] * 3, partition=0)
            if deterministic:
                tx.put("in-msgpack", "later", {"n": 1})
    _verified(store)
    with planstep.open(store) as db:
        topic = db.topic("of-bytes")
        settled(db)  # mode kafka: markers come after the reply
        assert topic.read(partition=0).values[-3:] == [b"later"] * 3, "what was added is not there"
        at = sum(topic.position("later").values())
        # Mode kafka: markers have offsets too.
        assert at == 3 if deterministic else at >= 3, f"3 were read, the position is {at}"
        if deterministic:
            assert db.table("in-msgpack").get("later") == {"n": 1}
    return {"contents": shown}


def _other_engine(result: RowResult, options: RowOptions, engine: str | None) -> None:
    """Checks a stored and a new store while LMDB is told to create files of another version."""
    environment = {k: v for k, v in os.environ.items() if k != _CHOOSES}
    environment |= {} if engine is None else {_CHOOSES: engine}
    name, kind = stored()[0]
    old, new = options.memory / "old", options.memory / "new"
    make.unpacked(_archived(name)[0], kind).planted(old)
    child = subprocess.run(
        call(under_engine, old, new), env=environment, capture_output=True, text=True, timeout=60
    )
    result.runs += 1
    lines = child.stderr.strip().splitlines()[-1:] or [""]
    result.must(child.returncode == 0, f"under LMDB's engine {engine}: {lines[0]}")
    for store in (old, new):
        for path in sorted(store.rglob("data.mdb")):
            head = path.read_bytes()[:24]
            version = int.from_bytes(head[20:24], sys.byteorder) if head[16:20] == _MAGIC else 0
            what = (
                f"under engine {engine}: {path.parent.parent.name} is of LMDB's version {version}"
            )
            result.must(version == 1, what)
        shutil.rmtree(store, ignore_errors=True)


def under_engine(old_store: str, new_store: str) -> None:
    """Uses both stores, in a process whose environment chose LMDB's version for new files."""
    old, new = Path(old_store), Path(new_store)
    quickly()
    _verified(old)
    _written(old)
    with planstep.open(new, mode="deterministic", hosts=2) as db:
        db.create_topic("t", partitions=2).write_batch(
            [b"v"] * 8, keys=[b"%d" % n for n in range(8)]
        )
        db.create_table("u").put("k", 1)
    _verified(new)
    with planstep.open(new, read_only=True) as db:
        assert len(db.topic("t").read()) == 8 and db.table("u").get("k") == 1
