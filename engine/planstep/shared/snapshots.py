"""Keeps a store's snapshots in an object store: finds the newest whole one, adds one, and removes old ones.

    make      draft ─▶ floor? ─▶ new packs, tables ─▶ manifest          parts without a manifest are nothing
    trim      the newest `keep` whole ones stay ─▶ the oldest one's turn is the log's floor ─▶ collect
    collect   list ─▶ remove what is older than the floor, and not named by a manifest or draft of a later turn

A snapshot takes over packs of the one before. Another owner, fenced or not, may collect that one meanwhile. The
draft names these packs before the floor is read. So either the collector, who wrote its floor before it listed,
finds the draft and spares them. Or the floor that is read is above the snapshot before, and nothing of it is
taken over. No clock is asked.

Next: settings.py.
"""

from collections.abc import Callable, Iterator
from itertools import count, islice

from ..errors import Corruption
from ..logs import snapshot_unusable
from .manifest import (
    DRAFT,
    MANIFEST,
    PACK,
    PACK_NAME,
    SNAP,
    STEM,
    Manifest,
    Pack,
    PackReader,
    Part,
    check_part,
    encode_manifest,
    encode_pack,
    part_of,
    read_manifest,
    tables_name,
    turn_of,
)
from .patient import LOG_TIMEOUT, PatientObjects
from .shared_log import Objects


class Snapshots:
    """The snapshots of one store. For one thread. LogUnreachable, NoSpace, Corruption."""

    def __init__(
        self,
        objects: Objects,
        where: str,
        store_id: bytes,
        timeout: float = LOG_TIMEOUT,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """`timeout`, in seconds: how long a call is repeated that fails; `check` raises to end it."""
        self._patient = PatientObjects(objects, where, timeout, check=check)
        self._where = where
        self.store_id = store_id

    # finding -------------------------------------------------------------------------------

    def newest_first(self, turn_max: int | None = None) -> Iterator[Manifest]:
        """Yields the whole snapshots, of turn `turn_max` at most, the newest first.

        A snapshot is whole if its manifest is readable, and all its parts are there. Others are logged.
        """
        snaps = self._patient.names(SNAP)
        there = {*snaps, *self._patient.names(PACK)}
        stems = [name.removeprefix(SNAP).removesuffix(MANIFEST) for name in snaps]
        for stem in sorted(stems, reverse=True):
            if not STEM.fullmatch(stem) or (turn_max is not None and turn_of(stem) > turn_max):
                continue
            try:
                manifest = self._read(stem, MANIFEST)
                if manifest is not None:
                    self._check_there(manifest, there)
                    yield manifest
            except Corruption as error:
                snapshot_unusable(f"{self._where}/{SNAP}{stem}", error)

    def _read(self, stem: str, kind: str) -> Manifest | None:
        """Reads a manifest or a draft; None if it was removed meanwhile. Corruption."""
        name = f"{SNAP}{stem}{kind}"
        data = self._patient.get(name)
        if data is None:
            return None
        self._patient.sync(name)  # its writer may have been killed before it did
        manifest = read_manifest(data, stem, f"{self._where}/{name}")
        if manifest.store_id != self.store_id:
            raise Corruption(f"{self._where}/{name} is of another store")
        return manifest

    def _check_there(self, manifest: Manifest, there: set[str]) -> None:
        missing = [name for name in manifest.names if name not in there]
        if missing:
            raise Corruption(f"{self._where}/{missing[0]} is missing")

    def tables(self, manifest: Manifest) -> Iterator[bytes]:
        """Yields the parts of the tables, in order. Corruption for one that is damaged or missing."""
        for number, part in enumerate(manifest.tables):
            yield self._get(tables_name(manifest.stem, number), part)

    def pack(self, pack: Pack) -> PackReader:
        """Reads a pack. Corruption if it is damaged or missing."""
        name = PACK + pack.name
        return PackReader(self._get(name, pack.part), f"{self._where}/{name}")

    def _get(self, name: str, part: Part) -> bytes:
        data = self._patient.get(name)
        if data is None:
            raise Corruption(f"{self._where}/{name} is missing")
        check_part(data, part, f"{self._where}/{name}")
        return data

    # trimming ------------------------------------------------------------------------------

    def oldest(self, keep: int) -> Manifest | None:
        """Returns the oldest of the newest `keep` whole snapshots; None if there are fewer."""
        return next(islice(self.newest_first(), keep - 1, None), None)

    def collect(self, floor: int) -> None:
        """Removes what is older than the floor, which is written, and no later snapshot names.

        It may be repeated, and cut short anywhere.
        """
        snaps = [name for name in self._patient.names(SNAP) if STEM.fullmatch(_stem(name))]
        old = [name for name in snaps if turn_of(_stem(name)) < floor]
        named: set[str] = set()
        for name in snaps:
            kind = name.removeprefix(SNAP + _stem(name))
            if name not in old and kind in (MANIFEST, DRAFT):
                manifest = self._read(_stem(name), kind)
                if manifest is None:
                    return  # a later collector is at work
                named.update(manifest.names)
        packs = [name for name in self._patient.names(PACK) if name not in named]
        old_packs = [
            name
            for name in packs
            if (match := PACK_NAME.fullmatch(name.removeprefix(PACK))) and int(match[1]) < floor
        ]
        manifests = [name for name in old if name.endswith(MANIFEST)]
        rest = [name for name in old if not name.endswith(MANIFEST)]
        for name in (*manifests, *old_packs, *rest):  # no manifest outlives a part of it
            self._patient.remove(name)

    # making --------------------------------------------------------------------------------

    def begin(
        self, stem: str, before: Manifest | None, wanted: list[Pack], floor: Callable[[], int]
    ) -> "SnapshotWriter":
        """Begins a snapshot, which takes over the `wanted` packs of the one before, or none of them."""
        writer = SnapshotWriter(self._patient, stem)
        if before is not None and wanted:
            draft = Manifest(
                *(stem, self.store_id, self.store_id, turn_of(stem), before.address, 0, b"", 0),
                *(False, (), tuple(wanted), ()),
            )
            writer.put(f"{SNAP}{stem}{DRAFT}", encode_manifest(draft))
            if floor() <= before.floor_max:
                writer.packs = list(wanted)
        return writer


def _stem(name: str) -> str:
    return name.removeprefix(SNAP).partition("/")[0]


class SnapshotWriter:
    """A snapshot that is being made: its parts so far. `uploaded`: their bytes."""

    def __init__(self, patient: PatientObjects, stem: str) -> None:
        self.stem = stem
        self.tables: list[Part] = []
        self.packs: list[Pack] = []
        self.uploaded = 0
        self._patient = patient
        self._numbers = count()

    def put(self, name: str, data: bytes) -> Part:
        if self._patient.put(name, data) != data:
            raise Corruption(f"{self._patient.where}/{name} holds what this snapshot did not write")
        self.uploaded += len(data)
        return part_of(data)

    def add_tables(self, data: bytes) -> None:
        self.tables.append(self.put(tables_name(self.stem, len(self.tables)), data))

    def add_pack(self, runs: list[tuple[int, int]], chunks: list[bytes]) -> None:
        """Adds a pack; parameters as for `encode_pack`."""
        name = f"{self.stem}-{next(self._numbers):04d}"
        begin, end = runs[0][0], sum(runs[-1])
        payload = sum(length for _, length in runs)
        part = self.put(PACK + name, encode_pack(runs, chunks))
        self.packs.append(Pack(name, begin, end, payload, part))

    def finish(self, manifest: Manifest) -> Manifest:
        """Writes the manifest, with the parts; from now on it is a snapshot."""
        packs = sorted(self.packs, key=lambda pack: pack.begin)
        manifest = manifest._replace(tables=tuple(self.tables), packs=tuple(packs))
        data = encode_manifest(manifest)
        read_manifest(data, self.stem, "a manifest")  # turns go for its sake: it had better be one
        self.put(f"{SNAP}{self.stem}{MANIFEST}", data)
        return manifest
