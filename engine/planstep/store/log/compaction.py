"""Copies the live bytes of mostly dead files together, so that their space is freed.

    log-…-3   ▒▒▒█▒▒▒▒     ▒ dropped, or covered by the checkpoint     ──▶  data-…-0  ███
    log-…-4   ▒█▒▒▒▒█▒     █ live extents                                   then both are removed

Checkpointer calls it; restored snapshots are written by `write_data` too. Addresses stay: only the table of extents
learns the new places, in one transaction, after the copy is durable. A crash before or after that leaves files that
nothing refers to. Bytes are copied as they are, in pieces: the batches in them carry their own checksums. Extents
whose addresses follow one another become one, so that small payloads cost no entry each; no list of all extents is
in memory.

Next: ../disk_store.py.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from ...crc import crc32
from ...errors import Corruption
from ..files import Files
from ..tables.table import Table
from .extents import Extent
from .records import DATA, OVERHEAD, before_first, encode_crc, encode_head
from .segments import Folder, data_name

SMALL_FILES_MAX = 16
_PIECE_BYTES = 1 << 20


def choose(live: dict[str, int], sizes: dict[str, int], bytes_max: int) -> list[str]:
    """Chooses files to copy together: those mostly dead, and small ones once they are many.

    `live` and `sizes` are bytes by file name. The chosen files hold at most about `bytes_max` live bytes; the
    list is empty if copying is not worth it.
    """
    held = sorted(name for name in live if name in sizes)
    dead = [name for name in held if live[name] * 2 < sizes[name]]
    small = [name for name in held if sizes[name] * 8 < bytes_max]
    wanted = dead + ([n for n in small if n not in dead] if len(small) > SMALL_FILES_MAX else [])
    chosen: list[str] = []
    size = 0
    for name in wanted:
        if chosen and size + live[name] > bytes_max:
            break
        chosen.append(name)
        size += live[name]
    return chosen


def rewrite(
    folder: Folder, table: Table, store_id: bytes, *, data_file: tuple[int, int], old: list[str]
) -> tuple[int, dict[str, int]]:
    """Copies the live bytes of `old` into one `data_file`, (generation, number).

    Returns (bytes written, live bytes by file).

    NoSpace or another IoError, or Corruption if an extent cannot be found or read: then nothing has changed.
    """
    files = frozenset(old)
    live = table.live()
    if sum(extent.length for extent in table.extents(files)) != sum(live[name] for name in old):
        raise Corruption(f"{', '.join(old)}: not all that is counted as live there was found")
    extents = partial(table.extents, files)
    size, moved = write_data(folder, store_id, data_file, extents, partial(_read, folder))
    # A failed commit may still have happened: both copies stay until a later commit has decided.
    return size, table.move(moved, files)


def write_data(
    folder: Folder,
    store_id: bytes,
    data_file: tuple[int, int],
    extents: Callable[[], Iterable[Extent]],
    read: Callable[[list[Extent]], Iterable[bytes]],
) -> tuple[int, list[Extent]]:
    """Writes a data file with the payload of all extents, durably; returns (its size, their new places).

    `extents` is called twice; `read` returns the payload of extents whose addresses follow one another.
    """
    name = data_name(*data_file)
    lengths = [_end(joined) - joined[0].address for joined in _joined(extents())]
    size = sum(lengths) + OVERHEAD * len(lengths)
    fd = folder.create_copy(name, size)
    try:
        moved = _copy(folder.files, fd, data_file, store_id, _joined(extents()), read)
        folder.files.sync(fd)
        folder.sync()
    except BaseException:
        folder.discard(name)
        raise
    folder.let_go(name)
    return size, moved


def _end(joined: list[Extent]) -> int:
    return joined[-1].address + joined[-1].length


def _joined(extents: Iterable[Extent]) -> Iterator[list[Extent]]:
    """Yields runs of extents whose addresses follow one another, of at most `_PIECE_BYTES` or one extent."""
    run: list[Extent] = []
    for extent in extents:
        end = extent.address + extent.length
        if run and (extent.address != _end(run) or end - run[0].address > _PIECE_BYTES):
            yield run
            run = []
        run.append(extent)
    if run:
        yield run


def _copy(
    files: Files,
    fd: int,
    data_file: tuple[int, int],
    store_id: bytes,
    runs: Iterable[list[Extent]],
    read: Callable[[list[Extent]], Iterable[bytes]],
) -> list[Extent]:
    generation, number = data_file
    name, crc = data_name(generation, number), before_first(number)
    moved: list[Extent] = []
    waiting: list[bytes] = []
    begin = end = 0

    def put(data: bytes) -> None:
        nonlocal begin, end
        waiting.append(data)
        end += len(data)
        if end - begin >= _PIECE_BYTES:
            files.write(fd, waiting, begin, False)
            begin = end
            waiting.clear()

    for run in runs:
        address, length = run[0].address, _end(run) - run[0].address
        sizes = 0, 0, length
        head = encode_head(
            DATA, store_id, generation, 0, address, 0, position=end, previous=crc, sizes=sizes
        )
        put(head)
        moved.append(Extent(address, name, end, length))
        crc = crc32(head)
        for data in read(run):
            crc = crc32(data, crc)
            put(data)
        put(encode_crc(crc))
    if waiting:
        files.write(fd, waiting, begin, False)
    return moved


def _read(folder: Folder, run: list[Extent]) -> Iterator[bytes]:
    for extent in run:
        yield from read_extent(folder, extent)


def read_extent(folder: Folder, extent: Extent) -> Iterator[bytes]:
    """Yields an extent's payload in pieces. IoError, Corruption."""
    address, file, offset, length = extent
    for at in range(0, length, _PIECE_BYTES):
        size = min(length - at, _PIECE_BYTES)
        data = folder.read(file, offset + at, size)
        if len(data) < size:
            raise Corruption(f"{file}: payload at address {address} is cut off")
        yield data
