"""Feeds almost valid bytes to every decoder, and checks that each raises only the errors it may.

    batch            Corruption            messages       ValueError         stored values    Corruption
    encoded key      ValueError            log records    nothing            headers          Corruption
    meta.pb          FormatError           mark           nothing            entries of a     FormatError
                                                                             coordinator's log
    frames to a host: nothing, and its content stays what it was
    frames between processes of a store: MalformedFrame; what is taken encodes to what it was

In half of the cases the checksums are corrected, because otherwise they would hide all code behind them.
Messages of the other modes are drawn from their fields' types, every class of them.

Next: faces.py.
"""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgpack

from planstep.api.columns.codecs import decode_value
from planstep.errors import Corruption, FormatError, PlanstepError
from planstep.host.host import Host
from planstep.host.inputs import Arrived, Tick
from planstep.proto import batched_log, messages
from planstep.proto.batch import Batch, encode_batch
from planstep.proto.frame_checks import MalformedFrame
from planstep.proto.frames import OF_ATTACHED, OF_OWNER
from planstep.proto.ids import PARTITION, PROXY, SHARD, tablet_id
from planstep.proto.kafka.messages import CODES as KAFKA
from planstep.proto.keys import decode_key, encode_key
from planstep.proto.pulsar.messages import CODES as PULSAR
from planstep.proto.records_pb2 import LinkFrame, LogBatch, StoreMeta
from planstep.store.files import Files
from planstep.store.log.records import TURN, encode_record, later_records, read_record
from planstep.store.memory_store import MemoryStore
from planstep.store.meta import load_meta
from planstep.store.turn import decode_changes

from .mutating import mutate
from .odd_frames import decode_stream, odd_stream
from .odd_messages import drawn_message

_STORE = bytes(range(16))
_TX = (1).to_bytes(4, "big") + (7).to_bytes(8, "big")
Decoder = tuple[Callable[[Random], bytes], Callable[[bytes], Any], tuple[type[Exception], ...]]
"""(makes valid bytes, decodes them, the errors it may raise)."""


def _a_batch(random: Random) -> bytes:
    count = random.randrange(1, 6)
    values = [random.choice([None, b"", b"v" * n]) for n in range(count)]
    keys = random.choice([None, [b"k%d" % n for n in range(count)]])
    headers = random.choice([None, [{"h": b"1"}, *[None] * (count - 1)]])
    return encode_batch(values, keys, headers, 1_700_000_000_000)


def _batch(data: bytes) -> None:
    batch = Batch.decode(data)
    _ = batch.keys, batch.values, batch.headers


def with_checksum(data: bytes) -> bytes:
    """Corrects a batch's checksum and length to fit its bytes."""
    if len(data) < 36:
        return data
    head = bytearray(data[:28])
    head[:6] = b"PSB1\x01\x00"
    head[12:16] = struct.pack("<I", len(data) - 32)
    rest = data[32:]
    return bytes(head) + struct.pack("<I", zlib.crc32(rest, zlib.crc32(bytes(head)))) + rest


def _a_message(random: Random) -> bytes:
    partition, shard = tablet_id(PARTITION, 0, 1), tablet_id(SHARD, 0, 2)
    proxy = tablet_id(PROXY, 0, 1)
    part = messages.PartitionPart(ranges=(("c", 0, 3),), slices=((b"data", 1),))
    rows = messages.ShardPart(reads=((b"\x04\x81\x01", None),), writes=((b"\x02", 0, b"v"),))
    target, message = random.choice(
        [
            (partition, messages.Propose(_TX, proxy, part)),
            (shard, messages.Propose(_TX, proxy, rows)),
            (partition, messages.Withdraw(_TX)),
            (shard, messages.ReadSet(_TX, partition, None)),
            (shard, messages.Never(_TX)),
            (partition, messages.Stage(_TX, proxy, 0, ((b"x" * 20, 1),))),
            (shard, messages.Plan(1, 0, (messages.PlanEntry(0, _TX, proxy, (), (shard,), rows),))),
        ]
    )
    return messages.encode(target, message)


def _a_message_of(codes: dict[int, Any]) -> Callable[[Random], bytes]:
    def make(random: Random) -> bytes:
        kind = codes[random.choice(list(codes))]
        while True:
            try:
                return messages.encode(tablet_id(PARTITION, 0, 1), drawn_message(random, kind))
            except OverflowError:  # msgpack has no number beyond 64 bits
                continue

    return make


def _a_log_entry(random: Random) -> bytes:
    """Encodes records of a log, one alone or a batch of them."""
    records = [msgpack.packb((n, 0, n, ("x",) * n)) for n in range(random.randrange(1, 4))]
    whole: bytes = records[0]
    if len(records) > 1:
        framed: bytes = LogBatch(records=records).SerializeToString()
        whole = batched_log.MAGIC + batched_log.VERSION.to_bytes(2, "big") + framed
    return whole


def _a_key(random: Random) -> bytes:
    return encode_key(
        random.choice([None, True, 5, -300, 1.5, "text\0x", b"\0\xff", ("a", 1, (None, 2.0))])
    )


def _a_value(random: Random) -> bytes:
    data: bytes = msgpack.packb({"n": [1, None, 2.5, "x" * random.randrange(40)], "b": b"x"})
    return data


def _a_log(random: Random) -> bytes:
    out, crc = b"", 0
    for turn in range(1, random.randrange(2, 5)):
        changes = msgpack.packb([b"key%d" % turn, (turn, b"value")])
        buffers, _, crc = encode_record(
            TURN,
            _STORE,
            1,
            turn,
            0,
            turn - 1,
            position=len(out),
            previous=crc,
            changes=changes,
            payloads=[b"payload"],
        )
        out += b"".join(buffers)
    return out


def _log(data: bytes) -> None:
    record = read_record(data, 0, _STORE, 1, 0)
    while record is not None:
        decode_changes(record.changes)
        record = read_record(data, record.offset + record.size, _STORE, 1, record.crc)
    later_records(data, 0, _STORE, 1)


def _a_frame(random: Random) -> bytes:
    frame = LinkFrame(source=1, target=0, first=1, acknowledged=0)
    frame.messages.extend(_a_message(random) for _ in range(random.randrange(3)))
    frame.datagrams.extend(_a_message(random) for _ in range(random.randrange(2)))
    data: bytes = frame.SerializeToString()
    return data


DECODERS: dict[str, Decoder] = {
    "batch": (_a_batch, _batch, (Corruption,)),
    "batch with checksum": (_a_batch, lambda data: _batch(with_checksum(data)), (Corruption,)),
    "message": (_a_message, messages.decode, (ValueError,)),
    "message of kafka": (_a_message_of(KAFKA), messages.decode, (ValueError,)),
    "message of pulsar": (_a_message_of(PULSAR), messages.decode, (ValueError,)),
    "entry of a coordinator's log": (_a_log_entry, batched_log.decode_entry, (FormatError,)),
    "encoded key": (_a_key, decode_key, (ValueError,)),
    "value of msgpack": (_a_value, lambda data: decode_value("msgpack", data), (Corruption,)),
    "value of json": (lambda r: b'{"a":[1,null,"x"]}', lambda d: decode_value("json", d), (Corruption,)),
    "value of utf8": (lambda r: "é text".encode(), lambda d: decode_value("utf8", d), (Corruption,)),
    "log": (_a_log, _log, ()),
}  # fmt: skip


def decode_all(random: Random, name: str) -> str:
    """Feeds one mutated encoding to a decoder; returns what went wrong, or ""."""
    make, decode, allowed = DECODERS[name]
    data = mutate(random, make(random), make(random))
    return feed_decoder(name, decode, allowed, data)


def feed_decoder(
    name: str, decode: Callable[[bytes], Any], allowed: tuple[type[Exception], ...], data: bytes
) -> str:
    try:
        decode(data)
    except allowed as error:
        return "" if str(error) else f"{name}: {type(error).__name__} without a word"
    except BaseException as error:
        return f"{name}: {error!r:.150} for {data[:100]!r}"
    return ""


def stream(random: Random, which: str) -> str:
    """Feeds a damaged stream of frames between processes; returns what went wrong, or ""."""
    kinds = STREAMS[which]
    data = odd_stream(random, kinds)
    return feed_decoder(which, lambda data: decode_stream(data, kinds), (MalformedFrame,), data)


STREAMS = {"stream of attached": OF_ATTACHED, "stream of owner": OF_OWNER}
"""The kinds of frames by who sends them."""


def stored_meta(random: Random, folder: Path) -> str:
    """Loads a mutated meta.pb; returns what went wrong, or ""."""
    meta = StoreMeta(format=1, store_id=_STORE, mode="deterministic", hosts=2, host=1)
    data = mutate(random, meta.SerializeToString())
    (folder / "meta.pb").write_bytes(data)
    return feed_decoder("meta.pb", lambda _: load_meta(folder, Files()), (FormatError,), data)


def frame(random: Random) -> str:
    """Feeds a mutated frame to a host; returns what went wrong, or "".

    The host may ignore it, or stop with a typed error.
    """
    host = Host(0, MemoryStore(), 2)
    host.run([Tick()], 1)
    before = host.store.scan(b"", b"\xff" * 8)
    valid = _a_frame(random)
    damaged = bytearray(valid)
    # Damages protobuf's framing only; the decoder of messages is fed above.
    at = random.randrange(min(8, len(damaged)))
    damaged[at] ^= 1 << random.randrange(8)
    data = random.choice(
        [bytes(damaged), valid[: random.randrange(len(valid))], random.randbytes(30)]
    )
    parsed = LinkFrame()
    try:
        parsed.ParseFromString(data)
        ours = parsed.source == 1 and parsed.target == 0
    except Exception:
        ours = False
    why = feed_decoder(
        "frame", lambda _: host.run([Arrived(data)], 2), (PlanstepError,) if ours else (), data
    )
    if not why and not ours and host.store.scan(b"", b"\xff" * 8) != before:
        return f"frame: a frame that is not ours changed the host: {data!r}"
    return why
