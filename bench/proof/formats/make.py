"""Makes the archived stores of this version's format: `python -m planstep.bench.proof.formats.make [FOLDER]`.

    sample.py ─▶ archive, byte for byte the same from the same bytes
              ─▶ expectation: the contents that a reader sees, as JSON

An existing archive is left alone: a new one needs a new format number.

Next: ../rows/format.py.
"""

import io
import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import planstep
from planstep.store.meta import FORMAT

from ..disks.contents import contents, digests
from ..disks.forked import apart
from ..disks.sample import KINDS, Kind, Sample, make, quickly

HERE = Path(__file__).parent
STORED = tuple(kind for kind in KINDS if kind.end in ("closed", "killed"))


def stem(kind: Kind) -> str:
    return f"format-{FORMAT}-{kind.mode}-{kind.hosts}-{kind.end}"


def main(target: Path) -> None:
    for kind in STORED:
        archive = target / f"{stem(kind)}.tar.xz"
        if archive.exists():
            print(f"{archive.name} is there: left as it is")
            continue
        with tempfile.TemporaryDirectory(prefix="planstep-format-") as folder:
            sample = make(kind, Path(folder))
            sample.planted(Path(folder) / "store")
            ended = apart(seen, Path(folder) / "store")
            if ended.why:
                raise SystemExit(f"{kind}: {ended.why}")
            archive.write_bytes(packed(sample))
            text = json.dumps(ended.value, sort_keys=True, separators=(",", ":"))
            archive.with_name(f"{stem(kind)}.json").write_text(text + "\n")
            print(f"{archive.name}: {archive.stat().st_size:,} bytes")


def seen(store: Path) -> dict[str, Any]:
    """Reads a store, without changing it, and returns the contents to compare, in JSON's types."""
    quickly()
    sums = {host.name: digests(host) for host in sorted(store.glob("host-*"))}
    with planstep.open(store, read_only=True) as db:
        data: dict[str, Any] = {"contents": contents(db, outcomes=db.mode == "deterministic")}
    data["digests"] = sums
    with_lists: dict[str, Any] = json.loads(json.dumps(data))
    return with_lists


def packed(sample: Sample) -> bytes:
    """Packs a sample's files without their trailing zeros, and their full sizes in sizes.json."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz", preset=9) as tar:
        sizes = json.dumps(sample.sizes, sort_keys=True).encode()
        for name, data in sorted({**sample.files, "sizes.json": sizes}.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o600
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def unpacked(archive: bytes, kind: Kind) -> Sample:
    """Unpacks an archive; a damaged one raises the errors of tarfile and lzma."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:xz") as tar:
        for entry in tar:
            file = tar.extractfile(entry)
            files[entry.name] = file.read() if file is not None else b""
    return Sample(kind, files, json.loads(files.pop("sizes.json")))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
