"""Writes and reads the contents of transactions in frames: parts, staged slices, details.

    head      … (length, records) … (key, op, length) …          fields that have payload name its length
    payload   bytes │ bytes │ …                                  in the same order; never copied by `encode`

A partition's slices arrive as views of the frame's buffer, up to the write that puts them into the log. Values of
rows are copied out, since they outlive the frame; short ones are in the head.

A host stops when a tablet raises, as that is a bug. So all that a tablet relies on in a part is checked here:
lengths of names and keys, numbers where it calculates, one's own hosts. Only maintenance cleans the catalogue.

Left out: whether a tablet exists, and whether a transaction's id is its sender's; the owner knows both.
Next: frame_messages.py.
"""

from collections.abc import Iterable
from math import isfinite
from typing import Annotated, Any, TypeAlias, cast

import msgpack

from ..errors import Corruption, InvalidName
from .batch import Batch
from .frame_checks import (
    INT_MAX,
    By,
    Check,
    MalformedFrame,
    Reading,
    Within,
    checker,
    record,
    shown,
)
from .ids import CATALOGUE, CATALOGUE_ID, HOST_SHIFT, KIND_SHIFT, PARTITION, SHARD, tablet_text
from .keys import KEY_BYTES_MAX, check_name
from .messages import (
    ADD,
    CLEANED,
    CREATE,
    DROP_CONSUMER,
    MAX,
    MIN,
    PUT_IF_ABSENT,
    AheadSlices,
    CataloguePart,
    Detail,
    PartitionPart,
    Parts,
    ShardPart,
    Slices,
)

INLINE_BYTES = 256
"""A row's value of more bytes is payload."""
_NUMERIC = (ADD, MAX, MIN)
_NUMBER_BYTES = 9
_PARTITIONS_MAX = 10_000

Offset: TypeAlias = Annotated[int, Within(0, INT_MAX)]
Tx: TypeAlias = Annotated[bytes, Within(12, 12)]


def _read_name(name: Any, reading: Reading) -> str:
    try:
        return check_name(name)
    except InvalidName:
        raise MalformedFrame(f"{shown(name)} is no name") from None


Name: TypeAlias = Annotated[str, By(_read_name)]


def read_tablet(tablet: Any, reading: Reading) -> int:
    if type(tablet) is int and 0 < tablet < 1 << 32:
        host = tablet >> HOST_SHIFT & 0xFF
        if host < reading.hosts:
            return tablet
        raise MalformedFrame(f"{tablet_text(tablet)}, but the store has {reading.hosts} hosts")
    raise MalformedFrame(f"{shown(tablet)} in place of a tablet's id")


Tablet: TypeAlias = Annotated[int, By(read_tablet)]

# slices ------------------------------------------------------------------------------------


def _write_slices(slices: Slices, payloads: list[Any]) -> tuple[tuple[int, int], ...]:
    payloads += [data for data, _ in slices]
    return tuple([(len(data), records) for data, records in slices])


def _read_slice(item: Any, reading: Reading) -> tuple[bytes, int]:
    """Reads a slice as a view of payload: a batch of as many records as is said."""
    if type(item) is not tuple or len(item) != 2:
        raise MalformedFrame(f"{shown(item)} in place of (length, records)")
    length, records = item
    reading.slices += 1
    if reading.slices > reading.limits.slices:
        raise MalformedFrame(f"more than {reading.limits.slices:,} slices")
    data = cast(bytes, reading.take(length))
    try:
        count = Batch.decode(data, verify=False).count
    except Corruption as error:
        raise MalformedFrame(str(error)) from None
    if type(records) is not int or records != count or not count:
        raise MalformedFrame(f"{shown(records)} records are said, the batch has {count:,}")
    return data, records


_Slices: TypeAlias = tuple[Annotated[Any, By(_read_slice)], ...]

# parts -------------------------------------------------------------------------------------

_span_fields = checker(tuple[Name, Offset, Offset])


def _read_span(span: Any, reading: Reading) -> Any:
    checked = _span_fields(span, reading)
    if checked[1] > checked[2]:
        raise MalformedFrame(f"a range from {checked[1]:,} to {checked[2]:,}")
    return checked


def _read_numbers(numbers: Any, reading: Reading) -> Any:
    checked = _number_fields(numbers, reading)
    if checked is not None and checked[1] > checked[2]:
        raise MalformedFrame(f"numbers from {checked[1]:,} to {checked[2]:,}")
    return checked


_number_fields = checker(tuple[Annotated[bytes, Within(1, 400)], Offset, Offset] | None)
_Spans: TypeAlias = tuple[Annotated[Any, By(_read_span)], ...]
_read_any_partition = record(
    PartitionPart,
    {
        "ranges": _Spans,
        "slices": _Slices,
        "producer": Annotated[Any, By(_read_numbers)],
        "dedupe": bool,
        "staged": Annotated[int, Within(0, 10_000)],
        "acks": _Spans,
        "seeks": tuple[tuple[Name, Offset | None, bool], ...],
        "trim": Offset | None,
        "drop": bool,
        "session": Annotated[bytes, Within(1, 400)] | None,
        "fences": tuple[tuple[Name, Offset], ...],
        "end": Offset | None,
    },
)
_WRITES_ONLY = PartitionPart()[2:]
_read_slices = checker(_Slices)


def _read_partition(part: Any, reading: Reading) -> Any:
    """Reads a partition's part: at once where it has slices only, as most have."""
    if type(part) is tuple and part[:1] == ((),) and part[2:] == _WRITES_ONLY:
        try:
            return PartitionPart((), _read_slices(part[1], reading))
        except MalformedFrame as error:
            raise error.inside(".slices") from None
    return _read_any_partition(part, reading)


def _read_seen(seen: Any, reading: Reading) -> Any:
    """Reads a range that was seen: the shard scans one row more than it had."""
    checked = _seen_fields(seen, reading)
    _, _, limit, count, _ = checked
    reading.range_rows += count
    if limit != count + 1 or reading.range_rows > reading.limits.range_rows:
        raise MalformedFrame(f"a range of {count:,} rows with the limit {limit:,}")
    return checked


_Bound: TypeAlias = Annotated[bytes, Within(0, KEY_BYTES_MAX + 2)]  # behind the last key
_Count: TypeAlias = Annotated[int, Within(0, (1 << 32) - 1)]
_read_version = checker(tuple[Offset, Offset])
_seen_fields = checker(tuple[_Bound, _Bound, _Count, _Count, _Count])


def _read_row(item: Any, reading: Reading) -> tuple[bytes, Any]:
    """Reads (key, version) of a row that was seen."""
    if type(item) is not tuple or len(item) != 2:
        raise MalformedFrame(f"{shown(item)} in place of (key, version)")
    key, version = item
    _check_key(key)
    return key, version if version is None else _read_version(version, reading)


def _check_key(key: Any) -> None:
    if type(key) is not bytes or not 0 < len(key) <= KEY_BYTES_MAX:
        raise MalformedFrame(f"{shown(key)} in place of a key")


def _read_write(item: Any, reading: Reading) -> tuple[bytes, int, bytes]:
    if type(item) is not tuple or len(item) != 3:
        raise MalformedFrame(f"{shown(item)} in place of (key, operation, value)")
    key, op, data = item
    _check_key(key)
    if type(op) is not int or not 0 <= op <= PUT_IF_ABSENT:
        raise MalformedFrame(f"{shown(op)} in place of an operation")
    if type(data) is int:
        data = bytes(reading.take(data))
    if type(data) is not bytes or len(data) > reading.limits.row:
        raise MalformedFrame(f"{shown(data)} in place of a row's value")
    if op in _NUMERIC and not _is_number(data):
        raise MalformedFrame("an operand that is no finite number")
    return key, op, data


def _is_number(data: bytes) -> bool:
    if len(data) > _NUMBER_BYTES:
        return False
    try:
        number = msgpack.unpackb(data)
    except Exception:  # msgpack raises errors of many classes
        return False
    return type(number) is int or (type(number) is float and isfinite(number))


_read_writes = checker(tuple[Annotated[Any, By(_read_write)], ...])
_read_any_shard = record(
    ShardPart,
    {
        "reads": tuple[Annotated[Any, By(_read_row)], ...],
        "ranges": tuple[Annotated[Any, By(_read_seen)], ...],
        "writes": tuple[Annotated[Any, By(_read_write)], ...],
        "drop": bool,
    },
)


def _read_shard(part: Any, reading: Reading) -> Any:
    """Reads a shard's part: at once where it has writes only."""
    if type(part) is tuple and len(part) == 4 and part[:2] == ((), ()) and part[3] is False:
        try:
            return ShardPart((), (), _read_writes(part[2], reading))
        except MalformedFrame as error:
            raise error.inside(".writes") from None
    return _read_any_shard(part, reading)


def _read_catalogue(part: Any, reading: Reading) -> CataloguePart:
    checked: CataloguePart = _catalogue_fields(part, reading)
    wrong = (
        f"tablets are of kind {checked.kind}"
        if checked.kind not in (PARTITION, SHARD)
        else "only maintenance cleans"
        if checked.op == CLEANED
        else f"for {checked.hosts:,} hosts, but the store has {reading.hosts}"
        if checked.hosts != reading.hosts
        else "nothing is made of no parts"
        if checked.op == CREATE and not checked.parts
        else ""
    )
    if wrong:
        raise MalformedFrame(wrong)
    return checked


_Word: TypeAlias = Annotated[str, Within(0, 200)]
_catalogue_fields = record(
    CataloguePart,
    {
        "kind": int,
        "name": Name,
        "parts": Annotated[int, Within(0, _PARTITIONS_MAX)],
        "format": _Word,
        "hosts": int,
        "op": Annotated[int, Within(CREATE, DROP_CONSUMER)],
        "id": _Count,
        "options": tuple[tuple[_Word, Any], ...],
        "consumer": Name,
    },
)
_READERS: dict[int, Check] = {
    PARTITION: _read_partition,
    SHARD: _read_shard,
    CATALOGUE: _read_catalogue,
}


def write_parts(parts: Parts, payloads: list[Any]) -> dict[int, tuple[Any, ...]]:
    written: dict[int, tuple[Any, ...]] = {}
    for tablet, part in parts.items():
        written[tablet] = part
        if type(part) is PartitionPart:
            if part.slices:
                written[tablet] = (part[0], _write_slices(part.slices, payloads), *part[2:])
        elif type(part) is ShardPart and any(len(data) > INLINE_BYTES for _, _, data in part[2]):
            writes = tuple([_write_row(row, payloads) for row in part.writes])
            written[tablet] = (part.reads, part.ranges, writes, part.drop)
    return written


def _write_row(
    row: tuple[bytes, int, bytes], payloads: list[Any]
) -> tuple[bytes, int, bytes | int]:
    key, op, data = row
    if len(data) <= INLINE_BYTES:
        return row
    payloads.append(data)
    return key, op, len(data)


def read_parts(parts: Any, reading: Reading) -> Parts:
    """Reads a transaction's parts, each of the class that its tablet takes."""
    checked: Parts = {}
    for tablet, part in _by_tablet(parts, reading):
        kind = read_tablet(tablet, reading) >> KIND_SHIFT
        try:
            read = _READERS.get(kind)
            if read is None or (kind == CATALOGUE and tablet != CATALOGUE_ID):
                raise MalformedFrame("no transaction has a part there")
            checked[tablet] = read(part, reading)
        except MalformedFrame as error:
            raise error.inside(f"[{tablet_text(tablet)}]") from None
    return checked


def _by_tablet(parts: Any, reading: Reading) -> Iterable[tuple[Any, Any]]:
    most = reading.limits.tablets
    if type(parts) is not dict or not 0 < len(parts) <= most:
        raise MalformedFrame(f"{shown(parts)} in place of 1 to {most:,} tablets' parts")
    return parts.items()


def write_ahead(slices: AheadSlices, payloads: list[Any]) -> dict[int, Any]:
    return {
        tablet: (first, _write_slices(more, payloads)) for tablet, (first, more) in slices.items()
    }


def read_ahead(slices: Any, reading: Reading) -> AheadSlices:
    """Reads slices to stage: (number of the first, slices) by partition."""
    checked: AheadSlices = {}
    for tablet, item in _by_tablet(slices, reading):
        kind = read_tablet(tablet, reading) >> KIND_SHIFT
        try:
            if kind != PARTITION:
                raise MalformedFrame("only partitions stage slices")
            checked[tablet] = _ahead_fields(item, reading)
        except MalformedFrame as error:
            raise error.inside(f"[{tablet_text(tablet)}]") from None
    return checked


_ahead_fields = checker(tuple[Annotated[int, Within(0, 10_000)], _Slices])

# answers -----------------------------------------------------------------------------------

_read_offsets = checker(tuple[Offset, Offset])


def read_details(details: Any, reading: Reading) -> dict[int, Detail]:
    """Reads each tablet's detail of a commit."""
    if type(details) is not dict or len(details) > reading.limits.tablets:
        raise MalformedFrame(f"{shown(details)} in place of details by tablet")
    for tablet, detail in details.items():
        read_tablet(tablet, reading)
        if detail is not None:
            _read_offsets(detail, reading)
    return details
