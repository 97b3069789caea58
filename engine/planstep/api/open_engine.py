"""Opens engines, for `planstep.open`: checks settings, and keeps one engine per path and process.

    open(path) ─▶ slot of the real path ─▶ is an engine open? same settings ─▶ the same engine
                                        └─▶ open_runtime ─▶ a new one

A setting left None is that of the open engine, else the stored one, else the default. A forked child that opens its
parent's store attaches to it, as any other process.

Next: slots.py.
"""

import gc as collector
import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from ..errors import IoError, NotSupported, TooManyOpen, WrongMode, difference
from ..host.versions import BYTES_MAX, MS_MAX
from ..logs import not_shared, store_opened
from ..proto.kafka.settings import KafkaSettings
from ..proto.mode_settings import ModeSettings
from ..proto.pulsar.settings import PulsarSettings
from .arguments import brief, seconds, whole
from .shared_settings import of_plain, plain
from .slots import MEMORY, Slot, folder_of, in_use, slot_of

if TYPE_CHECKING:
    from ..runtime.runtime import Runtime
    from ..shared.settings import Replicate
    from .engine import Engine

Mode: TypeAlias = Literal["deterministic", "kafka", "pulsar"]
_RTT_MAX = 60
Durability: TypeAlias = Literal["full", "os"]
OF_MODES: dict[str, type[ModeSettings]] = {"kafka": KafkaSettings, "pulsar": PulsarSettings}
"""The parameters of `open` that are the settings of one mode, each named like its mode."""
_MODE_OF = {**{name: name for name in OF_MODES}, "protocol_version": "kafka"}
"""Each parameter that belongs to one mode only → that mode."""
ProtocolVersion: TypeAlias = Literal[1, 2]
Placement: TypeAlias = Literal["shared", "separate"]
Trace: TypeAlias = Literal["off", "summary", "messages"]
Gc: TypeAlias = Literal["freeze"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of an engine; another `open` of its path must agree in each setting that it gives.

    Invariant: they are valid by themselves; the runtime says whether they fit the store.
    """

    mode: Mode | None = None
    hosts: int | None = None
    read_only: bool = False
    durability: Durability = "full"
    placement: Placement = "shared"
    trace: Trace = "summary"
    rtt: float = 0.0
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    pulsar: PulsarSettings = field(default_factory=PulsarSettings)
    snapshot_seconds: float = MS_MAX / 1000
    snapshot_bytes: int = BYTES_MAX
    group_commit: bool = True
    replicate: "Replicate | None" = None
    follow: bool = False

    @property
    def snapshots(self) -> tuple[int, int]:
        """The bytes and milliseconds of overwritten versions that are kept."""
        return self.snapshot_bytes, max(1, round(1000 * self.snapshot_seconds))

    def check(self) -> None:
        _choice("mode", self.mode, (None, *get_args(Mode)))
        _choice("durability", self.durability, get_args(Durability))
        _choice("placement", self.placement, get_args(Placement))
        _choice("trace", self.trace, get_args(Trace))
        for name, kind in OF_MODES.items():
            settings = getattr(self, name)
            if not isinstance(settings, kind):
                raise TypeError(f"{name} is a planstep.{kind.__name__}, not {brief(settings)}")
            settings.check()
        if self.rtt > _RTT_MAX:
            raise ValueError(f"rtt is at most {_RTT_MAX} seconds, not {brief(self.rtt)}")
        if not seconds("snapshot_seconds", self.snapshot_seconds):
            raise ValueError("snapshot_seconds is more than 0 seconds")
        whole("snapshot_bytes", self.snapshot_bytes, 1)
        if not isinstance(self.group_commit, bool):
            raise TypeError(f"group_commit is True or False, not {brief(self.group_commit)}")
        hosts = self.hosts
        if hosts is not None and (
            isinstance(hosts, bool) or not isinstance(hosts, int) or not 1 <= hosts <= 255
        ):
            raise ValueError(f"hosts is 1 to 255, or None for as stored, not {brief(hosts)}")
        if self.durability == "os" and hosts is not None and hosts > 1:
            raise NotSupported(
                "durability='os' needs hosts=1: several hosts would lose different tails"
            )

    @property
    def of_modes(self) -> dict[str, ModeSettings]:
        """The settings of each mode; the store's mode may not be known yet."""
        return {name: getattr(self, name) for name in OF_MODES}

    @property
    def protocol_version(self) -> int:
        return self.kafka.protocol_version

    def agree(self, path: str, settings: dict[str, Any]) -> None:
        """Raises WrongMode for the first setting that a second open gives differently from this engine's."""
        for name, there in settings.items():
            here = getattr(self, name)
            if here != there:
                error = WrongMode(name, here, there)
                error.args = (
                    f"{path} is open in this process already with {difference(name, here, there)}; "
                    "close that engine first, or open with the same settings",
                )
                raise error


def _choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={brief(value)}: choose one of {', '.join(map(repr, choices))}")


def _replicate_of(given: "str | Replicate | None") -> "Replicate | None":
    if given is None:
        return None
    from ..shared.settings import Replicate

    return Replicate.of(given)


def _of_url(url: str, arguments: dict[str, Any]) -> "Replicate | None":
    if arguments["follow"] and arguments["replicate"] is None:
        return _replicate_of(url)
    raise ValueError(
        f"{url} is the URL of a shared log, and a store is a folder: open(FOLDER, replicate=URL), or "
        "open(URL, follow=True, read_only=True)"
    )


def _check_follow(settings: Settings, takeover: Any) -> None:
    if not isinstance(settings.follow, bool):
        raise TypeError(f"follow is True or False, not {brief(settings.follow)}")
    if settings.follow and not settings.read_only:
        raise ValueError("a follower only reads: give read_only=True, too")
    if settings.follow and settings.replicate is None:
        raise ValueError("follow=True needs the URL of the shared log: replicate=URL")
    if settings.follow and takeover:
        raise ValueError("a follower takes nothing over: planstep.follow(path, URL).lead() does")


def _check_takeover(takeover: Any, replicate: Any) -> None:
    if not isinstance(takeover, bool):
        raise TypeError(f"takeover is True or False, not {brief(takeover)}")
    if takeover and replicate is None:
        raise ValueError("takeover=True needs the URL of the shared log: replicate=URL")


def open(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool | None = None,
    wait: float = 0,
    mode: Mode | None = None,
    hosts: int | None = None,
    durability: Durability | None = None,
    placement: Placement | None = None,
    trace: Trace | None = None,
    switch_interval: float | None = 0.0005,
    rtt: float | None = None,
    protocol_version: ProtocolVersion | None = None,
    kafka: KafkaSettings | None = None,
    pulsar: PulsarSettings | None = None,
    snapshot_seconds: float | None = None,
    snapshot_bytes: int | None = None,
    group_commit: bool | None = None,
    replicate: "str | Replicate | None" = None,
    takeover: bool = False,
    follow: bool | None = None,
    share: bool = True,
    attach: bool = True,
    gc: Gc | None = None,
) -> "Engine":
    """Opens the store at `path`, a folder, or one in memory for ":memory:".

    The first process that opens a store owns it; those that open it later attach to that one. All have the same
    face: they read from the same files, and the owner runs their commits together with its own.

    create           make the store when there is none; False: a path without one is an error. With replicate it
                     says so of the shared log, and a folder is made where there is none
    read_only        reads a store that another process may own: each call, and each snapshot, shows what that has
                     released by then; writing raises NotSupported; None: False
    wait             seconds to wait for another process that owns the store alone; else StoreInUse
    mode             the commit protocol: "deterministic", "kafka" or "pulsar"; None: as stored, new: deterministic
    hosts            logs that the tablets are spread over, fixed at creation; None: as stored, new: 1
    durability       "full": a commit survives power loss; "os": it survives the process, needs hosts=1;
                     None: "full"
    placement        "shared": tablets of a host exchange messages within a turn; "separate": each stands
                     for a server of its own, and receives only durable messages; None: "shared"
    trace            what is kept of a transaction's way: "off" only how it ended, "summary" its
                     participants too, "messages" every message, for `planstep tx explain`; None: "summary"
    switch_interval  seconds, lowers sys.setswitchinterval to it so that a busy thread delays commits
                     less; None changes nothing; it is the process's, so a second open lowers it too
    rtt              seconds that a message and its answer take together, between client and tablets, and
                     between tablets that do not share a turn: to see the effect of a network; None: 0
    protocol_version of mode "kafka": 1, which Python clients speak, or 2 (KIP-890); None: as `kafka` says
    kafka            the other settings of mode "kafka", each with Kafka's default
    pulsar           the settings of mode "pulsar", each with Pulsar's default
    snapshot_seconds how long an overwritten version is kept for open snapshots and transactions; None: 60
    snapshot_bytes   of such versions, at most, on each host; None: 64 MiB. Reads that need more are SnapshotTooOld
    group_commit     commits that arrive during a sync share the next one; False: each turn takes one input, and
                     has a sync of its own, to see what grouping saves; None: True
    replicate        the URL of a shared log, as "file:///disk/shop" or "s3://bucket/shop", or a planstep.Replicate
                     with settings. The log gets each commit before the folder does, so that any machine can go on
                     from it. The store has one host, and a commit is as durable as the log keeps it, whatever
                     `durability` is. None: not replicated
    takeover         with replicate: takes the store over from a machine that did not close it, which can write no
                     more; False: OwnedElsewhere
    follow           with replicate and read_only=True: the folder follows the store, which another machine owns,
                     and shows each commit a moment later. Without replicate `path` is the URL, and the folder is a
                     temporary one. None: False
    share            other processes may attach to this one while it owns the store, and it may attach to another;
                     False: it owns the store alone, or StoreInUse
    attach           attaches to another process that owns the store; False: StoreInUse
    gc               "freeze": collects garbage once, then keeps all objects of the process out of later
                     collections, which stop every thread for some 4 ms instead of 11; None leaves the collector
                     alone. Garbage cycles among these objects stay for ever: open before you build your own data

    The same path opened again in this process gives the same engine, which closes with the last `close`.
    WrongMode where a setting that is given differs from that engine's, or belongs to another mode than the store's.
    None never differs, not even from read_only=True. Every ":memory:" is an engine of its own.
    """
    from ..runtime.open_runtime import open_runtime, switch_at_least_every
    from ..runtime.open_stores import OpenOptions, check_of_modes, let_go
    from .engine import Engine

    if protocol_version is not None and isinstance(kafka, ModeSettings):
        kafka = kafka.with_version(protocol_version)
    arguments: dict[str, Any] = {
        "mode": mode,
        "hosts": hosts,
        "read_only": read_only,
        "durability": durability,
        "placement": placement,
        "trace": trace,
        "rtt": None if rtt is None else seconds("rtt", rtt),
        "kafka": kafka,
        "pulsar": pulsar,
        "snapshot_seconds": snapshot_seconds,
        "snapshot_bytes": snapshot_bytes,
        "group_commit": group_commit,
        "replicate": _replicate_of(replicate),
        "follow": follow,
    }
    text = _path_text(path)
    url = is_url(text)
    if url:
        arguments["replicate"] = _of_url(text, arguments)
    chosen = {name: value for name, value in arguments.items() if value is not None}
    settings = Settings(**chosen)
    if protocol_version is not None:
        chosen["protocol_version"] = protocol_version
        if kafka is None:
            settings = replace(settings, kafka=settings.kafka.with_version(protocol_version))
    settings.check()
    of_modes = {name: _MODE_OF[name] for name in chosen if name in _MODE_OF}
    wait = seconds("wait", wait)
    if switch_interval is not None and not seconds("switch_interval", switch_interval):
        raise ValueError("switch_interval is more than 0 seconds, or None")
    _choice("gc", gc, (None, *get_args(Gc)))
    _choice("share", share, (True, False))
    _choice("attach", attach, (True, False))
    _check_takeover(takeover, replicate)
    _check_follow(settings, takeover)
    memory = text == MEMORY
    if memory and read_only:
        raise NotSupported("':memory:' is empty when it is opened: read_only makes no sense there")
    real = text if memory or url else os.path.realpath(text)
    slot = Slot() if memory or url else slot_of(real)
    with slot, ExitStack() as unless_opened:
        engine = slot.engine
        if engine is not None:
            _check_shares(slot, engine, real)
            check_of_modes(of_modes, engine.context.runtime.mode)
            engine.context.settings.agree(real, chosen)
            switch_at_least_every(switch_interval)
            engine.lifetime.opens += 1
            _freeze(gc)
            return engine
        began = time.monotonic()
        try:
            options = OpenOptions(
                create=create,
                read_only=settings.read_only,
                wait=wait,
                mode=mode,
                hosts=hosts,
                durability=settings.durability,
                placement=settings.placement,
                trace=settings.trace,
                rtt_ms=1000 * settings.rtt,
                settings=settings.of_modes,
                of_modes=of_modes,
                snapshots=settings.snapshots,
                group_commit=settings.group_commit,
                replicate=settings.replicate,
                takeover=takeover,
                follow=settings.follow,
                share=share,
                attach=plain(chosen) if share and attach and not settings.read_only else None,
                told=slot.told,
                store=slot.store if takeover else None,
            )
            where = _temporary(unless_opened) if url else text
            runtime = open_runtime(
                where, options, switch_interval=switch_interval, opened=slot.opened
            )
            engine = Engine(real, runtime, _settled(settings, runtime), slot)
            if share and not memory:
                _share(engine)
            folder = folder_of(real)
            store_opened(real, runtime, settings.read_only, time.monotonic() - began)
        except BaseException:  # no caller has it yet who could close it
            let_go(slot.opened)
            raise
        engine.lifetime.at_end = unless_opened.pop_all().close  # removes the temporary folder
        slot.engine, slot.folder = engine, folder
        slot.opened.clear()
        _freeze(gc)
        return engine


def _settled(settings: Settings, runtime: "Runtime") -> Settings:
    """Returns an open engine's settings: as stored, or as those of the process that owns the store."""
    settled: dict[str, Any] = {"mode": runtime.mode, "hosts": runtime.hosts}
    if runtime.link is not None:
        settled |= of_plain(runtime.link.said, OF_MODES)
    return replace(settings, **settled)


def _share(engine: "Engine") -> None:
    """Lets other processes attach to an engine that owns its store; it is open all the same where they cannot."""
    settings, runtime = engine.context.settings, engine.context.runtime
    if settings.read_only or runtime.link is not None:
        return
    try:
        runtime.share(plain({f.name: getattr(settings, f.name) for f in fields(settings)}))
    except TooManyOpen:
        raise  # others would wait for it, and be refused
    except IoError as error:  # a network's file system has no sockets
        not_shared(engine.path, error)


def _check_shares(slot: Slot, engine: "Engine", real: str) -> None:
    """StoreInUse for an engine of this path that another `open` cannot have, too."""
    if slot.folder != folder_of(real):
        raise in_use(
            f"{real} is not the folder any more that this process has open: it was moved, "
            "removed or replaced meanwhile; that engine goes on where the folder is by now: "
            "close it first"
        )
    if (reason := engine.context.runtime.turns.stopped) is not None:
        raise in_use(
            f"{real} is open in this process, and that engine has stopped ({reason}): close it, "
            "then open again"
        )


def _temporary(removing: ExitStack) -> str:
    folder = removing.enter_context(TemporaryDirectory(prefix="planstep-"))
    return os.path.join(folder, "store")


def _freeze(gc: Gc | None) -> None:
    if gc == "freeze":
        collector.collect()
        collector.freeze()


def is_url(path: str) -> bool:
    """Returns whether a path is the URL of a shared log."""
    scheme, colon, _ = path.partition(":/")
    if not colon:
        return False
    from ..shared.registry import OPENERS

    return scheme.lower() in OPENERS


def _path_text(path: Any) -> str:
    """Returns the path as text; ValueError for a value that names no folder."""
    try:
        text = os.fspath(path)
        if isinstance(text, str) and text and "\0" not in text:
            os.fsencode(text)
            return text
    except (TypeError, UnicodeEncodeError):
        pass
    raise ValueError(f"{brief(path)} is no path; use a folder's name, or ':memory:'")
