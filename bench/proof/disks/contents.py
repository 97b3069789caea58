"""Reads a store's whole content as plain values that compare and print, and the digests of its tablets.

    contents   topics: bounds, records, positions; tables: rows; transactions' outcomes    through the engine
    digests    tablet → [sum of a hash of each key with its value, keys]                   from the store

Left out: the engine's generation, and counters.

Next: forked.py.
"""

from ast import literal_eval
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack

import planstep
from planstep.proto.ids import tablet_text
from planstep.store.readers.readonly import ReadOnlyStore
from planstep.store.tables.digested_rows import hash_entry

Contents = dict[str, Any]


def records(view: Any, topic: str, partition: int) -> Iterator[Any]:
    """Yields all records of a partition; markers of mode kafka are none."""
    at, end = view.bounds(topic)[partition]
    while at < end and len(batch := view.read(topic, at, partition, 10_000)):
        yield from batch
        at = batch.ends[partition]


def contents(db: planstep.Engine, outcomes: bool = False) -> Contents:
    """Returns everything visible, in values that JSON could hold. `outcomes`: the newest hundred too."""
    content: Contents = {}
    with db.context.open_view() as view:
        for name, topic in sorted(db.topics().items()):
            for partition, bounds in sorted(view.bounds(name).items()):
                content[f"topic {name}/{partition} {topic.format}"] = [
                    *bounds,
                    [
                        [r.offset, repr(r.value), repr(r.key), repr(r.headers), r.timestamp_ms]
                        for r in records(view, name, partition)
                    ],
                ]
            for consumer in sorted(topic.consumers()):
                at_all = sorted(view.position(name, consumer).items())
                content[f"consumer {consumer} of {name}"] = [list(item) for item in at_all]
        for name, table in sorted(db.tables().items()):
            rows = [[repr(key), repr(value)] for key, value in view.scan(name)]
            content[f"table {name} {table.format}"] = rows
    if outcomes:
        content["outcomes"] = sorted(
            [str(o.tx), o.state, None if o.place is None else list(o.place)]
            for o in db.transactions(100)
        )
    return content


def looked_up(db: planstep.Engine, whole: Contents) -> Contents:
    """Looks up each row of `whole` by its key, which is another way than a scan; returns those that differ."""
    differing: Contents = {}
    tables = db.tables()
    with db.context.open_view() as view:
        for name, rows in whole.items():
            kind, _, named = name.partition(" ")
            table = named.partition(" ")[0]
            if kind == "table" and table in tables:
                for key, value in rows:
                    if (found := repr(view.get(table, literal_eval(key)))) != value:
                        differing[f"row {key} of {name}"] = found
    return differing


def difference(whole: Contents, actual: Contents) -> str:
    for name in sorted(whole.keys() | actual.keys()):
        if whole.get(name) != actual.get(name):
            return f"{name}: {actual.get(name)!r:.150} in place of {whole.get(name)!r:.150}"
    return "nothing else"


def digests(host: Path) -> dict[str, list[int]]:
    """Computes the digest of each tablet of one host's store, including turns behind the checkpoint."""
    sums: dict[str, list[int]] = {}
    with closing(ReadOnlyStore.open(host)) as store:
        for key, value in store.scan(b"", b"\xff" * 8):
            tablet = sums.setdefault(tablet_text(int.from_bytes(key[:4], "big")), [0, 0])
            packed: bytes = msgpack.packb(value, use_bin_type=True)
            tablet[0] = tablet[0] + hash_entry(key, packed) & (1 << 64) - 1
            tablet[1] += 1
    return sums
