"""Row `badinput`: feeds wrong input of every kind; nothing may crash, hang, grow, or raise an undocumented error.

    decoders     batches, messages, keys, values, log records, meta.pb, frames          bytes, mutated
    streams      frames between processes of a store, in both directions                bytes, values, mutated
    bombs        nesting and claimed lengths                                            into each decoder
    links        the owner of a store, live, over its socket; its limits; an attached engine with a false owner
    messages     a host of mode pulsar, its tablets with their rows                      odd values
    face         every public call, of each mode, one and two hosts                     odd arguments
    modes        stores opened as another mode's, or with its settings                  refused: WrongMode
    names        of topics, tables, consumers                                           made up
    commands     planstep's own, their arguments and files to import                    mutated

Each piece runs in a child: one that dies or hangs costs that piece, and is a violation. After each piece the
engine must still work, with its content unchanged. The controls decode claimed lengths without checking them, and
frames without checking their fields.

Next: ../disks/mutating.py.
"""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from string import ascii_letters, digits
from struct import Struct
from typing import Any, TypeAlias

import planstep
from planstep.proto.batch import Batch
from planstep.proto.keys import check_name

from ...compare.measure import rss_bytes
from ..disks import decoders, faces, link_feeds
from ..disks.contents import contents
from ..disks.forked import apart
from ..disks.mutating import bombs, odd_value
from ..disks.odd_messages import PulsarHost
from ..parallel import gather
from ..patching import exchange
from .registry import RowOptions, RowResult

INPUTS = 100_000
FRAMES = 100_000
"""Frames that are sent to the owner of a store."""
DECEIVED = 2_000
"""Engines that attach to a false owner."""
NAMES = 10_000
SLOW_SECONDS = 1.0
HANG_SECONDS = 40.0
"""Time limit of a whole piece; a single input that takes 20 s is a hang too."""
GROWTH_MIB = 64
_GROWN = "most_grown_MiB"
_MODES: tuple[Any, ...] = ("deterministic", "kafka", "pulsar")
_SETTINGS: dict[str, Any] = {"kafka": planstep.KafkaSettings, "pulsar": planstep.PulsarSettings}
_OFFSET = Struct("<I")
_PIECE, _PIECES = 500, {"links": 2_500, "limit": 1, "deceived": 50}
_LONGER = {"links": 4, "limit": 4, "deceived": 4}
"""How often the time limit of a piece that waits for other processes."""
_LOOK_EVERY = 4
"""One call in so many is checked for a refusal that changed something."""
_COMMANDS = (
    "topic read, topic write, topic create, topic trim, table get, table put, table scan, consumer list, "
    "consumer seek, tx explain, tx list, verify, export, stats, log dump, import"
)


@dataclass(frozen=True)
class _Task:
    group: str
    first: int
    count: int
    seed: int
    folder: Path
    planted: bool = False


def run(options: RowOptions) -> RowResult:
    total = options.of(INPUTS)
    shares = {
        **{f"decode {name}": total * 3 // 100 for name in decoders.DECODERS},
        "decode meta.pb": total * 2 // 100,
        "decode frame": total * 8 // 100,
        **{f"decode {name}": total * 4 // 100 for name in decoders.STREAMS},
        "names": max(NAMES * total // INPUTS, 1),
        "bombs": len(bombs()),
        "commands": max(20, total * 3 // 1000),
        "face of deterministic on 1": total * 16 // 100,
        "face of deterministic on 2": total * 6 // 100,
        "face of kafka on 1": total * 4 // 100,
        "face of kafka on 2": total * 2 // 100,
        "face of pulsar on 1": total * 4 // 100,
        "face of pulsar on 2": total * 2 // 100,
        "messages of pulsar": total * 4 // 100,
        "modes": len(_MODES) ** 2,
    }
    rest = total - sum(shares.values())
    shares["face of deterministic on 1"] += max(0, rest)
    frames = options.of(FRAMES)
    shares |= {
        "links of kafka": frames * 15 // 100,
        "links of pulsar": frames * 15 // 100,
        "links of deterministic": frames - 2 * (frames * 15 // 100),
        "deceived": options.of(DECEIVED),
        "limit": len(link_feeds.LIMITS),
    }
    return _run(options, shares, planted=False)


def control(options: RowOptions) -> RowResult:
    """Plants a decoder of batches that believes the lengths they claim, then an owner that believes all fields."""
    result = RowResult(seeds=(options.seed, options.seed))
    for group, words in (
        ("decode batch with checksum", ("IndexError", "MemoryError")),
        ("links of deterministic", ("a link stays",)),
    ):
        inputs = options.of(2_000, 500)
        one = _run(options, {group: inputs}, planted=True).planted(*words)
        if not one.violations:
            return one
        result.add(one)
    return result


def _run(options: RowOptions, shares: dict[str, int], planted: bool) -> RowResult:
    tasks = [
        _Task(
            group,
            first,
            min(_piece_of(group), count - first),
            options.seed,
            options.memory,
            planted,
        )
        for group, count in shares.items()
        for first in range(0, count, _piece_of(group))
    ]
    return gather(options, _piece, tasks)


def _piece_of(group: str) -> int:
    return _PIECES.get(group.partition(" ")[0], _PIECE)


def _piece(task: _Task) -> RowResult:
    seconds = HANG_SECONDS * _LONGER.get(task.group.partition(" ")[0], 1)
    ended = apart(_feed, task, seconds)
    result: RowResult = ended.value or RowResult()
    where = f"{task.group}, inputs {task.first} to {task.first + task.count}, seed {task.seed}"
    result.must(not ended.why, f"{where}: {ended.why}")
    grown = result.most.get(_GROWN, 0)
    result.must(grown < GROWTH_MIB, f"{where}: it grew by {grown} MiB")
    return result


def _feed(task: _Task) -> RowResult:
    """Feeds the inputs of one piece, in a child."""
    kind, _, which = task.group.partition(" ")
    if task.planted and kind == "decode":
        _plant_belief()
    feed = _FEEDERS[kind](task, which)
    wrong, slow = list[str](), 0
    for n in range(
        min(50, task.count) * (kind != "limit")
    ):  # loading and caching once is not growth
        feed(Random(f"warm {task.group} {n}"), n)
    before = rss_bytes()
    for n in range(task.first, task.first + task.count):
        began = time.monotonic()
        why = feed(Random(f"{task.group} {n} {task.seed}"), n)
        seconds = time.monotonic() - began
        slow += seconds > SLOW_SECONDS
        if why or seconds > 20:
            wrong.append(f"{why or 'it hung'} [{task.group} {n}, seed {task.seed}]")
    wrong += [why for why in [feed(Random(0), -1)] if why]
    return RowResult(
        task.count,
        faults=Counter({task.group: task.count}),
        violations=wrong[:50],
        figures={"slower_than_1_s": slow},
        most={_GROWN: max(0, rss_bytes() - before) >> 20},
    )


# groups: each returns a function of (random, number) that returns what is wrong; number -1: at the end ----

_Feed: TypeAlias = Callable[[Random, int], str]


def _decoder_feed(task: _Task, which: str) -> _Feed:
    if which == "meta.pb":
        folder = task.folder / f"{task.group}-{task.first}"
        folder.mkdir()
        return lambda random, n: decoders.stored_meta(random, folder)
    if which == "frame":
        return lambda random, n: decoders.frame(random)
    if which in decoders.STREAMS:
        return lambda random, n: decoders.stream(random, which)
    return lambda random, n: decoders.decode_all(random, which)


def _bomb_feed(task: _Task, which: str) -> _Feed:
    inputs = bombs()

    def feed(random: Random, n: int) -> str:
        name, data = inputs[n]
        wrong = [
            f"{name}: {why}"
            for decoder, (_, decode, allowed) in decoders.DECODERS.items()
            if (why := decoders.feed_decoder(decoder, decode, allowed, data))
        ]
        return "; ".join(wrong)

    return feed


def _name_feed(task: _Task, which: str) -> _Feed:
    letters = "abcXYZ019._-/\\ \0\n\u00e4\ud800~*:"

    def feed(random: Random, n: int) -> str:
        length = random.choice([0, 1, 2, 3, 8, 199, 200, 201, 5000])
        text = "".join(random.choices(letters, k=length))
        name: Any = random.choice(
            [text, text, text.strip("/\\ \0\n\u00e4\ud800~*:"), odd_value(random)]
        )
        return _named_wrongly(name)

    return feed


def _named_wrongly(name: Any) -> str:
    """Returns what is wrong with the check of a name, by the documented rule."""
    is_name = isinstance(name, str) and len(name) <= 200 and name not in ("", ".", "..")
    is_name = is_name and set(name) <= set(ascii_letters + digits + "._-")
    try:
        check_name(name)
    except planstep.InvalidName as error:
        if is_name:
            return f"{name!r:.80} is refused as a name"
        return "" if str(error) else "InvalidName without a word"
    except BaseException as error:
        return f"check_name of {type(name).__name__}: {error!r:.100}"
    return "" if is_name else f"{name!r:.80} is taken for a name"


def _face_feed(task: _Task, which: str) -> _Feed:
    _, mode, _, hosts = which.split()
    db = faces.open_sample(int(hosts), mode)
    calls = list(faces.targets(db))
    hooks = db.context.runtime.hooks
    looks = hooks.has_places  # without places an earlier transaction may still end meanwhile
    if looks:  # retention, if a call set it, would trim between two reads
        exchange(db.context.runtime.maintenance, "run", lambda now_ms=None: None)
    before = faces.unnamed_content(db)
    with suppress(planstep.MissingExtra):  # loading Arrow once is not growth
        db.topic(faces.KEPT).to_arrow()

    def feed(random: Random, n: int) -> str:
        if n < 0:
            now = faces.unnamed_content(db)
            return _still_works(db) if now == before else f"afterwards {now} in place of {before}"
        why = faces.misuse(random, db, *random.choice(calls), holds=looks and not n % _LOOK_EVERY)
        for topic in db.topics():
            if topic not in ("t", faces.KEPT):
                db.drop_topic(topic)
        if "t" not in db.topics():
            db.create_topic("t", partitions=2).write_batch([b"v"] * 4)
        for table in db.tables():
            if table not in ("rows", faces.KEPT):
                db.drop_table(table)
        if hooks.has_tables and "rows" not in db.tables():
            db.create_table("rows", shards=2).put("k", 1)
        return why

    return feed


def _still_works(db: planstep.Engine) -> str:
    try:
        contents(db)
        db.create_topic("still").write(b"works")
        values = db.topic("still").read().values
        db.close()
        return "" if values == [b"works"] else f"afterwards a write is read as {values}"
    except Exception as error:
        return f"afterwards the engine does not work: {error!r:.200}"


def _command_feed(task: _Task, which: str) -> _Feed:
    from typer.testing import CliRunner

    from planstep.cli.app import app

    store = task.folder / f"commands-{task.first}"
    with planstep.open(store) as db:
        db.create_topic("t", partitions=2, format="json").write_batch([1, 2, 3])
        db.create_table("rows").put("k", 1)
        before = contents(db)
    runner = CliRunner()
    heads = [head.split() for head in _COMMANDS.split(", ")]
    words = ["t", "rows", "-1", "9" * 20, "..", "", "\x00", "é", "--json", "--limit", "nan"]
    words += ["[", '{"', "@"]

    def feed(random: Random, n: int) -> str:
        if n < 0:
            with planstep.open(store, read_only=True) as db:
                now = contents(db)
            missing = [name for name in before if name not in now]
            return f"afterwards {missing} is gone" if missing else ""
        line = [*random.choice(heads), str(store)]
        line += [random.choice(words) for _ in range(random.randrange(4))]
        stdin = random.choice([None, b"\xff\xfe", b'{"a":' * 2_000, b"1\n2\n[", b"a,b\n\x00,1\n"])
        ended = runner.invoke(app, line, input=stdin)
        error = ended.exception
        refused = isinstance(error, faces.REFUSALS) and bool(str(error))  # a line, by cli/app.py
        if error is None or refused or isinstance(error, SystemExit):
            return ""
        return f"planstep {' '.join(map(repr, line[:2] + line[3:]))}: {error!r:.150}"

    return feed


def _message_feed(task: _Task, which: str) -> _Feed:
    host = PulsarHost()

    def feed(random: Random, n: int) -> str:
        return host.ends() if n < 0 else host.feed(random)

    return feed


def _mode_feed(task: _Task, which: str) -> _Feed:
    folder = task.folder / f"modes-{task.first}"
    for mode in _MODES:
        with planstep.open(folder / mode, mode=mode) as db:
            db.create_topic("t").write(b"v")

    def feed(random: Random, n: int) -> str:
        stored, asked = (_MODES[i] for i in divmod(n % len(_MODES) ** 2, len(_MODES)))
        settings = {asked: _SETTINGS[asked]()} if asked in _SETTINGS else {}
        given: list[dict[str, Any]] = [{"mode": asked}, settings, {"mode": asked, **settings}]
        for words in filter(None, given):
            try:
                with planstep.open(folder / stored, read_only=random.random() < 0.5, **words) as db:
                    if stored != asked or db.topic("t").read().values != [b"v"]:
                        return f"a store of mode {stored} opens with {words}"
            except planstep.WrongMode as error:
                if stored == asked or stored not in str(error):
                    return f"a store of mode {stored}, opened with {words}: {error}"
        return ""

    return feed


def _links_feed(task: _Task, which: str) -> _Feed:
    mode = which.rpartition(" ")[2]
    folder = task.folder / f"links-{mode}-{task.first}"
    return link_feeds.links(folder, mode, task.first, GROWTH_MIB, planted=task.planted)


_FEEDERS: dict[str, Callable[[_Task, str], _Feed]] = {
    "decode": _decoder_feed,
    "bombs": _bomb_feed,
    "names": _name_feed,
    "face": _face_feed,
    "links": _links_feed,
    "limit": lambda task, which: link_feeds.limits(task.folder / f"limit-{task.first}"),
    "deceived": lambda task, which: link_feeds.deceived(
        task.folder / f"deceived-{task.first}", task.seed
    ),
    "messages": _message_feed,
    "modes": _mode_feed,
    "commands": _command_feed,
}


# the control ---------------------------------------------------------------------------------


def _plant_belief() -> None:
    """Plants a decoder that cuts a batch's columns where the batch says, inside its bytes or not."""

    def part(self: Batch, column: int, lo: int, hi: int) -> list[bytes | None]:
        if not self.holds(column):
            return [None] * min(hi - lo, 10)
        at = 32
        ends = [_OFFSET.unpack_from(self.data, at + 4 * n)[0] for n in range(min(hi - lo, 10))]
        return [self.data[end] for end in ends]

    exchange(Batch, "part", part)
